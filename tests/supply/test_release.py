"""What is shipped: the same bytes twice, nothing besides the package, and no network."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.running import QUIET, SRC
from tests.supply.conftest import EPOCH, build_release

ROOT = Path(__file__).parents[2]
AUDIT = """
import os, sys
def hook(event, args):
    if event.startswith("socket.") and event not in ("socket.__new__", "socket.gethostname"):
        os.write(2, f"NETWORK {event} {args[1:]}\\n".encode())
    if event in ("exec", "compile") and args and "pickle" in str(args[0]): os.write(2, b"PICKLE\\n")
    if event == "pickle.find_class": os.write(2, f"UNPICKLED {args}\\n".encode())
sys.addaudithook(hook)
"""


def _audited(code: str, **environment: str) -> subprocess.CompletedProcess:
    env = {**QUIET, "PYTHONPATH": str(SRC), **environment}
    return subprocess.run([sys.executable, "-c", AUDIT + code], env=env, capture_output=True, text=True, timeout=120)


CONNECT = "import socket\ntry: socket.create_connection(('127.0.0.1', 9), 0.2)\nexcept OSError: pass"


@pytest.mark.parametrize("before", ["", "if os.fork(): os.wait(); os._exit(0)\n"], ids=["here", "in a fork"])
def test_the_hook_sees_a_connection(before):
    """A check looks in forks of itself: what they do is heard as well."""
    assert "NETWORK socket.connect" in _audited(before + CONNECT).stderr


@pytest.mark.parametrize(
    "code",
    [
        "import gpuready, gpuready.cli, gpuready.workflow, gpuready.commands.check, gpuready.model",
        "from gpuready.cli import main; main(['check', 'transformers', '--json'])",
        "from gpuready.cli import main; main(['check', 'transformers', '-v'])",
        "from gpuready.cli import main; main(['probe'])",
        "from gpuready.cli import main; main(['plan', 'transformers', '--on', 'h100x8', '--no-resolve'])",
    ],
)
def test_nothing_is_fetched_by_an_import_or_by_a_check(code):
    done = _audited(code)
    assert "NETWORK" not in done.stderr and "UNPICKLED" not in done.stderr, done.stderr
    assert "Traceback" not in done.stderr and done.returncode in (0, 1, 3)


def test_a_release_has_its_tables_and_nothing_besides(release):
    """The tables that the build made are those that stood here: made twice, they are the same."""
    assert len(release.hashes) == 2
    assert len(release.tables) > 40
    with zipfile.ZipFile(release.wheel) as wheel:
        tops = {name.partition("/")[0].partition("-")[0] for name in wheel.namelist()}
        assert tops == {"gpuready"} and not any({"..", "__pycache__"} & {*name.split("/")} for name in wheel.namelist())
        assert {name: wheel.read(name) for name in wheel.namelist() if name in release.tables} == release.tables
    with tarfile.open(release.sdist) as archive:
        names = {name.partition("/src/")[2] for name in archive.getnames()}
        compiler = f"{release.sdist.name.removesuffix('.tar.gz')}/tools/compile_catalog.py"
        assert release.tables.keys() <= names and compiler in archive.getnames()


def test_a_release_has_no_time_and_no_user_of_its_build(release):
    """What would make a second build another: the clock, the order of a folder, who built it."""
    with zipfile.ZipFile(release.wheel) as wheel:
        rows = wheel.infolist()
        assert len({row.date_time for row in rows}) == 1 and {row.external_attr >> 16 & 0o777 for row in rows} <= {
            0o644,
            0o755,
        }
        ours = [row.filename for row in rows if row.filename.startswith("gpuready/")]
    assert len(ours) == len(set(ours)) and _folders_in_order(ours)
    with tarfile.open(release.sdist) as archive:
        members = archive.getmembers()
        assert {(one.mtime, one.uid, one.gid, one.uname, one.gname) for one in members} == {(int(EPOCH), 0, 0, "", "")}


def _folders_in_order(names: list[str]) -> bool:
    """Whether the files of each folder are in order, whatever the order of the disk was."""
    inside: dict[str, list[str]] = {}
    for name in names:
        folder, _, file = name.rpartition("/")
        inside.setdefault(folder, []).append(file)
    return all(files == sorted(files) for files in inside.values())


@pytest.mark.faults
def test_a_release_built_twice_is_the_same(release, tmp_path):
    """Not in ``make test``: `make release-check` builds every release twice as well, and a build takes ten seconds."""
    assert release.hashes == build_release(release.sources, tmp_path / "b")


def test_requirements_have_no_upper_caps():
    import re

    text = (ROOT / "pyproject.toml").read_text()
    listed = text.partition("dependencies = [")[2].partition("\n]")[0]
    for requirement in re.findall(r'^  "([^"]+)"', listed, re.M):
        assert not re.search(r"[<~]|==", requirement.partition(";")[0]), requirement
