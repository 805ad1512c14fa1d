"""Architecture lists as in TORCH_CUDA_ARCH_LIST: ``8.0;9.0a+PTX``, ``Ampere Hopper``."""

from __future__ import annotations

from functools import cache

from gpuready.catalog import load_catalog


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
