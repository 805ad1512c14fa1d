"""Collect the build environment: toolkit, compiler, torch, GPUs. Nothing is judged here."""

from __future__ import annotations

from gpuready.extensions.judging import VARIABLES, Ground
from gpuready.probe import host, toolchain
from gpuready.probe.sight import digits, driver_loaded, glimpse
from gpuready.system import Blind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuready.model import Fact
    from gpuready.system import Door

WRAPPERS = ("ccache", "sccache", "distcc")
DEADLINE = 20.0


def look(door: Door, kind: str, torch: Any = None) -> Ground:
    """Return the build environment. ``torch`` is the module if already imported; it is never imported for this."""
    facts = {fact.key: fact for fact in host.look(door)}
    told = _toolkit(door) if kind == "cuda" else {}
    words, by, version = _compiler(door, str(told.get("cuda", "")))
    return Ground(
        machine=str(_value(facts, "os.arch") or ""),
        libc=str(_value(facts, "os.glibc") or ""),
        compiler=words,
        compiler_by=by,
        compiler_version=version,
        cores=int(_value(facts, "host.cores_usable") or 0),
        memory=_memory(facts),
        variables={name: value for name in VARIABLES if (value := glimpse(door.env, name))},
        capabilities=_capabilities(door, torch) if kind == "cuda" else (),
        **told,
        **_torch(door, torch),
    )


def _value(facts: dict[str, Fact], key: str) -> Any:
    fact = facts.get(key)
    return None if fact is None or fact.gap else fact.value


def _memory(facts: dict[str, Fact]) -> int:
    sizes = [_value(facts, key) for key in ("memory.available", "memory.limit")]
    return min((int(size) for size in sizes if size), default=0)


# -- the toolkit ------------------------------------------------------------------------------------------


def _toolkit(door: Door) -> dict[str, Any]:
    """Resolve CUDA_HOME as torch does: CUDA_HOME, CUDA_PATH, nvcc on the path, /usr/local/cuda."""
    facts = {fact.key: fact for fact in toolchain.look(door)}
    version, nvcc = _value(facts, "toolkit.version"), _value(facts, "toolkit.nvcc")
    found = {
        "home": str(_value(facts, "toolkit.path") or ""),
        "home_by": str(_value(facts, "toolkit.chosen_by") or ""),
        "nvcc": str(nvcc or "") if version else "",
        "cuda": str(version or ""),
    }
    return {**found, "offered": _offered(door, found["nvcc"], found["cuda"])}


def _offered(door: Door, nvcc: str, cuda: str) -> tuple[str, ...]:
    """Ask nvcc for its targets if the catalogue does not know its release."""
    from gpuready.catalog import cuda as toolkits

    if not nvcc or toolkits.targets(cuda) is not None:
        return ()
    listed = door.run([nvcc, "--list-gpu-arch"], DEADLINE).out.split()
    numbers = [word.removeprefix("compute_") for word in listed if word.removeprefix("compute_").isdecimal()]
    return tuple(f"{one[:-1]}.{one[-1]}" for one in sorted(numbers, key=int))


# -- the compiler -----------------------------------------------------------------------------------------


def _compiler(door: Door, cuda: str) -> tuple[tuple[str, ...], str, str]:
    """Return the compiler's command, what selected it, and its version if it is gcc.

    If nvcc does not support the g++ on the path, a supported g++-N beside it is preferred.
    """
    named = (glimpse(door.env, "CXX") or "").split()
    if named:
        program = next((word for word in named if word.rpartition("/")[2] not in WRAPPERS), named[0])
        found = glimpse(door.which, program)
        # nvcc -ccbin takes one program, without a wrapper.
        words = (
            (found,) if cuda else (*named[: named.index(program)], found, *named[named.index(program) + 1 :])
        )
        return (words if found else ()), f"CXX={' '.join(named)}", _gcc(door, found)
    for name in ("g++", "c++", "clang++"):
        if path := glimpse(door.which, name):
            version = _gcc(door, path)
            return _instead(door, cuda, version) or ((path,), f"{name} on the path", version)
    return (), "", ""


def _gcc(door: Door, path: str | None) -> str:
    if not path or "clang" in path.rpartition("/")[2]:
        return ""
    ran = door.run([path, "-dumpfullversion", "-dumpversion"], DEADLINE)
    return digits(ran.out.strip()) or "" if ran.rc == 0 else ""


def _instead(door: Door, cuda: str, version: str) -> tuple[tuple[str, ...], str, str] | None:
    from gpuready import versions
    from gpuready.catalog import cuda as toolkits

    known = toolkits.gcc_range(cuda) if cuda and version else None
    if known is None or known[0] <= versions.major(version) <= known[1]:
        return None
    for major in range(known[1], known[0] - 1, -1):
        if path := glimpse(door.which, f"g++-{major}"):
            said = f"g++-{major} on the path: nvcc {cuda} does not take gcc {version}"
            return (path,), said, _gcc(door, path)
    return None


# -- torch and the GPUs -----------------------------------------------------------------------------------


def _torch(door: Door, torch: Any) -> dict[str, Any]:
    """Return version, CUDA, architectures and ABI of the imported torch; else of the installed one."""
    if torch is not None:
        inner = getattr(torch, "_C", None)
        flags = getattr(inner, "_cuda_getArchFlags", lambda: "")() or ""
        abi = getattr(inner, "_GLIBCXX_USE_CXX11_ABI", None)
        return {
            "torch": str(torch.__version__),
            "torch_cuda": str(torch.version.cuda or ""),
            "torch_arch": tuple(flags.split()),
            "abi": "" if abi is None else f"cxx11={int(bool(abi))}",
        }
    from gpuready.probe import torch as files
    from gpuready.probe.patient import patient

    try:
        facts = {f.key: f for f in files.look(door, patient(door, door.interpreter().get("executable")))}
    except (Blind, ValueError):  # no interpreter on this machine: its torch is unknown
        return {}
    abi = _value(facts, "torch.abi")
    return {
        "torch": str(_value(facts, "torch.version") or ""),
        "torch_cuda": str(_value(facts, "torch.cuda") or ""),
        "torch_arch": tuple(_value(facts, "torch.arch") or ()),
        "abi": "" if abi is None else f"cxx11={int(bool(abi))}",
    }


def _capabilities(door: Door, torch: Any) -> tuple[str, ...]:
    """Return the compute capabilities of the visible GPUs, from torch if imported, else from the driver."""
    from gpuready import versions

    if torch is not None:
        count = torch.cuda.device_count() if torch.version.cuda and torch.cuda.is_available() else 0
        pairs = {tuple(torch.cuda.get_device_capability(index)) for index in range(count)}
        return tuple(f"{major}.{minor}" for major, minor in sorted(pairs))
    if not driver_loaded(door):
        return ()
    from gpuready.probe import gpu, visibility

    facts = {fact.key: fact for fact in gpu.look(door)}
    found = [str(one) for one in _value(facts, "gpu.capability") or ()]
    uuids = [str(one) for one in _value(facts, "gpu.uuid") or ()]
    shown = visibility.parse(glimpse(door.env, visibility.CUDA), len(found), uuids).shown
    return tuple(sorted({found[index] for index in shown if index < len(found)}, key=versions.minor))
