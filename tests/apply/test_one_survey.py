"""``install``, ``install --verify``, ``check`` and ``fix`` say the same of the same files: fresh, damaged, and without a wanted library."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.apply.wheels import Bench, lock, wheel

START = "import ctypes, os\nVERSION = '8.0'\nctypes.CDLL(os.path.join(os.path.dirname(__file__), '_ext.so'))\n"


def compile_pair(folder: Path) -> dict[str, bytes]:
    """An extension and the library beside it that it wants."""
    folder.mkdir()
    (folder / "wanted.c").write_text("int wanted(void) { return 1; }\n")
    (folder / "ext.c").write_text("int wanted(void); int start(void) { return wanted(); }\n")
    library, extension = folder / "libwanted.so", folder / "_ext.so"
    shared = ["gcc", "-shared", "-fPIC"]
    subprocess.run([*shared, "-Wl,-soname,libwanted.so", "-o", library, folder / "wanted.c"], check=True)
    subprocess.run([*shared, "-o", extension, folder / "ext.c", f"-L{folder}", "-lwanted", "-Wl,-rpath,$ORIGIN/libs"], check=True)  # fmt: skip
    return {"alpha/libs/libwanted.so": library.read_bytes(), "alpha/_ext.so": extension.read_bytes()}


@pytest.fixture
def built(bench: Bench) -> Bench:
    files = {"alpha/__init__.py": START, "alpha/part.py": "X = 1\n" * 40} | compile_pair(bench.folder / "c")
    made = wheel(bench.wheels, "alpha", "8.0", files, tag="py3-none-linux_x86_64")
    bench.locks["8.0"] = lock(bench.folder / "8.0.lock", made)
    assert bench.install("8.0").code == 0
    return bench


def ask_all(bench: Bench) -> dict[str, str]:
    """What each command says, as JSON; install is the last, since it repairs."""
    python = ("--python", str(bench.home))
    asked = {
        "check": bench.run("check", "alpha", *python, "--json"),
        "verify": bench.run("install", "--verify", "-e", str(bench.home), "--json"),
        "fix": bench.run("fix", "alpha", *python, "--dry-run", "--json"),
        "install": bench.install("8.0", "--json"),
    }
    return {name: run.out for name, run in asked.items()}


def test_of_a_fresh_environment_nobody_says_anything(built: Bench) -> None:
    said = ask_all(built)
    assert json.loads(said["verify"])["verdict"] == "intact" and json.loads(said["install"])["verdict"] == "unchanged"
    for name, text in said.items():
        assert "PKG043" not in text and "PKG047" not in text and "PKG042" not in text, name


@pytest.mark.parametrize("name", ["alpha/part.py", "alpha/libs/libwanted.so"])
def test_what_is_gone_is_named_by_all(built: Bench, name: str) -> None:
    (built.site() / name).unlink()
    said = ask_all(built)
    for command, text in said.items():
        assert name in text, (command, text)
    assert json.loads(said["verify"])["verdict"] == "damaged" and json.loads(said["install"])["verdict"] == "installed"
    again = ask_all(built)
    assert json.loads(again["verify"])["verdict"] == "intact" and name not in again["check"] + again["fix"]
