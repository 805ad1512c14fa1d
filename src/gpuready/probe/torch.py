"""torch in the target environment, from its files: nothing is imported, no library is loaded."""

from __future__ import annotations

from gpuready.model import Fact
from gpuready.probe.packages import parsed
from gpuready.probe.sight import absent, digits, gaps, glimpse
from gpuready.system import Blind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuready.probe.patient import Patient
    from gpuready.system import Door

KEYS = (
    "torch.version", "torch.build", "torch.cuda", "torch.hip", "torch.xpu", "torch.arch", "torch.abi",
    "torch.path", "torch.broken", "cudnn.version", "nccl.version",
)  # fmt: skip
ABI = ("_ZN3c1010IndexErrorC1E", "_ZN3c105ErrorC1E")
"""libc10 symbols with string parameters: their mangling shows the C++ ABI."""

LIBRARIES = {
    "cudnn.version": ("cudnn", ("libcudnn.so.9", "libcudnn.so.8")),
    "nccl.version": ("nccl", ("libnccl.so.2",)),
}


def look(door: Door, who: Patient) -> list[Fact]:
    """Return the installed torch, its build, and the cuDNN and NCCL it would load."""
    source = ", ".join(who.site) or who.prefix
    try:
        site, names = _home(door, who)
        if site is None:
            return absent(KEYS, source) if who.site or who.version else gaps(KEYS, who.gap, source)
        folder = f"{site}/torch"
        text = door.read(f"{folder}/version.py")
    except Blind as blind:
        return gaps(KEYS, str(blind), source)
    broken = _broken(names, text)
    if text is None:
        what = "there is no torch/version.py"
        rest = [key for key in KEYS if key not in ("torch.path", "torch.broken")]
        return [Fact("torch.path", None, site), Fact("torch.broken", broken, site), *gaps(rest, what, site)]
    about = values(text)
    return [
        *_built(about, f"{folder}/version.py"),
        _architectures(door, folder, about),
        _abi(door, folder),
        Fact("torch.path", folder, site),
        Fact("torch.broken", broken, site),
        *(_library(door, key, site, names, about) for key in LIBRARIES),
    ]


def _home(door: Door, who: Patient) -> tuple[str | None, tuple[str, ...]]:
    """Return the first site folder that contains any part of torch, and its entries."""
    for site in who.site:
        names = door.list(site) or ()
        if "torch" in names or _listed(names):
            return site, names
    return None, ()


def _listed(names: tuple[str, ...]) -> list[str]:
    return [n for n in names if n.startswith("torch-") and n.endswith((".dist-info", ".egg-info"))]


def _broken(names: tuple[str, ...], text: str | None) -> str | None:
    """Describe what is left of a half removed or half installed torch."""
    listed = _listed(names)
    if text is None and listed:
        return f"{listed[0]} is there, but torch/version.py is not"
    if text is None:
        return "the folder torch has no version.py"
    return None if listed else "the folder torch has no dist-info"


def values(text: str) -> dict[str, str | None]:
    """Parse the assignments of torch/version.py: text, or None."""
    found: dict[str, str | None] = {}
    for line in text.splitlines():
        name, equals, value = line.partition("=")
        if equals and name[:1] not in (" ", "#", "\t"):
            word = value.strip().split("#")[0].strip()
            quoted = len(word) > 1 and word[0] == word[-1] and word[0] in "'\""
            found[name.partition(":")[0].strip()] = word[1:-1] if quoted else None
    return found


def _built(about: dict[str, str | None], source: str) -> list[Fact]:
    cuda, hip, xpu = about.get("cuda"), about.get("hip"), about.get("xpu")
    build = "cuda" if cuda else "rocm" if hip else "xpu" if xpu else "cpu"
    version = about.get("__version__")
    return [
        Fact("torch.version", version, source, gap="" if version else "the file names no version"),
        Fact("torch.build", build, source),
        Fact("torch.cuda", cuda or None, source),
        Fact("torch.hip", hip or None, source),
        Fact("torch.xpu", xpu or None, source),
    ]


def _architectures(door: Door, folder: str, about: dict[str, str | None]) -> Fact:
    """The compiled-in list; if it cannot be read, that of the same build in the catalogue."""
    path = f"{folder}/lib/libtorch_python.so"
    if not about.get("cuda"):
        return Fact("torch.arch", (), f"{folder}/version.py")
    try:
        found = [text for text in door.elf_text(path, ".rodata", ("sm_",)) if _is_list(text)]
    except Blind as blind:
        return _catalogued(door, about, str(blind))
    if not found:
        return _catalogued(door, about, f"{path} has no list of architectures")
    return Fact("torch.arch", tuple(max(found, key=len).split()), path)


def _is_list(text: str) -> bool:
    words = text.split()
    return bool(words) and all(
        w.startswith(("sm_", "compute_")) and w.rpartition("_")[2][:1].isdigit() for w in words
    )


def _catalogued(door: Door, about: dict[str, str | None], why: str) -> Fact:
    build = _build(door, about)
    if build is None or not build.arch:
        return Fact("torch.arch", None, "libtorch_python.so", gap=why)
    return Fact("torch.arch", tuple(build.arch), f"catalogue: torch {build.version} {build.variant} ({why})")


def _build(door: Door, about: dict[str, str | None]) -> Any:
    """Return the matching build of the catalogue; none for a source or vendor build."""
    from gpuready.catalog import torch as catalogue

    version, _, local = (about.get("__version__") or "").partition("+")
    if not digits(version) or digits(version) != version or not (local.startswith("cu") or not local):
        return None
    machine = glimpse(door.uname, otherwise={}).get("machine", "x86_64")
    return catalogue.build(version, local or about.get("cuda"), machine)


def _abi(door: Door, folder: str) -> Fact:
    path = f"{folder}/lib/libc10.so"
    try:
        found = door.elf_text(path, ".dynstr", ABI)
    except Blind as blind:
        return Fact("torch.abi", None, path, gap=str(blind))
    if not found:
        return Fact("torch.abi", None, path, gap="it has none of the symbols that would tell")
    return Fact("torch.abi", any("__cxx11" in text for text in found), path)


def _library(door: Door, key: str, site: str, names: tuple[str, ...], about: dict[str, str | None]) -> Fact:
    """The version beside torch, else the one the loader finds, else the pin of the wheel."""
    word, files = LIBRARIES[key]
    if not about.get("cuda"):
        return Fact(key, None, f"{site}/torch/version.py")
    major = f"-cu{(about['cuda'] or '').partition('.')[0]}"
    beside = [n for n in names if n.startswith(f"nvidia_{word}") and n.endswith(".dist-info")]
    for entry in sorted(beside, key=lambda n: not parsed(n)[0].endswith(major)):
        return Fact(key, parsed(entry)[1], f"{site}/{entry}")
    for file in files:
        path = glimpse(door.library, file)
        real = glimpse(door.real, path) if path else None
        version = digits((real or "").rpartition(".so.")[2])
        if version and "." in version:
            return Fact(key, version, str(real))
    build = _build(door, about)
    pinned = getattr(build, word, None)
    if pinned:
        return Fact(key, pinned, f"catalogue: torch {build.version} {build.variant}")
    return Fact(key, None, site, gap=f"no {word} was found beside torch or by the loader")
