"""torch in the target environment, from its files: nothing is imported, no library is loaded."""

from typing import Any

from gpuready.catalog import torch as catalogue
from gpuready.model import Fact
from gpuready.model.metadata import split_metadata_name
from gpuready.probe.fact_helpers import TORCH as KEYS
from gpuready.probe.fact_helpers import absent_facts, gap_facts, leading_version, read_if_present
from gpuready.probe.packages import is_as_recorded
from gpuready.probe.target_environment import TargetEnvironment
from gpuready.system import AccessError, HostAccess

ABI_SYMBOLS = ("_ZN3c1010IndexErrorC1E", "_ZN3c105ErrorC1E")
"""libc10 symbols with string parameters: their mangling shows the C++ ABI."""

LIBRARY_FILES = {
    "cudnn.version": ("cudnn", ("libcudnn.so.9", "libcudnn.so.8")),
    "nccl.version": ("nccl", ("libnccl.so.2",)),
}


def probe_torch(host: HostAccess, target: TargetEnvironment) -> list[Fact]:
    """Return the installed torch, its build, and the cuDNN and NCCL it would load."""
    source = ", ".join(target.site) or target.prefix
    try:
        site, names = _find_torch_site(host, target)
        if site is None:
            return absent_facts(KEYS, source) if target.site or target.version else gap_facts(KEYS, target.gap, source)
        folder = f"{site}/torch"
        text = host.read_text(f"{folder}/version.py")
    except AccessError as error:
        return gap_facts(KEYS, str(error), source)
    broken = _describe_broken_torch(names, text)
    if text is None:
        what = "there is no torch/version.py"
        rest = [key for key in KEYS if key not in ("torch.path", "torch.broken")]
        return [Fact("torch.path", None, site), Fact("torch.broken", broken, site), *gap_facts(rest, what, site)]
    version_values = parse_version_py(text)
    version_values |= _recorded_version(host, site, names, version_values, text)
    return [
        *_torch_build_facts(version_values, f"{folder}/version.py"),
        _torch_arch_fact(host, folder, version_values, target.machine),
        _torch_abi_fact(host, folder),
        Fact("torch.path", folder, site),
        Fact("torch.broken", broken, site),
        *(_torch_library_fact(host, key, site, names, version_values) for key in LIBRARY_FILES),
    ]


def _find_torch_site(host: HostAccess, target: TargetEnvironment) -> tuple[str | None, tuple[str, ...]]:
    """Return the first site folder that contains any part of torch, and its entries."""
    for site in target.site:
        names = host.list_directory(site) or ()
        if "torch" in names or _list_torch_metadata(names):
            return site, names
    return None, ()


def _list_torch_metadata(names: tuple[str, ...]) -> list[str]:
    return [n for n in names if n.startswith("torch-") and n.endswith((".dist-info", ".egg-info"))]


def _describe_broken_torch(names: tuple[str, ...], text: str | None) -> str | None:
    """Describe what is left of a half removed or half installed torch."""
    listed = _list_torch_metadata(names)
    if text is None and listed:
        return f"{listed[0]} is there, but torch/version.py is not"
    if text is None:
        return "the folder torch has no version.py"
    return None if listed else "the folder torch has no dist-info"


def _recorded_version(
    host: HostAccess, site: str, names: tuple[str, ...], values: dict[str, str | None], text: str
) -> dict[str, str | None]:
    """Return the version of the metadata where version.py says another, and was edited since the install."""
    listed = _list_torch_metadata(names)
    recorded = listed[0].removeprefix("torch-").rpartition(".")[0] if len(listed) == 1 else ""
    said = str(values.get("__version__") or "")
    if not recorded or said.partition("+")[0] == recorded.partition("+")[0]:
        return {}
    is_edited = is_as_recorded(host, f"{site}/{listed[0]}", "torch/version.py", text) is False
    return {"__version__": recorded} if is_edited else {}


def parse_version_py(text: str) -> dict[str, str | None]:
    """Parse the assignments of torch/version.py: text, or None."""
    assignments: dict[str, str | None] = {}
    for line in text.splitlines():
        name, equals, value = line.partition("=")
        if equals and name[:1] not in (" ", "#", "\t"):
            word = value.strip().split("#")[0].strip()
            quoted = len(word) > 1 and word[0] == word[-1] and word[0] in "'\""
            assignments[name.partition(":")[0].strip()] = word[1:-1] if quoted else None
    return assignments


def _torch_build_facts(version_values: dict[str, str | None], source: str) -> list[Fact]:
    cuda, hip, xpu = version_values.get("cuda"), version_values.get("hip"), version_values.get("xpu")
    build = "cuda" if cuda else "rocm" if hip else "xpu" if xpu else "cpu"
    version = version_values.get("__version__")
    return [
        Fact("torch.version", version, source, gap="" if version else "the file names no version"),
        Fact("torch.build", build, source),
        Fact("torch.cuda", cuda or None, source),
        Fact("torch.hip", hip or None, source),
        Fact("torch.xpu", xpu or None, source),
    ]


def _torch_arch_fact(host: HostAccess, folder: str, version_values: dict[str, str | None], machine: str) -> Fact:
    """The compiled-in list; if it cannot be read, that of the same build in the catalogue. ``machine``: if not this one's."""
    path = f"{folder}/lib/libtorch_python.so"
    if not version_values.get("cuda"):
        return Fact("torch.arch", (), f"{folder}/version.py")
    try:
        arch_lists = [parse_arch_list(text) for text in host.find_elf_strings(path, ".rodata", ("sm_",))]
    except AccessError as error:
        return _arch_fact_from_catalog(host, version_values, machine, str(error))
    if not any(arch_lists):
        return _arch_fact_from_catalog(host, version_values, machine, f"{path} has no list of architectures")
    return Fact("torch.arch", max(arch_lists, key=len), path)


def parse_arch_list(text: str) -> tuple[str, ...]:
    """``sm_80 sm_90 compute_120``; also after a constant without an end, as in torch 2.8: ``std::string ipc_hsm_70 sm_75``."""
    words = text.split()
    found: list[str] = []
    for word in reversed(words):
        at = max(word.rfind("sm_"), word.rfind("compute_"))
        if at < 0 or not word.rpartition("_")[2][:1].isdigit():
            break
        found.insert(0, word[at:])
        if at:
            break
    return tuple(found) if found == words or len(found) > 1 else ()


def _arch_fact_from_catalog(host: HostAccess, version_values: dict[str, str | None], machine: str, why: str) -> Fact:
    build = _find_catalog_build(host, version_values, machine)
    if build is None or not build.arch:
        return Fact("torch.arch", None, "libtorch_python.so", gap=why)
    source = f"catalogue: torch {build.version} {build.variant} ({why})"
    return Fact("torch.arch", tuple(build.arch), source, "stated")


def _find_catalog_build(host: HostAccess, version_values: dict[str, str | None], machine: str) -> Any:
    """Return the matching build of the catalogue; none for a source or vendor build."""
    version, _, local = (version_values.get("__version__") or "").partition("+")
    if not leading_version(version) or leading_version(version) != version or not (local.startswith("cu") or not local):
        return None
    machine = machine or read_if_present(host.get_uname, default={}).get("machine", "x86_64")
    return catalogue.find_torch_build(version, local or version_values.get("cuda"), machine)


def _torch_abi_fact(host: HostAccess, folder: str) -> Fact:
    path = f"{folder}/lib/libc10.so"
    try:
        symbols = host.find_elf_strings(path, ".dynstr", ABI_SYMBOLS)
    except AccessError as error:
        return Fact("torch.abi", None, path, gap=str(error))
    if not symbols:
        return Fact("torch.abi", None, path, gap="it has none of the symbols that would tell")
    return Fact("torch.abi", any("__cxx11" in text for text in symbols), path)


def _torch_library_fact(
    host: HostAccess, key: str, site: str, names: tuple[str, ...], version_values: dict[str, str | None]
) -> Fact:
    """The version beside torch, else the one the loader finds; what torch was built with is not what is there."""
    word, files = LIBRARY_FILES[key]
    if not version_values.get("cuda"):
        return Fact(key, None, f"{site}/torch/version.py")
    major = f"-cu{(version_values['cuda'] or '').partition('.')[0]}"
    beside = [n for n in names if n.startswith(f"nvidia_{word}") and n.endswith(".dist-info")]
    for entry in sorted(beside, key=lambda n: not split_metadata_name(n)[0].endswith(major)):
        return Fact(key, split_metadata_name(entry)[1], f"{site}/{entry}")
    for file in files:
        path = read_if_present(host.find_library, file)
        real = read_if_present(host.resolve_path, path) if path else None
        version = leading_version((real or "").rpartition(".so.")[2])
        if version and "." in version:
            return Fact(key, version, str(real))
    return Fact(key, None, site, gap=f"no {word} was found beside torch or by the loader")
