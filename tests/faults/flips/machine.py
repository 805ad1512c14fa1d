"""A healthy machine behind host access, of which a fault changes something: files, variables, programs, the driver's answers.

Nothing here names a fact: the probes read the host, and what they find is judged as by ``gpuready check``.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpuready import system, workflow
from gpuready.system import live_host
from gpuready.system.process import probe_run
from tests.faults.bench import SITE, Machine
from tests.probe.links import trie
from tests.probe.samples import answer, information, record

GIB = 1 << 30
Fault = Callable[["BreakableMachine"], Any]
X86 = {"system": "Linux", "machine": "x86_64", "version": "#1 SMP"}
"""The machine is the same wherever the tests run: wheels of torch differ from one machine to another."""

ROUTE = "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n{0} 0000000A 00000000 0001 0 0 0 00FFFFFF 0 0 0\n"


class MachineAccess(live_host.ReadOnlyHost):
    """Host access of the command to a machine made of files; NVML, limits and disks answer what they are told to."""

    runs_command = True

    def __init__(self, machine: BreakableMachine):
        super().__init__(str(machine.machine.root), machine.machine.variables)
        self.machine = machine

    def _answer_nvml(self, deadline: float = 20.0) -> Any:
        return self.machine.nvml

    def _answer_run(self, argv: Any, deadline: float, limit: int, changes: Any) -> Any:
        return super()._answer_run(argv, min(deadline, 1.0), limit, changes)

    def _answer_disk(self, path: str) -> Any:
        return self.machine.disk

    def _answer_limits(self) -> Any:
        return {**super()._answer_limits(), **self.machine.limits}

    def answer_query(self, verb: str, *args: Any) -> Any:
        result = self.machine.answers.get(verb)
        return result if result is not None and verb in self.machine.answers else super().answer_query(verb, *args)


class BreakableMachine:
    """One H100 that is well, with transformers; a fault changes something of it."""

    def __init__(self, folder: Path):
        self.machine = Machine(folder)
        self.nvml: dict[str, Any] = answer(record())
        self.disk = {"free": 1 << 41, "total": 1 << 42, "free_inodes": 1 << 20}
        self.limits: dict[str, Any] = {}
        self.answers: dict[str, Any] = {"uname": {**X86, "release": os.uname().release}}
        self.asked: dict[str, Any] = {}
        self.frameworks = ["transformers"]
        for name in ("nvcc", "nvidia-smi"):
            self.machine.gone(f"/usr/bin/{name}")

    # -- what a fault may change ------------------------------------------------------------------------

    def gpu(self, **changes: Any) -> None:
        self.nvml = answer(record(**changes))

    def gpus(self, *each: dict[str, Any]) -> None:
        self.machine.gpus(len(each))
        self.nvml = answer(*(record(index, **changes) for index, changes in enumerate(each)))

    def driver(self, version: str, cuda: str = "12.2", **changes: Any) -> None:
        self.machine.gpus(1, version)
        self.machine.gone("/usr/bin/nvidia-smi")
        self.nvml = answer(record(**changes), driver=version, cuda=cuda)

    def undriven(self, name: str, version: str) -> None:
        """A GPU that the module knows by its name and the driver does not open."""
        self.driver(version)
        for path, text in information(0, name).items():
            self.machine.file(path, text)
        self.nvml = {"error": 9, "says": "driver not loaded"}
        self.machine.program("nvidia-smi", "echo 'No devices were found'; exit 6")

    def closed_module(self) -> None:
        text = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Release Build  (builder@)\n"
        self.machine.file("/proc/driver/nvidia/version", text)

    def kernel(self, release: str, **changes: str) -> None:
        self.answers.update(uname={**X86, "release": release, "node": "here", **changes})

    def interface(self, name: str, up: bool = True) -> None:
        at = f"/sys/class/net/{name}"
        self.machine.file(f"{at}/flags", "0x1003\n" if up else "0x1002\n")
        self.machine.file(f"{at}/operstate", "up\n" if up else "down\n")
        self.machine.file(f"{at}/type", "1\n")
        self.machine.folder_at(f"{at}/device")
        self.machine.file("/proc/net/fib_trie", trie("127.0.0.1", "10.0.0.7"))
        self.machine.file("/proc/net/route", ROUTE.format("eth0"))
        self.machine.file("/proc/net/if_inet6", "")

    def infiniband(self, state: str) -> None:
        at = "/sys/class/infiniband/mlx5_0/ports/1"
        self.machine.file(f"{at}/state", f"{state}\n")
        self.machine.file(f"{at}/link_layer", "InfiniBand\n")
        self.machine.file(f"{at}/rate", "400 Gb/sec (4X NDR)\n")
        self.wants("multi-node")

    def set(self, **variables: str) -> None:
        self.machine.variables.update(variables)

    def package(self, name: str, version: str, *requires: str) -> None:
        """Another version of a distribution, in the place of the one that is there."""
        site = Path(f"{self.machine.root}{SITE}")
        stem = name.replace("-", "_")
        for found in site.glob(f"{stem}-*.dist-info"):
            self.machine.gone(f"{SITE}/{found.name}")
        self.machine.packages(f"{stem}-{version}")
        if requires:
            lines = "".join(f"Requires-Dist: {line}\n" for line in requires)
            text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{lines}"
            self.machine.file(f"{SITE}/{stem}-{version}.dist-info/METADATA", text)

    def torch(self, version: str, cuda: str | None) -> None:
        self.package("torch", version)
        text = f"__version__ = {version!r}\ndebug = False\ncuda = {cuda!r}\nhip = None\nxpu = None\n"
        self.machine.file(f"{SITE}/torch/version.py", text)

    def library(self, path: str, *needed: str, calls: str = "") -> None:
        """A real shared library that needs others and calls a function of theirs."""
        compiler = shutil.which("cc") or shutil.which("gcc")
        if not compiler:
            pytest.skip("NO C COMPILER: a compiled package cannot be made, so this fault cannot be injected")
        work = self.machine.folder / "compiled"
        work.mkdir(exist_ok=True)
        build = [compiler, "-shared", "-nostdlib", "-fPIC", "-x", "c", "-"]
        for name in needed:
            subprocess.run([*build, f"-Wl,-soname,{name}", "-o", work / name], input=b"int x;", check=True)
        source = f"extern void {calls}(void); void made(void) {{ {calls}(); }}" if calls else "int y;"
        at = self.machine.file(path)
        words = [*build, "-x", "none", "-Wl,--no-as-needed", *(work / name for name in needed), "-o", at]
        subprocess.run(words, input=source.encode(), check=True)
        result = bytearray(at.read_bytes())
        result[18:20] = (62).to_bytes(2, "little")  # for the processor that the machine says it has
        at.write_bytes(result)

    def toolkit(self, version: str, at: str = "/usr/local/cuda") -> None:
        plain = ".".join(version.split(".")[:2])
        self.machine.file(
            f"{at}/version.json", json.dumps({"cuda": {"version": version}, "cuda_nvcc": {"version": version}})
        )
        text = f"nvcc: NVIDIA (R) Cuda compiler driver\\nCuda compilation tools, release {plain}, V{version}\\n"
        self.machine.program("nvcc", f"printf '{text}'", f"{at}/bin")
        self.set(CUDA_HOME=at)

    def contract(self, *needs: str, more: str = "", platforms: tuple[str, ...] = ("cuda",)) -> None:
        rows = "".join(f'[[needs]]\n{need}\nlevel = "required"\ncite = "a test"\n' for need in needs)
        head = 'framework = "kite"\nversion = "1.0"\ndistribution = "torch"\norigin = "a test"\n'
        head += f"platforms = {list(platforms)!r}\n"
        path = self.machine.folder / "kite.toml"
        path.write_text(head + rows + more)
        self.asked["contract"] = str(path)
        self.frameworks = []

    def wants(self, *words: str) -> None:
        self.asked["wants"] = ",".join(words)

    # -- what is seen -----------------------------------------------------------------------------------

    def codes(self, monkeypatch: Any) -> set[str]:
        """The codes of what a check of this machine finds. Its probes run in this process: a fork of each costs more than its work."""
        monkeypatch.setattr(probe_run, "_ForkedRun", probe_run._SequentialRun)
        for name in ("LiveHost", "ReadOnlyHost"):
            monkeypatch.setattr(system, name, lambda *_: MachineAccess(self))
        os.chdir(self.machine.home)
        reports = workflow.check_machine(self.frameworks, **self.asked)
        return {finding.code for report in reports for finding in report.findings}
