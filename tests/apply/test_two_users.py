"""Two users, one folder of generations: what one may not write the other does not change, and what both may stays whole."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.render.planned import uv
from tests.running import SRC

ALICE, BOB, GROUP = 4242, 4244, 4243
BECOME = "import os\nos.umask({umask})\nos.setgroups([])\nos.setgid({group})\nos.setuid({user})\n"


def find_open_python() -> str:
    """A Python that every user can start; a test's own may lie in a home."""
    for path in dict.fromkeys((sys.executable, "/usr/bin/python3")):
        words = [path, "-I", "-c", "import sys; sys.exit(sys.version_info < (3, 10))"]
        try:
            if subprocess.run(words, user=BOB, group=GROUP, extra_groups=[], capture_output=True).returncode == 0:
                return path
        except OSError:
            continue
    return ""


def may_enter(path: Path) -> bool:
    return all(folder.stat().st_mode & stat.S_IXOTH for folder in (path, *path.parents))


pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become two users")


def become(user: int, group: int = GROUP, umask: int = 0o002) -> dict[str, object]:
    return {"before": BECOME.format(user=user, group=group, umask=umask)}


@pytest.fixture
def shared(bench, monkeypatch):
    """A bench that everybody may enter; each user has a cache and a folder for temporary files of his own."""
    python = find_open_python()
    if not python or not may_enter(SRC) or not may_enter(Path(uv())):
        pytest.skip(
            "NO PYTHON FOR OTHERS: another user may start neither this Python nor /usr/bin/python3, or not enter this folder"
        )
    monkeypatch.setattr(sys, "executable", python)
    monkeypatch.setattr(type(bench), "env", bench.env | {"PATH": f"{Path(uv()).parent}:/usr/bin:/bin"})
    bench.folder.chmod(0o755)
    for user in (ALICE, BOB):
        (bench.folder / str(user)).mkdir()
        os.chown(bench.folder / str(user), user, GROUP)
    return bench


def install(bench, user: int, version: str, *more: str, umask: int = 0o002, start: bool = False):
    own = str(bench.folder / str(user))
    env = dict.fromkeys(("TMPDIR", "HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"), own)
    env |= {"UV_CACHE_DIR": f"{own}/cache", "USER": f"user{user}", "LOGNAME": f"user{user}"}
    call = bench.start if start else bench.run
    return call(*bench.argv(version, "--yes", *more), env=env, **become(user, umask=umask))


def is_sentence(ran) -> bool:
    return ran.code == 2 and ran.err.count("\n") == 1 and "Traceback" not in ran.err + ran.out


def test_a_stranger_changes_nothing_in_an_environment_of_another(shared):
    assert shared.install("1.0").code == 0
    before = sorted((path, path.lstat().st_mtime_ns) for path in shared.home.rglob("*"))
    tried = install(shared, BOB, "2.0")
    assert is_sentence(tried) and "cannot be written" in tried.err, tried
    back = shared.run("install", "--rollback", "-e", str(shared.home), **become(BOB))
    assert back.code == 2 and back.err.count("\n") == 1 and "Traceback" not in back.err, back
    assert sorted((path, path.lstat().st_mtime_ns) for path in shared.home.rglob("*")) == before
    assert shared.version() == "1.0"
    verified = shared.run("install", "--verify", "-e", str(shared.home), **become(BOB))
    assert verified.code == 3 and "can't tell" in verified.out, "Bob's gpuready did not install it, and no file differs"


@pytest.fixture
def group_folder(shared):
    """The folder of a group, as administrators make it: setgid, and writable for the group."""
    shared.home.mkdir()
    os.chown(shared.home, ALICE, GROUP)
    shared.home.chmod(0o2775)
    return shared


@pytest.mark.parametrize("umask", [0o002, 0o077], ids=["wide", "narrow"])
def test_generations_have_one_owner_though_a_group_may_write_the_folder(group_folder, umask):
    """Who could add to them could run code as everybody who uses them: the other is told whose they are."""
    bench = group_folder
    assert install(bench, ALICE, "1.0", umask=umask).code == 0
    tried = install(bench, BOB, "2.0")
    assert is_sentence(tried) and f"it belongs to uid {ALICE}" in tried.err, tried
    back = bench.run("install", "--rollback", "-e", str(bench.home), **become(BOB))
    assert back.code == 2 and "Traceback" not in back.err + back.out
    assert install(bench, ALICE, "2.0", umask=umask).code == 0 and bench.version() == "2.0"
    bench.whole(code=3)


def test_two_users_at_the_same_time_leave_one_whole_environment(group_folder):
    """The folder is empty, and both begin: one of them owns it."""
    bench = group_folder
    started = {user: install(bench, user, version, start=True) for user, version in ((ALICE, "1.0"), (BOB, "2.0"))}
    codes = {}
    for user, process in started.items():
        out, err = process.communicate(timeout=120)
        codes[user] = process.returncode
        assert "Traceback" not in out + err
    assert sorted(codes.values()) == [0, 2], codes
    assert bench.version() == ("1.0" if codes[ALICE] == 0 else "2.0")
    bench.whole(code=3)
