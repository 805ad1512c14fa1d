"""Describe the job of a roll-call or store to ranks that reach the wrong one."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuready.cluster import Rendezvous


def this(rendezvous: Rendezvous, host: str) -> dict[str, object]:
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
"""Parts of the names of variables that may differ between ranks."""


def family(environ: Mapping[str, str]) -> str:
    """Hash parent, command line and variables, which ranks started by one script for one job share."""
    import sys
    import zlib

    kept = (f"{k}={v}" for k, v in sorted(environ.items()) if not any(part in k for part in OF_A_RANK))
    words = "\0".join([*sys.orig_argv, *kept]).encode("utf-8", "surrogateescape")
    return f"{os.getppid()}-{zlib.crc32(words):08x}"


def told(found: Mapping[str, object]) -> str:
    from gpuready.rollcall.endpoint import shown

    run = shown(found.get("run") or "") or "(without a name)"
    return (
        f"run {run[:80]} of {shown(found.get('world'))[:8]} ranks, whose rank 0 is pid {shown(found.get('pid'))[:10]} "
        f"of user {shown(found.get('user'))[:40]} on {shown(found.get('host'))[:80]}, there since {shown(found.get('at'))[:30]}"
    )
