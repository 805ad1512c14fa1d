"""Why fetching a package or building it from its sources failed, in one sentence with what to do, from uv's output.

error: Failed to build `kite==1.0`
  cause: The build backend returned an error
  cause: Call to `setuptools.build_meta.build_wheel` failed (exit status: 1)
         [stderr]
         k.c:2:10: fatal error: infiniband/verbs.h: No such file or directory
"""

import re
import shlex

from gpuready.system.download import unquote_url

_NETWORK_CAUSES = (
    ("failed to lookup address", "its name does not resolve from here"),
    ("dns error", "its name does not resolve from here"),
    ("Connection refused", "it refuses the connection"),
    ("connection closed", "it closed the connection in the middle of an answer"),
    ("connection reset", "it broke the connection off"),
    ("Connection reset", "it broke the connection off"),
    ("IncompleteMessage", "it closed the connection in the middle of an answer"),
    ("end of file before message length", "it closed the connection in the middle of an answer"),
    ("operation timed out", "it does not answer in time"),
    ("timed out", "it does not answer in time"),
    ("invalid peer certificate", "its certificate is not trusted here"),
    ("certificate", "its certificate is not trusted here"),
    ("401 Unauthorized", "it asks for a password (401)"),
    ("403 Forbidden", "it refuses the request (403)"),
    ("500 Internal", "it fails (500)"),
    ("502 Bad Gateway", "it fails (502)"),
    ("503 Service", "it is not in service (503)"),
)

LOGIN_WAY = "check its login (in ~/.netrc or in its address)"


def find_network_cause(output: str) -> str:
    """Return why a host did not answer, from uv's error; empty if that is not the reason."""
    return next((cause for phrase, cause in _NETWORK_CAUSES if phrase in output), "")


def find_host(output: str) -> str:
    """Return the host of the first address in uv's error, without login and path: both may be secret."""
    match = re.search(r"https?://(?:[^/\s`]*@)?((?:\[[\w:.%-]{2,60}\]|[^/\s`):]+)(?::\d+)?)", output)
    return match[1] if match else ""


def find_refusing_index(output: str) -> tuple[str, str]:
    """Return the address of an index that refused and how, from uv's hint; empty if none did.

    hint: An index URL (https://host/simple) could not be queried due to a lack of valid authentication credentials (401 Unauthorized)
    hint: An index (https://host/simple) returned a 403 Forbidden error. Check that the index URL is correct and …
    """
    flat = " ".join(output.split())
    match = re.search(
        r"An index(?: URL)? \(([^\s)]{1,500})\) (?:could not be queried[^()]{0,150}\(|returned a )"
        r"(401 Unauthorized|403 Forbidden)",
        flat,
    )
    return (match[1], find_network_cause(match[2])) if match else ("", "")


_FAILED = re.compile(r"Failed to (?:download and )?build(?: source distribution)?:? `([^`\n]{1,200})`")
_FAILED_UNNAMED = re.compile(
    r"(?m)^error: (?=(?:The build backend returned an error|Failed to (?:resolve|install) requirements from))()"
)
"""A folder whose name only its build tells, as one with only a setup.py."""
_PROGRAMS = r"(?<![\w.+-])(?:[\w.-]{0,40}-)?(?:gcc|g\+\+|cc|c\+\+|clang|clang\+\+)(?:-\d+)?"
_NAME = r"[\w+-]{1,60}(?:\.\d{1,4}){0,3}"  # of a program: python3.12, but not requirements.txt
_COMPILER_WAY = "install one (on Debian and Ubuntu: apt install build-essential)"
_RUST_WAY = "install Rust (rustup.rs)"

_SPECIFIC_CAUSES: tuple[tuple[str, str, str], ...] = (
    (r"No space left on device", "the disk is full", "make room, or name another place with TMPDIR and UV_CACHE_DIR"),
    (r"failed \(signal: 9 \(SIGKILL\)\)|Killed signal terminated program|nvcc error\s*:.{0,80}died due to signal 9",
     "it was killed, most often because memory ran out", "give it fewer jobs (MAX_JOBS=1), or more memory"),
    (r"detected CUDA version \(([\d.]+)\) mismatches the version that was used to compile\s+PyTorch \(([\d.]+)\)",
     "nvcc here is of CUDA {0} and torch is built for {1}", "install the CUDA toolkit {1} and set CUDA_HOME to it"),
    (r"Unsupported gpu architecture '(\w{1,20})'", "this nvcc does not know {0}",
     "install a newer CUDA toolkit and set CUDA_HOME to it, or leave that GPU out of TORCH_CUDA_ARCH_LIST"),
    (r"unsupported (?:GNU|clang) version! (.{5,80}?) are not supported", "nvcc does not take this host compiler ({0} are not supported)",
     "install an older g++ and name it in NVCC_PREPEND_FLAGS='-ccbin g++-12'"),
    (r"CUDA_HOME environment variable is not set|nvcc(?:'|:(?: command)?)? not found|No such file or directory: '[^']{0,200}nvcc'|Could not find nvcc|"
     r"Failed to find nvcc|No CUDA toolset found|CUDA_HOME is not set",
     "it needs nvcc, which is not found", "install the CUDA toolkit of torch's CUDA and set CUDA_HOME to it"),
    (r"No module named '?(torch)\b", "its build imports torch without asking for it",
     "make its wheel where torch is installed ({command}) and name the folder with --find-links DIR"),
    (r"puccinialin|can't find Rust compiler|Rust compiler not found|rustc.{0,40}not (?:found|installed)|Cargo, the Rust package manager, is not installed|"
     r"No such file or directory: '(?:rustc|cargo)'|rustup could not choose a version", "it needs Rust, which is not there", _RUST_WAY),
    (r"package requires? rustc ([\d.]+)|requires rustc ([\d.]+) or newer", "it needs a newer Rust ({0})", "update it (rustup update)"),
    (r"fatal error: (?:Python|pyconfig)\.h: No such file", "it needs the headers of Python, which are not there",
     "install them (on Debian and Ubuntu: apt install python3-dev), or take a Python that uv fetched"),
    (r"fatal error: ((?:cuda|cublas|cudnn|nccl|cusparse|cusolver|curand|thrust|nv)[\w./+-]{0,100}\.(?:h|cuh)): No such file",
     "it needs {0}, a header of the CUDA toolkit or of an NVIDIA library", "install the CUDA toolkit with its libraries and set CUDA_HOME to it"),
    (r"fatal error: ([\w./+-]{1,120}): No such file", "it needs the header {0}, which is not there",
     "install the development package of the library that has it"),
    (r"cannot find -l([\w.+-]{1,60})", "it needs the library lib{0}, which is not there", "install the development package that has it"),
    (r"out of memory|std::bad_alloc|virtual memory exhausted", "memory ran out", "give it fewer jobs (MAX_JOBS=1), or more memory"),
)  # fmt: skip
"""What a build says, the cause, and what to do; the first that is found counts."""

_GENERAL_CAUSES: tuple[tuple[str, str, str], ...] = (
    (rf"No such file or directory: '({_PROGRAMS})'|command '({_PROGRAMS})' failed: No such file|({_PROGRAMS}): (?:command )?not found|"
     r"(?:C|CXX)_COMPILER-NOTFOUND|No CMAKE_(?:C|CXX)_COMPILER could be found|Unknown compiler\(s\): \[\['?(cc)?",
     "it needs a C or C++ compiler, and none is there", _COMPILER_WAY),
    (r"No such file or directory: '(?:mpicc|mpicxx)'|(?:mpicc|mpicxx): (?:command )?not found", "it needs mpicc, the compiler of MPI, which is not there",
     "install MPI (on Debian and Ubuntu: apt install libopenmpi-dev)"),
    (r"No such file or directory: '[^']{0,200}hipcc'|hipcc: (?:command )?not found", "it needs hipcc, which is not there",
     "install ROCm and set ROCM_HOME to it"),
    (rf"No such file or directory: '(?![A-Z][A-Z_]*')({_NAME})'|({_NAME}): command not found|sh: (?:line )?\d{{1,6}}: ({_NAME}): not found|"
     r"CMake must be installed|(?:ninja|Ninja) is required", "it needs the program {0}, which is not there", "install it"),
    (r"No such file or directory: '([\w+-][\w./+-]{0,120})'", "its build reads the file {0}, which is not in its sources",
     "make a wheel of it from its repository and name the folder with --find-links DIR"),
    (r"No module named '?([\w.]{1,80})", "its build imports {0} without asking for it",
     "make its wheel where {0} is installed ({command}) and name the folder with --find-links DIR"),
)  # fmt: skip
"""What may also be a harmless attempt: a compiler's own error counts more."""

_COMPILER_ERROR = re.compile(
    r"[^\s:(]{1,200}(?::\d{1,7}(?::\d{1,7})?|\(\d{1,7}\)): (?:fatal )?error\b"
)  # kernel.cu(12): error: …
_LAST_LINES = 20
_REQUIRES = re.compile(r"Failed to (?:resolve|install) requirements from")
_NOISE = ("hint:", "cause:", "[std", "note:", "warning:")


def explain_build_failure(output: str) -> str:
    """Return which package could not be built, why, and what to do; empty if the failure is not that of a build."""
    failed = _FAILED.search(output) or _FAILED_UNNAMED.search(output)
    if not failed:
        return ""
    package, body = failed[1] or "the package in the folder", output[failed.end() :]
    start = f"{_show_package(package)} could not be built from its sources: "
    if _REQUIRES.search(" ".join(body.split())[:300]):
        return start + _explain_build_requirements(body)
    lines = [line.strip() for line in re.split(r"(?m)^ {0,20}hint: ", body)[0].splitlines() if line.strip()]
    other = ", or take a version that has a wheel" if "==" in package else ""
    said = _find_cause(lines[-_LAST_LINES:], package) or _find_cause(lines, package)
    return f"{start}{said or _quote_error(_last_error(lines))}{other}"


def _show_package(package: str) -> str:
    """Return ``kite 1.0`` of ``kite==1.0``, ``kite`` of ``kite @ file:///src/kite``: an address may be secret."""
    name, at, _ = package.partition(" @ ")
    is_address = not at and ("://" in package or package.startswith("/"))
    return package.rpartition("/")[2] if is_address else name.replace("==", " ")


def _make_wheel_command(package: str) -> str:
    """Return how to make its wheel. Only ``kite==1.0`` is of an index: the bare name of another may be a stranger's package there."""
    command, address = "pip wheel --no-build-isolation --no-deps", package.rpartition(" @ ")[2]
    path = unquote_url(address.removeprefix("file://"))
    if path.startswith("/") and "#" not in path:
        return f"{command} {shlex.quote(path)}"
    return f"{command} {package}" if "==" in package and address == package else f"in its folder: {command} ."


def _explain_build_requirements(body: str) -> str:
    """Say what a build asks for and cannot be had.

    cause: Failed to resolve requirements from `build-system.requires`
    cause: No solution found when resolving: `setuptools>=60`
    cause: Because setuptools was not found in the cache and you require setuptools>=60, we can conclude that …
    """
    flat = " ".join(body.split())
    missing = re.search(r"Because (?:there (?:is|are) no versions? of )?([\w.\[\]-]{1,100})", flat)
    asked = re.search(r"when resolving: ((?:`[^`]{1,200}`(?:, )?){1,20})", flat)
    what = missing[1] if missing else asked[1].replace("`", "") if asked else "what its build asks for"
    needs, way = f"its build needs {what}", "name a folder of wheels that has it with --find-links DIR"
    index, refusal = find_refusing_index(flat)
    if refusal:
        return f"{needs}, and the index {find_host(index)}: {refusal}; {LOGIN_WAY}, or {way}"
    if cause := find_network_cause(flat):
        return f"{needs}, and nothing could be fetched from {find_host(flat) or 'the index'}: {cause}; check the network and the proxy, or {way}"
    if "not found in the cache" in flat or "etwork was disabled" in flat:
        return f"{needs}, which is not in uv's cache, and the network is off; allow the network, or {way}"
    if "was not found in" in flat:
        return f"{needs}, which no index that was asked has; {way}"
    return f"{needs}, and no version of it that fits was found; {way}"


def _find_cause(lines: list[str], package: str) -> str:
    """Return the cause that lines of a build's output show, and what to do; empty if they show none that is known."""
    flat = " ".join(lines)  # uv breaks lines at its width
    errors = [line for line in lines if _COMPILER_ERROR.match(line)]
    return (
        _match_cause(_SPECIFIC_CAUSES, flat, package)
        or (_quote_error(errors[0]) if errors else "")
        or _match_cause(_GENERAL_CAUSES, flat, package)
    )


def _match_cause(causes: tuple[tuple[str, str, str], ...], flat: str, package: str) -> str:
    for pattern, cause, way in causes:
        if match := re.search(pattern, flat):
            found = [one for one in match.groups() if one] or ["that its output names"]
            return f"{cause}; {way}".format(*found, *found, command=_make_wheel_command(package))
    return ""


def _quote_error(line: str) -> str:
    return f"{line[:200]}; make a wheel of it and name its folder with --find-links DIR"


def _last_error(lines: list[str]) -> str:
    """Return the line of a build's output that says most: its last error, else its last line."""
    kept = [line for line in lines if not line.startswith(_NOISE)]
    errors = [line for line in kept if re.match(r"(?:\w+\.)*\w*(?:Error|Exception|error)\b", line)]
    return (errors or kept or ["its build ended without a word"])[-1]
