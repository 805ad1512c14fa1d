"""Records every allocation and free on torch's meta device. Runs in the target environment."""

import re
import weakref

import torch
from convolutions import BATCH_NORM_OPS, CONVOLUTION_OPS, Convolution, lay_out_norm
from kernel_recorder import KernelRecorder
from kernel_scratch import KernelScratch
from known_values import HostMode
from mixed_types import refuse_mixed_types, refuse_overflow
from torch.utils._pytree import tree_leaves

ATEN = torch.ops.aten
IN_PLACE_OPS = (
    ATEN.add.Tensor, ATEN.scatter_add.default, ATEN.index_add.default, ATEN.index_put.default, ATEN.scatter.src, ATEN.scatter.value,
)  # fmt: skip
FULL_LOSSES = ("mse_loss", "smooth_l1_loss")
PRODUCTS = ("mm", "bmm", "addmm", "baddbmm", "_grouped_mm")
STEP_WORD = re.compile(r"^(fwd|bwd|ref|step|zero)\d+")


class AllocationRecorder(HostMode):
    """Records events: a number is an allocation, its complement frees the n-th one.

    Text ends a phase; ``=kind`` sets the kind of what follows, ``!`` marks a matrix product.
    """

    def __init__(self, kernels=None):
        super().__init__()
        self.scratch, self.kernels = KernelScratch(), kernels or KernelRecorder()
        self.events, self.numbers, self.by, self.names = [], {}, [], {}
        self.sum = None  # the last sum, and the position of its allocation
        self.backward, self.products = False, set()

    def add(self, tensor, name=""):
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if key in self.numbers or not size:
            return False
        self.sum = None
        self.numbers[key] = len(self.by)
        self.by.append(self.names.setdefault(name, len(self.names)))
        self.events.append(size)
        weakref.finalize(storage, self.drop, key)
        return True

    def drop(self, key):
        number = self.numbers.pop(key)
        if self.sum is None or self.sum[0] != key:
            self.events.append(~number)
            return
        # The first operand is freed at once: on a GPU, without this recorder, torch would have written into it.
        _, new, at = self.sum
        self.sum = None
        del self.events[at], self.by[-1]
        self.numbers[new] = number

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func._schema.name.partition("::")[2]
        if not func._overloadname.startswith("dtype"):  # mm(..., out_dtype=…) is meant to mix them
            refuse_mixed_types(name, args)
        refuse_overflow(name, args)
        live_buffers = self.add_scratch(self.scratch.sizes_before(name, args), name)
        out = func(*args, **(kwargs or {}))
        self.kernels.record(func, name, args, out)
        if name in CONVOLUTION_OPS:
            out = Convolution(name, args).lay_out(out)
        elif name in BATCH_NORM_OPS:
            out = lay_out_norm(args[0], out)
        elif name in FULL_LOSSES and out.dim() == 0:  # in a buffer as large as what it sums up, beside another
            live_buffers += self.add_scratch([args[0].numel() * out.element_size()], name)
            out = torch.empty(args[0].shape, dtype=out.dtype, device="meta").as_strided((), ())
        for place, leaf in enumerate(tree_leaves(out)):
            if not isinstance(leaf, torch.Tensor) or leaf.device.type != "meta":
                continue
            if self.add(leaf, name) and func in IN_PLACE_OPS:
                self.added(args[0], leaf)
            self.add_scratch(self.scratch.result_sizes(name, args, out, place), name)
        if sizes := self.scratch.sizes_after(name, args, out):
            live_buffers += self.add_scratch(sizes, name)
        del live_buffers
        if name in PRODUCTS and (name, self.backward) not in self.products:
            self.products.add((name, self.backward))
            self.events.append("!biased" if name == "addmm" else "!product")
        return out

    def add_scratch(self, sizes, name):
        """Allocate a kernel's own buffers, which live as long as the returned list."""
        made = [torch.empty(size, dtype=torch.uint8, device="meta") for size in sizes]
        for buffer in made:
            self.add(buffer, name)
        return made

    def added(self, old, new):
        if self.backward and not torch.is_grad_enabled() and isinstance(old, torch.Tensor) and old._base is None:
            keys = [one.untyped_storage() for one in (old, new)]
            if keys[0].nbytes() == keys[1].nbytes():
                self.sum = keys[0]._cdata, keys[1]._cdata, len(self.events) - 1

    def mark(self, *several):
        self.sum = None
        self.events.extend(several)
        self.kernels.end_phases(several)

    def repeat_step(self, start, births, steps):
        """Append the events since a place once more for each of these steps; return how far their numbers lie ahead."""
        events, by, offsets = self.events[start:], self.by[births:], []
        for step in steps:
            offsets.append(len(self.by) - births)
            for event in events:
                if isinstance(event, str):
                    self.events.append(STEP_WORD.sub(rf"\g<1>{step}", event))
                else:
                    self.events.append(event if event >= 0 or ~event < births else event - offsets[-1])
            self.by += by
        return offsets
