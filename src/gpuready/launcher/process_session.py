"""The engine with all that it started: one session, which gets its signals together."""

from __future__ import annotations

import os
import signal
import subprocess
import time


def signal_session(process: subprocess.Popen[bytes], number: int) -> None:
    try:
        os.killpg(process.pid, number)
    except OSError:
        return


def end_session(process: subprocess.Popen[bytes], patience: float) -> None:
    """Kill the engine and its session. srun and mpirun need time to end what runs on other nodes."""
    if process.poll() is None:
        signal_session(process, signal.SIGTERM)
        deadline = time.monotonic() + patience
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
    signal_session(process, signal.SIGKILL)
    process.wait()
