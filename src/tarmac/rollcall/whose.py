"""Whose roll-call or store this is, for those who come to the wrong one."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from tarmac.cluster import Rendezvous


def this(rendezvous: Rendezvous, host: str) -> dict[str, object]:
    """This job, as its rank 0 presents it."""
    import time

    return {
        "run": rendezvous.run_id,
        "world": rendezvous.world_size,
        "host": host,
        "pid": os.getpid(),
        "user": str(os.getuid()),
        "at": time.strftime("%Y-%m-%d %H:%M:%S"),
        "family": family(),
    }


def family() -> str:
    """The parent and the command line: ranks that one script started have both in common."""
    import sys
    import zlib

    words = "\0".join(sys.orig_argv).encode("utf-8", "surrogateescape")
    return f"{os.getppid()}-{zlib.crc32(words):08x}"


def told(found: Mapping[str, object]) -> str:
    """One sentence of another job."""
    from tarmac.rollcall.endpoint import shown

    run = shown(found.get("run") or "") or "(without a name)"
    return (
        f"run {run[:80]} of {shown(found.get('world'))[:8]} ranks, whose rank 0 is pid {shown(found.get('pid'))[:10]} "
        f"of user {shown(found.get('user'))[:40]} on {shown(found.get('host'))[:80]}, there since {shown(found.get('at'))[:30]}"
    )
