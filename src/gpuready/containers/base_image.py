"""What the name of a base image states: its CUDA, system, Python and torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpuready.catalog import images, systems
from gpuready.model import Record, versions


class BaseImage(Record):
    """A base image as its name and the catalogue describe it; what they leave open is empty."""

    name: str
    cuda: str = ""
    toolkit: bool | None = None  # whether it has nvcc; None if unknown
    torch: str = ""
    build: str = ""  # the build of that torch, such as cu128 or cpu
    brings: str = ""  # another package that it is an image of, such as vllm
    release_of_package: str = ""
    python: str = ""
    interpreter: str = ""  # what pip and python mean in it
    managed: bool | None = None  # whether pip refuses to install into that Python (PEP 668)
    system: str = ""
    release: str = ""
    kind: str = ""
    requires: str = ""  # the CUDA that it requires of the driver at start
    shows: bool | None = None  # whether it requests GPUs by NVIDIA_VISIBLE_DEVICES; None if unknown
    is_known: bool = True  # whether anybody here knows what it has, beyond what its tag says


def parse_image_name(reference: str) -> BaseImage:
    """Parse ``nvidia/cuda:12.8.1-devel-ubuntu22.04`` and similar names."""
    bare = images.strip_image_registry(reference)
    name, _, tag = bare.partition(":") if bare.rpartition("/")[2].count(":") else (bare, "", "")
    words = tag.lower().replace("_", "-").split("-")
    if row := next((r for r in images.list_framework_images() if r["image"] == bare), None):
        stated = BaseImage(reference, cuda=row["cuda"], torch=row["torch"], build="own", shows=True)
        return _fill_from_row(stated, images.find_base_image("nvidia/pytorch", _release_after(words, "nvcr")))
    image = _add_image_system(_parse_tag(reference, name, words), name, words)
    return _fill_from_row(image, _find_row(name, words))


def _parse_tag(reference: str, name: str, words: list[str]) -> BaseImage:
    parse_words = _IMAGE_PARSERS.get(name) or next(
        (parse for prefix, parse in _FAMILY_PARSERS.items() if name.startswith(prefix)), None
    )
    if parse_words is not None:
        return parse_words(reference, words)
    if systems.find_system_of_image(name) or _ubi_release(name):
        return BaseImage(reference, shows=False, toolkit=False)
    return _parse_other_image(reference, words)


def _find_row(name: str, words: list[str]) -> dict[str, Any]:
    """Return the catalogue's row of an image; of manylinux images by the start of their name."""
    if any(word.startswith("rocm") for word in words):
        return {}
    last = name.rpartition("/")[2].partition("-")[0]
    known = name if not last.startswith("manylinux") else last.removesuffix("_x86_64").removesuffix("_aarch64")
    return images.find_base_image(known, _plain_release(words[0]))


def _fill_from_row(image: BaseImage, row: dict[str, Any]) -> BaseImage:
    """Fill what the tag leaves open; a system that the tag names comes with its own Python."""
    filled: dict[str, Any] = {
        field: row[field]
        for field in (
            "cuda",
            "torch",
            "python",
            "managed",
            "kind",
            "requires",
            "shows",
            "toolkit",
            "interpreter",
            "build",
        )
        if field in row and getattr(image, field) in ("", None)
    }
    if not image.system and "system" in row:
        filled |= {"system": row["system"], "release": row.get("release", "")}
    if "brings" in row:
        filled |= {
            "brings": row["brings"],
            "release_of_package": _plain_release(image.name.rpartition(":")[2].partition("-")[0]),
        }
    image = image.replace(**filled, is_known=image.is_known or bool(row))
    interpreter = image.interpreter.replace("{python}", image.python)
    shows = image.shows if image.shows is not None else True if image.cuda else None
    build = image.build or (f"cuda{image.cuda}" if image.torch and image.cuda and "torch" in filled else "")
    return image.replace(interpreter=interpreter, shows=shows, build=build)


def _parse_cuda_image(reference: str, words: list[str]) -> BaseImage:
    """NVIDIA's CUDA images: release, flavor, system. base and runtime have no nvcc."""
    if not _is_version_number(words[0]):
        return BaseImage(reference, shows=True)
    release = ".".join(words[0].split(".")[:2])
    parts = {"devel", "runtime", "base"} & set(words)
    base = BaseImage(reference, cuda=release, requires=release, shows=True)
    return base.replace(toolkit="devel" in parts if parts else None)


def _parse_pytorch_image(reference: str, words: list[str]) -> BaseImage:
    """PyTorch's own images: ``2.8.0-cuda12.8-cudnn9-devel``."""
    cuda = _word_version(words, "cuda")
    if not _is_version_number(words[0]):
        return BaseImage(reference, shows=True)
    if not cuda:
        return BaseImage(reference, torch=words[0], build="", shows=True)
    devel = "devel" in words
    requires = cuda if devel else ""
    return BaseImage(
        reference, cuda=cuda, toolkit=devel, torch=words[0], build=f"cuda{cuda}", shows=True, requires=requires
    )


def _parse_python_image(reference: str, words: list[str]) -> BaseImage:
    """Python's own images: ``3.12-slim-bookworm``. The Python of ``3-slim`` is whichever is the newest."""
    version = words[0] if _is_version_number(words[0]) and "." in words[0] else ""
    return BaseImage(reference, python=version, shows=False, toolkit=False)


def _parse_axolotl_image(reference: str, words: list[str]) -> BaseImage:
    """axolotl's images: ``main-py3.11-cu128-2.8.0``."""
    build = next((w for w in words if w[:2] == "cu" and w[2:].isdigit()), "")
    torch = words[-1] if build and _is_version_number(words[-1]) and words[-1].count(".") == 2 else ""
    cuda = f"{build[2:-1]}.{build[-1]}" if build else ""
    return BaseImage(
        reference,
        cuda=cuda,
        requires=cuda,
        toolkit=True if cuda else None,
        torch=torch,
        build=build,
        python=_word_version(words, "py"),
        shows=True,
    )


def _parse_rocm_image(reference: str, words: list[str]) -> BaseImage:
    """AMD's images: ``rocm7.2_ubuntu24.04_py3.12_pytorch_release_2.7.1``. They have no CUDA."""
    rocm = _word_version(words, "rocm")
    torch = words[-1] if "pytorch" in words and _is_version_number(words[-1]) else ""
    return BaseImage(
        reference, torch=torch, build=f"rocm{rocm}", python=_word_version(words, "py"), toolkit=False, shows=False
    )


def _parse_other_image(reference: str, words: list[str]) -> BaseImage:
    """Any other image: the CUDA that its tag names, as in ``cuda13.0`` of a builder."""
    cuda = _word_version(words, "cuda")
    return BaseImage(reference, cuda=cuda, toolkit=True if cuda else None, is_known=False)


def _word_version(words: list[str], prefix: str) -> str:
    """Return the version in the word with this prefix: 3.12 of py3.12."""
    starts = (word.removeprefix(prefix) for word in words if word.startswith(prefix))
    return next((version for version in starts if _is_version_number(version)), "")


def _release_after(words: list[str], name: str) -> str:
    return words[words.index(name) + 1] if name in words[:-1] else ""


def _plain_release(word: str) -> str:
    """Return 0.5.3 of ``v0.5.3.post1``; empty if it is no version."""
    text = word.removeprefix("v").partition(".post")[0]
    return text if _is_version_number(text) else ""


def _add_image_system(image: BaseImage, name: str, words: list[str]) -> BaseImage:
    """Add the distribution that is the image, or that its tag or name mentions."""
    if found := systems.find_system_of_image(name):
        return image.replace(system=found, release=_system_release(words))
    if release := _ubi_release(name):
        return image.replace(system="rhel", release=release)
    mentioned = [name.removeprefix("rocm/dev-").replace("-", "")] if name.startswith("rocm/") else []
    for word in (*words, *mentioned):
        system, release = _parse_system_word(word)
        if system:
            return image.replace(system=system, release=release)
    return image


def _system_release(words: list[str]) -> str:
    """Return the release of ``24.04``, ``bookworm-slim``, ``stream9``, ``3.19.1``; empty of ``latest``."""
    by_name = systems.find_codename(words[0])[1]
    number = words[0].removeprefix("stream")
    return by_name or (".".join(number.split(".")[:2]) if _is_version_number(number) else "")


def _ubi_release(name: str) -> str:
    """Return the major release of a Red Hat universal base image: ``ubi9/python-311``."""
    parts = (part.removeprefix("ubi") for part in name.split("/") if part.startswith("ubi"))
    return next((part for part in parts if part.isdigit()), "")


def _parse_system_word(word: str) -> tuple[str, str]:
    """Parse ``ubuntu22.04``, ``bookworm``, ``ubi9`` and ``alpine3.20``."""
    if systems.find_codename(word)[0]:
        return systems.find_codename(word)
    letters = word.rstrip("0123456789.")
    release = word[len(letters) :]
    system = systems.find_system_of_image(letters)
    return (system, release) if system and (release or letters == "alpine") else ("", "")


def _is_version_number(text: str) -> bool:
    return bool(text) and versions.parse_plain_release(text) is not None


_IMAGE_PARSERS: dict[str, Callable[[str, list[str]], BaseImage]] = {
    "nvidia/cuda": _parse_cuda_image,
    "nvidia/cuda-arm64": _parse_cuda_image,
    "pytorch/pytorch": _parse_pytorch_image,
    "python": _parse_python_image,
}
_FAMILY_PARSERS: dict[str, Callable[[str, list[str]], BaseImage]] = {
    "axolotlai/axolotl": _parse_axolotl_image,
    "winglian/axolotl": _parse_axolotl_image,
    "rocm/": _parse_rocm_image,
}
