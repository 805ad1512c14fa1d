"""Choose the GPU architectures of a build: the requested ones, those of the visible GPUs, or all that nvcc and
torch support.
"""

from __future__ import annotations

from gpuready import versions
from gpuready.catalog import architectures, torch
from gpuready.catalog import cuda as toolkits
from gpuready.model import Noun

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

PTX = "+PTX"


class Targets(Noun):
    """A list in the form of TORCH_CUDA_ARCH_LIST, its source, and what was left out and why."""

    entries: tuple[str, ...]
    source: str
    dropped: tuple[str, ...] = ()

    def flags(self) -> list[str]:
        return [flag for entry in self.entries for flag in _gencode(entry)]

    def names(self) -> tuple[str, ...]:
        """Code embedded in the library: ``sm_80``, ``sm_90``, ``compute_90``."""
        code = [f"sm_{_bare(entry)}" for entry in self.entries]
        return (*code, *(f"compute_{_bare(entry)}" for entry in self.entries if entry.endswith(PTX)))


def choose(
    written: str,
    capabilities: Sequence[str],
    cuda: str,
    torch_arch: Sequence[str] = (),
    offered: Sequence[str] = (),
    source: str = "TORCH_CUDA_ARCH_LIST",
) -> Targets:
    """Return the architectures of a build: a written list, else those of the visible GPUs, else all that can be
    built.

    ``cuda`` is nvcc's release, ``offered`` the targets that nvcc lists (else the catalogue's), ``torch_arch``
    what torch was built for (empty: no limit). A written list is used unchanged, as torch does; to a list of
    ours PTX is added for the newest architecture, so that later GPUs can run it. ValueError if nothing is left.
    """
    can = list(offered or toolkits.targets(cuda) or ())
    if not can:
        raise ValueError(f"it is not known what nvcc {cuda} can compile for: name it in TORCH_CUDA_ARCH_LIST")
    text = written.strip()
    if text and text != "native":
        parts = [part for listed in architectures.entries(text).values() for part in listed]
        return _kept(parts, cuda, can, torch_arch, source, ptx=False)
    if capabilities:
        parts, lost = _for_gpus(capabilities, cuda, can)
        found = _kept(parts, cuda, can, torch_arch, "the visible GPUs", ptx=True, lost=lost)
        return found
    parts = _everything(can, torch_arch)
    where = "everything that nvcc and torch have in common" if torch_arch else "everything that nvcc has"
    return _kept(parts, cuda, can, torch_arch, f"{where} (no GPU is visible)", ptx=True)


def _kept(
    parts: Iterable[str],
    cuda: str,
    can: Sequence[str],
    torch_arch: Sequence[str],
    source: str,
    ptx: bool,
    lost: Sequence[str] = (),
) -> Targets:
    """Filter a list to what can be built, sorted and without duplicates."""
    merged: dict[str, bool] = {}
    dropped = list(lost)
    for part in parts:
        bare = part.removesuffix(PTX)
        why = _refused(bare, cuda, can, torch_arch)
        if why:
            dropped.append(why)
        else:
            merged[bare] = merged.get(bare, False) or part.endswith(PTX)
    if not merged:
        reasons = "; ".join(dict.fromkeys(dropped)) or "the list is empty"
        raise ValueError(f"no architecture is left to compile for ({source}): {reasons}")
    ordered = sorted(merged, key=_order)
    if ptx and not any(merged.values()):
        general = [bare for bare in ordered if bare[-1].isdigit()]
        merged.update({general[-1]: True} if general else {})
    entries = tuple(bare + (PTX if merged[bare] else "") for bare in ordered)
    return Targets(entries, source, tuple(dict.fromkeys(dropped)))


def _refused(bare: str, cuda: str, can: Sequence[str], torch_arch: Sequence[str]) -> str:
    number = bare.rstrip("af")
    if number not in can:
        return f"nvcc {cuda} does not compile for {bare} (it does for {can[0]} to {can[-1]})"
    row = toolkits.release(cuda)
    if bare != number and row and f"sm_{_bare(bare)}" not in row.get("specific", ()):
        return f"nvcc {cuda} knows no {bare}"
    # The minor version of the toolkit that torch was built with is unknown here, only its major.
    if torch_arch and not torch.covers(torch_arch, number, cuda)[0]:
        return f"this torch has no code for {number}: it runs on none of these GPUs"
    return ""


def _for_gpus(capabilities: Sequence[str], cuda: str, can: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return one entry per kind of GPU. If nvcc is older than the GPU: code of the same major, else PTX for the
    driver.
    """
    parts, lost = [], []
    for one in sorted(set(capabilities), key=versions.minor):
        kin = [c for c in can if torch.covers([f"sm_{_bare(c)}"], one, cuda)[0]]
        older = [c for c in can if versions.minor(c) < versions.minor(one)]
        if one in can or kin:
            parts.append(one if one in can else max(kin, key=versions.minor))
        elif older:
            parts.append(max(older, key=versions.minor) + PTX)
        else:
            lost.append(f"nvcc {cuda} does not compile for {one} (it does for {can[0]} to {can[-1]})")
    return parts, lost


def _everything(can: Sequence[str], torch_arch: Sequence[str]) -> list[str]:
    """Return the targets for cross-compilation: torch's own list; without torch, all of nvcc's except
    integrated GPUs.
    """
    if torch_arch:
        listed = {word.removeprefix("sm_").rstrip("af") for word in torch_arch if word.startswith("sm_")}
        return [c for c in can if _bare(c) in listed]
    apart = set(toolkits.rule("cubin_compat")["integrated"])
    return [c for c in can if c not in apart]


def _gencode(entry: str) -> list[str]:
    arch = _bare(entry)
    flags = [f"-gencode=arch=compute_{arch},code=sm_{arch}"]
    return [*flags, f"-gencode=arch=compute_{arch},code=compute_{arch}"] if entry.endswith(PTX) else flags


def _bare(entry: str) -> str:
    return entry.removesuffix(PTX).replace(".", "")


def _order(bare: str) -> tuple[tuple[int, int], str]:
    number = bare.rstrip("af")
    return versions.minor(number), bare[len(number) :]
