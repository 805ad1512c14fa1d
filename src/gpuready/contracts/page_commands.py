"""What the commands of an installation page state beside what they do: shared memory and variables."""

from __future__ import annotations

import re

from gpuready.model import ContractVariable, Requirement

_NAME = r"[A-Z][A-Z0-9_]{2,}"
_VALUE = r"(?:\"([^\"\n]*)\"|'([^'\n]*)'|([^\s\"'`\\]*))"
_PATTERNS = (
    rf"^[ \t]{{0,40}}(?:export|setenv|ENV|set)[ \t]{{1,9}}({_NAME})[ \t]{{0,9}}[= ][ \t]{{0,9}}{_VALUE}",
    rf"(?:^|\s)(?:-e|--env)[ =]({_NAME})(?:={_VALUE})?(?=\s|\\|$)",
    rf"(?<![\w=])({_NAME})={_VALUE}(?=\s)",
)
_WORD = r"(?:\"[^\"\n]{0,200}\"|'[^'\n]{0,200}'|[^\s\"'`]{0,200})"
_PREFIX = rf"(?:^[ \t]{{0,40}}|`)(?:RUN[ \t]{{1,9}})?(?:{_NAME}={_WORD}[ \t]{{1,9}}){{1,8}}(?=\S)"
"""``MAX_JOBS=4 NVCC_FLAGS="-a -b" pip install``: what stands before the command, in a block or in backquotes."""
_SETTINGS = r"^\s{0,40}(?:\[{1,2}[\w.\"-]{1,80}\]{1,2}\s*$|[\w.-]{1,80}\s{1,9}=\s|\w{0,60}(?:Error|Exception):\s)"
_SHM = r"--shm-size[= ]\s*[\"']?(\d+(?:\.\d+)?)\s*([mMgGtT])"


def find_command_needs(text: str, cite: str) -> list[Requirement]:
    """Parse ``docker run --shm-size=10g`` -> system.shm of 10 GB."""
    sizes = [f">={number}{unit.upper()}B" for number, unit in re.findall(_SHM, text)]
    return [Requirement("system.shm", size, "", "recommended", cite) for size in dict.fromkeys(sizes)]


def is_command_text(text: str) -> bool:
    """Whether a block may be commands: neither lines of a settings file (``[tool.uv]``, ``key = value``) nor an error message."""
    return not re.search(_SETTINGS, text, re.M)


def find_command_variables(text: str, cite: str) -> list[ContractVariable]:
    """Return the variables that commands set, export or pass on; a value that a shell would work out is not fixed."""
    found = []
    before = "\n".join(match[0] for match in re.finditer(_PREFIX, text, re.M))
    for pattern, where in zip(_PATTERNS, (text, text, before), strict=True):
        for match in re.finditer(pattern, where, re.M):
            value = next((group for group in match.groups()[1:] if group), "")
            fixed = "" if "$" in value or value.endswith("...") else value
            found.append(ContractVariable(match[1], "set" if fixed else "read", fixed, cite=cite))
    return found
