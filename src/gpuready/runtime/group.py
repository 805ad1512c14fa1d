"""The process group of a launch: its store, its creation, and its verification."""

from __future__ import annotations

import time

from gpuready.rollcall import Fault, endpoint, whose
from gpuready.rollcall.register import spans

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from gpuready.cluster import Rendezvous
    from gpuready.rollcall import Attendance, Hello

JOB = "gpuready/job"
TRY_S = 2.0


class Broken(Exception):
    """The group could not be created or does not work."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(str(fault))
        self.fault = fault


def built_with(torch: Any) -> dict[str, bool]:
    """Return which backends this torch was built with."""
    dist = torch.distributed
    found = {}
    for name in ("gloo", "nccl", "xccl", "mpi", "ucc"):
        asked = getattr(dist, f"is_{name}_available", None)
        if asked is not None:
            found[name] = bool(asked())
    return found


def versions(torch: Any, device: str) -> dict[str, str]:
    """Return the versions that ranks must share, or whose differences are worth a note."""
    import platform

    found = {"torch": str(torch.__version__), "python": ".".join(platform.python_version_tuple()[:2])}
    found["cuda"] = str(getattr(torch.version, "cuda", None) or getattr(torch.version, "hip", None) or "none")
    if device.startswith("cuda"):
        found["nccl"] = _nccl(torch)
        found["driver"] = _driver()
    return found


def _nccl(torch: Any) -> str:
    try:
        return ".".join(map(str, torch.cuda.nccl.version()))
    except (AttributeError, RuntimeError, TypeError):
        return "none"


def _driver() -> str:
    try:
        with open("/sys/module/nvidia/version", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return "unknown"


def inquire(torch: Any) -> Callable[[str, int], Mapping[str, object] | None]:
    """Return a function that asks a torch store whose job it serves; it returns None if there is no answer."""

    def asked(host: str, port: int) -> Mapping[str, object] | None:
        import json

        try:
            store = _client(torch, host, port, 1.0)
            found = json.loads(store.get(JOB))
        except (RuntimeError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    return asked


def _client(torch: Any, host: str, port: int, seconds: float) -> Any:
    return torch.distributed.TCPStore(host, port, None, False, _seconds(seconds))


def _seconds(count: float) -> Any:
    from datetime import timedelta

    return timedelta(seconds=count)


class Group:
    """The default process group of this process."""

    def __init__(
        self,
        torch: Any,
        rendezvous: Rendezvous,
        environ: Mapping[str, str],
        window: float,
        timeout: float | None,
    ) -> None:
        self.torch, self.rendezvous, self.environ = torch, rendezvous, environ
        self.window, self.timeout = window, timeout
        self.store: Any = None
        self.first, self.host = "rank 0", ""

    # -- the store ----------------------------------------------------------------------------------

    def agent_store(self, mine: Hello) -> Any:
        """Return the store of torchrun's agent; Refused if it cannot be reached."""
        from gpuready.rollcall import Refused

        told = endpoint.reach(self.rendezvous.address, self.rendezvous.port, 3.0)
        if not told.ok:
            where = f"{self.rendezvous.address}:{self.rendezvous.port}"
            said = f"{mine.who} cannot reach torchrun's store at {where} ({told.why}: {told.told})"
            raise Refused(
                (
                    Fault(
                        "NET016",
                        said,
                        "look whether torchrun still runs on node 0, and open that port",
                        (mine.rank,),
                    ),
                )
            )
        made = _client(self.torch, self.rendezvous.address, self.rendezvous.port, self.window)
        # The store outlives a restart of the ranks: a prefix per restart hides old keys.
        self.store = self.torch.distributed.PrefixStore(f"launch/{self.rendezvous.restart}", made)
        return self.store

    def _store(self, attendance: Attendance) -> Any:
        """Return the job's store: in-process for one rank, torchrun's, or on the socket of the roll-call."""
        if self.rendezvous.world_size == 1:
            return self.torch.distributed.HashStore()
        if self.store is not None:
            return self.store
        return (
            self._served(attendance) if attendance.listener is not None else self._visited(attendance.address)
        )

    def _visited(self, address: str) -> Any:
        """Connect to rank 0's store. torch retries until its timeout, so short tries detect that rank 0 is gone."""
        end = time.monotonic() + self.window
        while True:
            try:
                found = _client(self.torch, address, self.rendezvous.port, min(TRY_S, self.window))
                break
            except RuntimeError:
                if time.monotonic() > end or not endpoint.reach(address, self.rendezvous.port, 1.0).ok:
                    raise
        found.set_timeout(_seconds(self.window))
        return found

    def _served(self, attendance: Attendance) -> Any:
        import json
        from datetime import timedelta

        listener = attendance.listener
        assert listener is not None
        here = "127.0.0.1" if endpoint.is_local("127.0.0.1") else self.rendezvous.address
        options = {"timeout": timedelta(seconds=self.window), "wait_for_workers": False}
        made = self.torch.distributed.TCPStore
        try:
            number = listener.detach()
            store = made(here, self.rendezvous.port, None, True, master_listen_fd=number, **options)
        except TypeError:  # this torch cannot take over a socket: the port is free for a moment
            import os

            os.close(number)
            store = made(here, self.rendezvous.port, None, True, **options)
        store.set(JOB, json.dumps(whose.this(self.rendezvous, attendance.hosts[0])))
        return store

    # -- the group ----------------------------------------------------------------------------------

    def open(self, attendance: Attendance, backend: str, device: str) -> None:
        """Create the group, with the start window as its timeout; later collectives have their own."""
        self.first = attendance.first
        try:
            self.store = self._store(attendance)
            self._initialised(backend, device)
        except (RuntimeError, ValueError) as wrong:
            raise Broken(self._why("the process group could not be made", wrong)) from None

    def _initialised(self, backend: str, device: str) -> None:
        from datetime import timedelta

        from gpuready.runtime.device import OWN_LIBRARY, of_device

        dist = self.torch.distributed
        options: dict[str, Any] = {"rank": self.rendezvous.rank, "world_size": self.rendezvous.world_size}
        options["store"] = dist.PrefixStore(f"default_pg/{self.rendezvous.restart}", self.store)
        options["timeout"] = timedelta(seconds=max(self.window, 10.0))
        if of_device(backend, device) in OWN_LIBRARY and ":" in device:
            options["device_id"] = self.torch.device(device)
        try:
            dist.init_process_group(backend, **options)
        except TypeError:  # before torch 2.3 a group accepted no device
            options.pop("device_id", None)
            dist.init_process_group(backend, **options)

    def relax(self) -> None:
        """Set the timeout of later collectives: the requested one, else torch's default for this backend."""
        c10d = self.torch.distributed.distributed_c10d
        usual = getattr(c10d, "default_pg_timeout", None) or _seconds(1800)
        if "nccl" in str(self.torch.distributed.get_backend()):
            usual = getattr(c10d, "default_pg_nccl_timeout", None) or _seconds(600)
        self._limit(usual if self.timeout is None else _seconds(self.timeout))

    def _limit(self, limit: Any) -> None:
        change = getattr(self.torch.distributed.distributed_c10d, "_set_pg_timeout", None)
        if change is not None:
            change(limit)

    def shared_seed(self, seed: int | None) -> int:
        """Return the job's seed; rank 0 draws one if none was given."""
        from gpuready.runtime import seeds

        if seed is not None:
            return seed
        try:
            if self.rendezvous.rank == 0:
                self.store.set("gpuready/seed", str(seeds.drawn()))
            return int(self.store.get("gpuready/seed"))
        except RuntimeError as wrong:
            raise Broken(self._why("the seed was not shared", wrong)) from None

    # -- the proof ----------------------------------------------------------------------------------

    def prove(self, backend: str, device: str) -> None:
        """Sum over all ranks on the real device and compare every bit with the expected result."""
        from gpuready.runtime.proof import PROOF_S, Proof, Stalled

        kinds = [device]
        if "," in backend and device != "cpu":
            kinds.append("cpu")
        # A group cannot be destroyed while it waits for a collective, so the collective has a timeout too.
        self._limit(_seconds(PROOF_S + 0.5))
        proof = Proof(self.torch, self.store, self.rendezvous.rank, self.rendezvous.world_size)
        try:
            self.store.set(f"gpuready/proof/{self.rendezvous.rank}", _who(self.environ))
            for kind in kinds:
                fault = proof.fault(kind if kind != "mps" else "cpu")
                if fault is not None:
                    raise Broken(fault)
        except Stalled:
            raise Broken(self._stalled()) from None
        except RuntimeError as wrong:
            raise Broken(self._why("the first collective failed", wrong)) from None

    def _stalled(self) -> Fault:
        from gpuready.runtime import proof

        size = self.rendezvous.world_size
        absent = [rank for rank in range(size) if not self.store.check([f"gpuready/proof/{rank}"])]
        if absent:
            return Fault(
                "NET014",
                f"{'rank' if len(absent) == 1 else 'ranks'} {spans(absent)} did not come to the first collective",
                "look at their output",
                tuple(absent),
            )
        said = f"all {size} ranks came to the first collective, and it did not end within {proof.PROOF_S:g} s"
        return Fault(
            "NET014", said, "look at the network between the hosts: NCCL_DEBUG=INFO shows the way it takes"
        )

    def _why(self, said: str, wrong: Exception) -> Fault:
        """Describe the failure, naming rank 0 if its store is gone."""
        first = endpoint.shown((str(wrong).splitlines() or [type(wrong).__name__])[0])[:300]
        rank, where = self.rendezvous.rank, self.rendezvous
        if rank and where.port and not endpoint.reach(where.address, where.port, 1.0).ok:
            return Fault(
                "RUN019",
                f"{self.first} is gone: {said} on rank {rank} ({first})",
                "look at the last lines of rank 0's output",
                (0,),
            )
        return Fault(
            "NET014", f"{said} on rank {rank} ({first})", "look at the output of the other ranks", (rank,)
        )

    def abandon(self) -> None:
        from gpuready.runtime.world import end

        if self.torch.distributed.is_initialized():
            end(self.torch.distributed, failed=True)
        self.store = None


def _who(environ: Mapping[str, str]) -> str:
    import os

    from gpuready.rollcall.hello import hostname

    return f"{hostname(environ)}:{os.getpid()}"
