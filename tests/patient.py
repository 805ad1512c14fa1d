"""A Python with a real torch for the tests that start real ranks: made once, in .venv/patient, and kept."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
HOME = ROOT / ".venv" / "patient"
WANTED = ("torch==2.13.0", "numpy")


@cache
def python() -> str:
    """The interpreter: the one that TARMAC_TEST_TORCH names, this one, or one made for the purpose."""
    for one in (os.environ.get("TARMAC_TEST_TORCH", ""), sys.executable, str(HOME / "bin" / "python")):
        if one and os.path.exists(one) and _has_torch(one):
            return one
    HOME.parent.mkdir(exist_ok=True)
    with open(HOME.parent / "patient.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        made = str(HOME / "bin" / "python")
        if not (os.path.exists(made) and _has_torch(made)):
            _make()
    return made


def _has_torch(interpreter: str) -> bool:
    code = "import importlib.util as u, sys; sys.exit(not (u.find_spec('torch') and u.find_spec('numpy')))"
    return subprocess.run([interpreter, "-c", code], capture_output=True).returncode == 0


def _make() -> None:
    """A CPU build is enough, and ten times smaller; the catalogue knows where it is."""
    sys.path[:0] = [str(ROOT / "src")]
    from tarmac.catalog import indexes

    subprocess.run([sys.executable, "-m", "venv", str(HOME)], check=True)
    words = [str(HOME / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    ran = subprocess.run([*words, *WANTED], capture_output=True, text=True)
    if ran.returncode:
        ran = subprocess.run(
            [*words, "--extra-index-url", indexes.url("cpu"), *WANTED], capture_output=True, text=True
        )
    if ran.returncode:
        pytest.skip(f"NO TORCH: no real rank is started ({ran.stderr.strip()[-300:]})")
