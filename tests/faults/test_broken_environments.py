"""D25-D38: Python environments that are broken or hostile, and variables that would break what gpuready starts."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path

import pytest

from tests import forks
from tests.faults.bench import SITE, VERSION_PY, Machine, patience, strays

HOSTILE = {
    "d25_crashes": "import ctypes; ctypes.string_at(0)",
    "d26_hangs": "import time; time.sleep(98765)",
    "d27_prints": "print('}{ not JSON')",
    "d28_exits": "import os; os._exit(0)",
    "d29_closes_everything": "import os, signal; os.closerange(0, 9); os.chdir('/'); signal.signal(15, signal.SIG_IGN)",
}
"""What a module may do when it is imported."""


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    """An environment with a real interpreter, and files in the place of its packages."""
    home = tmp_path / "venv"
    site = home / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    (site / "torch").mkdir(parents=True)
    (site / "torch" / "version.py").write_text(VERSION_PY)
    (site / "torch" / "__init__.py").write_text("")
    for name in ("torch-2.13.0+cu126", "numpy-2.2.6"):
        (site / f"{name}.dist-info").mkdir()
        (site / f"{name}.dist-info" / "METADATA").write_text("Name: x\n")
    (home / "bin").mkdir()
    (home / "bin" / "python").symlink_to(sys.executable)
    (home / "pyvenv.cfg").write_text(f"home = {Path(sys.executable).parent}\nversion = 3.{sys.version_info.minor}.1\n")
    return home


def site_of(venv: Path) -> Path:
    (site,) = venv.glob("lib/python3.*/site-packages")
    return site


def make_hostile(venv: Path, ran: Path, code: str) -> None:
    code = f"open({str(ran)!r}, 'w').close()\n{code}\n"
    for path in ("torch/__init__.py", "sitecustomize.py", "usercustomize.py", "numpy.py"):
        (site_of(venv) / path).write_text(code)
    (site_of(venv) / "hook.pth").write_text(f"import os; exec({code!r})\n")


@pytest.mark.parametrize("case", HOSTILE)
def test_d25_to_d29_an_environment_that_was_only_found_is_never_started(machine, venv, tmp_path, case):
    """No module, site hook or .pth line of the patient runs, so what it would do on import does not matter."""
    ran, found_there = tmp_path / "ran", tmp_path / ".venv"
    venv.rename(found_there)
    make_hostile(found_there, ran, HOSTILE[case])
    found = machine.check(rooted=False, cwd=tmp_path)
    assert found.value("torch.version") == "2.13.0+cu126" and found.value("python.prefix") == str(found_there)
    assert not ran.exists() and found.seconds < patience()


@pytest.mark.parametrize("case", ["d25_crashes", "d28_exits"])
def test_d25_and_d28_an_environment_that_is_named_is_started_and_its_end_is_told(machine, venv, tmp_path, case):
    make_hostile(venv, tmp_path / "ran", HOSTILE[case])
    found = machine.check("--python", str(venv), rooted=False)
    assert (tmp_path / "ran").exists() and found.finding("PKG042")["severity"] == "error"


def test_d30_files_in_the_current_folder(machine, venv):
    here = machine.folder / "here"
    (here / "numpy").mkdir(parents=True)
    (here / "numpy" / "__init__.py").write_text("raise SystemExit(7)")
    for name in ("torch.py", "random.py", "json.py", "select.py", "left_pad.py"):
        (here / name).write_text("raise SystemExit(7)")
    found = machine.check("--python", str(venv), rooted=False, cwd=here)
    shadows = {Path(path).name for path in found.value("python.shadowed")}
    assert {"torch.py", "random.py", "numpy"} <= shadows and "left_pad.py" not in shadows
    assert found.finding("PKG020")["severity"] == "error"
    assert f"{here}/torch.py" in found.words("PKG020")


def test_d31_half_installed(machine):
    machine.gone(f"{SITE}/tokenizers-0.23.1.dist-info/METADATA")
    machine.folder_at(f"{SITE}/datasets-4.0.0.dist-info")
    found = machine.check()
    assert found.code == 1 and found.codes == ["PKG006"]
    assert found.finding("PKG006")["says"] == "partly installed: tokenizers"
    assert "reinstall tokenizers" in found.words("PKG006")
    assert found.value("python.half_installed") == ["datasets-4.0.0.dist-info", "tokenizers-0.23.1.dist-info"]
    assert found.gap("package.tokenizers")


def test_d32_metadata_that_is_no_text_or_huge_and_links_in_a_circle(machine):
    strange = b"Name: transformers\nVersion: 5.22.0\nSummary: \xff\xfe\nRequires-Dist: caf\xe9\n"
    machine.file(f"{SITE}/transformers-5.22.0.dist-info/METADATA", strange)
    with machine.file(f"{SITE}/accelerate-1.12.0.dist-info/METADATA", b"Name: accelerate\n").open("r+b") as file:
        file.truncate(100 << 20)
    machine.link(f"{SITE}/circle", "circle")
    machine.link(f"{SITE}/round-1.0.dist-info", "round-1.0.dist-info")
    machine.link(f"{SITE}/up", "..")
    found = machine.check()
    assert found.code == 0 and found.seconds < patience()
    assert found.value("package.transformers") == "5.22.0" and found.value("package.accelerate") == "1.12.0"
    assert "caf\\xe9" in found.value("python.requires")["transformers"]["requires_dist"]


def test_d34_two_versions_and_left_overs(machine):
    machine.packages("torch-2.4.0")
    machine.folder_at(f"{SITE}/~orch-2.5.0.dist-info")
    found = machine.check()
    assert found.value("python.duplicates") == [{"name": "torch", "versions": ["2.13.0+cu126", "2.4.0"]}]
    assert found.value("python.half_installed") == ["~orch-2.5.0.dist-info"]
    assert found.gap("package.torch") == "listed twice: 2.13.0+cu126, 2.4.0"
    assert "installed twice: torch" in found.finding("PKG006")["says"]


def test_d35_packages_that_may_not_be_read(open_machine: Machine):
    site = open_machine.folder_at(SITE)
    site.chmod(0)
    found = open_machine.check(before=open_machine.as_nobody())
    site.chmod(0o755)
    assert found.code == 3 and "PKG002" in found.undecided and "PKG002" not in found.codes
    assert found.gap("python.packages") == found.gap("torch.version") == "permission denied"
    assert found.value("gpu.count") == 1 and found.value("memory.total")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (None, "there is no such file or folder"),
        ("folder", "is a folder without bin/python"),
        ("echo 'Python 2.7.18' >&2", "is a script that does not start a Python 3"),
        ("echo \"pyenv: version '3.12.4' is not installed\" >&2; exit 1", "pyenv: version '3.12.4' is not installed"),
        ("kill -SEGV $$", "signal SEGV"),
        ("exec sleep 98765", "deadline"),
        ("printf 'a\\033[2Jb\\nc\\nd\\n'", "does not start a Python 3: a\\x1b[2Jb"),
        ("printf '/x\\n/x/python\\n\\n'", "does not start a Python 3"),
    ],
)
def test_d36_what_is_no_python(machine, tmp_path, body, words):
    python = tmp_path / "python"
    if body == "folder":
        python.mkdir()
    elif body:
        python.write_text(f"#!/bin/sh\n{body}\n")
        python.chmod(0o755)
    ran = machine.run("check", "--python", str(python), "--run-python", rooted=False, before=PACED)
    assert ran.code == 2 and ran.out == "" and ran.err.count("\n") == 1
    assert words in ran.err and "please report" not in ran.err


PACED = """
import gpuready.system.live_host as door
slow = door.LiveHost._answer_run
door.LiveHost._answer_run = lambda self, argv, deadline, *more: slow(self, argv, deadline * 0.1, *more)
"""
"""On the real machine a program may hang for 0.3 s."""


def test_d37_variables_that_change_what_a_program_is(machine, built, tmp_path):
    source = tmp_path / "quiet.c"
    source.write_text("int gpuready_bench_quiet;\n")
    library = built(source, "libquiet.so")
    seen = tmp_path / "seen"
    machine.program("gcc", f"env > {seen}; echo 12.3.0")
    hostile = {"LD_PRELOAD": library, "PYTHONSTARTUP": "/x.py", "BASH_ENV": "/x.sh", "ENV": "/x.sh", "LD_AUDIT": ""}
    found = machine.check(env=hostile)
    assert found.code == 0 and found.value("compiler.gcc") == "12.3.0"
    assert not set(hostile) & {line.partition("=")[0] for line in seen.read_text().splitlines()}
    assert "PYTHONPATH" not in seen.read_text()  # the bench itself sets it
    assert "PYTHONPATH" in found.value("env.names")


def test_d38_a_vast_environment_with_invalid_bytes(machine):
    many = {f"{'NOISE' if i % 10 else 'CUDA'}_{i}": "x" * 60 for i in range(10_000)}
    undecodable = {"NCCL_\udcff": "\udcfe", "HF_HOME": "caf\udce9"}
    found = machine.check(env={**many, **undecodable})
    assert found.code == 0 and found.value("gpu.count") == 1 and found.value("compiler.gcc") == "12.3.0"
    assert found.value("env.HF_HOME") == "caf\\xe9" and "NCCL_\\xff" in found.value("env.names")


@pytest.mark.skipif(shutil.which("prlimit") is None, reason="no prlimit here")
def test_d38_an_environment_too_large_to_hand_on(machine):
    """The command has room for its variables; what it starts has less."""
    wide = {f"NOISE_{i}": "x" * 100_000 for i in range(18)}
    small = "import resource\nresource.setrlimit(resource.RLIMIT_STACK, (1 << 20, 1 << 20))\n"
    found = machine.check(env=wide, before=small)
    assert found.value("gpu.count") == 1 and found.value("compiler.gcc") == "12.3.0"


LEAVES = "import subprocess\nsubprocess.Popen(['sleep', '60'], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)\n"


def test_the_bench_finds_a_process_that_is_left(machine, monkeypatch):
    """A test of the tests: the look for strays sees what it should."""
    monkeypatch.setattr(forks, "LATE_S", 0.5)
    with pytest.raises(AssertionError, match="processes were left"):
        machine.run("--version", before=LEAVES)
    for pid in strays(machine.last[1]):
        os.kill(pid, signal.SIGKILL)


def test_the_forking_server_finds_it_too(machine, monkeypatch):
    monkeypatch.setattr(forks, "LATE_S", 0.5)
    server = forks.CommandServer(f"from gpuready import cli\ndef leave():\n    exec({LEAVES!r})\ncli.main = leave\n")
    code, _, _, left = server.run([], {"PATH": "/usr/bin:/bin"}, machine.home)
    assert code == 0 and len(left) == 1
    assert not Path(f"/proc/{left[0]}").exists(), "it is ended, so that it does not count in the next run"
    server.close()
