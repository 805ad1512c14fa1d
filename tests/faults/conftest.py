"""What the tests of broken machines share."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.faults.bench import Machine

HERE = Path(__file__).parent


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine that is well."""
    return Machine(tmp_path)


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
