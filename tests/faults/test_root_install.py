"""Installs on disks that are really full, and the long runs of kills: by ``make faults``, as root."""

from __future__ import annotations

import json
import os
import random
import shutil
import tempfile
import time
from pathlib import Path

import pytest

from tests.apply.test_kill import COUNTED
from tests.apply.wheels import Bench, lock, wheel
from tests.faults import mounts

pytestmark = pytest.mark.faults
UNREADABLE = "import gpuready.apply.disk_space as s\ns.explain_shortage = lambda *a: ''\n"
"""As if the estimate had been far too low, so that the disk fills up in the middle."""


@pytest.fixture(scope="session", autouse=True)
def private() -> None:
    if os.geteuid() != 0:
        pytest.skip("NOT ROOT: nothing of this file is tested; run `make faults` as root")
    try:
        mounts.apart()
    except OSError as error:
        pytest.skip(f"NO MOUNT NAMESPACE ({error}): nothing of this file is tested")


@pytest.fixture
def bench():
    folder = Path(tempfile.mkdtemp(prefix="gpuready-install-"))
    yield Bench(folder)
    shutil.rmtree(folder, ignore_errors=True)


def heavy(bench: Bench) -> None:
    """A version that takes about 6 MiB in files of 100 KiB."""
    noise = random.Random(1)
    text = {f"alpha/part{i}.py": f"X = '{noise.randbytes(50_000).hex()}'\n" for i in range(60)}
    text["alpha/__init__.py"] = "VERSION = '8.0'\n"
    pair = [wheel(bench.wheels, "alpha", "8.0", text), wheel(bench.wheels, "beta", "8.0")]
    bench.locks["8.0"] = lock(bench.folder / "8.0.lock", *pair)


def test_f04_a_disk_that_fills_up_at_every_mebibyte(bench, tmp_path, seen):
    heavy(bench)
    began, ended = time.monotonic(), []
    for size in range(3, 12):
        with mounts.disk(tmp_path, size << 20, "-O", "^has_journal", "-N", "2000") as disk:
            home = disk / "env"
            assert bench.run(*bench.argv("1.0", home=home), before=UNREADABLE).code == 0
            ran = bench.run(*bench.argv("8.0", "--json", home=home), before=UNREADABLE)
            ended.append(ran.code)
            stands = bench.version(home)
            if ran.code == 0:
                assert stands == "8.0"
                continue
            assert ran.code == 2 and "ENOSPC" in json.loads(ran.out)["says"], ran.out
            assert stands == "1.0" and len(os.listdir(home / "installs")) == 1
            bench.whole(home)
    assert 2 in ended and 0 in ended
    seen(
        "F04",
        "ENOSPC by its name, the old one kept, the new one cleared away",
        f"exits {ended}",
        time.monotonic() - began,
    )


def test_f04_the_estimate_refuses_before_anything_is_done(bench, tmp_path, seen):
    heavy(bench)
    with mounts.disk(tmp_path, 8 << 20) as disk:
        ran = bench.run(*bench.argv("8.0", home=disk / "env"))
        assert not (disk / "env").exists()
    seen("F04", "refused in one sentence", ran.err.strip(), 0.0)
    assert ran.code == 2 and "there is not enough room" in ran.err and ran.err.count("\n") == 1


def test_f05_no_inodes_left(bench, tmp_path, seen):
    with mounts.disk(tmp_path, 32 << 20, "-O", "^has_journal", "-N", "160") as disk:
        home = disk / "env"
        assert bench.run(*bench.argv("1.0", home=home), before=UNREADABLE).code == 0
        ran = bench.run(*bench.argv("2.0", "--json", home=home), before=UNREADABLE)
        assert bench.version(home) == "1.0" and len(os.listdir(home / "installs")) == 1
    says = json.loads(ran.out)["says"]
    seen("F05", "ENOSPC by its name, the old one kept", says[:80], 0.0)
    assert ran.code == 2 and "ENOSPC" in says


def test_f06_a_disk_that_turns_read_only(bench, tmp_path, seen):
    with mounts.disk(tmp_path, 32 << 20) as disk:
        home = disk / "env"
        assert bench.run(*bench.argv("1.0", home=home), before=UNREADABLE).code == 0
        mounts.sh("mount", "-o", "remount,ro", disk)
        ran = bench.run(*bench.argv("2.0", "--json", home=home), before=UNREADABLE)
        assert bench.version(home) == "1.0"
        mounts.sh("mount", "-o", "remount,rw", disk)
    seen("F06", "EROFS by its name, or refused before", (ran.out + ran.err)[-80:].strip(), 0.0)
    assert ran.code == 2 and ("EROFS" in ran.out or "cannot be written" in ran.err)


def test_f02_every_crash_point(bench, tmp_path, seen):
    bench.install("1.0")
    log = tmp_path / "calls"
    bench.run(*bench.argv("2.0", "--keep", "1"), before=COUNTED.format(at=10**9, after=False, log=str(log)))
    calls, stands, began, count = log.read_text().split(), "2.0", time.monotonic(), 0
    for at in range(1, len(calls) + 1):
        for after in (False, True):
            wanted = "1.0" if stands == "2.0" else "2.0"
            bench.run(*bench.argv(wanted, "--keep", "1"), before=COUNTED.format(at=at, after=after, log=""))
            now = bench.version()
            assert now in (stands, wanted), (at, after)
            stands, count = now, count + 1
    assert bench.install("2.0").code == 0
    bench.whole()
    seen("F02", "old or new after every one", f"{count} crash points, 0 broken", time.monotonic() - began)


def test_f07_32_at_once(bench, seen):
    began = time.monotonic()
    crowd = [bench.start(*bench.argv("1.0", "--json")) for _ in range(32)]
    found = [json.loads(process.communicate(timeout=300)[0])["verdict"] for process in crowd]
    seen(
        "F07", "1 build, 31 reuse", f"{found.count('installed')}, {found.count('unchanged')}", time.monotonic() - began
    )
    assert sorted(found) == ["installed"] + ["unchanged"] * 31
    bench.whole()


def test_f24_a_hundred_generations(bench, seen):
    began = time.monotonic()
    for number in range(100):
        version = f"5.{number}"
        pair = [wheel(bench.wheels, name, version) for name in ("alpha", "beta")]
        bench.locks[version] = lock(bench.folder / f"{version}.lock", *pair)
        assert bench.install(version).code == 0
        assert len(os.listdir(bench.home / "installs")) <= 2
    seen("F24", "never more than 2 kept", f"{len(os.listdir(bench.home / 'installs'))} left", time.monotonic() - began)
