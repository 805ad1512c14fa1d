"""A machine out of files, and the real command run on it in a process of its own.

Everything below ``root`` is the machine: its programs are scripts that a test writes. After each run the bench
looks for what must never be there: a traceback, a control character, a process, a file.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from tests import forks
from tests.probe.samples import bus, smi_gpu, smi_xml
from tests.running import QUIET, SRC

FORKED = True
"""Whether runs may be forks of one process; `make faults` starts each from nothing."""
CODES = (0, 1, 2, 3, 124, 130, 143)
PROLOGUE = """
import os
from gpuready import system
from gpuready.system import live_host

class Bench(live_host.LiveHost):
    def __init__(self, root="", environ=None):
        super().__init__(os.environ["BENCH_ROOT"], environ)
    def _answer_run(self, argv, deadline, limit, changes):
        return super()._answer_run(argv, deadline * float(os.environ.get("BENCH_PACE", "1")), limit, changes)
    def _answer_nvml(self, deadline=20.0):
        return super()._answer_nvml(deadline * float(os.environ.get("BENCH_NVML_PACE", "1")))
    def _disk(self, path):
        return super()._disk(path) and {"free": 1 << 41, "total": 1 << 42, "free_inodes": 1 << 20}

class ReadOnlyBench(Bench, live_host.ReadOnlyHost):
    pass

if os.environ["BENCH_ROOT"]:
    system.LiveHost, system.ReadOnlyHost = Bench, ReadOnlyBench
"""
"""Moves the door below the root, onto a roomy disk. BENCH_PACE shortens how long a program may hang, BENCH_NVML_PACE how long NVML may."""

MAIN = "from gpuready.cli import main\nmain()\n"
SITE = "/venv/lib/python3.12/site-packages"
VERSION_PY = "__version__ = '2.13.0+cu126'\ndebug = False\ncuda = '12.6'\nhip = None\nxpu = None\n"
RELEASE = 'ID=ubuntu\nVERSION_ID="22.04"\nPRETTY_NAME="Ubuntu 22.04.5 LTS"\n'
MEMINFO = "MemTotal:       263912300 kB\nMemFree:        200000000 kB\nMemAvailable:   240000000 kB\n"
MODULE = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {}  Release Build  (builder@)\n"
IMPORTS_WELL = "echo \"gpuready-import {'module': '${6%%,*}', 'error': '', 'imported': []}\""
"""A Python that says of each module that it could be imported, as a healthy environment does."""
ELF = Path(os.path.realpath(sys.executable)).read_bytes()[:64]
"""The beginning of a program of this machine: as much as the loader looks at."""


def patience() -> float:
    """What the command itself may take, in seconds, beside other tests on few cores: what hangs takes far longer.

    The deadlines themselves are held to half a second by `make faults`, on a machine where nothing else runs.
    """
    return 20.0 * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def noted(text: str) -> None:
    """What a test has read of an answer; `make faults` takes it down for its table."""


class Ended:
    """One run: exit code, output, seconds; ``found`` is the JSON of stdout."""

    def __init__(self, code: int, out: bytes, err: bytes, seconds: float):
        self.code, self.seconds = code, seconds
        self.out, self.err = out.decode("utf-8"), err.decode("utf-8", "replace")

    @cached_property
    def found(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.out)
        return found

    @cached_property
    def facts(self) -> dict[str, dict[str, Any]]:
        return {fact["key"]: fact for fact in self.found["facts"]}

    @property
    def codes(self) -> list[str]:
        return [finding["code"] for finding in self.found["findings"]]

    @property
    def undecided(self) -> list[str]:
        return [row["code"] for row in self.found["undecided"]]

    def value(self, key: str) -> Any:
        """The value of a fact that is known."""
        fact = self.facts[key]
        assert not fact.get("gap"), f"{key} is not known: {fact['gap']}"
        noted(f"{key} {json.dumps(fact.get('value'), ensure_ascii=False)}")
        return fact.get("value")

    def gap(self, key: str) -> str:
        """Why a fact is not known; empty where it is."""
        gap = str(self.facts[key].get("gap") or "")
        if gap:
            noted(f"{key} unknown: {gap}")
        return gap

    def finding(self, code: str) -> dict[str, Any]:
        (one,) = [finding for finding in self.found["findings"] if finding["code"] == code]
        noted(f"{code} {one['says']}")
        return dict(one)

    def words(self, code: str) -> str:
        """Everything that a finding says, as one text."""
        return json.dumps(self.finding(code), ensure_ascii=False)


class Machine:
    """A machine with a GPU, a driver and an environment, until a test breaks something of it."""

    def __init__(self, folder: Path):
        self.folder, self.root = folder, folder / "machine"
        self.home, self.tmp = folder / "home", folder / "tmp"
        for path in (self.root, self.home, self.tmp):
            path.mkdir()
        self.variables = {"PATH": "/usr/bin:/bin", "VIRTUAL_ENV": "/venv", "HOME": "/home/ada", "TMPDIR": "/tmp"}
        self.pace = self.nvml_pace = 1.0
        self._host()
        self._target()
        self.gpus(1)

    # -- what is there ----------------------------------------------------------------------------------

    def file(self, path: str, text: str | bytes = "", mode: int = 0o644) -> Path:
        at = Path(f"{self.root}{path}")
        if not at.parent.is_dir():  # most are: dozens of files for each machine
            at.parent.mkdir(parents=True)
        at.write_bytes(text.encode() if isinstance(text, str) else text)
        at.chmod(mode)
        return at

    def folder_at(self, path: str) -> Path:
        at = Path(f"{self.root}{path}")
        at.mkdir(parents=True, exist_ok=True)
        return at

    def link(self, path: str, target: str) -> None:
        at = Path(f"{self.root}{path}")
        at.parent.mkdir(parents=True, exist_ok=True)
        at.symlink_to(target)

    def gone(self, *paths: str) -> None:
        for path in paths:
            subprocess.run(["rm", "-rf", f"{self.root}{path}"], check=True)

    def program(self, name: str, body: str, folder: str = "/usr/bin") -> None:
        """A script under the name of a program."""
        self.file(f"{folder}/{name}", f"#!/bin/sh\n{body}\n", 0o755)

    def says(self, name: str, text: str | bytes, then: str = "") -> None:
        """A program that prints a text, and then does something else."""
        result = self.folder / f"{name}.txt"
        result.write_bytes(text.encode() if isinstance(text, str) else text)
        self.program(name, f"cat '{result}'\n{then}")

    def packages(self, *names: str) -> None:
        """Installed distributions: ``transformers-5.22.0``."""
        for name in names:
            dist, _, version = name.rpartition("-")
            text = f"Metadata-Version: 2.1\nName: {dist}\nVersion: {version}\n"
            self.file(f"{SITE}/{name}.dist-info/METADATA", text)

    def gpus(self, count: int, driver: str = "580.95.05") -> None:
        """NVIDIA GPUs with a loaded module, their device files, and an nvidia-smi that lists them."""
        for path, text in bus(count).items():
            self.file(path, text)
        for name in ("nvidiactl", "nvidia-uvm", *(f"nvidia{i}" for i in range(count))):
            self.file(f"/dev/{name}", mode=0o666)
        self.file("/sys/module/nvidia/version", f"{driver}\n")
        self.file("/proc/driver/nvidia/version", MODULE.format(driver))
        self.libcuda(driver)
        self.says("nvidia-smi", smi_xml(*(smi_gpu(i) for i in range(count)), driver=driver))

    def libcuda(self, version: str, folder: str = "/usr/lib") -> None:
        at = self.file(f"{folder}/libcuda.so.{version}", ELF)
        link = at.with_name("libcuda.so.1")
        link.unlink(missing_ok=True)
        link.symlink_to(at.name)

    def _host(self) -> None:
        self.file("/etc/os-release", RELEASE)
        self.file("/proc/meminfo", MEMINFO)
        self.file("/proc/self/cgroup", "0::/\n")
        self.file("/proc/self/mountinfo", "22 1 259:2 / / rw,relatime - ext4 /dev/nvme0n1p2 rw\n")
        self.file("/etc/passwd", f"root:x:0:0::/root:/bin/sh\nada:x:{os.geteuid() or 1000}:100::/home/ada:/bin/sh\n")
        self.file("/sys/class/net/lo/flags", "0x9\n")
        self.file("/sys/fs/cgroup/cgroup.controllers", "cpu memory\n")
        self.file("/var/log/kern.log", "")
        for path in ("/dev/shm", "/tmp", "/home/ada/.cache"):
            self.folder_at(path)
        self.program("gcc", "echo 12.3.0")
        self.program("g++", "echo 12.3.0")
        self.program("ninja", "echo 1.11.1")

    def _target(self) -> None:
        self.file("/venv/pyvenv.cfg", "home = /usr/bin\nversion = 3.12.4\n")
        self.program("python", IMPORTS_WELL, "/venv/bin")
        self.file(f"{SITE}/torch/version.py", VERSION_PY)
        self.packages("torch-2.13.0+cu126", "transformers-5.22.0", "accelerate-1.12.0", "numpy-2.2.6", "typer-0.20.0")
        self.packages("huggingface_hub-1.31.0", "packaging-25.0", "pyyaml-6.0.3", "regex-2025.11.3", "tqdm-4.67.1")
        self.packages("tokenizers-0.23.1", "safetensors-0.8.0")

    @staticmethod
    def as_nobody(uid: int = 65534) -> str:
        """What makes the command a user without rights, once it has all that it may need of Python."""
        if os.geteuid() != 0:
            return ""
        ours = "import gpuready.cli, gpuready.commands.check, gpuready.commands.probe, gpuready.render.json_results"
        loaded = f"{ours}, packaging.version, ctypes, difflib, fcntl, ipaddress, pwd, resource, select, unicodedata, xml.etree.ElementTree\n"
        return f"{loaded}import os\nos.setgroups([])\nos.setgid({uid})\nos.setuid({uid})\n"

    # -- what is run ------------------------------------------------------------------------------------

    def run(self, *argv: str, tidy: bool = True, **options: Any) -> Ended:
        """Run the command and look for what it may have left, now or (``tidy``) later; ``env`` adds variables."""
        more = options.get("env", {})
        if FORKED and tidy and set(options) <= {"env"} and not forks.is_of_a_start(self.variables | more):
            return self._run_forked(argv, more)
        marker = f"bench-{uuid.uuid4()}"
        process, began = self.start(*argv, marker=marker, **options), time.monotonic()
        out, err = process.communicate(timeout=60)
        ended = Ended(process.returncode, out or b"", err or b"", time.monotonic() - began)
        self.last = (ended, marker)
        if tidy:
            self.look_after(*self.last)
        return ended

    def _run_forked(self, argv: Sequence[str], more: Mapping[str, Any]) -> Ended:
        """The same in a fork of a process that has imported the command."""
        server, began = forks.start_server(PROLOGUE, os.getpid()), time.monotonic()
        code, out, err, left = server.run(
            ["bench", *argv], self._variables(True, f"bench-{uuid.uuid4()}", more), self.home
        )
        ended = Ended(code, out, err, time.monotonic() - began)
        self.last = (ended, "")
        assert left == [], "processes were left"
        self.look_after(ended, "")
        return ended

    def _variables(self, rooted: bool, marker: str, more: Mapping[str, Any]) -> dict[str, str]:
        env = QUIET | {"PYTHONPATH": str(SRC)}
        env |= self.variables if rooted else {"HOME": str(self.home), "TMPDIR": str(self.tmp)}
        env |= {"BENCH_ROOT": str(self.root) if rooted else "", "BENCH_ID": marker}
        env |= {"BENCH_PACE": str(self.pace), "BENCH_NVML_PACE": str(self.nvml_pace)}
        return {name: value for name, value in (env | more).items() if value is not None}

    def start(
        self, *argv: str, before: str = "", rooted: bool = True, marker: str = "", **options: Any
    ) -> subprocess.Popen[bytes]:
        """Start the command and do not wait for it."""
        kept = self._variables(rooted, marker, options.pop("env", {}))
        prefix = options.pop("prefix", ())
        script = self.folder / "bin" / "bench"  # a file, as the console script is: the current folder is not searched
        script.parent.mkdir(exist_ok=True)
        script.write_text(PROLOGUE + before + MAIN)
        return subprocess.Popen(
            [*prefix, sys.executable, script, *argv],
            env=kept,
            **{
                "cwd": self.home,
                "stdin": subprocess.DEVNULL,
                "stdout": subprocess.PIPE,
                "stderr": subprocess.PIPE,
                **options,
            },
        )

    def check(self, *argv: str, **options: Any) -> Ended:
        """``gpuready check transformers --json``: complete, whatever is broken."""
        ended = self.run("check", "transformers", "--json", *argv, **options)
        assert ended.code in (0, 1, 3) and ended.err == "", (ended.code, ended.err)
        assert ended.code == ended.found["exit"]
        for key in ("os.kernel", "python.version", "limit.nofile", "env.names"):
            assert key in ended.facts, f"the report is not complete: {key}"
        return ended

    def screen(self, *argv: str, **options: Any) -> str:
        """What is shown to a person."""
        return self.run("check", "transformers", *argv, **options).out

    def look_after(self, ended: Ended, marker: str) -> None:
        """Nothing is left and nothing is ugly."""
        assert ended.code in CODES, (ended.code, ended.err)
        assert "Traceback" not in ended.out + ended.err, ended.err
        assert (ended.out + ended.err).replace("\n", "").isprintable()
        until = time.monotonic() + forks.LATE_S
        while marker and strays(marker) and time.monotonic() < until:
            time.sleep(0.02)
        assert not marker or strays(marker) == [], "processes were left"
        assert os.listdir(self.tmp) == [] == self.list_left_in_home(), "files were left"

    def list_left_in_home(self) -> list[str]:
        """Files in the user's folder, but for the kept answers of surveys, which a slow machine may come to write."""
        files = [path.relative_to(self.home).as_posix() for path in self.home.rglob("*") if not path.is_dir()]
        return [name for name in files if not name.startswith(".cache/gpuready/imports/")]


def strays(marker: str) -> list[int]:
    """The processes that carry a mark in their environment and have not ended."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if marker.encode() in Path(f"/proc/{name}/environ").read_bytes():
                found.append(int(name))
        except OSError:
            continue
    return found
