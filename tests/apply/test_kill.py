"""Killed at any moment: the old environment or the new one, never half; and the next run heals."""

from __future__ import annotations

import json
import random
import time

import pytest

from tests.apply.test_install import instead
from tests.sampling import FUZZ

ERRORS = ((28, "ENOSPC"), (5, "EIO"), (122, "EDQUOT"), (30, "EROFS"))
COUNTED = """
import os, signal, time
_left = [{at}]
_log = {log!r}
def _counted(name, real):
    def call(*args, **more):
        _left[0] -= 1
        if _left[0] == 0 and not {after}: os.kill(os.getpid(), 9)
        done = real(*args, **more)
        if _log:
            with open(_log, "a") as file: file.write(name + "\\n")
        if _left[0] == 0: os.kill(os.getpid(), 9)
        return done
    return call
for _name in ("mkdir", "rename", "symlink", "fsync", "unlink", "link", "rmdir"):
    setattr(os, _name, _counted(_name, getattr(os, _name)))
"""
"""Every call of ours that changes the disk is counted, and one of them is the last."""


def test_f01_random_kills(standing):
    """At three moments; at 40 with FUZZ=1."""
    began = time.monotonic()
    standing.install("2.0")
    usual = time.monotonic() - began
    choose = random.Random(7)
    stands, seen = "2.0", set()
    for _ in range(40 if FUZZ else 3):
        wanted = "1.0" if stands == "2.0" else "2.0"
        # Keep one: each turn is a build from the start, not a switch to what is still there.
        process = standing.start(*standing.argv(wanted, "--keep", "1"))
        time.sleep(choose.uniform(0.05, usual))
        process.kill()
        process.communicate()
        now = standing.version()
        assert now in (stands, wanted)
        seen.add(now == wanted)
        stands = now
    wanted = "1.0" if stands == "2.0" else "2.0"  # the same again would change nothing, and clear nothing away
    assert standing.install(wanted, "--keep", "1").code == 0 and standing.version() == wanted
    standing.whole()
    assert len(list((standing.home / "installs").iterdir())) == 1, "the next run healed it"


def test_f02_killed_at_every_call_that_changes_the_disk(standing, tmp_path):
    """At five of them, the last ones among them; at all with FUZZ=1."""
    log = tmp_path / "calls"
    ran = standing.run(*standing.argv("2.0", "--keep", "1"), before=COUNTED.format(at=10**9, after=False, log=str(log)))
    assert ran.code == 0 and standing.version() == "2.0"
    calls = log.read_text().split()
    assert len(calls) > 30 and {"rename", "symlink", "fsync", "unlink"} <= set(calls)
    stands = "2.0"
    points = range(1, len(calls) + 1) if FUZZ else random.Random(11).sample(range(1, len(calls) + 1), 2)
    points = sorted({*points, *(len(calls) - n for n in (3, 8, 14))})  # the last ones publish and clean up
    for at in points:
        wanted = "1.0" if stands == "2.0" else "2.0"
        standing.run(*standing.argv(wanted, "--keep", "1"), before=COUNTED.format(at=at, after=at % 2, log=""))
        now = standing.version()
        assert now in (stands, wanted), at
        stands = now
    assert standing.install("2.0").code == 0
    standing.whole()


@pytest.mark.parametrize("limit", [0, 200, 900, 4096] if FUZZ else [0, 4096])
def test_f04_no_room_for_a_file(standing, limit):
    """Writes beyond a size fail, for gpuready and for uv alike."""
    full = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))\n"
    ran = standing.install("2.0", before=full)
    assert ran.code == 2 and "EFBIG" in ran.out + ran.err and "please report" not in ran.err, ran.out + ran.err
    assert "Traceback" not in ran.err and standing.version() == "1.0"
    assert len(list((standing.home / "installs").iterdir())) == 1, "what was begun is cleared away"
    assert standing.install("2.0").code == 0 and standing.version() == "2.0"


def test_f04_too_little_room_is_seen_before_anything_is_done(bench):
    small = "import gpuready.system.file_contents as c\nc.free_disk_space = lambda path: {'free': 1 << 20, 'inodes': 10**6, 'disk': 1}\n"
    ran = bench.install("1.0", before=small)
    assert ran.code == 2 and "there is not enough room" in ran.err and "1 MiB are free" in ran.err
    assert ran.err.count("\n") == 1 and not bench.home.exists()


def test_f05_too_few_inodes_are_seen_before_anything_is_done(bench):
    small = "import gpuready.system.file_contents as c\nc.free_disk_space = lambda path: {'free': 1 << 50, 'inodes': 10, 'disk': 1}\n"
    ran = bench.install("1.0", before=small)
    assert ran.code == 2 and "files are needed" in ran.err and not bench.home.exists()


@pytest.mark.parametrize(("number", "name"), ERRORS if FUZZ else ERRORS[:1])
def test_f06_the_disk_fails_under_us(standing, number, name):
    bad = (
        "import os, gpuready.system.durable_files as d\nreal = d.sync_disk\n"
        f"def fail(path): raise OSError({number}, os.strerror({number}), path)\nd.sync_disk = fail\n"
    )
    ran = standing.install("2.0", "--json", before=bad)
    assert ran.code == 2 and name in json.loads(ran.out)["says"] and standing.version() == "1.0"
    assert len(list((standing.home / "installs").iterdir())) == 1


@pytest.mark.parametrize(("number", "name"), ERRORS if FUZZ else ERRORS[:1])
def test_f06_the_disk_fails_under_uv(standing, tmp_path, number, name):
    """uv ends its sentences with the number of the error; the real thing, on a disk that is full, is in test_root_install."""
    said = (
        f"error: Failed to install: alpha-2.0-py3-none-any.whl (alpha==2.0)\\n  Caused by: failed (os error {number})"
    )
    fails = instead(tmp_path, f"[ \"$1\" = pip ] && {{ printf '{said}\\n' >&2; exit 2; }}")
    ran = standing.install("2.0", "--json", before=fails)
    assert ran.code == 2 and name in json.loads(ran.out)["says"] and standing.version() == "1.0"
    assert len(list((standing.home / "installs").iterdir())) == 1


def test_f23_nothing_of_a_published_generation_is_younger_than_the_last_sync(bench, tmp_path):
    """Power loss, simulated: at the moment of the switch every file of the new generation has been synced.

    What the disk has not been told to keep is what a power cut may take. So at the switch no file may have changed
    after the last sync of the disk, but the manifest, which was synced by itself.
    """
    log = tmp_path / "younger"
    watch = f"""
import os, time, gpuready.system.durable_files as d
synced, own = [0.0], set()
real_sync, real_rename, real_fsync = d.sync_disk, os.rename, os.fsync
def sync(path): real_sync(path); synced[0] = time.time()
def fsync(fd): real_fsync(fd); own.add(os.fstat(fd).st_ino)
def rename(a, b, **more):
    if b.endswith("/current"):
        root = os.path.join(os.path.dirname(b), os.readlink(a))
        found = [p for p in d.walk_files(root) if os.lstat(p).st_ctime > synced[0] and os.lstat(p).st_ino not in own]
        open({str(log)!r}, "w").write(repr((synced[0] > 0, found)))
    return real_rename(a, b, **more)
d.sync_disk, os.rename, os.fsync = sync, rename, fsync
"""
    assert bench.install("1.0", before=watch).code == 0
    assert log.read_text() == "(True, [])"
