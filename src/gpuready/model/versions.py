"""Parse and compare versions as ``packaging`` does, without importing it for plain ones.

Importing ``packaging.specifiers`` costs three times the start of Python itself, and nine versions in ten are plain
(digits and dots, perhaps a local part). Those are handled here; every other version or specifier goes to
``packaging``. A property test checks that both agree.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from operator import eq, ge, gt, le, lt, ne
from typing import Any

COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {">=": ge, "<=": le, "==": eq, "!=": ne, ">": gt, "<": lt}
_OPERATORS = (">=", "<=", "==", "!=", "~=", ">", "<")


@lru_cache(8192)
def parse_plain_release(text: str) -> tuple[int, ...] | None:
    """The release of a plain version (``580.95.05``, ``2.8.0+cu128``), or None for any other text."""
    public, plus, local = text.strip().partition("+")
    if plus and not (local.isascii() and all(part.isalnum() for part in local.split("."))):
        return None
    if not public.isascii() or not public.replace(".", "").isdigit():
        return None
    try:
        return tuple(map(int, public.split(".")))
    except ValueError:  # two dots in a row, or one at an end
        return None


def is_version(text: object) -> bool:
    if not isinstance(text, str):
        return False
    return (parse_plain_release(text) or parse_version_key(text)) is not None or _is_pep440_version(text)


def _is_pep440_version(text: str) -> bool:
    from packaging.version import InvalidVersion, Version

    try:
        Version(text)
    except InvalidVersion:
        return False
    return True


@lru_cache(8192)
def compare_versions(a: str, b: str) -> int:
    """-1, 0 or 1. Local parts (``+cu128``) are ignored. ValueError where either is not a version."""
    left, right = parse_plain_release(a), parse_plain_release(b)
    if left is not None and right is not None:
        left, right = _pad_releases(left, right)
        return (left > right) - (left < right)
    x, y = parse_version_key(a), parse_version_key(b)
    if x is None or y is None:
        x, y = _parse_public_version(a), _parse_public_version(b)
    return int(x > y) - int(x < y)


@lru_cache(8192)
def satisfies_specifier(version: str, specifier: str) -> bool:
    """Whether a version satisfies a specifier such as ``>=2.2.0,<=2.5.1``; pre-releases count.

    ``|`` separates alternatives: ``==2.6.0|==2.8.0``. A local part counts only where the specifier has one: wheels of the
    PyTorch index have one, most pins do not.
    """
    return any(_satisfies_all_clauses(version, choice) for choice in specifier.split("|"))


def is_satisfied(version: str, specifier: str) -> bool | None:
    """Whether a version satisfies a specifier; None where either cannot be understood."""
    try:
        return all(satisfies_specifier(version, clause) for clause in specifier.split(",") if clause)
    except ValueError:
        return None


def _satisfies_all_clauses(version: str, specifier: str) -> bool:
    clauses = [c.strip() for c in specifier.split(",") if c.strip()]
    release = parse_plain_release(version)
    answers = []
    for clause in clauses:
        operator, bound = split_clause(clause)
        is_prefix = bound.endswith(".*") and operator in ("==", "!=")
        wanted = parse_plain_release(bound[:-2] if is_prefix else bound)
        if release is None or wanted is None or "+" in bound or (operator == "~=" and len(wanted) < 2):
            fits = _compare_version_keys(version, operator, bound)
            answers.append(_satisfies_with_packaging(version, clause) if fits is None else fits)
        elif is_prefix:
            answers.append(_has_prefix(release, wanted) == (operator == "=="))
        elif operator == "~=":
            answers.append(_compare_release(release, ">=", wanted) and _has_prefix(release, wanted[:-1]))
        else:
            answers.append(_compare_release(release, operator, wanted))
    return all(answers)


def _compare_version_keys(version: str, operator: str, bound: str) -> bool | None:
    """Compare versions of which either may be a pre-, post- or development release; None where ``packaging`` is needed."""
    left, right = parse_version_key(version), parse_version_key(bound)
    if left is None or right is None or operator not in (">=", "<=", "==", "!=") or "+" in bound:
        return None  # neither 1.0.post1 nor 1.0rc1 is an answer to >1.0 or <1.0
    return _compare_release(left, operator, right)


_MAX_NUMBERS, _NO_DEV = 8, 1 << 62
_VERSION = r"(\d+(?:\.\d+)*)(?:\.?(a|b|rc)(\d{1,18}))?(?:\.?post(\d{1,18}))?(?:\.?dev(\d{1,18}))?(?:\+[a-zA-Z0-9]+(?:\.[a-zA-Z0-9]+)*)?"


@lru_cache(4096)
def parse_version_key(text: str) -> tuple[int, ...] | None:
    """Numbers that compare as versions do (PEP 440): of ``1.0``, ``0.66b2``, ``0.7.0.post1``, ``0.47.0dev0``; None for other spellings."""
    found = re.fullmatch(_VERSION, text.strip(), re.ASCII)
    release = parse_plain_release(found[1]) if found else None
    if not found or release is None or len(release) > _MAX_NUMBERS:
        return None
    _, kind, pre, post, dev = found.groups()
    rank = (("a", "b", "rc").index(kind), int(pre)) if kind else (-1, 0) if dev and not post else (3, 0)
    padded = release + (0,) * (_MAX_NUMBERS - len(release))
    return (*padded, *rank, int(post or -1), int(dev) if dev else _NO_DEV)


def _has_prefix(release: tuple[int, ...], prefix: tuple[int, ...]) -> bool:
    """Whether a release is one of ``2.1.*``, whose numbers are the prefix."""
    return _pad_releases(release, prefix)[0][: len(prefix)] == prefix


def split_clause(clause: str) -> tuple[str, str]:
    """``">=2.2"`` -> ``(">=", "2.2")``. ValueError where there is no operator."""
    for operator in _OPERATORS:
        if clause.startswith(operator):
            return operator, clause[len(operator) :].strip()
    raise ValueError(f"{clause!r} is not a version specifier: it must begin with one of {' '.join(_OPERATORS)}")


def _compare_release(release: tuple[int, ...], operator: str, wanted: tuple[int, ...]) -> bool:
    return COMPARISONS[operator](*_pad_releases(release, wanted))


def _pad_releases(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    width = max(len(a), len(b))
    return a + (0,) * (width - len(a)), b + (0,) * (width - len(b))


@lru_cache(4096)
def _parse_public_version(text: str) -> Any:
    from packaging.version import InvalidVersion, Version

    try:
        version = Version(text)
    except InvalidVersion:
        raise ValueError(f"{text!r} is not a version") from None
    return Version(version.public)


def _satisfies_with_packaging(version: str, clause: str) -> bool:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        wanted = SpecifierSet(clause)
    except InvalidSpecifier:
        raise ValueError(f"{clause!r} is not a version specifier") from None
    found = version if "+" in clause else _parse_public_version(version)
    return wanted.contains(found, prereleases=True)


def major_version(text: str) -> int:
    return parse_release(text)[0]


@lru_cache(1024)
def major_minor(text: str) -> tuple[int, int]:
    """``"12.4.127"`` -> ``(12, 4)``."""
    numbers = (*parse_release(text), 0)
    return numbers[0], numbers[1]


def parse_release(text: str) -> tuple[int, ...]:
    """``"5.22.0rc1+cu128"`` -> ``(5, 22, 0)``."""
    numbers = parse_plain_release(text)
    return numbers if numbers is not None else tuple(_parse_public_version(text).release)


def find_version(text: str) -> str | None:
    """Find the first dotted version in a text: ``"gcc (Debian 12.2.0-14)"`` -> 12.2.0."""
    match = re.search(r"(?<!\d)\d+(?:\.\d+)+", text)
    return match.group() if match else None
