"""What the tests of broken machines share."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.faults.bench import Machine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HERE = Path(__file__).parent
ROWS: list[tuple[str, str, str, float]] = []
"""What `make faults` expected and saw."""

HEAD = """# Faults, for real

The cases that need root, programs that are installed for them, or more than a moment: broken disks and hosts, starts of
several hosts, running jobs, and the real engines.

- date: {date}
- hardware: {hardware}
- command: `make faults REPORT={path}`, as root

| case | expected | seen | seconds |
|---|---|---|---|
"""


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine that is well."""
    return Machine(tmp_path)


@pytest.fixture
def open_machine() -> Iterator[Machine]:
    """The machine in a folder that other users may enter, which those of pytest are not."""
    folder = Path(tempfile.mkdtemp(prefix="tarmac-bench-"))
    folder.chmod(0o755)
    yield Machine(folder)
    subprocess.run(["chmod", "-R", "u+rwx", str(folder)], check=False)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> object:
    """Build a shared library from C; without a compiler the test is skipped, and says so."""
    folder = tmp_path_factory.mktemp("libraries")

    def build(source: Path, name: str) -> str:
        compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
        if not compiler:
            pytest.skip(f"NO C COMPILER: {source.name} cannot be built, so this fault cannot be injected")
        library = folder / name
        if not library.exists():
            flags = ["-shared", "-fPIC", "-O1", "-Wall", "-Wno-unused-result"]
            subprocess.run([compiler, *flags, "-o", library, source], check=True, capture_output=True)
        return str(library)

    return build


@pytest.fixture
def nvml(built, machine: Machine) -> Machine:
    """The machine with an NVML that is as ill as its FAKE_ variables say (tests/system/fake_nvml.c)."""
    machine.variables["TARMAC_NVML"] = built(HERE.parent / "system" / "fake_nvml.c", "libnvidia-ml.so.1")
    return machine


@pytest.fixture
def seen() -> Callable[[str, str, str, float], None]:
    """Note what one case was expected to show, and what it showed; the table is written at the end."""
    return lambda *row: ROWS.append(row)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not ROWS:
        return
    rows = [f"| {case} | {expected} | {found} | {seconds:.2f} |" for case, expected, found, seconds in ROWS]
    lines = [re.sub(r"/\S*/pytest-of-[^/]+/pytest-\d+/[^/ ]+", "…", row) for row in rows]
    terminalreporter.write_line("\n".join(lines))
    path = os.environ.get("FAULTS_REPORT")
    if path:
        head = HEAD.format(date=date.today(), hardware=_hardware(), path=path)
        Path(path).write_text(head + "\n".join(lines) + "\n")


def _hardware() -> str:
    here = os.uname()
    gpu = "with a GPU" if os.path.exists("/dev/nvidiactl") else "without GPU"
    return f"{os.cpu_count()} cores, {here.machine}, Linux {'.'.join(here.release.split('.')[:2])}, {gpu}"
