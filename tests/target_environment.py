"""A Python with a real torch for every test that needs one: an environment that gpuready itself installs, once, in .venv/torch.

It holds torch and numpy alone, by a contract of the tests: the smallest real install. ``make faults`` makes one with transformers as well.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
HOME = ROOT / ".venv" / "torch"
TRANSFORMERS = ROOT / ".venv" / "transformers"
TORCH = "2.13.0+cpu"
CONTRACT = Path(__file__).with_name("torch_contract.toml")


@cache
def python() -> str:
    """The interpreter: the one that GPUREADY_TEST_TORCH names, this one, or one made for the purpose."""
    made = str(HOME / "bin" / "python")
    for one in (os.environ.get("GPUREADY_TEST_TORCH", ""), sys.executable):
        if one and os.path.exists(one) and _has_torch(one):
            return one
    if os.path.exists(made) and _has_torch(made, TORCH):
        return made
    ran = install()
    if ran.returncode:
        pytest.skip(f"NO TORCH: no real rank is started ({ran.stderr.strip()[-300:]})")
    return made


def install() -> subprocess.CompletedProcess[str]:
    """Make the environment that all share; where it is there already, the command finds it unchanged."""
    return run_install("numpy", HOME, "--contract", str(CONTRACT))


def install_transformers() -> subprocess.CompletedProcess[str]:
    """Make the environment of a real framework, which takes three times as long."""
    return run_install("transformers", TRANSFORMERS)


def run_install(framework: str, home: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """Install into this folder, one process at a time. The import at the end of an install leaves torch compiled."""
    words = ["install", framework, *more, "--torch", TORCH, "-e", str(home), "--python", sys.executable, "--json"]
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    env["PYTHONPATH"] = str(ROOT / "src")
    home.parent.mkdir(exist_ok=True)
    with open(f"{home}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        code = [sys.executable, "-c", "from gpuready.cli import main; main()", *words]
        return subprocess.run(code, env=env, capture_output=True, text=True, timeout=900)


def _has_torch(interpreter: str, version: str = "") -> bool:
    """Whether a Python has torch and numpy; the environment made here also in the version that is pinned now."""
    code = "import importlib.util as u, sys; sys.exit(not (u.find_spec('torch') and u.find_spec('numpy')))"
    if version:
        code = f"import importlib.metadata as m, sys; m.version('numpy'); sys.exit(m.version('torch') != {version!r})"
    return subprocess.run([interpreter, "-c", code], capture_output=True).returncode == 0
