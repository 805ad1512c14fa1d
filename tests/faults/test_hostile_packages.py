"""E19-E23, E35: wheels, sources and locks that somebody changed; real uv, real environments."""

from __future__ import annotations

import hashlib
import io
import os
import sys
import tarfile
from pathlib import Path

import pytest

from tests.apply.conftest import bench as bench
from tests.apply.wheels import Bench, lock, wheel
from tests.running import Run


def install(bench: Bench, name: str, path: Path, *more: str) -> Run:
    words = ["install", name, "--lock", str(path), "--find-links", str(bench.wheels), "--python", sys.executable]
    return bench.run(*words, "-e", str(bench.folder / name), *more)


def failed(bench: Bench, name: str, ran: Run, *words: str) -> None:
    """Nothing was published, and the reason is told."""
    assert ran.code == 2 and "Traceback" not in ran.out + ran.err, ran.out + ran.err
    said = " ".join((ran.out + ran.err).split())
    for word in words:
        assert word in said, said
    assert not (bench.folder / name / "current").exists()


def source(folder: Path, name: str, canary: Path) -> Path:
    """A source distribution whose build writes a file."""
    path = folder / f"{name}-1.0.tar.gz"
    setup = f"open({str(canary)!r}, 'w').write('x')\nfrom distutils.core import setup\nsetup(name={name!r}, version='1.0')\n"
    project = f'[build-system]\nrequires = []\nbuild-backend = "own"\nbackend-path = ["."]\n[project]\nname = "{name}"\nversion = "1.0"\n'
    files = {"setup.py": setup, "own.py": setup, "pyproject.toml": project}
    files["PKG-INFO"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
    with tarfile.open(path, "w:gz") as made:
        for at, text in files.items():
            entry = tarfile.TarInfo(f"{name}-1.0/{at}")
            entry.size = len(text)
            made.addfile(entry, io.BytesIO(text.encode()))
    return path


def test_e19_a_higher_version_in_another_folder_does_not_enter(bench):
    """The lock pins version and hash: what another place has under the same name cannot come in."""
    other = bench.folder / "other"
    wheel(other, "beta", "9.9", {"beta/__init__.py": "VERSION = 'stolen'\n"})
    ran = bench.install("1.0", "--find-links", str(other))
    assert ran.code == 0 and bench.version() == "1.0", ran.out + ran.err
    wheel(other, "beta", "2.0", {"beta/__init__.py": "VERSION = 'stolen'\n"})
    bench.install("2.0", "--find-links", str(other))
    assert bench.version() in ("1.0", "2.0"), "the old one or the right one, never the stranger's"


def test_e20_a_flipped_byte_and_another_wheel_of_the_same_name(bench):
    assert bench.install("1.0").code == 0
    path = bench.wheels / "beta-2.0-py3-none-any.whl"
    good = path.read_bytes()
    path.write_bytes(good[:60] + bytes([good[60] ^ 1]) + good[61:])
    ran = bench.install("2.0")
    assert ran.code == 2 and "beta" in ran.out + ran.err and bench.version() == "1.0"
    wheel(bench.wheels, "beta", "2.0", {"beta/__init__.py": "VERSION = 'stolen'\n"})
    ran = bench.install("2.0")
    assert ran.code == 2 and "ash" in ran.out + ran.err and bench.version() == "1.0"
    path.write_bytes(good)
    assert bench.install("2.0").code == 0 and bench.version() == "2.0"


def test_e21_a_source_is_not_built_without_consent(bench):
    canary = bench.folder / "was-built"
    made = source(bench.wheels, "sly", canary)
    result = bench.folder / "sly.lock"
    result.write_text(f"sly==1.0 --hash=sha256:{hashlib.sha256(made.read_bytes()).hexdigest()}\n")
    failed(bench, "sly", install(bench, "sly", result), "sly", "runs its code", "--find-links")
    assert not canary.exists()


def test_e22_a_path_that_leads_out_and_a_script_called_python(bench):
    outside = bench.folder / "escaped.py"
    for name, path in (("dots", "../../../../../escaped.py"), ("slash", str(outside))):
        made = wheel(bench.wheels, name, "1.0", {f"{name}/__init__.py": "", path: "x = 1\n"})
        ran = install(bench, name, lock(bench.folder / f"{name}.lock", made))
        assert ran.code in (1, 2) and "Traceback" not in ran.out + ran.err
        assert list(bench.folder.rglob("escaped.py")) == []
    made = wheel(bench.wheels, "twin", "1.0", {"twin/__init__.py": "def main(): pass\n"}, "python")
    failed(bench, "twin", install(bench, "twin", lock(bench.folder / "twin.lock", made)), "python", "reserved")


def test_e22_code_that_runs_at_every_start_is_told(bench):
    made = wheel(bench.wheels, "start", "1.0", {"start/__init__.py": "", "start.pth": "import sys; sys.started = 1\n"})
    ran = install(bench, "start", lock(bench.folder / "start.lock", made))
    assert ran.code == 0 and "runs code whenever this Python starts: start.pth of start" in " ".join(ran.out.split())
    plain = wheel(bench.wheels, "plain", "1.0", {"plain/__init__.py": "", "plain.pth": "plain\n"})
    ran = install(bench, "plain", lock(bench.folder / "plain.lock", plain))
    assert ran.code == 0 and "whenever" not in ran.out


def test_e23_only_the_names_of_the_lock_enter(bench):
    """A name one letter off is no name of the lock; what a wheel asks for besides is not brought in by it either."""
    wheel(bench.wheels, "alhpa", "1.0", {"alhpa/__init__.py": "VERSION = 'squat'\n"})
    needy = {"needy/__init__.py": "", "needy-1.0.dist-info/X": ""}
    made = wheel(bench.wheels, "needy", "1.0", needy)
    text = lock(bench.folder / "needy.lock", made).read_text()
    (bench.folder / "squat.lock").write_text(text.replace("needy==", "neeedy=="))
    ran = install(bench, "needy", bench.folder / "squat.lock")
    assert ran.code == 2 and "does not hold needy" in ran.err
    (bench.folder / "unknown.lock").write_text(text + "neeedy==1.0 --hash=sha256:" + "a" * 64 + "\n")
    failed(bench, "needy", install(bench, "needy", bench.folder / "unknown.lock"), "neeedy")
    assert bench.install("1.0").code == 0 and not list(bench.site().glob("alhpa*"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be led by a file of another user")
def test_e35_root_does_not_install_by_a_file_that_others_may_change(bench):
    path = bench.locks["1.0"]
    os.chown(path, 4242, 4242)
    ran = bench.install("1.0")
    assert ran.code == 2 and "uid 4242" in ran.err and "root" in ran.err and not bench.home.exists()
    assert ran.err.count("\n") == 1, "one sentence"
    # To look at what would be done changes nothing, and says what would be refused.
    dry = bench.install("1.0", "--dry-run")
    assert dry.code == 0 and "root would be refused: --lock" in " ".join((dry.out + dry.err).split())
    assert not bench.home.exists()
    # A workspace that is mounted into a container belongs to another: a copy of root's own will do.
    copy = bench.folder / "copy.lock"
    copy.write_bytes(path.read_bytes())
    own = bench.run("install", "--lock", str(copy), "-e", str(bench.folder / "own"), "--dry-run")
    assert own.code == 0 and "refused" not in own.out + own.err
    os.chown(path, 0, 0)
    path.chmod(0o666)
    ran = bench.install("1.0")
    assert ran.code == 2 and "everybody" in ran.err and not bench.home.exists()
    path.chmod(0o644)
    assert bench.install("1.0").code == 0
    mine = bench.folder / "mine.toml"
    mine.write_text('framework = "kite"\nversion = "1.0"\n')
    os.chown(mine, 4242, 4242)
    ran = bench.run("install", "kite", "--contract", str(mine), "-e", str(bench.folder / "kite"))
    assert ran.code == 2 and "uid 4242" in ran.err
    # To judge by it changes nothing, and is allowed.
    assert bench.run("check", "--contract", str(mine), "--on", "h100", "-q").code in (0, 1, 3)
