"""Builds that fail, by a real uv: each is told in one sentence with its cause and what to do."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from gpuready.apply.build_errors import explain_build_failure
from gpuready.apply.uv import explain_uv_failure, find_uv
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


def explain(package: str, *lines: str) -> str:
    return explain_build_failure(
        "\n".join((f"error: Failed to build `{package}`", "  cause: The build backend failed", *lines))
    )


@pytest.mark.parametrize(
    ("package", "command"),
    [
        ("kite==1.0", "(pip wheel --no-build-isolation --no-deps kite==1.0)"),
        ("kite @ file:///home/me/my%20src/kite", "(pip wheel --no-build-isolation --no-deps '/home/me/my src/kite')"),
        ("/home/me/kite", "(pip wheel --no-build-isolation --no-deps /home/me/kite)"),
        ("kite @ git+https://me:secret@host/kite@v1==2", "(in its folder: pip wheel --no-build-isolation --no-deps .)"),
        ("kite @ file:///src/all#subdirectory=kite", "(in its folder: pip wheel --no-build-isolation --no-deps .)"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("module", ["torch", "numpy"])
def test_the_wheel_of_a_path_or_of_git_is_never_made_by_its_bare_name(package, command, module):
    found = explain(package, f"ModuleNotFoundError: No module named '{module}'")
    assert found.startswith("kite ") and command in found and "secret" not in found


@pytest.mark.parametrize(
    ("said", "cause", "way"),
    [
        ("/bin/sh: 1: nvcc: not found", "needs nvcc", "CUDA_HOME"),
        ("/bin/sh: 1: mpicc: not found", "needs mpicc", "libopenmpi-dev"),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'mpicc'", "needs mpicc", "libopenmpi-dev"),
        ("/bin/sh: 1: hipcc: not found", "needs hipcc", "ROCM_HOME"),
        ("/bin/sh: 1: x86_64-linux-gnu-g++-12: not found", "C or C++ compiler", "build-essential"),
        ("make: gcc: command not found", "C or C++ compiler", "build-essential"),
        ("/bin/sh: 1: cmake: not found", "the program cmake", "install it"),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'python3.12'", "the program python3.12", "install it"),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'requirements.txt'", "the file requirements.txt", "repository"),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'VERSION'", "the file VERSION", "repository"),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'csrc/version.txt'", "the file csrc/version.txt", "repository"),
    ],
)  # fmt: skip
def test_a_missing_file_is_no_program_and_not_each_cc_is_a_c_compiler(said, cause, way):
    found = explain("kite==1.0", said)
    assert cause in found and way in found
    assert ("C or C++" in found) == ("C or C++" in cause) and ("the program" in found) == ("the program" in cause)


KERNEL_ERROR = 'kernel.cu(12): error: identifier "foo" is undefined'


@pytest.mark.parametrize(
    ("lines", "cause"),
    [
        (["sh: line 1: lsb_release: command not found", KERNEL_ERROR, "error: command 'nvcc' failed"], KERNEL_ERROR),
        (["lsb_release: command not found", *["note: compiling"] * 40, KERNEL_ERROR], KERNEL_ERROR),
        (["conftest.c:3:1: error: unknown type", *["checking"] * 40, "make: cmake: command not found"], "program cmake"),
        (["a.c:1:10: fatal error: Python.h: No such file or directory", *["  File x"] * 40, "RuntimeError: bad"], "headers of Python"),
    ],
)  # fmt: skip
def test_the_last_lines_and_a_compilers_error_count_more_than_a_harmless_line(lines, cause):
    assert f"from its sources: {cause}" in explain("kite==1.0", *lines).replace("it needs the ", "")


REQUIRES = """error: Failed to download and build `kite==1.0`
  cause: Failed to resolve requirements from `build-system.requires`
  cause: No solution found when resolving: `setuptools>=60`
  cause: {0}
"""
UNSATISFIABLE = (
    "Because {0} and you require setuptools>=60, we can conclude that your requirements are unsatisfiable.\n\n{1}"
)
OFF = "hint: Packages were unavailable because the network was disabled."
LOGIN = "hint: An index (https://me:secret@host:81/simple) returned a 403 Forbidden error. Check that the index URL is correct."


@pytest.mark.parametrize(
    ("said", "cause", "way"),
    [
        (UNSATISFIABLE.format("setuptools was not found in the cache", OFF), "setuptools, which is not in uv's cache", "allow the network"),
        (UNSATISFIABLE.format("setuptools was not found in the package registry", ""), "setuptools, which no index", "--find-links"),
        (UNSATISFIABLE.format("setuptools was not found in the package registry", LOGIN), "the index host:81: it refuses", "login"),
        (UNSATISFIABLE.format("there are no versions of setuptools", ""), "setuptools, and no version", "--find-links"),
        ("Failed to fetch: http://[::1]:9/simple/setuptools/\n  cause: Connection refused (os error 111)",
         "needs setuptools>=60, and nothing could be fetched from [::1]:9: it refuses the connection", "proxy"),
    ],
)  # fmt: skip
def test_what_a_build_asks_for_and_cannot_have_is_named(said, cause, way):
    output = REQUIRES.format(said)
    found = explain_uv_failure(RunResult(("uv",), 1, out="", err=output), "pip install")
    assert found.startswith("kite 1.0 could not be built from its sources: its build needs setuptools")
    assert cause in found and way in found and "secret" not in found
    unresolved = parse_uv_failure(output, "kite", {})
    assert isinstance(unresolved, InconclusiveResolution) and unresolved.why == found


def test_a_folder_whose_name_only_its_build_tells():
    unnamed = "Using Python 3.11.7 environment at: env\nerror: {0}"
    backend = "The build backend returned an error\n  cause: Call to `setup` failed\n  No module named 'torch'"
    found = explain_build_failure(unnamed.format(backend))
    assert "imports torch" in found and "in its folder: pip wheel --no-build-isolation --no-deps ." in found
    requires = REQUIRES.format(UNSATISFIABLE.format("setuptools was not found in the cache", OFF)).partition("cause: ")[
        2
    ]
    found = explain_build_failure(unnamed.format(requires))
    assert (
        found.startswith("the package in the folder could not be built")
        and "needs setuptools, which is not in" in found
    )


def test_a_checkout_has_no_other_version_and_its_address_is_not_shown():
    output = (
        "error: Failed to build `kite @ https://me:secret@host/kite-1.0.tar.gz`\n  error: can't find Rust compiler\n"
    )
    found = explain_build_failure(output)
    assert "secret" not in found and "another version" not in found and "take a version" not in found
    assert explain_build_failure("error: No solution found when resolving dependencies") == ""
