"""What the name of a base image states: its CUDA, system, Python and torch."""

from __future__ import annotations

from gpuready.catalog import images, systems
from gpuready.model import Record, versions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

DEBIAN_RELEASES = {"buster": "10", "bullseye": "11", "bookworm": "12", "trixie": "13"}
UBUNTU_RELEASES = {"bionic": "18.04", "focal": "20.04", "jammy": "22.04", "noble": "24.04"}


class BaseImage(Record):
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


def parse_image_name(reference: str) -> BaseImage:
    """Parse ``nvidia/cuda:12.8.1-devel-ubuntu22.04`` and similar names."""
    bare = images.strip_image_registry(reference)
    name, _, tag = bare.partition(":") if bare.rpartition("/")[2].count(":") else (bare, "", "")
    if row := next((r for r in images.list_framework_images() if r["image"] == bare), None):
        return BaseImage(reference, cuda=row["cuda"], torch=row["torch"], build="own", shows=True)
    words = tag.lower().split("-")
    parse_image = _IMAGE_PARSERS.get(name)
    if parse_image is not None and tag:
        return parse_image(reference, words)
    if name in ("ubuntu", "debian") and tag:
        return _add_image_system(BaseImage(reference, shows=False, toolkit=False), [f"{name}{words[0]}", *words])
    return BaseImage(reference)


def _parse_cuda_image(reference: str, words: list[str]) -> BaseImage:
    """NVIDIA's CUDA images: release, flavor, system. base and runtime have no nvcc."""
    if not _is_version_number(words[0]):
        return BaseImage(reference, shows=True)
    release = ".".join(words[0].split(".")[:2])
    parts = {"devel", "runtime", "base"} & set(words)
    base = BaseImage(reference, cuda=release, requires=release, shows=True)
    return _add_image_system(base.replace(toolkit="devel" in parts if parts else None), words)


def _parse_pytorch_image(reference: str, words: list[str]) -> BaseImage:
    """PyTorch's own images: ``2.8.0-cuda12.8-cudnn9-devel``."""
    cuda = next((w[4:] for w in words if w.startswith("cuda") and _is_version_number(w[4:])), "")
    if not _is_version_number(words[0]):
        return BaseImage(reference, shows=True)
    if not cuda:
        return BaseImage(reference, torch=words[0], build="", shows=True)
    devel = "devel" in words
    return BaseImage(
        reference,
        cuda=cuda,
        toolkit=devel,
        torch=words[0],
        build=f"cuda{cuda}",
        shows=True,
        requires=cuda if devel else "",
    )


def _parse_python_image(reference: str, words: list[str]) -> BaseImage:
    """Python's own images: ``3.12-slim-bookworm``."""
    base = BaseImage(reference, python=words[0] if _is_version_number(words[0]) else "", shows=False, toolkit=False)
    return _add_image_system(base, words)


def _parse_axolotl_image(reference: str, words: list[str]) -> BaseImage:
    """axolotl's images: ``main-py3.11-cu128-2.8.0``."""
    build = next((w for w in words if w[:2] == "cu" and w[2:].isdigit()), "")
    python = next((w[2:] for w in words if w[:2] == "py" and _is_version_number(w[2:])), "")
    torch = words[-1] if build and _is_version_number(words[-1]) and words[-1].count(".") == 2 else ""
    cuda = f"{build[2:-1]}.{build[-1]}" if build else ""
    return BaseImage(reference, cuda=cuda, torch=torch, build=build, python=python, shows=True)


def _parse_conda_image(reference: str, words: list[str]) -> BaseImage:
    return BaseImage(reference, kind="conda", shows=False, toolkit=False)


def _add_image_system(image: BaseImage, words: list[str]) -> BaseImage:
    """Add the distribution named in the tag."""
    for word in words:
        if word in DEBIAN_RELEASES or word in UBUNTU_RELEASES:
            name = "debian" if word in DEBIAN_RELEASES else "ubuntu"
            return image.replace(system=name, release=DEBIAN_RELEASES.get(word) or UBUNTU_RELEASES[word])
        letters = word.rstrip("0123456789.")
        name = {"rockylinux": "rocky", "ubi": "rhel"}.get(letters, letters)
        release = word[len(letters) :]
        for code, number in {**DEBIAN_RELEASES, **UBUNTU_RELEASES}.items():
            if word in (f"debian{code}", f"ubuntu{code}"):
                name, release = word.removesuffix(code), number
        if release and systems.find_system(name):
            return image.replace(system=name, release=release)
    return image


def _is_version_number(text: str) -> bool:
    return bool(text) and versions.parse_plain_release(text) is not None


_IMAGE_PARSERS: dict[str, Callable[[str, list[str]], BaseImage]] = {
    "nvidia/cuda": _parse_cuda_image,
    "nvidia/cuda-arm64": _parse_cuda_image,
    "pytorch/pytorch": _parse_pytorch_image,
    "python": _parse_python_image,
    "axolotlai/axolotl": _parse_axolotl_image,
    "axolotlai/axolotl-base": _parse_axolotl_image,
    "axolotlai/axolotl-cloud": _parse_axolotl_image,
    "winglian/axolotl": _parse_axolotl_image,
    "continuumio/miniconda3": _parse_conda_image,
    "condaforge/miniforge3": _parse_conda_image,
    "mambaorg/micromamba": _parse_conda_image,
}
