"""A real nvcc for the tests: the machine's own, else one from wheels, made once in .venv/toolkit and kept."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
HOME = ROOT / ".venv" / "toolkit"
WANTED = (
    "nvidia-cuda-nvcc==13.0.88",
    "nvidia-cuda-runtime==13.0.96",
    "nvidia-cuda-crt==13.0.88",
    "nvidia-nvvm==13.0.88",
)


@cache
def home() -> str:
    """CUDA_HOME of a toolkit of CUDA 13.0 with nvcc; skips, and says so, where none can be had."""
    for one in (os.environ.get("CUDA_HOME", ""), "/usr/local/cuda", "/usr/local/cuda-13.0", *_on_path()):
        if one and _is_13(f"{one}/bin/nvcc"):
            return one
    made = HOME / "nvidia" / "cu13"
    HOME.parent.mkdir(exist_ok=True)
    with open(HOME.parent / "toolkit.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _is_13(str(made / "bin" / "nvcc")):
            words = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(HOME), *WANTED]
            ran = subprocess.run(words, capture_output=True, text=True)
            if ran.returncode or not _is_13(str(made / "bin" / "nvcc")):
                pytest.skip(f"NO NVCC: nothing is cross-compiled ({ran.stderr.strip()[-300:]})")
    return str(made)


def _on_path() -> list[str]:
    found = shutil.which("nvcc")
    return [str(Path(found).parent.parent)] if found else []


def _is_13(nvcc: str) -> bool:
    if not os.access(nvcc, os.X_OK):
        return False
    result = subprocess.run([nvcc, "--version"], capture_output=True, text=True)
    return "release 13.0" in result.stdout
