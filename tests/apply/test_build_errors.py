"""Builds that fail, by a real uv: each is told in one sentence with its cause and what to do."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from gpuready.apply.build_errors import explain_build_failure
from gpuready.apply.uv import find_uv
from gpuready.apply.uv_failure import explain_uv_failure
from gpuready.apply.uv_output import InconclusiveResolution, parse_uv_failure
from gpuready.system import LiveHost, RunResult

BACKEND = "import os, signal, subprocess, sys\n\ndef build_wheel(folder, *more):\n    {0}\n"
PROJECT = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
NVCC = "The detected CUDA version (12.1) mismatches the version that was used to compile\\nPyTorch (13.0). Please make sure to use the same CUDA versions."
FAILURES = {
    "compiler": ("subprocess.check_call(['no-such-gcc', '-c', 'k.c'])", "compiler", "build-essential"),
    "torch": ("import torch", "imports torch", "pip wheel --no-build-isolation --no-deps kite==1.0"),
    "nvcc": (f'raise RuntimeError("""{NVCC}""")', "nvcc here is of CUDA 12.1 and torch is built for 13.0", "toolkit 13.0"),
    "rust": ("sys.exit(\"error: can't find Rust compiler\")", "needs Rust", "rustup.rs"),
    "toolkit": ("raise OSError('CUDA_HOME environment variable is not set.')", "needs nvcc", "CUDA_HOME"),
    "program": ("subprocess.check_call(['no-such-cmake'])", "the program no-such-cmake", "install it"),
    "killed": ("os.kill(os.getpid(), signal.SIGKILL)", "killed", "MAX_JOBS=1"),
    "unknown": ("raise ValueError('seven is not a colour')", "ValueError: seven is not a colour", "--find-links DIR"),
}  # fmt: skip


def make_sdist(folder: Path, body: str) -> None:
    files = {"backend.py": BACKEND.format(body), "pyproject.toml": PROJECT}
    files["PKG-INFO"] = "Metadata-Version: 2.2\nName: kite\nVersion: 1.0\n"
    with tarfile.open(folder / "kite-1.0.tar.gz", "w:gz") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(f"kite-1.0/{name}")
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))


@pytest.fixture(scope="module")
def uv(tmp_path_factory: pytest.TempPathFactory):
    """Builds one package for a new environment, without a network; returns what uv says."""
    folder, program = tmp_path_factory.mktemp("builds"), find_uv(LiveHost())
    cache = ("--offline", "--cache-dir", str(folder / "cache"))
    subprocess.run([program, "venv", "-q", *cache, "--python", sys.executable, str(folder / "env")], check=True)

    def build(sdists: Path) -> str:
        words = ("pip", "install", *cache, "--python", str(folder / "env"), "--no-deps", "--no-index")
        argv = [program, *words, "--reinstall", "--no-cache", "--find-links", str(sdists), "kite"]
        ran = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
        assert ran.returncode
        return ran.stderr

    return build


@pytest.mark.parametrize("name", FAILURES)
def test_a_build_that_fails_is_told_in_one_sentence(uv, tmp_path, name):
    body, cause, way = FAILURES[name]
    make_sdist(tmp_path, body)
    output = uv(tmp_path)
    found = explain_uv_failure(RunResult(("uv",), 1, out="", err=output), "pip install")
    assert found.startswith("kite 1.0 could not be built from its sources: ") and "\n" not in found
    assert cause in found and way in found and len(found) < 330
    unresolved = parse_uv_failure(output, "kite", {})
    assert isinstance(unresolved, InconclusiveResolution) and unresolved.why == found


@pytest.mark.parametrize(
    ("said", "cause", "way"),
    [
        ("k.c:2:10: fatal error: Python.h: No such file or directory", "headers of Python", "python3-dev"),
        ("k.c:2:10: fatal error: infiniband/verbs.h: No such file or directory", "infiniband/verbs.h", "development package"),
        ("a.cu:1:10: fatal error: cusparse.h: No such file or directory", "cusparse.h, a header of the CUDA", "CUDA toolkit"),
        ("error: command 'x86_64-linux-gnu-gcc' failed: No such file or directory", "compiler", "build-essential"),
        ("nvcc fatal   : Unsupported gpu architecture 'compute_120'", "does not know compute_120", "newer CUDA toolkit"),
        ("#error -- unsupported GNU version! gcc versions later than 13 are not supported!", "gcc versions later than 13", "g++"),
        ("/usr/bin/ld: cannot find -laio", "library libaio", "development package"),
        ("💥 maturin failed\n  Cargo, the Rust package manager, is not installed or is not on PATH.", "needs Rust", "rustup.rs"),
        ("ModuleNotFoundError: No module named 'wheel_stub'", "imports wheel_stub", "--no-build-isolation"),
        ("OSError: [Errno 28] No space left on device", "disk is full", "TMPDIR"),
    ],
)  # fmt: skip
def test_what_builds_say(said, cause, way):
    output = (
        f"  × Failed to build `kite==1.0`\n  ├─▶ The build backend returned an error\n\n      [stderr]\n      {said}\n"
    )
    found = explain_build_failure(output)
    assert cause in found and way in found and "or take a version that has a wheel" in found


def test_a_checkout_has_no_other_version_and_its_address_is_not_shown():
    output = (
        "error: Failed to build `kite @ https://me:secret@host/kite-1.0.tar.gz`\n  error: can't find Rust compiler\n"
    )
    found = explain_build_failure(output)
    assert "secret" not in found and "another version" not in found and "take a version" not in found
    assert explain_build_failure("error: No solution found when resolving dependencies") == ""
