"""The process group of a launch: its store, its creation, and its verification."""

import json
import os
import platform
import socket
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import wraps
from typing import Any

from gpuready.cluster import Rendezvous
from gpuready.model.versions import major_minor
from gpuready.model.visible_text import escape_unprintable
from gpuready.rollcall import Attendance, Hello, RollcallFault, RollcallRefused, endpoint, hello
from gpuready.rollcall.hello import own_hostname
from gpuready.rollcall.rank_register import format_rank_ranges
from gpuready.runtime import group_proof, seeds
from gpuready.runtime.device import DEVICE_BACKENDS, backend_of_device
from gpuready.runtime.group_proof import PROOF_S, CollectiveStalled, GroupProof, has_store_keys
from gpuready.runtime.world import destroy_group

JOB_KEY = "gpuready/job"
CONNECT_TRY_S = 2.0
LISTEN_FD_ERROR = "does not support initialization with an listen fd"
"""What a build before torch 2.8 says: The libuv TCPStore backend does not support initialization with an listen fd."""


class GroupBroken(Exception):
    """The group could not be created or does not work."""

    def __init__(self, fault: RollcallFault) -> None:
        super().__init__(str(fault))
        self.fault = fault


def available_backends(torch: Any) -> dict[str, bool]:
    """Return which backends this torch was built with."""
    dist = torch.distributed
    backends = {}
    for name in ("gloo", "nccl", "xccl", "mpi", "ucc"):
        check = getattr(dist, f"is_{name}_available", None)
        if check is not None:
            backends[name] = bool(check())
    return backends


def rank_versions(torch: Any, device: str) -> dict[str, str]:
    """Return the versions that ranks must share, or whose differences are worth a note."""
    versions_found = {"torch": str(torch.__version__), "python": ".".join(platform.python_version_tuple()[:2])}
    versions_found["cuda"] = str(getattr(torch.version, "cuda", None) or getattr(torch.version, "hip", None) or "none")
    if device.startswith("cuda"):
        versions_found["nccl"] = _nccl_version(torch)
        versions_found["driver"] = _driver_version()
    return versions_found


def _nccl_version(torch: Any) -> str:
    try:
        return ".".join(map(str, torch.cuda.nccl.version()))
    except (AttributeError, RuntimeError, TypeError):
        return "none"


def _driver_version() -> str:
    try:
        with open("/sys/module/nvidia/version", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return "unknown"


def make_store_inquiry(torch: Any) -> Callable[[str, int], Mapping[str, object] | None]:
    """Return a function that asks a torch store whose job it serves; it returns None if there is no answer."""

    def ask_store(host: str, port: int) -> Mapping[str, object] | None:
        try:
            store = _connect_store(torch, host, port, 1.0)
            found = json.loads(store.get(JOB_KEY))
        except (RuntimeError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    return ask_store


def _connect_store(torch: Any, host: str, port: int, seconds: float) -> Any:
    return torch.distributed.TCPStore(host, port, None, False, _timedelta(seconds))


def _timedelta(count: float) -> Any:
    return timedelta(seconds=count)


def _open_store_on_socket(torch: Any, host: str, port: int, listener: socket.socket, options: dict[str, Any]) -> Any:
    """Open rank 0's store on a listening socket."""
    store_class, number = torch.distributed.TCPStore, listener.detach()
    options |= {"use_libuv": False} if ((2, 4) <= major_minor(str(torch.__version__)) < (2, 8)) else {}
    try:
        return store_class(host, port, None, True, master_listen_fd=number, **options)
    except TypeError:  # this torch cannot take over a socket: the port is free for a moment
        os.close(number)
        return store_class(host, port, None, True, **options)
    except RuntimeError as error:
        if LISTEN_FD_ERROR not in str(error):
            raise
        return store_class(host, port, None, True, master_listen_fd=number, **options | {"use_libuv": False})


def guard_process_group(dist: Any, make_refusal: Callable[[], Exception]) -> None:
    """Make ``init_process_group`` refuse a second group, while there is one, in our words instead of torch's."""
    init_process_group = dist.init_process_group

    @wraps(init_process_group)
    def init_once(*arguments: Any, **options: Any) -> Any:
        if dist.is_initialized():
            raise make_refusal()
        return init_process_group(*arguments, **options)

    dist.init_process_group = init_once


class JobGroup:
    """The default process group of this process."""

    def __init__(
        self, torch: Any, rendezvous: Rendezvous, environ: Mapping[str, str], window: float, timeout: float | None
    ) -> None:
        self.torch, self.rendezvous, self.environ = torch, rendezvous, environ
        self.window, self.timeout = window, timeout
        self.store: Any = None
        self.rank0_name, self.host = "rank 0", ""

    # -- the store ----------------------------------------------------------------------------------

    def connect_agent_store(self, mine: Hello) -> Any:
        """Return the store of torchrun's agent; Refused if it cannot be reached."""
        reached = endpoint.test_reachability(self.rendezvous.address, self.rendezvous.port, 3.0)
        if not reached.ok:
            where = f"{self.rendezvous.address}:{self.rendezvous.port}"
            message = f"{mine.rank_label} cannot reach torchrun's store at {where} ({reached.why}: {reached.detail})"
            raise RollcallRefused(
                (
                    RollcallFault(
                        "NET016",
                        message,
                        "look whether torchrun still runs on node 0, and open that port",
                        (mine.rank,),
                    ),
                )
            )
        made = _connect_store(self.torch, self.rendezvous.address, self.rendezvous.port, self.window)
        # The store outlives a restart of the ranks: a prefix per restart hides old keys.
        self.store = self.torch.distributed.PrefixStore(f"launch/{self.rendezvous.restart}", made)
        return self.store

    def _open_store(self, attendance: Attendance) -> Any:
        """Return the job's store: in-process for one rank, torchrun's, or on the socket of the roll-call."""
        if self.rendezvous.world_size == 1:
            return self.torch.distributed.HashStore()
        if self.store is not None:
            return self.store
        return (
            self._serve_store(attendance)
            if attendance.listener is not None
            else self._connect_rank0_store(attendance.address)
        )

    def _connect_rank0_store(self, address: str) -> Any:
        """Connect to rank 0's store. torch retries until its timeout, so short tries detect that rank 0 is gone."""
        end = time.monotonic() + self.window
        while True:
            try:
                store = _connect_store(self.torch, address, self.rendezvous.port, min(CONNECT_TRY_S, self.window))
                break
            except RuntimeError:
                if time.monotonic() > end or not endpoint.test_reachability(address, self.rendezvous.port, 1.0).ok:
                    raise
        store.set_timeout(_timedelta(self.window))
        return store

    def _serve_store(self, attendance: Attendance) -> Any:
        listener = attendance.listener
        assert listener is not None
        here = endpoint.listening_address(listener)
        here = here if endpoint.is_local_address(here) else self.rendezvous.address
        options = {"timeout": timedelta(seconds=self.window), "wait_for_workers": False}
        store = _open_store_on_socket(self.torch, here, self.rendezvous.port, listener, options)
        store.set(JOB_KEY, json.dumps(hello.describe_this_job(self.rendezvous, attendance.host_names[0])))
        return store

    # -- the group ----------------------------------------------------------------------------------

    def open_group(self, attendance: Attendance, backend: str, device: str) -> None:
        """Create the group, with the start window as its timeout; later collectives have their own."""
        self.rank0_name = attendance.first
        try:
            self.store = self._open_store(attendance)
            self._init_process_group(backend, device)
        except (RuntimeError, ValueError) as error:
            raise GroupBroken(self._failure_fault("the process group could not be made", error)) from None

    def _init_process_group(self, backend: str, device: str) -> None:
        dist = self.torch.distributed
        options: dict[str, Any] = {"rank": self.rendezvous.rank, "world_size": self.rendezvous.world_size}
        options["store"] = dist.PrefixStore(f"default_pg/{self.rendezvous.restart}", self.store)
        options["timeout"] = timedelta(seconds=max(self.window, 10.0))
        if backend_of_device(backend, device) in DEVICE_BACKENDS and ":" in device:
            options["device_id"] = self.torch.device(device)
        try:
            dist.init_process_group(backend, **options)
        except TypeError:  # before torch 2.3 a group accepted no device
            options.pop("device_id", None)
            dist.init_process_group(backend, **options)

    def restore_timeout(self) -> None:
        """Set the timeout of later collectives: the requested one, else torch's default for this backend."""
        c10d = self.torch.distributed.distributed_c10d
        usual = getattr(c10d, "default_pg_timeout", None) or _timedelta(1800)
        if "nccl" in str(self.torch.distributed.get_backend()):
            usual = getattr(c10d, "default_pg_nccl_timeout", None) or _timedelta(600)
        self._set_timeout(usual if self.timeout is None else _timedelta(self.timeout))

    def _set_timeout(self, limit: Any) -> None:
        change = getattr(self.torch.distributed.distributed_c10d, "_set_pg_timeout", None)
        if change is not None:
            change(limit)

    def share_seed(self, seed: int | None) -> int:
        """Return the job's seed; rank 0 draws one if none is set."""
        if seed is not None:
            return seed
        try:
            if self.rendezvous.rank == 0:
                self.store.set("gpuready/seed", str(seeds.draw_seed()))
            return int(self.store.get("gpuready/seed"))
        except RuntimeError as error:
            raise GroupBroken(self._failure_fault("the seed was not shared", error)) from None

    # -- the proof ----------------------------------------------------------------------------------

    def verify_group(self, backend: str, device: str) -> None:
        """Sum over all ranks on the real device and compare every bit with the expected result."""
        kinds = [device]
        if "," in backend and device != "cpu":
            kinds.append("cpu")
        # A group cannot be destroyed while it waits for a collective, so the collective has a timeout too.
        self._set_timeout(_timedelta(PROOF_S + 0.5))
        proof = GroupProof(self.torch, self.store, self.rendezvous.rank, self.rendezvous.world_size)
        try:
            self.store.set(f"gpuready/proof/{self.rendezvous.rank}", _process_name(self.environ))
            for kind in kinds:
                fault = proof.find_fault(kind if kind != "mps" else "cpu")
                if fault is not None:
                    raise GroupBroken(fault)
        except CollectiveStalled:
            raise GroupBroken(self._stalled_fault()) from None
        except RuntimeError as error:
            raise GroupBroken(self._failure_fault("the first collective failed", error)) from None

    def _stalled_fault(self) -> RollcallFault:
        size = self.rendezvous.world_size
        absent = [rank for rank in range(size) if not has_store_keys(self.store, [f"gpuready/proof/{rank}"])]
        if absent:
            return RollcallFault(
                "NET014",
                f"{'rank' if len(absent) == 1 else 'ranks'} {format_rank_ranges(absent)} did not come to the first collective",
                "look at their output",
                tuple(absent),
            )
        message = f"all {size} ranks came to the first collective, and it did not end within {group_proof.PROOF_S:g} s"
        return RollcallFault(
            "NET014", message, "look at the network between the hosts: NCCL_DEBUG=INFO shows the way it takes"
        )

    def _failure_fault(self, what: str, error: Exception) -> RollcallFault:
        """Describe the failure, naming rank 0 if its store is gone."""
        first = escape_unprintable((str(error).splitlines() or [type(error).__name__])[0])[:300]
        rank, rendezvous = self.rendezvous.rank, self.rendezvous
        if rank and rendezvous.port and not endpoint.test_reachability(rendezvous.address, rendezvous.port, 1.0).ok:
            return RollcallFault(
                "RUN019",
                f"{self.rank0_name} is gone: {what} on rank {rank} ({first})",
                "look at the last lines of rank 0's output",
                (0,),
            )
        return RollcallFault(
            "NET014", f"{what} on rank {rank} ({first})", "look at the output of the other ranks", (rank,)
        )

    def abandon_group(self) -> None:
        if self.torch.distributed.is_initialized():
            destroy_group(self.torch.distributed, failed=True)
        self.store = None


def _process_name(environ: Mapping[str, str]) -> str:
    return f"{own_hostname(environ)}:{os.getpid()}"
