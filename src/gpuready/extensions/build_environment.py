"""Collect the build environment: toolkit, compiler, torch, GPUs. Nothing is judged here."""

from typing import Any

from gpuready.catalog import cuda as toolkits
from gpuready.extensions.assessment import BUILD_VARIABLES, BuildEnvironment
from gpuready.model import Facts, versions
from gpuready.probe import gpu, machine, toolchain, visibility
from gpuready.probe import torch as files
from gpuready.probe.environment_choice import choose_environment
from gpuready.probe.fact_helpers import is_driver_loaded, leading_version, read_if_present
from gpuready.system import AccessError, HostAccess

COMPILER_WRAPPERS = ("ccache", "sccache", "distcc")
PROBE_TIMEOUT = 20.0


def read_build_environment(access: HostAccess, kind: str, torch: Any = None) -> BuildEnvironment:
    """Return the build environment. ``torch`` is the module if already imported; it is never imported for this."""
    facts = Facts(machine.probe_machine(access))
    toolkit = _read_toolkit(access) if kind == "cuda" else {}
    words, by, version = _find_cxx_compiler(access, str(toolkit.get("cuda", "")))
    return BuildEnvironment(
        machine=str(facts.value_if_known("os.arch") or ""),
        libc=str(facts.value_if_known("os.glibc") or ""),
        compiler=words,
        compiler_by=by,
        compiler_version=version,
        cores=int(facts.value_if_known("host.cores_usable") or 0),
        memory=_available_memory(facts),
        variables={name: value for name in BUILD_VARIABLES if (value := read_if_present(access.get_env_var, name))},
        capabilities=_visible_capabilities(access, torch) if kind == "cuda" else (),
        **toolkit,
        **_read_torch(access, torch),
    )


def _available_memory(facts: Facts) -> int:
    sizes = [facts.value_if_known(key) for key in ("memory.available", "memory.limit")]
    return min((int(size) for size in sizes if size), default=0)


# -- the toolkit ------------------------------------------------------------------------------------------


def _read_toolkit(access: HostAccess) -> dict[str, Any]:
    """Resolve CUDA_HOME as torch does: CUDA_HOME, CUDA_PATH, nvcc on the path, /usr/local/cuda."""
    facts = Facts(toolchain.probe_toolchain(access))
    version, nvcc = facts.value_if_known("toolkit.version"), facts.value_if_known("toolkit.nvcc")
    toolkit = {
        "home": str(facts.value_if_known("toolkit.path") or ""),
        "home_by": str(facts.value_if_known("toolkit.chosen_by") or ""),
        "nvcc": str(nvcc or "") if version else "",
        "cuda": str(version or ""),
    }
    return {**toolkit, "offered": _nvcc_targets(access, toolkit["nvcc"], toolkit["cuda"])}


def _nvcc_targets(access: HostAccess, nvcc: str, cuda: str) -> tuple[str, ...]:
    """Ask nvcc for its targets if the catalogue does not know its release."""
    if not nvcc or toolkits.list_nvcc_targets(cuda) is not None:
        return ()
    listed = access.run([nvcc, "--list-gpu-arch"], PROBE_TIMEOUT).out.split()
    numbers = [word.removeprefix("compute_") for word in listed if word.removeprefix("compute_").isdecimal()]
    return tuple(f"{one[:-1]}.{one[-1]}" for one in sorted(numbers, key=int))


# -- the compiler -----------------------------------------------------------------------------------------


def _find_cxx_compiler(access: HostAccess, cuda: str) -> tuple[tuple[str, ...], str, str]:
    """Return the compiler's command, what selected it, and its version if it is gcc.

    If nvcc does not support the g++ on the path, a supported g++-N beside it is preferred.
    """
    cxx_words = (read_if_present(access.get_env_var, "CXX") or "").split()
    if cxx_words:
        program = next((word for word in cxx_words if word.rpartition("/")[2] not in COMPILER_WRAPPERS), cxx_words[0])
        path_found = read_if_present(access.find_program, program)
        # nvcc -ccbin takes one program, without a wrapper.
        words = (
            (path_found,)
            if cuda
            else (*cxx_words[: cxx_words.index(program)], path_found, *cxx_words[cxx_words.index(program) + 1 :])
        )
        return (words if path_found else ()), f"CXX={' '.join(cxx_words)}", _gcc_version(access, path_found)
    for name in ("g++", "c++", "clang++"):
        if path := read_if_present(access.find_program, name):
            version = _gcc_version(access, path)
            return _find_supported_gcc(access, cuda, version) or ((path,), f"{name} on the path", version)
    return (), "", ""


def _gcc_version(access: HostAccess, path: str | None) -> str:
    if not path or "clang" in path.rpartition("/")[2]:
        return ""
    ran = access.run([path, "-dumpfullversion", "-dumpversion"], PROBE_TIMEOUT)
    return leading_version(ran.out.strip()) or "" if ran.rc == 0 else ""


def _find_supported_gcc(access: HostAccess, cuda: str, version: str) -> tuple[tuple[str, ...], str, str] | None:
    known = toolkits.supported_gcc_range(cuda) if cuda and version else None
    if known is None or known[0] <= versions.major_version(version) <= known[1]:
        return None
    for major in range(known[1], known[0] - 1, -1):
        if path := read_if_present(access.find_program, f"g++-{major}"):
            origin = f"g++-{major} on the path: nvcc {cuda} does not take gcc {version}"
            return (path,), origin, _gcc_version(access, path)
    return None


# -- torch and the GPUs -----------------------------------------------------------------------------------


def _read_torch(access: HostAccess, torch: Any) -> dict[str, Any]:
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
    try:
        chosen = choose_environment(access, access.get_interpreter().get("executable"))
        facts = Facts(files.probe_torch(access, chosen))
    except (AccessError, ValueError):  # no interpreter on this machine: its torch is unknown
        return {}
    abi = facts.value_if_known("torch.abi")
    return {
        "torch": str(facts.value_if_known("torch.version") or ""),
        "torch_cuda": str(facts.value_if_known("torch.cuda") or ""),
        "torch_arch": tuple(facts.value_if_known("torch.arch") or ()),
        "abi": "" if abi is None else f"cxx11={int(bool(abi))}",
    }


def _visible_capabilities(access: HostAccess, torch: Any) -> tuple[str, ...]:
    """Return the compute capabilities of the visible GPUs, from torch if imported, else from the driver."""
    if torch is not None:
        count = torch.cuda.device_count() if torch.version.cuda and torch.cuda.is_available() else 0
        pairs = {tuple(torch.cuda.get_device_capability(index)) for index in range(count)}
        return tuple(f"{major}.{minor}" for major, minor in sorted(pairs))
    if not is_driver_loaded(access):
        return ()
    facts = Facts(gpu.probe_gpus(access))
    capabilities = [str(one) for one in facts.value_if_known("gpu.capability") or ()]
    uuids = [str(one) for one in facts.value_if_known("gpu.uuid") or ()]
    visible = visibility.parse_visible_devices(
        read_if_present(access.get_env_var, visibility.CUDA_VARIABLE), len(capabilities), uuids
    ).shown
    return tuple(
        sorted({capabilities[index] for index in visible if index < len(capabilities)}, key=versions.major_minor)
    )
