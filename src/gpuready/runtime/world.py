"""The identity of this process in a running job, and the shutdown of its process group."""

from __future__ import annotations

import atexit
import sys
import time
from collections.abc import Sequence
from typing import Any

from gpuready.model import Record
from gpuready.runtime import seeds
from gpuready.runtime.group_proof import has_store_keys

GOODBYE_S = 5.0
"""Seconds that rank 0, which serves the store, waits for the others at a regular end."""


class World(Record):
    """Returned by ``gpuready.launch()``: frozen, and a context manager that destroys the group."""

    rank: int = 0
    local_rank: int = 0
    world_size: int = 1
    local_world_size: int = 1
    node: int = 0
    hosts: tuple[str, ...] = ()  # one for each node
    device: str = "cpu"
    backend: str = "gloo"
    seed: int = 0
    launcher: str = "single"
    notes: tuple[str, ...] = ()

    def __enter__(self) -> World:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(failed=kind is not None)

    def close(self, failed: bool = False) -> None:
        """Destroy the process group, once; after a failure without waiting for other ranks."""
        if ACTIVE_WORLD.world is self:
            ACTIVE_WORLD.tear_down(failed)

    def check_finite(self, **values: Any) -> None:
        """Raise FloatingPointError on every rank if a value of one is NaN or infinite; that rank is named.

        ``world.check_finite(loss=loss)``. A collective: all ranks call it, with the same names in the same order.
        """
        import torch

        bad = [not bool(torch.isfinite(torch.as_tensor(value)).all()) for value in values.values()]
        marks = torch.zeros(self.world_size * len(bad), dtype=torch.int32, device=self.device.replace("mps", "cpu"))
        for at, wrong in enumerate(bad):
            marks[self.rank * len(bad) + at] = int(wrong)
        if self.world_size > 1:
            torch.distributed.all_reduce(marks)
        bad_places = [i for i, mark in enumerate(marks.tolist()) if mark]
        if bad_places:
            raise FloatingPointError(self._describe_not_finite(bad_places, list(values)))

    def _describe_not_finite(self, bad_places: list[int], names: list[str]) -> str:
        rows: dict[str, list[int]] = {}
        for i in bad_places:
            rows.setdefault(names[i % len(names)], []).append(i // len(names))
        texts = [f"{name} of {' and '.join(map(self._rank_name, ranks[:4]))}" for name, ranks in rows.items()]
        more = (
            "" if len({i // len(names) for i in bad_places}) == self.world_size else "; on all other ranks it is finite"
        )
        return f"NaN or infinite: {', '.join(texts)}{more} [RUN022]"

    def _rank_name(self, rank: int) -> str:
        each = self.local_world_size
        even = len(self.hosts) * each == self.world_size
        return f"rank {rank} ({self.hosts[rank // each]})" if even else f"rank {rank}"

    def generator(self, name: str, per: str | Sequence[int] = "rank", device: str | None = None) -> Any:
        """Return a torch generator of this name: one per rank, or shared by all (``world``) or a group.

        ``per`` may be the ranks of a parallel group: all of them then draw the same numbers.
        """
        return seeds.make_generator(self.stream(name, per), device or self.device)

    def stream(self, name: str, per: str | Sequence[int] = "rank") -> int:
        """Return the seed of a named stream, for libraries that have their own generators."""
        return seeds.derive_seed(self.seed, name, *self._stream_parts(per))

    def _stream_parts(self, per: str | Sequence[int]) -> tuple[object, ...]:
        if per == "world":
            return ()
        if per == "rank":
            return ("rank", self.rank)
        if per == "node":
            return ("node", self.node)
        if isinstance(per, str):
            raise ValueError(f"a stream is per rank, node or world, or of a list of ranks, not {per!r}")
        if self.rank not in per:
            raise ValueError(f"rank {self.rank} is not in the group {tuple(per)}")
        return ("group", *sorted(per))


class ActiveWorld:
    """The one World of this process, with what must be shut down."""

    def __init__(self) -> None:
        self.world: World | None = None
        self.store: Any = None
        self.serves_store = False  # True if this process serves the store
        self.launched = False

    def register_world(self, world: World, store: Any, keeper: bool) -> None:
        self.world, self.store, self.serves_store, self.launched = world, store, keeper, True
        atexit.register(self.at_exit)

    def at_exit(self) -> None:
        """Destroy the group before Python ends: torch would abort (exit code 134 after a good run)."""
        if self.world is not None:
            self.tear_down(failed=getattr(sys, "last_value", None) is not None)

    def tear_down(self, failed: bool) -> None:
        world, store = self.world, self.store
        self.world = self.store = None
        if world is None:
            return
        import torch.distributed as dist

        if not failed and store is not None and world.world_size > 1:
            self._say_goodbye(store, world)
        if dist.is_initialized():
            destroy_group(dist, failed)

    def _say_goodbye(self, store: Any, world: World) -> None:
        """Report that this rank is done; the rank that serves the store leaves last."""
        try:
            store.set(f"gpuready/bye/{world.rank}", "1")
            keys = [f"gpuready/bye/{rank}" for rank in range(world.world_size)]
            until = time.monotonic() + (GOODBYE_S if self.serves_store else 0.0)
            while time.monotonic() < until and not has_store_keys(store, keys):
                time.sleep(0.005)
        except RuntimeError:
            return  # the process that served the store has left already


def destroy_group(dist: Any, failed: bool) -> None:
    """Destroy the group; after a failure abort it, as other ranks may never answer."""
    abort = getattr(dist.distributed_c10d, "_abort_process_group", None)
    try:
        if failed and abort is not None and "nccl" in str(dist.get_backend()):
            abort()
        else:
            dist.destroy_process_group()
    except (RuntimeError, ValueError, AssertionError):
        return  # nothing is left to destroy


ACTIVE_WORLD = ActiveWorld()
