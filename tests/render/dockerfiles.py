"""The syntax of a Dockerfile, as its reference has it: instructions, continued lines, here-documents."""

from __future__ import annotations

import re

KNOWN = {
    "ADD", "ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "LABEL", "ONBUILD", "RUN", "SHELL",
    "STOPSIGNAL", "USER", "VOLUME", "WORKDIR",
}  # fmt: skip


def parsed(text: str) -> list[tuple[str, str]]:
    """Every instruction with the rest of its lines; AssertionError where a line belongs to none."""
    found: list[tuple[str, str]] = []
    lines = iter(text.splitlines())
    for line in lines:
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = re.match(r"([A-Za-z]+)\s+(.*)$", line)
        assert match and match[1].upper() in KNOWN, f"no instruction: {line!r}"
        name, rest = match[1].upper(), match[2]
        while rest.endswith("\\"):
            rest = rest[:-1] + next(lines)
        here = re.search(r"<<-?(['\"]?)(\w+)\1", rest) if name in ("RUN", "COPY", "ADD") else None
        if here:
            body = []
            while (inside := next(lines)) != here[2]:
                body.append(inside)
            rest = "\n".join([rest, *body])
        found.append((name, rest))
    assert found and found[0][0] in ("FROM", "ARG"), "it must begin with FROM"
    return found


def environment(text: str) -> dict[str, str]:
    """The variables that ENV sets, with quotes and escapes taken away and nothing expanded."""
    found: dict[str, str] = {}
    for name, rest in parsed(text):
        if name == "ENV":
            for key, quoted, bare in re.findall(r'(\w+)=(?:"((?:[^"\\]|\\.)*)"|(\S*))', rest):
                found[key] = re.sub(r"\\(.)", r"\1", quoted) if quoted else bare
    return found
