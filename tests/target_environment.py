"""A Python with a real torch for the tests that start real ranks: an environment that gpuready itself installs, once, in .venv/transformers."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
HOME = ROOT / ".venv" / "transformers"
TORCH = "2.13.0+cpu"
WARM = "import numpy, torch.distributed, torch.utils.data, transformers; transformers.Trainer"


@cache
def python() -> str:
    """The interpreter: the one that GPUREADY_TEST_TORCH names, this one, or one made for the purpose."""
    made = str(HOME / "bin" / "python")
    for one in (os.environ.get("GPUREADY_TEST_TORCH", ""), sys.executable, made):
        if one and os.path.exists(one) and _has_torch(one):
            return one
    ran = install()
    if ran.returncode:
        pytest.skip(f"NO TORCH: no real rank is started ({ran.stderr.strip()[-300:]})")
    return made


def install() -> subprocess.CompletedProcess[str]:
    """The command that makes the patient, and finds it as it should be where it is there already."""
    words = ["install", "transformers", "--torch", TORCH, "-e", str(HOME), "--python", sys.executable, "--json"]
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    env["PYTHONPATH"] = str(ROOT / "src")
    HOME.parent.mkdir(exist_ok=True)
    with open(HOME.parent / "transformers.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        fresh = not HOME.exists()
        code = [sys.executable, "-c", "from gpuready.cli import main; main()", *words]
        ran = subprocess.run(code, env=env, capture_output=True, text=True, timeout=900)
        if fresh and not ran.returncode:
            _warm()
    return ran


def _warm() -> None:
    """Nothing that uv installs is compiled, and a proof leaves nothing behind: each would compile torch for itself."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    subprocess.run([HOME / "bin" / "python", "-c", WARM], env=env, check=True)


def _has_torch(interpreter: str) -> bool:
    code = "import importlib.util as u, sys; sys.exit(not (u.find_spec('torch') and u.find_spec('numpy')))"
    return subprocess.run([interpreter, "-c", code], capture_output=True).returncode == 0
