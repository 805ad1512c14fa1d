"""Takes out of a log what belongs to the machine that recorded it, and keeps it small."""

from __future__ import annotations

import os
import re
import socket
import sys
from pathlib import Path

LIMIT = 36_000
HEAD = 12_000
PUBLIC = re.compile(
    r"^(localhost|127\.|0\.0\.0\.0|\[|huggingface\.co|github\.com|pytorch\.org|docs\.|.*\.readthedocs\.io|"
    r".*\.pytorch\.org|.*\.nvidia\.com|hf\.co|pip\.pypa\.io|.*\.invalid|.*\.example|arxiv\.org|www\.)"
)
"""Hosts that programs name in their own messages. Every other host is a neighbour of the recording machine."""
URL_HOST = re.compile(r"(https?://)(?:[^/@\s'\"]*@)?([^/\s'\":,)>]+)")
INNER_ADDRESS = re.compile(r"\b(?:10\.\d{1,3}|172\.(?:1[6-9]|2\d|3[01])|192\.168)\.\d{1,3}\.\d{1,3}\b")
LINK_LOCAL = re.compile(r"\bfe80::[0-9a-f:]+", re.I)
ANSI_BAR = re.compile(r"[^\r\n]*\r(?=[^\r\n])")
"""What a progress bar wrote over itself."""


def sanitised(text: str, job: Path, venv: Path) -> str:
    """The log with neutral paths, hosts and addresses."""
    text = ANSI_BAR.sub("", text.replace("\r\n", "\n"))
    for private, neutral in replacements(job, venv):
        text = text.replace(private, neutral)
    text = URL_HOST.sub(lambda hit: hit[0] if PUBLIC.match(hit[2]) else f"{hit[1]}index.example", text)
    text = LINK_LOCAL.sub("fe80::1", INNER_ADDRESS.sub("10.0.0.5", text))
    name = socket.gethostname()
    if len(name) > 3:
        text = re.sub(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", "node-1", text)
    return re.sub(r"[ \t]+$", "", text, flags=re.M)


def replacements(job: Path, venv: Path) -> list[tuple[str, str]]:
    """Private paths and what stands for them, the longest first."""
    home = os.path.expanduser("~")
    interpreter = str(Path(os.path.realpath(venv / "bin" / "python")).parent.parent)
    pairs = [
        (str(job), "/srv/job"),
        (str(venv), "/home/user/venv"),
        (interpreter, "/opt/python"),
        (str(Path(sys.base_prefix)), "/opt/python"),
        (str(job.parent.parent), "/home/user"),
        (str(Path(__file__).parents[2]), "/srv/project"),
        (home, "/home/user"),
    ]
    pairs += [(path, "/opt/pythons") for path in (os.path.join(home, ".pyenv", "versions"),)]
    useful = {pair for pair in pairs if pair[0] not in ("/", "/usr", "/tmp")}
    return sorted(useful, key=lambda pair: -len(pair[0]))


def trimmed(text: str, patterns: list[str]) -> str:
    """At most 36 kB: the beginning and the end, and the decisive lines with their neighbours between them."""
    if len(text) <= LIMIT:
        return text
    lines = text.splitlines(keepends=True)
    keep = near(lines, patterns) | edge(lines, HEAD) | {len(lines) - 1 - i for i in edge(lines[::-1], LIMIT - HEAD)}
    out: list[str] = []
    for number in sorted(keep):
        if out and number - 1 not in keep:
            out.append("[...]\n")
        out.append(lines[number] if len(lines[number]) < 4000 else lines[number][:4000] + "\n")
    return "".join(out)


def near(lines: list[str], patterns: list[str]) -> set[int]:
    """The first line of each pattern, with some lines around it."""
    kept: set[int] = set()
    for pattern in patterns:
        hit = next((n for n, line in enumerate(lines) if re.search(pattern, folded(line))), None)
        if hit is not None:
            kept.update(range(max(0, hit - 12), min(len(lines), hit + 6)))
    return kept


def edge(lines: list[str], size: int) -> set[int]:
    """The numbers of as many lines from the beginning as fit."""
    kept, used = set(), 0
    for number, line in enumerate(lines):
        used += len(line)
        if used > size:
            break
        kept.add(number)
    return kept


def folded(line: str) -> str:
    return " ".join(line.split())
