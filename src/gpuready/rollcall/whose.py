"""Whose roll-call or store this is, for those who come to the wrong one."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuready.cluster import Rendezvous


def this(rendezvous: Rendezvous, host: str) -> dict[str, object]:
    """This job, as its rank 0 presents it."""
    import time

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


OF_A_RANK = (
    "RANK",
    "WORLD_SIZE",
    "MASTER_",
    "PMI",
    "SLURM_",
    "VISIBLE_DEVICES",
    "NODE",
    "TASK",
    "_FD",
    "SHLVL",
    "PWD",
)
"""Parts of the names of variables that differ from rank to rank, rightly or not."""


def family(environ: Mapping[str, str]) -> str:
    """The parent, the command line and the variables: ranks that one script started for one job share them all."""
    import sys
    import zlib

    kept = (f"{k}={v}" for k, v in sorted(environ.items()) if not any(part in k for part in OF_A_RANK))
    words = "\0".join([*sys.orig_argv, *kept]).encode("utf-8", "surrogateescape")
    return f"{os.getppid()}-{zlib.crc32(words):08x}"


def told(found: Mapping[str, object]) -> str:
    """One sentence of another job."""
    from gpuready.rollcall.endpoint import shown

    run = shown(found.get("run") or "") or "(without a name)"
    return (
        f"run {run[:80]} of {shown(found.get('world'))[:8]} ranks, whose rank 0 is pid {shown(found.get('pid'))[:10]} "
        f"of user {shown(found.get('user'))[:40]} on {shown(found.get('host'))[:80]}, there since {shown(found.get('at'))[:30]}"
    )
