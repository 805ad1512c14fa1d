"""Why building a package from its sources failed, in one sentence with what to do, from uv's output.

error: Failed to build `kite==1.0`
  cause: The build backend returned an error
  cause: Call to `setuptools.build_meta.build_wheel` failed (exit status: 1)
         [stderr]
         k.c:2:10: fatal error: infiniband/verbs.h: No such file or directory
"""

from __future__ import annotations

import re

_FAILED = re.compile(r"Failed to (?:download and )?build(?: source distribution)?:? `([^`\n]{1,200})`")
_PROGRAMS = r"(?:[\w.-]{0,40}-)?(?:gcc|g\+\+|cc|c\+\+|clang|clang\+\+)(?:-\d+)?"
_COMPILER_WAY = "install one (on Debian and Ubuntu: apt install build-essential)"
_RUST_WAY = "install Rust (rustup.rs)"

_CAUSES: tuple[tuple[str, str, str], ...] = (
    (r"No space left on device", "the disk is full", "make room, or name another place with TMPDIR and UV_CACHE_DIR"),
    (r"failed \(signal: 9 \(SIGKILL\)\)|Killed signal terminated program|nvcc error\s*:.{0,80}died due to signal 9",
     "it was killed, most often because memory ran out", "give it fewer jobs (MAX_JOBS=1), or more memory"),
    (r"detected CUDA version \(([\d.]+)\) mismatches the version that was used to compile\s+PyTorch \(([\d.]+)\)",
     "nvcc here is of CUDA {0} and torch is built for {1}", "install the CUDA toolkit {1} and set CUDA_HOME to it"),
    (r"Unsupported gpu architecture '(\w{1,20})'", "this nvcc does not know {0}",
     "install a newer CUDA toolkit and set CUDA_HOME to it, or leave that GPU out of TORCH_CUDA_ARCH_LIST"),
    (r"unsupported (?:GNU|clang) version! (.{5,80}?) are not supported", "nvcc does not take this host compiler ({0} are not supported)",
     "install an older g++ and name it in NVCC_PREPEND_FLAGS='-ccbin g++-12'"),
    (r"CUDA_HOME environment variable is not set|nvcc(?:'|: command)? not found|No such file or directory: '[^']{0,200}nvcc'|Could not find nvcc|"
     r"Failed to find nvcc|No CUDA toolset found|CUDA_HOME is not set",
     "it needs nvcc, which is not found", "install the CUDA toolkit of torch's CUDA and set CUDA_HOME to it"),
    (r"No module named '?(torch)\b", "its build imports torch without asking for it",
     "make its wheel where torch is installed (pip wheel --no-build-isolation --no-deps {package}) and name the folder with --find-links DIR"),
    (r"puccinialin|can't find Rust compiler|Rust compiler not found|rustc.{0,40}not (?:found|installed)|Cargo, the Rust package manager, is not installed|"
     r"No such file or directory: '(?:rustc|cargo)'|rustup could not choose a version", "it needs Rust, which is not there", _RUST_WAY),
    (r"package requires? rustc ([\d.]+)|requires rustc ([\d.]+) or newer", "it needs a newer Rust ({0})", "update it (rustup update)"),
    (r"fatal error: (?:Python|pyconfig)\.h: No such file", "it needs the headers of Python, which are not there",
     "install them (on Debian and Ubuntu: apt install python3-dev), or take a Python that uv fetched"),
    (r"fatal error: ((?:cuda|cublas|cudnn|nccl|cusparse|cusolver|curand|thrust|nv)[\w./+-]{0,100}\.(?:h|cuh)): No such file",
     "it needs {0}, a header of the CUDA toolkit or of an NVIDIA library", "install the CUDA toolkit with its libraries and set CUDA_HOME to it"),
    (r"fatal error: ([\w./+-]{1,120}): No such file", "it needs the header {0}, which is not there",
     "install the development package of the library that has it"),
    (rf"No such file or directory: '({_PROGRAMS})'|command '({_PROGRAMS})' failed: No such file|({_PROGRAMS}): (?:command )?not found|"
     r"(?:C|CXX)_COMPILER-NOTFOUND|No CMAKE_(?:C|CXX)_COMPILER could be found|Unknown compiler\(s\): \[\['?(cc)?",
     "it needs a C or C++ compiler, and none is there", _COMPILER_WAY),
    (r"cannot find -l([\w.+-]{1,60})", "it needs the library lib{0}, which is not there", "install the development package that has it"),
    (r"No such file or directory: '([\w.+-]{1,60})'|([\w.+-]{1,60}): command not found|CMake must be installed|(?:ninja|Ninja) is required",
     "it needs the program {0}, which is not there", "install it"),
    (r"No module named '?([\w.]{1,80})", "its build imports {0} without asking for it",
     "make its wheel where {0} is installed (pip wheel --no-build-isolation --no-deps {package}) and name the folder with --find-links DIR"),
    (r"out of memory|std::bad_alloc|virtual memory exhausted", "memory ran out", "give it fewer jobs (MAX_JOBS=1), or more memory"),
)  # fmt: skip
"""What a build says, the cause, and what to do; the first that is found counts."""

_NOISE = ("hint:", "cause:", "[std", "note:", "warning:")


def explain_build_failure(output: str) -> str:
    """Return which package could not be built, why, and what to do; empty if the failure is not that of a build."""
    failed = _FAILED.search(output)
    if not failed:
        return ""
    package = failed[1].rpartition("/")[2] if "://" in failed[1] or failed[1].startswith("/") else failed[1]
    name = package.replace("==", " ").replace(" @ ", " ")
    body = output[failed.end() :]
    flat = " ".join(body.split())  # uv breaks lines at its width
    start = f"{name} could not be built from its sources: "
    other = ", or take a version that has a wheel" if "==" in package else ""
    for pattern, cause, way in _CAUSES:
        if match := re.search(pattern, flat):
            found = [one for one in match.groups() if one] or ["that its output names"]
            cause, way = (text.format(*found, *found, package=package) for text in (cause, way))
            return f"{start}{cause}; {way}{other}"
    return f"{start}{_last_error(body)}; make a wheel of it and name its folder with --find-links DIR{other}"


def _last_error(body: str) -> str:
    """Return the line of a build's output that says most: its last error, else its last line."""
    lines = [line.strip() for line in body.splitlines()]
    kept = [line for line in lines if line and not line.startswith(_NOISE)]
    errors = [line for line in kept if re.match(r"(?:\w+\.)*\w*(?:Error|Exception|error)\b", line)]
    return (errors or kept or ["its build ended without a word"])[-1][:200]
