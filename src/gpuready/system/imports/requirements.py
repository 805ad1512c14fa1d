"""Requirements of a distribution (``Requires-Dist``): their parts, and whether their markers apply."""

from __future__ import annotations

from collections.abc import Mapping

from gpuready.model.markers import Marker
from gpuready.model.markers import canonical_name as canonical_name
from gpuready.model.versions import is_satisfied as is_satisfied

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
    if not last.startswith("extra =="):
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
