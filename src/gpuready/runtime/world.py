"""The world of a running job: which process this is, and how it comes to an end."""

from __future__ import annotations

from gpuready.model import Noun

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

BYE_S = 5.0
"""That rank 0, which keeps the store, waits for the others at a regular end."""


class World(Noun):
    """What ``gpuready.launch()`` returns: frozen, and a context manager that takes the group down."""

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
        """Take the process group down, once; after a failure without waiting for anybody."""
        if STANDING.world is self:
            STANDING.fall(failed)

    def check_finite(self, **values: Any) -> None:
        """FloatingPointError on every rank alike where a value of one is NaN or infinite; that rank is named.

        ``world.check_finite(loss=loss)``. It is a collective: all ranks call it, with the same names in the same order.
        """
        import torch

        bad = [not bool(torch.isfinite(torch.as_tensor(value)).all()) for value in values.values()]
        marks = torch.zeros(
            self.world_size * len(bad), dtype=torch.int32, device=self.device.replace("mps", "cpu")
        )
        for at, wrong in enumerate(bad):
            marks[self.rank * len(bad) + at] = int(wrong)
        if self.world_size > 1:
            torch.distributed.all_reduce(marks)
        found = [i for i, mark in enumerate(marks.tolist()) if mark]
        if found:
            raise FloatingPointError(self._not_finite(found, list(values)))

    def _not_finite(self, found: list[int], names: list[str]) -> str:
        rows: dict[str, list[int]] = {}
        for i in found:
            rows.setdefault(names[i % len(names)], []).append(i // len(names))
        told = [f"{name} of {' and '.join(map(self._named, ranks[:4]))}" for name, ranks in rows.items()]
        more = (
            ""
            if len({i // len(names) for i in found}) == self.world_size
            else "; on all other ranks it is finite"
        )
        return f"NaN or infinite: {', '.join(told)}{more} [RUN022]"

    def _named(self, rank: int) -> str:
        each = self.local_world_size
        even = len(self.hosts) * each == self.world_size
        return f"rank {rank} ({self.hosts[rank // each]})" if even else f"rank {rank}"

    def generator(self, name: str, per: str | Sequence[int] = "rank", device: str | None = None) -> Any:
        """A torch generator of this name: its own on each rank, or the same for all (``world``) or for a group.

        ``per`` may be the ranks of a parallel group: all of them then draw the same numbers.
        """
        from gpuready.runtime import seeds

        return seeds.generator(seeds.derive(self.seed, name, *self._share(per)), device or self.device)

    def stream(self, name: str, per: str | Sequence[int] = "rank") -> int:
        """The seed of a named stream, for libraries that have generators of their own."""
        from gpuready.runtime import seeds

        return seeds.derive(self.seed, name, *self._share(per))

    def _share(self, per: str | Sequence[int]) -> tuple[object, ...]:
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


class Standing:
    """The one world of this process, with what has to be taken down."""

    def __init__(self) -> None:
        self.world: World | None = None
        self.store: Any = None
        self.keeper = False  # this process serves the store
        self.once = False

    def rise(self, world: World, store: Any, keeper: bool) -> None:
        import atexit

        self.world, self.store, self.keeper, self.once = world, store, keeper, True
        atexit.register(self.at_exit)

    def at_exit(self) -> None:
        """A group that is still there when Python ends makes torch abort (exit code 134 after a good run)."""
        import sys

        if self.world is not None:
            self.fall(failed=getattr(sys, "last_value", None) is not None)

    def fall(self, failed: bool) -> None:
        world, store = self.world, self.store
        self.world = self.store = None
        if world is None:
            return
        import torch.distributed as dist

        if not failed and store is not None and world.world_size > 1:
            self._goodbye(store, world)
        if dist.is_initialized():
            end(dist, failed)

    def _goodbye(self, store: Any, world: World) -> None:
        """Each says that it is done; the one who serves the store is the last to leave."""
        import time

        try:
            store.set(f"gpuready/bye/{world.rank}", "1")
            keys = [f"gpuready/bye/{rank}" for rank in range(world.world_size)]
            until = time.monotonic() + (BYE_S if self.keeper else 0.0)
            while time.monotonic() < until and not store.check(keys):
                time.sleep(0.005)
        except RuntimeError:
            return  # the store is gone: whoever served it has left already


def end(dist: Any, failed: bool) -> None:
    """Destroy the group; after a failure abort it, as the others may never answer."""
    abort = getattr(dist.distributed_c10d, "_abort_process_group", None)
    try:
        if failed and abort is not None and "nccl" in str(dist.get_backend()):
            abort()
        else:
            dist.destroy_process_group()
    except (RuntimeError, ValueError, AssertionError):
        return  # there is nothing left that could be taken down


STANDING = Standing()
