"""Describe the job of a roll-call or store to ranks that reach the wrong one."""

from __future__ import annotations

import os
import sys
import time
import zlib
from collections.abc import Mapping

from gpuready.cluster import Rendezvous
from gpuready.rollcall.endpoint import escape_text


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


def launch_family_id(environ: Mapping[str, str]) -> str:
    """Hash parent, command line and variables, which ranks started by one script for one job share."""
    shared_rows = (f"{k}={v}" for k, v in sorted(environ.items()) if not any(part in k for part in PER_RANK_NAMES))
    words = "\0".join([*sys.orig_argv, *shared_rows]).encode("utf-8", "surrogateescape")
    return f"{os.getppid()}-{zlib.crc32(words):08x}"


def format_job_identity(job: Mapping[str, object]) -> str:
    run = escape_text(job.get("run") or "") or "(without a name)"
    return (
        f"run {run[:80]} of {escape_text(job.get('world'))[:8]} ranks, whose rank 0 is pid {escape_text(job.get('pid'))[:10]} "
        f"of user {escape_text(job.get('user'))[:40]} on {escape_text(job.get('host'))[:80]}, there since {escape_text(job.get('at'))[:30]}"
    )
