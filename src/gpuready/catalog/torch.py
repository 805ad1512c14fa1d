"""The builds of torch, whether a build has code for a GPU, and architecture lists as in TORCH_CUDA_ARCH_LIST."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

from gpuready.catalog import cuda as toolkits
from gpuready.catalog import load_catalog
from gpuready.model import Record, versions


class TorchBuild(Record):
    """One torch wheel: a version, built for one CUDA, on one machine architecture."""

    version: str
    cuda: str
    variant: str
    machine: str
    pypi: bool  # what `pip install torch` installs on this machine
    arch: tuple[str, ...]  # as returned by torch.cuda.get_arch_list()
    aarch64: tuple[str, ...]  # the same on aarch64; empty if unknown
    python: tuple[str, ...]
    driver_floor: str | None
    nccl: str | None
    cudnn: str | None
    cite: str


def list_torch_releases() -> list[str]:
    """Return every known release, oldest first."""
    return list(_torch_rows())


@cache
def _torch_rows() -> dict[str, dict[str, Any]]:
    return {row["version"]: row for row in load_catalog("torch")["torch"]}


def newest_torch() -> str:
    """Return the newest release on PyPI."""
    return str(load_catalog("torch")["newest"])


def find_torch_release(version: str) -> dict[str, Any] | None:
    """Return the row of a release: its Pythons, default build and pins. The local version part is ignored."""
    public = version.partition("+")[0]
    rows = _torch_rows()
    if public in rows:
        return rows[public]
    return next((row for known, row in rows.items() if versions.compare_versions(known, public) == 0), None)


def list_torch_builds(version: str, machine: str = "x86_64") -> list[TorchBuild]:
    """Return the CUDA builds of a release for a machine, oldest CUDA first; empty if none is known."""
    return list(_torch_builds(version, machine))


@cache
def _torch_builds(version: str, machine: str) -> tuple[TorchBuild, ...]:
    row = find_torch_release(version) or {"build": ()}
    return tuple(_make_torch_build(row, one, machine) for one in row["build"] if _is_built_for(one, machine))


def _is_built_for(build: dict[str, Any], machine: str) -> bool:
    return machine == "x86_64" or (machine == "aarch64" and "aarch64" in build)


def _make_torch_build(row: dict[str, Any], build: dict[str, Any], machine: str) -> TorchBuild:
    intel = machine == "x86_64"
    pypi = build["pypi"] and (intel or row["pypi_aarch64"] == "cuda")
    arm = _arch_names(build.get("aarch64", ()))
    arch = _arch_names(build["arch"]) + _arch_names(build.get("ptx", ()), "compute_") if intel else arm
    pins = row if pypi else build  # the pins of the PyPI wheel take precedence
    return TorchBuild(
        version=row["version"],
        cuda=build["cuda"],
        variant=build["variant"],
        machine=machine,
        pypi=pypi,
        arch=arch,
        aarch64=arm,
        python=tuple(row["python" if intel else "python_aarch64"]),
        driver_floor=toolkits.minimum_driver(build["cuda"])[0],
        nccl=pins.get("nccl"),
        cudnn=pins.get("cudnn"),
        cite=build["source"],
    )


def _arch_names(capabilities: Iterable[str], prefix: str = "sm_") -> tuple[str, ...]:
    return tuple(prefix + capability.replace(".", "") for capability in capabilities)


def list_rocm_variants(version: str) -> list[str]:
    """Return the ROCm builds of a release, oldest first: ``rocm7.1``, ``rocm7.2``."""
    return [f"rocm{one}" for one in (find_torch_release(version) or {}).get("rocm", ())]


def find_torch_build(version: str, cuda_or_variant: str | None = None, machine: str = "x86_64") -> TorchBuild | None:
    """Return one build, by ``cu128`` or ``12.8``, or the PyPI build; None if the catalog has none."""
    for one in list_torch_builds(version, machine):
        if one.pypi if cuda_or_variant is None else _matches_variant(one, cuda_or_variant):
            return one
    return None


def is_default_cpu_only(version: str, machine: str) -> bool:
    """Whether the wheel of a release on the default index is for the CPU alone, as that of 2.7.1 for aarch64."""
    return machine == "aarch64" and (find_torch_release(version) or {}).get("pypi_aarch64") == "cpu"


def _matches_variant(build: TorchBuild, wanted: str) -> bool:
    if versions.parse_plain_release(wanted) is None:
        return build.variant == wanted
    return versions.major_minor(build.cuda) == versions.major_minor(wanted)


def parse_torch_version(text: str) -> tuple[str, str | None]:
    """Split ``2.8.0+cu128`` into ``("2.8.0", "cu128")``; None for a local part that is no build (``+gitabc``)."""
    version, _, local = text.strip().partition("+")
    if local.startswith("rocm") or local in ("cpu", "xpu"):
        return version, local
    first = local.partition(".")[0]
    return version, first if first[:2] == "cu" and first[2:].isdigit() else None


def parse_cuda_label(label: str) -> str | None:
    """``cu128`` or ``12.8`` -> 12.8; None for a build without CUDA."""
    digits = label.removeprefix("cu")
    return digits if "." in digits else f"{digits[:-1]}.{digits[-1]}" if digits.isdigit() else None


def allocator_variable(version: str) -> str:
    """Return the environment variable that configures the CUDA allocator of this torch."""
    row = load_catalog("torch")["allocator"]
    return str(row["after"] if versions.compare_versions(version, row["since"]) >= 0 else row["before"])


def covers_capability(arch_list: Iterable[str], capability: str, cuda: str | None = None) -> tuple[bool, str]:
    """Return whether code for these architectures runs on a GPU of this capability, and why.

    Accepts the form torch prints (``sm_90``, ``compute_90``) and that of build scripts (``9.0a``, ``8.0+PTX``).
    ``cuda``: the CUDA of the build, if known; from 13.2 on integrated GPUs run the common code.
    """
    listed = list(arch_list)
    device = versions.major_minor(capability)
    entries = [entry for text in listed for entry in _parse_arch_entry(text)]
    machine_code = [e for e in entries if e[0] == "sm_" and _runs_natively(e[1], e[2], device, cuda)]
    if machine_code:
        best = max(machine_code, key=lambda e: e[1])
        return True, f"{_format_arch(best)} runs on {capability}"
    ptx = [e for e in entries if e[0] == "compute_" and _compiles_from_ptx(e[1], e[2], device)]
    if ptx:
        best = max(ptx, key=lambda e: e[1])
        return (True, f"the driver compiles {_format_arch(best)} for {capability}, if it knows the CUDA of the build")
    if not listed:
        return False, "no architecture is listed"
    return False, f"nothing in {' '.join(listed)} runs on {capability}"


@cache
def _parse_arch_entry(text: str) -> tuple[tuple[str, tuple[int, int], str], ...]:
    """Return what one list entry provides: ``sm_`` or ``compute_``, its capability, and ``a``, ``f`` or nothing."""
    word = text.strip().lower()
    public, ptx, _ = word.partition("+ptx")
    prefix = "compute_" if public.startswith("compute_") else "sm_"
    digits = public.removeprefix(prefix).replace(".", "")
    suffix = digits[-1:] if digits[-1:] in ("a", "f") else ""
    digits = digits.removesuffix(suffix)
    if len(digits) < 2 or not digits.isdigit():
        return ()  # gfx942, or unknown to CUDA
    capability = int(digits[:-1]), int(digits[-1])
    return tuple((kind, capability, suffix) for kind in (prefix, *(["compute_"] if ptx else [])))


def _runs_natively(code: tuple[int, int], suffix: str, device: tuple[int, int], cuda: str | None) -> bool:
    """Return whether machine code runs on a device, by NVIDIA's binary compatibility and its exceptions."""
    same_chip, integrated, until = _binary_compat_exceptions()
    if code == device or {code, device} <= same_chip:
        return True
    if suffix == "a" or code[0] != device[0] or code[1] > device[1]:
        return False
    if cuda is not None and versions.compare_versions(cuda, until) >= 0:
        return True
    return not {code, device} & integrated


@cache
def _binary_compat_exceptions() -> tuple[set[tuple[int, int]], set[tuple[int, int]], str]:
    """Return chips with two capabilities, the integrated GPUs, and the CUDA from which these are compatible."""
    rule = toolkits.find_cuda_rule("cubin_compat")
    same_chip, integrated = ({versions.major_minor(c) for c in rule[key]} for key in ("same_chip", "integrated"))
    return same_chip, integrated, rule["integrated_until"]


def _compiles_from_ptx(code: tuple[int, int], suffix: str, device: tuple[int, int]) -> bool:
    if suffix == "a":
        return code == device
    return code <= device and (not suffix or code[0] == device[0])


def _format_arch(entry: tuple[str, tuple[int, int], str]) -> str:
    prefix, (major, minor), suffix = entry
    return f"{prefix}{major}{minor}{suffix}"


@cache
def _generation_archs() -> dict[str, list[str]]:
    return {row["name"]: list(row["arch"]) for row in load_catalog("torch")["generation"]}


def parse_arch_list(text: str) -> dict[str, list[str]]:
    """Map each word of a list to the architectures it stands for; ValueError names an unknown word."""
    parsed: dict[str, list[str]] = {}
    # As torch does: separated by semicolons or single spaces; an empty word is an error.
    for word in text.replace(" ", ";").split(";"):
        parsed[word] = _expand_arch_word(word)
    return parsed


def _expand_arch_word(word: str) -> list[str]:
    names = _generation_archs()
    # torch does not know "Volta+PTX", but the meaning is clear.
    parts = names.get(word) or names.get(word.removesuffix("+PTX")) or [word]
    for part in parts:
        if not _is_arch_entry(part):
            known = ", ".join(names)
            raise ValueError(
                f"{word!r} is not an architecture: write 9.0, 9.0a, 8.0+PTX or a name ({known}), separated by ;"
            )
    return list(parts)


def _is_arch_entry(part: str) -> bool:
    """Accept ``9.0``, ``10.0f``, ``9.0a+PTX``."""
    major, point, minor = part.removesuffix("+PTX").partition(".")
    minor = minor[:-1] if minor[1:] in ("a", "f") else minor
    digits = f"{major}{minor}"
    return bool(point and major) and len(minor) == 1 and digits.isascii() and digits.isdecimal()
