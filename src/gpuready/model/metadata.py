"""What a release requires, from its core metadata: METADATA of an installed distribution or a wheel, PKG-INFO of an sdist."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


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
