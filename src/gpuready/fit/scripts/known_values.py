"""Values on torch's meta device: small tensors that follow from constants and inputs are computed on the host as
well, so that a model that reads them (``mask.all()``, ``nonzero``, ``tolist``) runs. Runs in the target environment.
"""

import sys
import weakref

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

aten = torch.ops.aten
LIMIT = 1 << 24  # values of a tensor that is computed on the host
UNKNOWN = object()
NO_PLACE = "the model"
FACTORIES = {
    "arange", "zeros", "ones", "full", "linspace", "eye", "tril_indices", "triu_indices", "scalar_tensor", "zeros_like", "ones_like",
    "full_like", "new_zeros", "new_ones", "new_full", "lift_fresh", "lift_fresh_copy", "hann_window", "logspace",
}  # fmt: skip
LIKE_FACTORIES = {"zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full"}
RANKING_OPS = {"topk", "sort", "argsort", "argmax", "argmin", "max", "min", "multinomial", "kthvalue"}
GROUPED = "aten::_grouped_mm"
OUT_DTYPE_OPS = {"aten::addmm", "aten::baddbmm"}
"""Products plus a sum; where they are asked for another type, torch takes that type for a factor on the meta device."""
MASKED_INDEX_OPS = {"index", "index_put", "index_put_", "_index_put_impl_"}


def find_tensors(*several):
    """Return the tensors among arguments of an operation; torch's own walk through them takes longer than the operation."""
    found = []
    for one in several:
        if isinstance(one, torch.Tensor):
            found.append(one)
        elif isinstance(one, (list, tuple)):
            found += find_tensors(*one)
        elif isinstance(one, dict):
            found += find_tensors(*one.values())
    return found


def value_limit(dtype):
    """Return how many values of a tensor are kept where a whole script is watched: what decides sizes and branches is small or whole numbers."""
    return 1 << 16 if dtype.is_floating_point or dtype.is_complex else 1 << 22


class ShapesOfResults:
    """The shapes that operations gave for the same shapes before: torch's own rules for them are Python, and slow."""

    def __init__(self):
        self.made, self.fresh = {}, {}

    def run(self, func, args, kwargs):
        """Run an operation on the meta device, or make its result as it was for such inputs before."""
        if func._schema.name in OUT_DTYPE_OPS and len(args) > 3 and isinstance(args[3], torch.dtype):
            return torch.empty((*args[1].shape[:-1], args[2].shape[-1]), dtype=args[3], device="meta")
        if func._schema.name == GROUPED and args[0].dtype != torch.bfloat16:  # the meta device refuses what a GPU runs
            narrow = func(*(x.to(torch.bfloat16) for x in args[:2]), *args[2:], **kwargs)
            return torch.empty(narrow.shape, dtype=args[0].dtype, device="meta")
        if func not in self.fresh:
            self.fresh[func] = not any(a.alias_info for a in (*func._schema.arguments, *func._schema.returns))
        key = self.make_key(func, args, kwargs) if self.fresh[func] else None
        rows = self.made.get(key)
        if rows is None:
            out = func(*args, **kwargs)
            if key is not None:
                self.made[key] = self.describe(out, find_tensors(args, kwargs))
            return out
        if not rows:
            return func(*args, **kwargs)
        kind, sizes = rows
        found = [
            None if size is None else torch.empty_strided(*size[:2], dtype=size[2], device="meta") for size in sizes
        ]
        return found[0] if kind is None else kind(found)

    def make_key(self, func, args, kwargs):
        """Return what decides the shapes; None where something else might."""
        try:
            key = func, torch.get_default_dtype(), describe_argument(args), describe_argument(tuple(kwargs.items()))
            hash(key)
        except TypeError:
            return None
        return key

    def describe(self, out, inputs):
        """Return the kind of a result and its sizes; nothing where it is more than new tensors."""
        several = isinstance(out, (list, tuple))
        if several and type(out) not in (list, tuple):
            return ()
        known, sizes = {one.untyped_storage()._cdata for one in inputs}, []
        for one in out if several else (out,):
            if one is not None and not (type(one) is torch.Tensor and is_new(one, known)):
                return ()
            sizes.append(None if one is None else (one.shape, one.stride(), one.dtype))
        return type(out) if several else None, sizes


def is_new(tensor, known):
    """Whether a tensor is alone in a storage of just its size."""
    if tensor.device.type != "meta" or tensor.layout is not torch.strided or tensor.storage_offset():
        return False
    storage = tensor.untyped_storage()
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    needed = (last + 1) * tensor.element_size() if tensor.numel() else 0
    return storage._cdata not in known and storage.nbytes() == needed and not tensor.is_conj() and not tensor.is_neg()


def describe_argument(one):
    """Return what an argument tells of a result's shape; TypeError where that is not known."""
    if isinstance(one, torch.Tensor):
        if one.device.type != "meta" or one.layout is not torch.strided:
            raise TypeError
        return one.shape, one.stride(), one.dtype, one.is_conj()
    if isinstance(one, (list, tuple)):
        return tuple([describe_argument(each) for each in one])
    if isinstance(one, torch.Generator):
        raise TypeError
    return type(one), one


class Refusal(Exception):
    """Why a model is not traced, in one sentence."""


class NeedsValues(Refusal):
    """The model reads a value that only data and weights decide."""


class HostMode(TorchDispatchMode):
    """A mode that torch does not guard against its compiler at every operation: nothing is compiled here."""

    @classmethod
    def _should_skip_dynamo(cls):
        return False


class KnownValues(HostMode):
    """Keeps the values of a meta storage on the host, where they are known; views and in-place writes share them.

    Ranks of unknown values (top-k of a router) are spread evenly. ``decisions`` has the places where a condition on
    unknown values was taken as it is where nothing is wrong: all of them hold, none of them fails.
    """

    row_error = NeedsValues

    def __init__(self):
        super().__init__()
        self.values, self.written, self.decisions, self.spread = {}, {}, {}, False
        self.shapes = ShapesOfResults()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if not touches_meta(args, kwargs):  # of the host alone: it runs as it is, and once
            return func(*args, **kwargs)
        name = func._schema.name.partition("::")[2]
        if name == "embedding":
            self.check_rows(*args[:2])
        known = self.is_known(func, name, args, kwargs)
        if known and reads_host(name, kwargs):
            return self.compute(func, args, kwargs)
        if reads_host(name, kwargs):
            return self.decide(func, name, args)
        if name in MASKED_INDEX_OPS and not known:
            args = self.list_masked_indices(args)
        try:
            out = self.shapes.run(func, args, kwargs)
        except (RuntimeError, NotImplementedError) as error:  # the shape depends on values
            return self.shape_by_value(func, name, args, kwargs, known, error)
        if known and all(self.may_hold(x) for x in find_tensors(out)):
            found = self.compute(func, args, kwargs)
            if found is not UNKNOWN:
                self.keep_all(out, found)
                return out
        self.forget_written(func, args, kwargs)
        if name in RANKING_OPS and not known:
            self.spread_ranks(name, out, args)
        if name in ("all", "any", "_is_all_true", "_is_any_true") and isinstance(out, torch.Tensor) and not known:
            self.decisions[find_place()] = True
            self.keep(out, torch.full(out.shape, "all" in name, dtype=out.dtype))
        return out

    def may_hold(self, tensor):
        """Whether a tensor is small enough to be computed on the host."""
        return tensor.numel() <= LIMIT

    def is_known(self, func, name, args, kwargs):
        """Whether an operation's result follows from known values."""
        if torch.Tag.nondeterministic_seeded in func.tags:
            return False
        tensors = find_tensors(args, kwargs)
        if name in LIKE_FACTORIES:
            return True
        if not tensors:  # of integers that are written one by one, all are known in the end
            return name in FACTORIES or (name == "empty" and kwargs.get("dtype") in (torch.int64, torch.int32))
        return all(x.device.type == "cpu" or x.untyped_storage()._cdata in self.values for x in tensors)

    def check_rows(self, table, rows):
        """Refuse a row that a table does not have: on a GPU the step would die there."""
        if rows.device.type == "meta" and rows.untyped_storage()._cdata in self.values and rows.numel():
            last = int(self.value_of(rows).max())
            if last >= table.shape[0]:
                raise self.row_error(
                    f"{find_place()} takes row {last} of a table that has {table.shape[0]}: the batch is too long"
                )

    def value_of(self, tensor):
        """Return the host's copy of a tensor, as the same view of its storage."""
        if tensor.device.type != "meta":
            return tensor
        held = self.values.get(tensor.untyped_storage()._cdata)
        if held is None:  # of a factory: only shape and dtype count
            return torch.empty(tensor.shape, dtype=tensor.dtype)
        made = torch.empty(0, dtype=tensor.dtype)
        return made.set_(held, tensor.storage_offset(), tensor.shape, tensor.stride())

    def compute(self, func, args, kwargs):
        """Run an operation on the host; UNKNOWN where it cannot be run there."""
        to_host = lambda x: self.value_of(x) if isinstance(x, torch.Tensor) else x  # noqa: E731
        kwargs = dict(kwargs)
        if kwargs.get("device") is not None:
            kwargs["device"] = torch.device("cpu")
        try:
            return func(*tree_map(to_host, args), **tree_map(to_host, kwargs))
        except (RuntimeError, NotImplementedError, ValueError, TypeError, IndexError):
            return UNKNOWN

    def keep_all(self, made, found):
        for one, value in zip(tree_leaves(made), tree_leaves(found), strict=True):
            if isinstance(one, torch.Tensor) and one.device.type == "meta":
                self.keep(one, value)

    def keep(self, tensor, value):
        """Keep the value of a new tensor."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self.values or not storage.nbytes():
            return
        same = value.stride() == tensor.stride() and value.storage_offset() == tensor.storage_offset()
        held = value.untyped_storage()
        if not same or held.nbytes() != storage.nbytes() or value._base is not None:
            held = torch.empty(storage.nbytes(), dtype=torch.uint8).untyped_storage()
            view = torch.empty(0, dtype=tensor.dtype)
            view.set_(held, tensor.storage_offset(), tensor.shape, tensor.stride()).copy_(value)
        self.values[key] = held
        weakref.finalize(storage, self.values.pop, key, None)

    def forget_written(self, func, args, kwargs):
        """What an operation with an unknown input writes is unknown from here on."""
        if func not in self.written:
            rows = func._schema.arguments
            self.written[func] = [(n, a.name) for n, a in enumerate(rows) if a.alias_info and a.alias_info.is_write]
        for number, name in self.written[func]:
            one = args[number] if number < len(args) else kwargs.get(name)
            for tensor in find_tensors(one):
                if tensor.device.type == "meta":
                    self.values.pop(tensor.untyped_storage()._cdata, None)

    def decide(self, func, name, args):
        """A condition on unknown values is false; a number is refused."""
        if name in ("equal", "is_nonzero") or (name == "_local_scalar_dense" and args[0].dtype == torch.bool):
            self.decisions[find_place()] = True
            return False
        if name == "_to_copy" and args[0].is_floating_point():  # scores that the host only compares
            self.decisions[find_place()] = True
            return torch.zeros(args[0].shape, dtype=args[0].dtype)
        raise NeedsValues(f"{find_place()} reads a value that depends on the data")

    def list_masked_indices(self, args):
        """Replace boolean masks among the indices by positions, as torch does on a GPU."""
        indices = args[1] if len(args) > 1 and isinstance(args[1], (list, tuple)) else ()
        masks = [isinstance(x, torch.Tensor) and x.dtype in (torch.bool, torch.uint8) for x in indices]
        if not any(masks):
            return args
        made = []
        for one, is_mask in zip(indices, masks, strict=True):
            made += [self.send(x) for x in self.find_mask(one).nonzero(as_tuple=True)] if is_mask else [one]
        return (args[0], made, *args[2:])

    def find_mask(self, mask):
        if mask.device.type == "meta" and mask.untyped_storage()._cdata not in self.values:
            raise NeedsValues(f"{find_place()} selects by a mask that depends on the data")
        return self.value_of(mask)

    def send(self, value):
        """Return a tensor on the meta device with a known value."""
        made = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
        self.keep(made, value)
        return made

    def shape_by_value(self, func, name, args, kwargs, known, error):
        """The result of an operation whose shape depends on values."""
        if name == "masked_select" and not known:
            return aten.index.Tensor(args[0], self.list_masked_indices((args[0], [args[1]]))[1])
        found = self.compute(func, args, kwargs) if known else UNKNOWN
        if found is UNKNOWN:
            if "meta" in str(error).lower() or "data-dependent" in str(error).lower() or name in ("nonzero", "unique"):
                raise NeedsValues(f"{find_place()} ({name}): {first_line(error)}") from None
            raise error
        return tree_map(lambda x: self.send(x) if isinstance(x, torch.Tensor) else x, found)

    def spread_ranks(self, name, out, args):
        """Give the ranks of unknown values: one after the other, so that each place gets an equal share."""
        source = args[0]
        for one in tree_leaves(out):
            if not isinstance(one, torch.Tensor) or one.dtype != torch.int64 or one.numel() > LIMIT or not source.dim():
                continue
            dim = next((x for x in args[1:] if isinstance(x, int) and not isinstance(x, bool)), -1)
            dim = -1 if name in ("topk", "multinomial") or not -source.dim() <= dim < source.dim() else dim
            size = source.shape[dim]
            if one.shape == source.shape and one.dim():  # an order of all: as it is
                shape = [1] * source.dim()
                shape[dim] = size
                value = torch.arange(size).view(shape).expand(one.shape).contiguous()
            else:
                value = (torch.arange(one.numel()) % max(size, 1)).view(one.shape)
            self.spread = True
            self.keep(one, value)


def touches_meta(args, kwargs):
    """Whether an operation reads or makes a tensor of the meta device."""
    device = kwargs.get("device")
    if device is not None and torch.device(device).type == "meta":
        return True
    return any(x.device.type == "meta" for x in find_tensors(args, kwargs))


class KnownNumbers(TorchFunctionMode):
    """Lets numbers that a model puts on the meta device by ``torch.tensor`` keep their values."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        device = kwargs.get("device") if func in (torch.tensor, torch.as_tensor) else None
        if device is None or torch.device(device).type != "meta" or isinstance(args[0], torch.Tensor):
            return func(*args, **kwargs)
        return func(*args, **(kwargs | {"device": "cpu"})).to(device)


def format_number(before):
    """Return ``Tensor.__format__`` such that a single number of the meta device is written as a GPU's: by its value."""

    def write(tensor, spec):
        alone = tensor.dim() == 0 and tensor.device.type == "meta"
        return format(tensor.item(), spec) if alone else before(tensor, spec)

    return write


def reads_host(name, kwargs):
    """Whether an operation brings values to the host."""
    device = kwargs.get("device")
    return name in ("_local_scalar_dense", "equal", "is_nonzero") or (
        name == "_to_copy" and device is not None and torch.device(device).type == "cpu"
    )


def find_place():
    """Return the innermost line of a model's code, as file and line."""
    frame = sys._getframe(1)
    while frame is not None:
        path = frame.f_code.co_filename
        if "transformers" in path and "site-packages/torch" not in path:
            return f"{path.rpartition('/')[2]}:{frame.f_lineno}"
        frame = frame.f_back
    return NO_PLACE


def first_line(error):
    return str(error).strip().partition("\n")[0][:200]
