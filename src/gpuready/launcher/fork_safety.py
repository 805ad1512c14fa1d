"""Import torch once for all ranks, and see whether the process may then be forked. Standard library only, Python 3.8 and newer."""

from __future__ import annotations

import faulthandler
import os
import sys


def preload_torch() -> None:
    """Import torch once for all ranks. If that fails, each rank fails by itself and reports it."""
    faulthandler.enable()
    try:
        __import__("torch")
    except Exception:
        return


def why_fork_is_unsafe() -> str:
    """Return why this process must not be forked into ranks; empty if it may."""
    if len(os.listdir("/proc/self/task")) > 1:
        return "importing it starts threads here"
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return "importing it touches the GPU here"
    open_files = [
        os.readlink(f"/proc/self/fd/{fd}")
        for fd in os.listdir("/proc/self/fd")
        if os.path.islink(f"/proc/self/fd/{fd}")
    ]
    devices = [path for path in open_files if path.startswith(("/dev/nvidia", "/dev/kfd", "/dev/dri", "/dev/davinci"))]
    return f"importing it opens {devices[0]}" if devices else ""
