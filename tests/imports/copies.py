"""Environments to break: copies of real wheels, made of hard links, with a small framework that imports them."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuready import probe
from gpuready.check.evaluate import judge
from gpuready.model import Contract, Fact, Facts
from gpuready.probe.environment_choice import choose_environment
from gpuready.probe.imports import probe_imports
from gpuready.probe.packages import probe_packages
from gpuready.rules import applicable_rules
from gpuready.system import LiveHost
from gpuready.workflow.machine_facts import add_import_result

WHEELS: tuple[str, ...] = ("numpy", "tokenizers", "safetensors", "pyyaml", "pydantic", "pydantic-core")
WHEELS += ("typing-extensions", "annotated-types", "typing-inspection")
IMPORTED = ("numpy.linalg", "tokenizers", "safetensors", "yaml", "pydantic.main")
MINOR = f"3.{sys.version_info.minor}"
CODES = ("PKG006", "PKG020", "PKG042", "PKG043", "PKG044", "PKG046", "PKG047")
DEMO = {
    "__init__.py": "from demo import plain, guarded\nimport yaml\n",
    "plain.py": "import random\nimport tokenizers\nimport safetensors\nfrom yaml import safe_load\n\ndef late():\n    import left_pad\n",
    "guarded.py": "try:\n    import left_pad\nexcept ImportError:\n    left_pad = None\n",
    "extra.py": "from demo.plain import late\nVALUE = 1\n",
}
REQUIRES = ("numpy", "tokenizers", "safetensors", "PyYAML", "pydantic>=2")
LONG_AGO = 946684800.0
CONTRACT = Contract("demo", "1.0", distribution="demo", platforms=())


class EnvironmentCopy:
    """One environment below a folder; ``here`` is the current folder of what runs in it."""

    def __init__(self, root: Path):
        self.root, self.here = root, root / "here"
        self.site = root / "lib" / f"python{MINOR}" / "site-packages"
        self.python = root / "bin" / "python"
        self.variables: dict[str, str] = {}

    def make(self) -> EnvironmentCopy:
        self.site.mkdir(parents=True)
        self.here.mkdir()
        self.python.parent.mkdir()
        self.python.symlink_to(os.path.realpath(sys.executable))
        base = os.path.dirname(os.path.realpath(sys.executable))
        (self.root / "pyvenv.cfg").write_text(
            f"home = {base}\ninclude-system-site-packages = false\nversion = {sys.version.split()[0]}\n"
        )
        for name in WHEELS:
            self._link_wheel(importlib.metadata.distribution(name))
        self._run_python(f"import {', '.join(IMPORTED)}", {})  # compiles them once, for every copy
        self.install("huggingface_hub", "2.0", {"huggingface_hub/__init__.py": "x = 1\n"})  # tokenizers requires it
        self.install("demo", "1.0", {f"demo/{name}": text for name, text in DEMO.items()}, REQUIRES)
        return self

    def _link_wheel(self, wheel: importlib.metadata.Distribution) -> None:
        for file in wheel.files or ():
            if ".." in file.parts or "__pycache__" in file.parts or "tests" in file.parts:
                continue
            target = self.site / file
            target.parent.mkdir(parents=True, exist_ok=True)
            _link(os.path.realpath(str(wheel.locate_file(file))), target)

    def clone(self, root: Path) -> EnvironmentCopy:
        subprocess.run(["cp", "-al", str(self.root), str(root)], check=True)
        return EnvironmentCopy(root)

    def install(
        self, name: str, version: str, files: dict[str, str], requires: tuple[str, ...] = (), at: Path | None = None
    ) -> None:
        site = at or self.site
        for path, text in files.items():
            (site / path).parent.mkdir(parents=True, exist_ok=True)
            (site / path).write_text(text)
        info = site / f"{name}-{version}.dist-info"
        info.mkdir(parents=True)
        needs = "".join(f"Requires-Dist: {text}\n" for text in requires)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}")
        (info / "RECORD").write_text("".join(f"{path},,{len(text)}\n" for path, text in files.items()))
        self.age()

    def age(self) -> None:
        """Let everything that is not linked to real wheels be installed long ago."""
        for path in (self.site, *self.site.rglob("*")):
            if path.is_dir() or path.lstat().st_nlink == 1:
                os.utime(path, (LONG_AGO, LONG_AGO), follow_symlinks=False)

    def use(self, statement: str) -> None:
        """Let the framework import one more: numpy and pydantic take long to import, and only some ways concern them."""
        self.rewrite("demo/__init__.py", lambda data: data + f"{statement}\n".encode())
        self.rewrite("demo-1.0.dist-info/RECORD", lambda data: re.sub(rb"(__init__.py,,)\d+", rb"\1", data))
        self.age()

    # -- ways to break a file; a hard link is replaced, never written to

    def path(self, pattern: str) -> Path:
        (found,) = sorted(self.site.glob(pattern))
        return found

    def delete(self, pattern: str) -> None:
        import shutil

        for path in sorted(self.site.glob(pattern)):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()

    def rewrite(self, pattern: str, change: Callable[[bytes], bytes]) -> None:
        path = self.path(pattern)
        data = change(path.read_bytes())
        path.unlink()
        path.write_bytes(data)

    # -- the truth, and the answer

    def really_imports(self, module: str = "demo") -> bool:
        return self._run_python(f"import {module}", {"PYTHONDONTWRITEBYTECODE": "1", **self.variables}) == 0

    def _run_python(self, code: str, variables: dict[str, str]) -> int:
        environment = {"PATH": "/usr/bin:/bin", "HOME": str(self.here), **variables}
        words = [self.python, "-c", code]
        return subprocess.run(words, cwd=self.here, env=environment, capture_output=True, check=False).returncode

    def judge(self, contract: Contract = CONTRACT, deep: bool = False, imports: str = "needed") -> dict[str, str]:
        """Return the severity of each finding about imports."""
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.here)
            for name, value in {"HOME": str(self.here), **self.variables}.items():
                patch.setenv(name, value)
            self.facts = self._collect(LiveHost(), contract, deep, imports)
        rules = [rule for rule in applicable_rules(self.facts) if rule.CODE in CODES]
        self.report = judge(rules, self.facts, contract)
        undecided = {row.code: "undecided" for row in self.report.undecided}
        return undecided | {finding.code: finding.severity for finding in self.report.findings}

    def _collect(self, host: LiveHost, contract: Contract, deep: bool, imports: str) -> Facts:
        target = choose_environment(host, str(self.root))
        whole_torch = Fact("torch.broken", None, "the test")
        found = [*probe_packages(host, target), *probe_imports(host, target, (contract.distribution,), deep)]
        facts = probe.assemble_host_facts(host, [whole_torch, *found])
        return add_import_result(facts, str(self.root), imports)


def _link(source: str, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        import shutil

        shutil.copy2(source, target)
