"""What the tests of broken machines share."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.faults.bench import Machine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HERE = Path(__file__).parent


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine that is well."""
    return Machine(tmp_path)


@pytest.fixture
def open_machine() -> Iterator[Machine]:
    """The machine in a folder that other users may enter, which those of pytest are not."""
    folder = Path(tempfile.mkdtemp(prefix="gpuready-bench-"))
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
    machine.variables["GPUREADY_NVML"] = built(HERE.parent / "system" / "fake_nvml.c", "libnvidia-ml.so.1")
    return machine


@pytest.fixture
def seen(request: pytest.FixtureRequest) -> Callable[[str, str, str, float], None]:
    """Note what one case was expected to show, what it showed, and in how many seconds; the table of `make faults` has it."""
    return lambda *row: request.node.user_properties.append(("seen", row))
