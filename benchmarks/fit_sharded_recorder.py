"""The recorder of fit_sharded.py: the storages of one rank, without what is only gloo's or the host's."""

from __future__ import annotations

import time
import weakref
from typing import Any

import fit_tape_diff
import torch
import torch.distributed as dist

SETTLING = 0.02  # seconds in which gloo's thread lets go of what it has sent
PRODUCTS = (torch.ops.aten.mm.default, torch.ops.aten.bmm.default)


class Recorder(fit_tape_diff.Recorder):
    """Sees as well that FSDP2 shrinks the storage of gathered weights to nothing, and DTensor's local parts."""

    paused = False  # while the host computes
    silent = False  # while gloo copies for itself

    def __init__(self) -> None:
        super().__init__()
        self.elsewhere: set[int] = set()  # storages of the host

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Products in 16 bit are not computed: a CPU without such units takes minutes, and values do not matter here."""
        if func in PRODUCTS and args[0].dtype is torch.bfloat16:
            left, right = args
            args, func = ((*left.shape[:-1], right.shape[-1]),), torch.ops.aten.zeros.default
            kwargs = {"dtype": torch.bfloat16}
        return super().__torch_dispatch__(func, types, args, kwargs)

    def add(self, tensor: torch.Tensor) -> None:
        if self.silent:
            return
        if self.paused:
            self.host(local(tensor))
        elif local(tensor).untyped_storage()._cdata not in self.elsewhere:
            super().add(local(tensor))

    def host(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        if storage._cdata not in self.elsewhere:
            self.drop(storage._cdata)
            self.elsewhere.add(storage._cdata)
            weakref.finalize(storage, self.elsewhere.discard, storage._cdata)

    def leave_out(self, optimizer: Any) -> None:
        """Where the device is a CPU, what DeepSpeed keeps on the host lies beside the rest: it is taken out by its names."""
        kept = [*getattr(optimizer, "single_partition_of_fp32_groups", []), *getattr(optimizer, "fp32_partitioned_groups_flat", [])]  # fmt: skip
        kept += [t.grad for t in kept if t.grad is not None]
        kept += getattr(optimizer, "param_buffer_of_bit16_for_cpu_offload_groups", [])
        alone = ("temp_grad_buffer_for_cpu_offload", "grad_partitions_flat_buffer")
        kept += [t for t in (getattr(optimizer, name, None) for name in alone) if t is not None]
        for tensor in kept:
            self.host(tensor)
        self.peak = self.now
        inner = optimizer.optimizer
        step = inner.step

        def stepped(*requested: Any, **named: Any) -> Any:
            before, self.paused = self.paused, True
            try:
                return step(*requested, **named)
            finally:
                self.paused = before

        inner.step = stepped

    def ignore_transport(self) -> None:
        """gloo scatters a sum by way of a copy of all of it, which a thread of its own frees late; NCCL does not."""
        for name in ("reduce_scatter_tensor", "reduce_scatter_single"):  # torch 2.13 has both
            if hasattr(dist, name):
                setattr(dist, name, self._silently(getattr(dist, name)))
        reduce = dist.all_reduce

        def settled(*requested: Any, **named: Any) -> Any:
            done = reduce(*requested, **named)
            time.sleep(SETTLING)
            return done

        dist.all_reduce = settled

    def _silently(self, scatter: Any) -> Any:
        def silently(*requested: Any, **named: Any) -> Any:
            self.silent = True
            try:
                return scatter(*requested, **named)
            finally:
                self.silent = False

        return silently

    def watch_resizing(self) -> None:
        resize, mine = torch.UntypedStorage.resize_, self

        def watched(storage: Any, size: int) -> Any:
            done, key = resize(storage, size), storage._cdata
            if key not in mine.live and size:
                mine.live[key] = 0
            if key in mine.live:
                mine.now += size - mine.live[key]
                mine.births[size] += 1 if size else 0
                mine.live[key] = size
                mine.peak = max(mine.peak, mine.now)
            return done

        torch.UntypedStorage.resize_ = watched  # type: ignore[method-assign]


def local(tensor: Any) -> torch.Tensor:
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor
