"""What the name of a base image states: its CUDA, system, Python and torch."""

from __future__ import annotations

from gpuready import versions
from gpuready.catalog import images, systems
from gpuready.model import Noun

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

DEBIANS = {"buster": "10", "bullseye": "11", "bookworm": "12", "trixie": "13"}
UBUNTUS = {"bionic": "18.04", "focal": "20.04", "jammy": "22.04", "noble": "24.04"}


class Image(Noun):
    """A base image as its name describes it; what the name leaves open is empty."""

    name: str
    cuda: str = ""
    toolkit: bool | None = None  # whether it has nvcc; None if unknown
    torch: str = ""
    build: str = ""  # the build of that torch, such as cu128 or cpu
    python: str = ""
    system: str = ""
    release: str = ""
    kind: str = ""
    requires: str = ""  # the CUDA that it requires of the driver at start
    shows: bool | None = None  # whether it requests GPUs by NVIDIA_VISIBLE_DEVICES; None if unknown


def read(reference: str) -> Image:
    """Parse ``nvidia/cuda:12.8.1-devel-ubuntu22.04`` and similar names."""
    bare = images.bare(reference)
    name, _, tag = bare.partition(":") if bare.rpartition("/")[2].count(":") else (bare, "", "")
    if row := next((r for r in images.published() if r["image"] == bare), None):
        return Image(reference, cuda=row["cuda"], torch=row["torch"], build="own", shows=True)
    words = tag.lower().split("-")
    reader = _READERS.get(name)
    if reader is not None and tag:
        return reader(reference, words)
    if name in ("ubuntu", "debian") and tag:
        return _system(Image(reference, shows=False, toolkit=False), [f"{name}{words[0]}", *words])
    return Image(reference)


def _cuda(reference: str, words: list[str]) -> Image:
    """NVIDIA's CUDA images: release, flavor, system. base and runtime have no nvcc."""
    if not _is_number(words[0]):
        return Image(reference, shows=True)
    release = ".".join(words[0].split(".")[:2])
    parts = {"devel", "runtime", "base"} & set(words)
    made = Image(reference, cuda=release, requires=release, shows=True)
    return _system(made.but(toolkit="devel" in parts if parts else None), words)


def _pytorch(reference: str, words: list[str]) -> Image:
    """PyTorch's own images: ``2.8.0-cuda12.8-cudnn9-devel``."""
    cuda = next((w[4:] for w in words if w.startswith("cuda") and _is_number(w[4:])), "")
    if not _is_number(words[0]):
        return Image(reference, shows=True)
    if not cuda:
        return Image(reference, torch=words[0], build="", shows=True)
    devel = "devel" in words
    return Image(
        reference,
        cuda=cuda,
        toolkit=devel,
        torch=words[0],
        build=f"cuda{cuda}",
        shows=True,
        requires=cuda if devel else "",
    )


def _python(reference: str, words: list[str]) -> Image:
    """Python's own images: ``3.12-slim-bookworm``."""
    made = Image(reference, python=words[0] if _is_number(words[0]) else "", shows=False, toolkit=False)
    return _system(made, words)


def _axolotl(reference: str, words: list[str]) -> Image:
    """axolotl's images: ``main-py3.11-cu128-2.8.0``."""
    build = next((w for w in words if w[:2] == "cu" and w[2:].isdigit()), "")
    python = next((w[2:] for w in words if w[:2] == "py" and _is_number(w[2:])), "")
    torch = words[-1] if build and _is_number(words[-1]) and words[-1].count(".") == 2 else ""
    cuda = f"{build[2:-1]}.{build[-1]}" if build else ""
    return Image(reference, cuda=cuda, torch=torch, build=build, python=python, shows=True)


def _conda(reference: str, words: list[str]) -> Image:
    return Image(reference, kind="conda", shows=False, toolkit=False)


def _system(image: Image, words: list[str]) -> Image:
    """Add the distribution named in the tag."""
    for word in words:
        if word in DEBIANS or word in UBUNTUS:
            name = "debian" if word in DEBIANS else "ubuntu"
            return image.but(system=name, release=DEBIANS.get(word) or UBUNTUS[word])
        letters = word.rstrip("0123456789.")
        name = {"rockylinux": "rocky", "ubi": "rhel"}.get(letters, letters)
        release = word[len(letters) :]
        for code, number in {**DEBIANS, **UBUNTUS}.items():
            if word in (f"debian{code}", f"ubuntu{code}"):
                name, release = word.removesuffix(code), number
        if release and systems.system(name):
            return image.but(system=name, release=release)
    return image


def _is_number(text: str) -> bool:
    return bool(text) and versions.plain(text) is not None


_READERS: dict[str, Callable[[str, list[str]], Image]] = {
    "nvidia/cuda": _cuda,
    "nvidia/cuda-arm64": _cuda,
    "pytorch/pytorch": _pytorch,
    "python": _python,
    "axolotlai/axolotl": _axolotl,
    "axolotlai/axolotl-base": _axolotl,
    "axolotlai/axolotl-cloud": _axolotl,
    "winglian/axolotl": _axolotl,
    "continuumio/miniconda3": _conda,
    "condaforge/miniforge3": _conda,
    "mambaorg/micromamba": _conda,
}
