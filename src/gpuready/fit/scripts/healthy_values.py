"""Values that a script reads from its GPU: those that are known, else those of a healthy run. Runs in the target environment."""

import torch
from known_values import UNKNOWN, KnownValues, find_place, find_tensors, value_limit
from torch.utils._pytree import tree_map

HEALTHY_NUMBER = 1.0  # of a loss, a norm or a score that nobody computed
SCALE_OPS = ("_amp_foreach_non_finite_check_and_unscale_",)


class HealthyValues(KnownValues):
    """Never refuses: what is not known is assumed, and ``assumed`` has the line and the assumption."""

    row_error = IndexError  # a GPU's, which ends the script

    def __init__(self):
        super().__init__()
        self.assumed, self.larger = {}, {}

    def may_hold(self, tensor):
        return tensor.numel() <= value_limit(tensor.dtype)

    def holds(self, tensor):
        return tensor.device.type != "meta" or tensor.untyped_storage()._cdata in self.values

    def forget(self, tensor):
        self.values.pop(tensor.untyped_storage()._cdata, None)

    def read(self, tensor):
        """Return a real tensor: the known values, or healthy ones."""
        if tensor.device.type != "meta":
            return tensor
        return self.value_of(tensor) if self.holds(tensor) else self.invent(tensor)

    def invent(self, tensor):
        """Return healthy values for a tensor: ones, and no for a condition."""
        if tensor.dtype is torch.bool:
            self.assumed[find_place()] = "a condition on values that are not known was taken as no"
            return torch.zeros(tensor.shape, dtype=torch.bool)
        if not tensor.dtype.is_floating_point and not tensor.dtype.is_complex:
            self.assumed[find_place()] = "a whole number that is not known was taken as 1"
        return torch.full(tensor.shape, HEALTHY_NUMBER, dtype=tensor.dtype)

    def decide(self, func, name, args):
        """Bring unknown values to the host."""
        if name == "equal":
            self.assumed[find_place()] = "two tensors whose values are not known were taken as different"
            return False
        made = self.invent(args[0])
        return made if name == "_to_copy" else bool(made) if name == "is_nonzero" else made.item()

    def find_mask(self, mask):
        """Return the values of a mask; of one that is not known, all of them hold."""
        if self.holds(mask):
            return self.value_of(mask)
        self.larger[find_place()] = "selects by values that are not known: counted as if all were selected"
        return torch.ones(mask.shape, dtype=torch.bool)

    def shape_by_value(self, func, name, args, kwargs, known, error):
        if name == "masked_select" and not known:
            return torch.ops.aten.index.Tensor(args[0], self.list_masked_indices((args[0], [args[1]]))[1])
        if name == "nonzero" and not known:
            return self.send(self.find_mask(args[0]).nonzero())
        if not known and not ("meta" in str(error).lower() or "data-dependent" in str(error).lower()):
            raise error
        if not known:
            self.larger[find_place()] = (
                f"the size of what {name} returns is not known: counted as if every value were different"
            )
        values = args if known else tree_map(lambda x: self.distinct(x) if isinstance(x, torch.Tensor) else x, args)
        found = self.compute(func, values, kwargs)
        if found is UNKNOWN:
            raise error
        return tree_map(lambda x: self.send(x) if isinstance(x, torch.Tensor) else x, found)

    def distinct(self, tensor):
        return tensor if self.holds(tensor) else torch.arange(tensor.numel()).view(tensor.shape).to(tensor.dtype)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func._schema.name.partition("::")[2]
        if name in SCALE_OPS:  # nothing overflows in a healthy step
            return self.keep_scale(func, args, kwargs or {})
        if name == "copy_" and args[0].device.type == "cpu" and args[1].device.type == "meta":
            return func(args[0], self.read(args[1]).to(args[0].dtype))
        return super().__torch_dispatch__(func, types, args, kwargs)

    def keep_scale(self, func, args, kwargs):
        out = func(*args, **kwargs)
        for gradient in find_tensors(args[0]):
            self.forget(gradient)
        return out
