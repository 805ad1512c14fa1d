"""What a release requires, from its core metadata: METADATA, PKG-INFO or requires.txt; requirements and their markers."""

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from gpuready.model.versions import is_satisfied


def parse_metadata(text: str) -> dict[str, Any]:
    """Return version, requires_dist and requires_python of a METADATA or PKG-INFO file."""
    headers = list(parse_metadata_headers(text))
    fields = {field: [value for name, value in headers if name == field] for field in ("version", "requires-python")}
    return {
        "requires_dist": tuple(value for name, value in headers if name == "requires-dist"),
        "requires_python": next(iter(fields["requires-python"]), None),
        "version": next(iter(fields["version"]), None),
    }


def parse_metadata_headers(text: str) -> Iterator[tuple[str, str]]:
    """Yield the headers up to the empty line; indented lines continue a multi-line licence."""
    for line in text.splitlines():
        if not line:
            return
        name, colon, value = line.partition(":")
        if colon and not line[0].isspace():
            yield name.strip().lower(), value.strip()


def parse_requires_file(text: str) -> list[str]:
    """Return the requirements of setuptools' requires.txt: ``[deepspeed]`` is an extra, ``[:os_name=="nt"]`` a marker."""
    found, marker = [], ""
    for line in (line.strip() for line in text.splitlines()):
        if line.startswith("[") and line.endswith("]"):
            extra, _, condition = line[1:-1].partition(":")
            parts = [f'extra == "{extra}"' if extra else "", f"({condition})" if condition and extra else condition]
            marker = " and ".join(part for part in parts if part)
        elif line and not line.startswith("#"):
            found.append(f"{line}; {marker}" if marker else line)
    return found


MAX_BRACKETS = 100
_OPERATORS = ("===", "==", "!=", "<=", ">=", "~=", "<", ">")
_MARKER_WORD = r"""\s*(?:(?P<quoted>"[^"]*"|'[^']*')|(?P<plain>[()]|===|[=!<>~]=|[<>]|[\w.]+))"""
_WORDS = ("and", "or", "not", "in", "(", ")", *_OPERATORS)
_VERSION_NAMES = ("python_version", "python_full_version", "implementation_version", "platform_release")


@lru_cache(4096)
def canonical_name(name: str) -> str:
    """``Flash_Attn`` -> ``flash-attn`` (PEP 503)."""
    return "-".join(part for part in name.strip().lower().replace("_", "-").replace(".", "-").split("-") if part)


def split_metadata_name(entry: str) -> tuple[str, str]:
    """``flash_attn-2.8.3.dist-info`` -> ``("flash-attn", "2.8.3")``; the version may be empty."""
    stem, _, kind = entry.rpartition(".")
    if kind in ("egg-info", "egg"):
        name, _, version = stem.partition("-")
        return canonical_name(name), version.partition("-")[0]
    name, dash, version = stem.rpartition("-")
    return (canonical_name(name), version) if dash else (canonical_name(stem), "")


class Marker:
    """A recursive descent over the words of one marker; ValueError or IndexError where it cannot be read."""

    def __init__(self, text: str):
        self.words, self.at = _split_marker(text), 0
        if self.words.count("(") > MAX_BRACKETS:
            raise ValueError("too many brackets")
        self.environment: Mapping[str, str] = {}
        self.extras: frozenset[str] = frozenset()

    def list_variables(self) -> set[str]:
        """What it asks for: python_version, extra."""
        return {word for word in self.words if word not in _WORDS and word[0] != "'"}

    def evaluate(self, environment: Mapping[str, str], extras: frozenset[str]) -> bool:
        """Whether it holds; a variable that the environment does not have is empty."""
        self.environment, self.extras, self.at = environment, extras, 0
        value = self._any_of()
        if self.at != len(self.words):
            raise ValueError("words after the marker")
        return value

    def _any_of(self) -> bool:
        value = self._all_of()
        while self._takes("or"):
            value = self._all_of() or value
        return value

    def _all_of(self) -> bool:
        value = self._one()
        while self._takes("and"):
            value = self._one() and value
        return value

    def _one(self) -> bool:
        if self._takes("("):
            value = self._any_of()
            if not self._takes(")"):
                raise ValueError("an open bracket")
            return value
        left, operator = self._next(), self._next()
        if operator == "not":
            operator = f"not {self._next()}"
        return self._compare(left, operator, self._next())

    def _takes(self, word: str) -> bool:
        found = self.at < len(self.words) and self.words[self.at] == word
        self.at += found
        return found

    def _next(self) -> str:
        self.at += 1
        return self.words[self.at - 1]

    def _compare(self, left: str, operator: str, right: str) -> bool:
        names = (left, right)
        if "extra" in names:
            wanted = canonical_name((right if left == "extra" else left)[1:])
            return (wanted in self.extras) == (operator != "!=")
        return _compare_values(
            self._value(left), operator, self._value(right), any(name in _VERSION_NAMES for name in names)
        )

    def _value(self, word: str) -> str:
        return word[1:] if word[0] == "'" else self.environment.get(word.replace(".", "_"), "")


def _compare_values(left: str, operator: str, right: str, are_versions: bool) -> bool:
    if operator in ("in", "not in"):
        return (left in right) == (operator == "in")
    if are_versions and operator in _OPERATORS:
        fits = is_satisfied(left, f"{operator}{right}")
        if fits is not None:
            return fits
    comparisons = {"==": left == right, "===": left == right, "!=": left != right, "<": left < right, ">": left > right}
    return comparisons.get(operator, left <= right if operator == "<=" else left >= right)


def _split_marker(text: str) -> list[str]:
    """Split a marker into words; a quoted text begins with one quote: ``os_name == "nt"`` -> os_name, ==, 'nt."""
    words, at = [], 0
    pattern = re.compile(_MARKER_WORD)
    while found := pattern.match(text, at):
        words.append("'" + found["quoted"][1:-1] if found["quoted"] else found["plain"])
        at = found.end()
    if text[at:].strip():
        raise ValueError(f"the sign {text[at:].strip()[0]!r}")
    return words


Parsed = tuple[str, tuple[str, ...], str, str]


def parse_requirement(text: str) -> Parsed:
    """``Torch[opt] (>=2.0,<3); extra == "x"`` -> ``("torch", ("opt",), ">=2.0,<3", 'extra == "x"')``."""
    words, _, marker = text.partition(" ;" if " @ " in text else ";")
    words = words.partition(" @ ")[0].strip()
    end = next((at for at, sign in enumerate(words) if not (sign.isalnum() or sign in "-_.")), len(words))
    name, rest = words[:end], words[end:].strip()
    extras = ""
    if rest.startswith("["):
        extras, _, rest = rest[1:].partition("]")
    specifier = rest.strip().removeprefix("(").removesuffix(")").replace(" ", "")
    names = tuple(canonical_name(extra) for extra in extras.split(",") if extra.strip())
    return canonical_name(name), names, specifier, marker.strip()


def is_for_other_extra(text: str, extras: frozenset[str]) -> bool:
    """Whether a requirement is one of an extra that nobody asked for, as most are: seen without parsing all of it."""
    return "extra" in text and _is_for_other_extra(text.partition(";")[2].strip(), extras)


def marker_applies(marker: str, environment: Mapping[str, str], extras: frozenset[str]) -> bool:
    """Whether a requirement with this marker applies; one that cannot be parsed applies to nobody."""
    if _is_for_other_extra(marker, extras):
        return False
    try:
        return not marker or Marker(marker).evaluate(environment, extras)
    except (ValueError, IndexError):
        return False


def _is_for_other_extra(marker: str, extras: frozenset[str]) -> bool:
    """Whether a marker ends in ``and extra == "x"``, as most do, with an extra that nobody asked for."""
    rest, _, last = marker.rpartition(" and ")
    if not last.startswith("extra ==") or " or " in last:
        return False
    is_whole = " or " not in rest or (rest[0] == "(" and rest[-1] == ")" and rest.count("(") == 1)
    return is_whole and canonical_name(last[8:].strip("'\" ")) not in extras


def marker_environment(version: str, machine: str, release: str) -> dict[str, str]:
    """The values of markers on Linux; CPython is assumed."""
    return {
        "python_version": ".".join(version.split(".")[:2]),
        "python_full_version": version,
        "implementation_version": version,
        "os_name": "posix",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "platform_machine": machine,
        "platform_release": release,
        "platform_version": "",
        "platform_python_implementation": "CPython",
        "implementation_name": "cpython",
    }
