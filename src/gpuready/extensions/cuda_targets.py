"""Choose the GPU architectures of a build: the requested ones, those of the visible GPUs, or all that nvcc and
torch support.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpuready.catalog import cuda as toolkits
from gpuready.catalog import torch
from gpuready.model import Record, versions

PTX_SUFFIX = "+PTX"


class BuildTargets(Record):
    """A list in the form of TORCH_CUDA_ARCH_LIST, its source, and what was left out and why."""

    entries: tuple[str, ...]
    source: str
    dropped: tuple[str, ...] = ()

    def nvcc_flags(self) -> list[str]:
        return [flag for entry in self.entries for flag in _gencode_flags(entry)]


def choose_targets(
    written: str,
    capabilities: Sequence[str],
    cuda: str,
    torch_arch: Sequence[str] = (),
    offered: Sequence[str] = (),
    source: str = "TORCH_CUDA_ARCH_LIST",
) -> BuildTargets:
    """Return the architectures of a build: a written list, else those of the visible GPUs, else all that can be
    built.

    ``cuda`` is nvcc's release, ``offered`` the targets that nvcc lists (else the catalogue's), ``torch_arch``
    what torch was built for (empty: no limit). A written list is used unchanged, as torch does; to a list of
    ours PTX is added for the newest architecture, so that later GPUs can run it. ValueError if nothing is left.
    """
    supported = list(offered or toolkits.list_nvcc_targets(cuda) or ())
    if not supported:
        raise ValueError(f"it is not known what nvcc {cuda} can compile for: name it in TORCH_CUDA_ARCH_LIST")
    text = written.strip()
    if text and text != "native":
        parts = [part for listed in torch.parse_arch_list(text).values() for part in listed]
        return _buildable_targets(parts, cuda, supported, torch_arch, source, ptx=False)
    if capabilities:
        parts, lost = _targets_for_gpus(capabilities, cuda, supported)
        return _buildable_targets(parts, cuda, supported, torch_arch, "the visible GPUs", ptx=True, lost=lost)
    parts = _all_targets(supported, torch_arch)
    where = "everything that nvcc and torch have in common" if torch_arch else "everything that nvcc has"
    return _buildable_targets(parts, cuda, supported, torch_arch, f"{where} (no GPU is visible)", ptx=True)


def _buildable_targets(
    parts: Iterable[str],
    cuda: str,
    supported: Sequence[str],
    torch_arch: Sequence[str],
    source: str,
    ptx: bool,
    lost: Sequence[str] = (),
) -> BuildTargets:
    """Filter a list to what can be built, sorted and without duplicates."""
    merged: dict[str, bool] = {}
    dropped = list(lost)
    for part in parts:
        bare = part.removesuffix(PTX_SUFFIX)
        why = _refusal_reason(bare, cuda, supported, torch_arch)
        if why:
            dropped.append(why)
        else:
            merged[bare] = merged.get(bare, False) or part.endswith(PTX_SUFFIX)
    if not merged:
        reasons = "; ".join(dict.fromkeys(dropped)) or "the list is empty"
        raise ValueError(f"no architecture is left to compile for ({source}): {reasons}")
    ordered = sorted(merged, key=_target_order)
    if ptx and not any(merged.values()):
        general = [bare for bare in ordered if bare[-1].isdigit()]
        merged.update({general[-1]: True} if general else {})
    entries = tuple(bare + (PTX_SUFFIX if merged[bare] else "") for bare in ordered)
    return BuildTargets(entries, source, tuple(dict.fromkeys(dropped)))


def _refusal_reason(bare: str, cuda: str, supported: Sequence[str], torch_arch: Sequence[str]) -> str:
    number = bare.rstrip("af")
    if number not in supported:
        return f"nvcc {cuda} does not compile for {bare} (it does for {supported[0]} to {supported[-1]})"
    row = toolkits.find_cuda_release(cuda)
    if bare != number and row and f"sm_{_arch_digits(bare)}" not in row.get("specific", ()):
        return f"nvcc {cuda} knows no {bare}"
    # The minor version of the toolkit that torch was built with is unknown here, only its major.
    if torch_arch and not torch.covers_capability(torch_arch, number, cuda)[0]:
        return f"this torch has no code for {number}: it runs on none of these GPUs"
    return ""


def _targets_for_gpus(capabilities: Sequence[str], cuda: str, supported: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return one entry per kind of GPU. If nvcc is older than the GPU: code of the same major, else PTX for the
    driver.
    """
    parts, lost = [], []
    for one in sorted(set(capabilities), key=versions.major_minor):
        kin = [c for c in supported if torch.covers_capability([f"sm_{_arch_digits(c)}"], one, cuda)[0]]
        older = [c for c in supported if versions.major_minor(c) < versions.major_minor(one)]
        if one in supported or kin:
            parts.append(one if one in supported else max(kin, key=versions.major_minor))
        elif older:
            parts.append(max(older, key=versions.major_minor) + PTX_SUFFIX)
        else:
            lost.append(f"nvcc {cuda} does not compile for {one} (it does for {supported[0]} to {supported[-1]})")
    return parts, lost


def _all_targets(supported: Sequence[str], torch_arch: Sequence[str]) -> list[str]:
    """Return the targets for cross-compilation: torch's own list; without torch, all of nvcc's except
    integrated GPUs.
    """
    if torch_arch:
        listed = {word.removeprefix("sm_").rstrip("af") for word in torch_arch if word.startswith("sm_")}
        return [c for c in supported if _arch_digits(c) in listed]
    integrated = set(toolkits.find_cuda_rule("cubin_compat")["integrated"])
    return [c for c in supported if c not in integrated]


def _gencode_flags(entry: str) -> list[str]:
    arch = _arch_digits(entry)
    flags = [f"-gencode=arch=compute_{arch},code=sm_{arch}"]
    return [*flags, f"-gencode=arch=compute_{arch},code=compute_{arch}"] if entry.endswith(PTX_SUFFIX) else flags


def _arch_digits(entry: str) -> str:
    return entry.removesuffix(PTX_SUFFIX).replace(".", "")


def _target_order(bare: str) -> tuple[tuple[int, int], str]:
    number = bare.rstrip("af")
    return versions.major_minor(number), bare[len(number) :]
