"""No dry run starts a program that a folder, an environment or the current folder put before the system's: one test for every command that has the flag."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from gpuready.commands import load_all_commands
from gpuready.system.process import runner
from tests.running import Run, gpuready

MINOR = f"{sys.version_info[0]}.{sys.version_info[1]}"
PROGRAMS = (
    "python", "python3", f"python{MINOR}", "uv", "uvx", "pip", "pip3", "conda", "pyenv", "nvcc", "nvidia-smi", "rocm-smi", "npu-smi", "ldconfig", "gcc",
    "g++", "cc", "c++", "ninja", "cmake", "git", "ssh", "srun", "sbatch", "sinfo", "scontrol", "mpirun", "mpiexec", "ray", "torchrun", "accelerate",
    "deepspeed", "podman", "docker", "munge", "unmunge", "sysctl", "lspci", "ibstat", "lsmod", "modprobe", "sudo", "id", "uname", "hostname", "env", "sh",
    "bash", "systemctl", "dmesg", "ethtool", "ip", "df", "lscpu", "numactl", "gpuready",
)  # fmt: skip
STARTS = {
    "run": (("--nproc", "2"), ("transformers",), ("transformers", "--reap"), *(("--engine", name, "--nnodes", "1") for name in ("torchrun", "slurm", "mpi", "ray"))),
    "install": (("transformers", "--offline", "-e", "new"), ("--lock", "lock.txt", "-e", "new"), ("--lock", "lock.txt", "-e", "new", "--offline")),
    "fix": ((), ("transformers",), ("--allow-build",)),
}  # fmt: skip
"""What each command with the flag is asked; a new one with the flag has to be here."""


class Trap:
    """A checkout in which every program, every start file of Python and every place on PATH leaves a mark."""

    def __init__(self, folder: Path):
        self.folder, self.marks = folder / "project", folder / "marks"
        self.marks.mkdir()
        self.folder.mkdir()
        self.env, self.shims, self.elsewhere = self.folder / ".venv", self.folder / "shims", folder / "tools"
        self.site = self.env / "lib" / f"python{MINOR}" / "site-packages"
        self.site.mkdir(parents=True)
        (self.env / "pyvenv.cfg").write_text(f"home = {Path(sys.base_prefix) / 'bin'}\nversion = {MINOR}.1\n")
        for place in (self.env / "bin", self.shims, self.elsewhere, self.folder, self.folder / "bin"):
            place.mkdir(exist_ok=True)
            for name in PROGRAMS:
                self.lay(place / name)
        mark = f"import os; open({str(self.marks)!r} + '/start-file', 'w').close()\n"
        for name in (
            "sitecustomize.py",
            "usercustomize.py",
            "planted.pth",
            "gpuready.py",
            "transformers.py",
            "torch.py",
        ):
            for place in (self.site, self.folder):
                (place / name).write_text(mark)
        for name, version in (("transformers", "5.22.0"), ("torch", "2.9.0")):
            info = self.site / f"{name}-{version}.dist-info"
            info.mkdir()
            (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
            (info / "RECORD").write_text(f"{name}.py,sha256=0000,1\n")  # differs: where it may, a check imports it
        (self.folder / "train.py").write_text("import torch\n")
        (self.folder / "lock.txt").write_text(f"transformers==5.22.0 --hash=sha256:{'0' * 64}\n")

    def lay(self, path: Path) -> None:
        path.write_text(f'#!/bin/sh\n: > "{self.marks}/$(/usr/bin/basename "$0")"\necho Python {MINOR}.1\n')
        path.chmod(0o755)

    @property
    def started(self) -> list[str]:
        return sorted(path.name for path in self.marks.iterdir())


@pytest.fixture
def trap(tmp_path: Path) -> Trap:
    return Trap(tmp_path)


def commands_with_the_flag() -> list[str]:
    return [name for name, command in load_all_commands().items() if "dry_run" in command.parameters]


def test_every_command_with_the_flag_is_asked():
    assert set(commands_with_the_flag()) == set(STARTS)


def environment(trap: Trap, case: str) -> dict[str, str]:
    first = {"active": trap.env / "bin", "shims": trap.shims, "relative": Path("bin"), "elsewhere": trap.elsewhere}
    path = {"here": "", "link": f"{trap.folder}/linked"}.get(case, str(first.get(case, "")))
    env = {"HOME": str(trap.folder.parent), "PATH": f"{path}:{os.environ['PATH']}"}
    return env | ({"VIRTUAL_ENV": str(trap.env)} if case == "active" else {})


CASES = ("active", "shims", "elsewhere", "relative", "here", "link")
"""Where the planted programs are first on PATH: an active environment, two folders, a relative one, an empty one, and a link."""


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("command", commands_with_the_flag())
def test_no_dry_run_starts_a_planted_program(trap: Trap, command: str, case: str):
    (trap.folder / "linked").symlink_to(trap.env / "bin")
    for words in STARTS[command] if case == "shims" else STARTS[command][1:2]:
        ran = ask(trap, command, words, environment(trap, case))
        assert not trap.started, (words, ran)
        assert "Traceback" not in ran.err


def ask(trap: Trap, command: str, words: tuple[str, ...], env: dict[str, str]) -> Run:
    rest = ("--", "train.py") if command == "run" else ()
    return gpuready(command, *words, "--dry-run", *rest, cwd=trap.folder, **env)


@pytest.mark.parametrize("command", commands_with_the_flag())
def test_nor_one_of_an_environment_that_is_named(trap: Trap, command: str):
    for python in (trap.env, trap.env / "bin" / "python", trap.shims / "python3"):
        ran = ask(trap, command, (*STARTS[command][1], "--python", str(python)), environment(trap, "shims"))
        assert not trap.started, (python, ran)


def test_the_traps_work_without_the_flag(trap: Trap):
    """The same question without the flag starts a planted program: it is the flag that keeps them from it."""
    gpuready("run", "transformers", "--preflight", "--", "train.py", cwd=trap.folder, **environment(trap, "active"))
    assert trap.started


@pytest.mark.parametrize("name", ["true", "sh"])
def test_programs_of_the_system_may_be_started(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.chdir(tmp_path)
    env = {"PATH": f"{tmp_path}::/usr/bin:relative:/bin"}
    ran = runner.call_dry(lambda: runner.run_program("/usr/bin/env", ["env"], env, 5.0, 1000))
    assert ran.rc == 0 and ran.out == "PATH=/usr/bin:/bin\n"
    link = tmp_path / name
    link.symlink_to(f"/usr/bin/{name}")
    ran = runner.call_dry(lambda: runner.run_program(str(link), [name], env, 5.0, 1000))
    assert ran.rc is None and ran.end == f"{link} is not started in a dry run: it is not a program of the system"
    monkeypatch.chdir("/usr/bin")  # a checkout may lie in a folder of the system too
    assert runner.call_dry(lambda: runner.run_program(f"/usr/bin/{name}", [name], env, 5.0, 1000)).rc is None
