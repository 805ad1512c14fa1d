"""Classes of errors in sentences of many programs: each is found by its form, and what only looks like it is not."""

from __future__ import annotations

import pytest

from gpuready.catalog.symbols import load_earlier_names
from gpuready.logs.stated_errors import CUDA_ERRORS, parse_cuda_error
from tests.every import every
from tests.logs.answers import diagnose

HEAD = "Traceback (most recent call last):\n"
SITE = "/opt/env/lib/python3.10/site-packages"


def cause_of(text: str) -> str:
    found = diagnose(text)
    return found.cause or found.verdict


def frame(file: str, line: int, function: str, code: str) -> str:
    return f'  File "{file}", line {line}, in {function}\n    {code}\n'


# -- tracebacks that are cut ------------------------------------------------------------------------------------

CUT = [
    frame(f"{SITE}/tool/deps.py", 9, "check", 'require_version("tool>=0.9,<=0.12", "pip install")'),
    frame(f"{SITE}/torch/_inductor/scheduler.py", 88, "codegen", "self.emit(node)"),
    frame(f"{SITE}/torch/cuda/__init__.py", 3, "_lazy_init", 'raise AssertionError("Torch not compiled with CUDA enabled")'),
]  # fmt: skip


@pytest.mark.parametrize("last", CUT)
def test_the_code_of_a_cut_traceback_names_no_cause(last):
    found = diagnose(HEAD + frame("/home/me/train.py", 3, "<module>", "main()") + last)
    assert (found.verdict, found.exit) == ("unknown", 3) and found.origin


# -- releases of Python -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "want"),
    [
        (
            "ImportError: cannot import name 'Self' from 'typing' (/usr/lib/python3.10/typing.py)",
            "Python 3.11 or newer",
        ),
        ("ModuleNotFoundError: No module named 'tomllib'", "Python 3.11 or newer"),
        ("AttributeError: module 'datetime' has no attribute 'UTC'", "Python 3.11 or newer"),
        ("AttributeError: 'str' object has no attribute 'removesuffix'", "Python 3.9 or newer"),
        ("ModuleNotFoundError: No module named 'asyncore'", "a Python before 3.12"),
        ("ModuleNotFoundError: No module named 'distutils.version'", "a Python before 3.12"),
        ("AttributeError: module 'inspect' has no attribute 'getargspec'", "a Python before 3.11"),
        ("ImportError: cannot import name 'Sequence' from 'collections'", "a Python before 3.10"),
    ],
)
def test_a_name_of_another_python_says_which_way(error, want):
    found = diagnose(HEAD + '  File "/srv/app/serve.py", line 4, in <module>\n    import engine\n' + error + "\n")
    assert (found.cause, found.captures["want"]) == ("python-version-unsupported", want)


def test_an_old_python_names_no_module_in_its_message():
    text = HEAD + frame("/usr/lib/python3.6/site-packages/a/b.py", 2, "<module>", "from contextlib import nullcontext")
    found = diagnose(text + "ImportError: cannot import name 'nullcontext'\n")
    assert found.cause == "python-version-unsupported"
    assert (found.captures["have"], found.captures["symbol"]) == ("3.6", "contextlib.nullcontext")


def test_a_name_that_this_python_has_is_not_blamed_on_it():
    text = HEAD + frame("/opt/lib/python3.12/site-packages/a/b.py", 2, "<module>", "import tomllib")
    assert cause_of(text + "ModuleNotFoundError: No module named 'tomllib'\n") != "python-version-unsupported"
    text = (
        HEAD
        + frame("/home/me/run.py", 2, "<module>", "import parser")
        + "ModuleNotFoundError: No module named 'parser'\n"
    )
    assert cause_of(text) != "python-version-unsupported", "may be the user's own module"


def test_the_table_of_names_is_true_of_this_python():
    import importlib.util
    import sys

    have = sys.version_info[:2]
    for (kind, name), span in load_earlier_names().items():
        came, gone = span["came"], span["gone"]
        if kind != "python":
            continue
        plain = ":" not in name and name[0].islower() and name.split(".")[0] not in ("str", "bytes", "int", "datetime")
        if (
            plain
            and "." not in name
            and name not in ("distutils", "_posixshmem", "msilib", "nis", "ossaudiodev", "spwd")
        ):
            is_there = tuple(map(int, came.split("."))) <= have if came else have < tuple(map(int, gone.split(".")))
            assert (importlib.util.find_spec(name) is not None) == is_there, name


# -- the dynamic loader -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cause", "line"),
    [
        ("missing-system-library", "./server: error while loading shared libraries: libpython3.9.so.1.0: cannot open shared object file: No such file or directory"),
        ("missing-system-library", "OSError: libopenmpi-x.4.so.12: cannot open shared object file: No such file or directory"),
        ("ext-abi-mismatch", "ImportError: /e/kern.so: symbol cudaMallocAsync version libcudart.so.11.0 not defined in file libcudart.so.11.0 with link time reference"),
        ("glibc-too-old", "./tool: symbol fcntl64 version GLIBC_2.28 not defined in file libc.so.6 with link time reference"),
        ("glibcxx-too-old", "./tool: symbol __cxa_x version CXXABI_1.3.13 not defined in file libstdc++.so.6 with link time reference"),
        ("driver-too-old", "./tool: symbol cuMemX version libcuda.so.1 not defined in file libcuda.so.1 with link time reference"),
        ("ext-abi-mismatch", "OSError: /opt/x/libkern.so: wrong ELF class: ELFCLASS32"),
        ("ext-abi-mismatch", "OSError: /opt/x/libkern.so: ELF load command past end of file"),
        ("ext-abi-mismatch", "/usr/bin/served: symbol lookup error: /opt/x/libkern.so: undefined symbol: kern_open"),
    ],
)  # fmt: skip
def test_the_dynamic_loader_in_any_program(cause, line):
    assert cause_of(line + "\n") == cause
    assert cause_of("warning: cannot refresh a cache, going on\n" + line + "\n") == cause


# -- compilers --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cause", "line"),
    [
        ("toolkit-too-old-for-arch", "nvcc fatal   : Value 'sm_121' is not defined for option 'gpu-architecture'"),
        ("toolkit-too-old-for-arch", "nvcc fatal   : Unknown option '--threads-x'"),
        ("extension-build-failed", "nvcc fatal   : A single input file is required for a non-link phase"),
        ("extension-build-failed", 'CMake Error: The CUDA compiler "/usr/bin/nvcc" is not able to compile a simple test program.'),
        ("missing-system-library", "/usr/include/x.h:5:10: fatal error: limits.h: No such file or directory"),
    ],
)  # fmt: skip
def test_compilers_that_give_up(cause, line):
    text = f"[ 3%] Building CUDA object a.cu.o\n{line}\nmake: *** [Makefile:8: all] Error 2\n"
    assert cause_of(text) == cause


# -- the hub ----------------------------------------------------------------------------------------------------


def test_a_status_in_the_log_of_every_request_is_no_refusal():
    text = 'INFO httpx: HTTP Request: HEAD https://huggingface.co/a/b/x.json "HTTP/1.1 404 Not Found"\n'
    assert cause_of(text + "step 1/9 loss 1.2\nstep 2/9 loss 1.1\nstep 3/9 loss 1.0\n") == "healthy"


# -- errors of CUDA ---------------------------------------------------------------------------------------------


@every("number", CUDA_ERRORS)
def test_an_error_of_cuda_by_number_and_name(number):
    name = f"cudaError{CUDA_ERRORS[number]}"
    for text in (
        f"CUDA error {number} at /src/ops.cu:17: it failed",
        f"CUDA Runtime Error (code: {number})".replace("(code: ", "code "),
        f"Cuda failure {number} 'why'",
        f"hipError: HIP error code: {number}",
        f"cudaLaunchKernel() returned error {number}",
        f"the call came back with {name}: what a pity",
    ):
        assert parse_cuda_error(text) == name, text


@pytest.mark.parametrize(
    "text", ["CUDA error 12.4 is no number", "NCCL error 2", "CUDA 100 devices", "error 700", "CUDA errors: 2000"]
)
def test_other_numbers_are_no_error_of_cuda(text):
    assert parse_cuda_error(text) == ""


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("CUDA error 98 at /src/ops.cu:17: no such kernel", "ext-arch-missing"),
        ("engine: hipErrorNoBinaryForGpu from launch", "ext-arch-missing"),
        ("ROCm error: invalid device function", "ext-arch-missing"),
        ("[ERROR] CUDA runtime error: invalid device ordinal /src/run.cc:12", "invalid-device-ordinal"),
        ("engine: CUDA error code 35 while starting", "driver-too-old"),
        ("engine: CUDA driver error 802 while starting", "fabric-manager-down"),
        ("engine: CUDA error: 805 in worker", "mps-daemon-gone"),
    ],
)
def test_an_error_of_cuda_alone_names_a_cause(text, cause):
    assert cause_of(f"loading kernels\n{text}\n") == cause
    survived = f"{text}\n" + "".join(f"step {n}/90 loss 1.{n}\n" for n in range(1, 6))
    assert cause_of(survived) != cause, "a run that goes on did not end by it"


# -- chains of NCCL ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "cause"),
    [
        ("transport/shm.cc", "shm-too-small"),
        ("transport/net_ib.cc", "nccl-ib-link"),
        ("transport/p2p.cc", "nccl-p2p-broken"),
        ("transport/net_socket.cc", "node-network-broken"),
        ("misc/socket.cc", "node-network-broken"),
    ],
)
def test_the_file_in_which_nccl_fails_first(file, cause):
    inner = (f"{file}:77", "transport.cc:30", "init.cc:813", "group.cc:72")
    text = "".join(f"node5:88:91 [1] NCCL INFO {place} -> 2\n" for place in inner)
    assert cause_of(text + HEAD + '  File "/home/me/train.py", line 6, in <module>\n') == cause


# -- how logs are pasted ----------------------------------------------------------------------------------------


def test_a_traceback_in_one_line_that_lost_its_angle_brackets():
    text = (
        f'Traceback (most recent call last): File "{SITE}/vision/**init**.py", line 7, in from .ops import nms '
        f'File "", line 228, in _call_with_frames_removed File "{SITE}/vision/ops.py", line 3, in '
        "import zstandardx ModuleNotFoundError: No module named 'zstandardx'"
    )
    found = diagnose(text)
    assert (found.cause, found.captures["module"]) == ("missing-python-package", "zstandardx")
    assert found.evidence[0].text == "ModuleNotFoundError: No module named 'zstandardx'"


def test_paths_of_windows_make_no_difference():
    code = frame("{root}triton{s}backends{s}nvidia{s}compiler.py", 309, "make_cubin", "raise Failed(log)")
    for root, slash in ((f"{SITE}/", "/"), ("D:\\env\\Lib\\site-packages\\", "\\")):
        text = HEAD + code.format(root=root, s=slash) + "RuntimeError: the assembler gave up\n"
        assert cause_of(text) == "triton-kernel-failed"
