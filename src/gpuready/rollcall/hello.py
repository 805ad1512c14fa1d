"""What a rank reports about itself: rank, place, versions, variables and code."""

from __future__ import annotations

import os
import sys
import time
import zlib
from collections.abc import Mapping

from gpuready.cluster import Rendezvous
from gpuready.model import validation
from gpuready.model.record import Record, field
from gpuready.model.visible_text import escape_unprintable
from gpuready.rollcall.endpoint import quote_peer

SHARED_PREFIXES = (
    "NCCL_", "TORCH_NCCL_", "GLOO_", "RCCL_", "HCCL_", "CCL_", "TORCH_DISTRIBUTED_", "CUDA_DEVICE_MAX_CONNECTIONS",
)  # fmt: skip
"""Variables for communication between ranks: if they differ, collectives hang or are slow."""

PER_NODE_SUFFIXES = ("_IFNAME", "_FILE", "_HCA", "_HOSTID", "_DEBUG", "_DEBUG_SUBSYS", "_RANK", "_IB_GID_INDEX", "_HCCL_IF_IP", "_CPU_AFFINITY", "_INFO_LEVEL")  # fmt: skip
"""Suffixes of those that may differ between nodes, or that only control logging."""

MAX_VALUE_LENGTH, MAX_ROWS = 200, 400
"""Most characters of a value, and rows of a table."""


class Hello(Record):
    """One rank, as it reports to the roll-call."""

    rank: int
    world_size: int
    local_rank: int | None = None
    host: str = ""
    pid: int = 0
    machine: str = ""  # tells apart hosts of one name, and joins names of one host
    run_id: str = ""
    device: str = "cpu"
    gpu: str = ""  # identity of the device, to find two ranks on one
    backend: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    code: Mapping[str, str] = field(default_factory=dict)
    clock: float = 0.0
    left: float = 60.0  # seconds that this rank will still wait
    data: tuple[str, int] = ("", 0)  # where this host accepts a trial connection; only its first rank
    resolved: tuple[str, ...] = ()  # what the address of rank 0 resolved to
    trouble: str = ""  # why this rank itself cannot start
    fix: str = ""
    trouble_code: str = ""
    family: str = ""  # what ranks of one start on one host have in common

    @property
    def rank_label(self) -> str:
        return f"rank {self.rank} ({quote_peer(self.host)}, pid {self.pid})"


def make_hello(rendezvous: Rendezvous, environ: Mapping[str, str], **more: object) -> Hello:
    """Build this process's Hello; ``more`` has what only torch knows (device, versions)."""
    fields: dict[str, object] = {
        "rank": rendezvous.rank,
        "world_size": rendezvous.world_size,
        "local_rank": rendezvous.local_rank,
        "host": own_hostname(environ),
        "pid": os.getpid(),
        "machine": machine_identity(),
        "run_id": rendezvous.run_id,
        "variables": shared_variables(environ),
        "clock": time.time(),
        "family": launch_family_id(environ),
    }
    return Hello(**{**fields, **more})  # type: ignore[arg-type]


def own_hostname(environ: Mapping[str, str]) -> str:
    return environ.get("GPUREADY_HOSTNAME") or os.uname().nodename


def machine_identity() -> str:
    """Identify the machine and its network: kernel boot id and network name space."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return f"{file.read().strip()[:18]}-{os.stat('/proc/self/ns/net').st_ino}"
    except OSError:
        return os.uname().nodename


def shared_variables(environ: Mapping[str, str]) -> dict[str, str]:
    names = (name for name in sorted(environ) if name.startswith(SHARED_PREFIXES))
    return {name: environ[name][:MAX_VALUE_LENGTH] for name in names if not name.endswith(PER_NODE_SUFFIXES)}


def parse_hello(data: object) -> Hello:
    """Parse an untrusted Hello; ValueError if a name is invalid."""
    hello = validation.parse_record(Hello, data)
    for name in ("rank", "world_size", "pid"):
        if not _is_count(getattr(hello, name)):
            raise ValueError(f"{name} is not a number")
    if hello.local_rank is not None and not _is_count(hello.local_rank):
        raise ValueError("local_rank is not a number")
    for name in ("versions", "variables", "code"):
        if len(getattr(hello, name)) > MAX_ROWS:
            raise ValueError(f"{name} has more than {MAX_ROWS} rows")
    if not (abs(hello.clock) < 1e12 and abs(hello.left) < 1e12):
        raise ValueError("clock is not a time")
    if len(hello.data) != 2 or not _is_count(hello.data[1]):
        raise ValueError("data is not an address")
    return hello


def _is_count(value: int) -> bool:
    return -1 <= value < 10**9


def describe_this_job(rendezvous: Rendezvous, host: str) -> dict[str, object]:
    return {
        "run": rendezvous.run_id,
        "world": rendezvous.world_size,
        "address": rendezvous.address,
        "port": rendezvous.port,
        "host": host,
        "pid": os.getpid(),
        "user": str(os.getuid()),
        "at": time.strftime("%Y-%m-%d %H:%M:%S"),
    }


PER_RANK_NAMES = (
    "RANK", "WORLD_SIZE", "MASTER_", "PMI", "SLURM_", "VISIBLE_DEVICES", "NODE", "TASK", "_FD", "SHLVL", "PWD",
)  # fmt: skip
"""Parts of the names of variables that may differ between ranks."""


def launch_family_id(environ: Mapping[str, str]) -> str:
    """Hash parent, command line and variables, which ranks started by one script for one job share."""
    shared_rows = (f"{k}={v}" for k, v in sorted(environ.items()) if not any(part in k for part in PER_RANK_NAMES))
    words = "\0".join([*sys.orig_argv, *shared_rows]).encode("utf-8", "surrogateescape")
    return f"{os.getppid()}-{zlib.crc32(words):08x}"


def format_job_identity(job: Mapping[str, object]) -> str:
    run = escape_unprintable(job.get("run") or "") or "(without a name)"
    return (
        f"run {run[:80]} of {escape_unprintable(job.get('world'))[:8]} ranks, whose rank 0 is pid {escape_unprintable(job.get('pid'))[:10]} "
        f"of user {escape_unprintable(job.get('user'))[:40]} on {escape_unprintable(job.get('host'))[:80]}, there since {escape_unprintable(job.get('at'))[:30]}"
    )
