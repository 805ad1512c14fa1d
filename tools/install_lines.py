"""The README's lines on how gpuready is started and installed; ``python tools/install_lines.py [--check]``.

A line that installs from an index is written only once RELEASED names the version that is there: until then the name is
free, and whoever takes it first would be installed by it.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tools")]

import generated  # noqa: E402

RELEASED = ""
BEGIN, END = "<!-- install: made by tools/install_lines.py -->", "<!-- end of install -->"
FROM_CHECKOUT = [
    ("uvx --from . gpuready check", "from a checkout; nothing stays installed"),
    ("uv tool install .", "or keep the command; with pipx: pipx install ."),
]
FROM_INDEX = [
    ("uvx gpuready check", "nothing stays installed"),
    ("uv tool install gpuready=={released}", "or keep the command; with pipx: pipx install gpuready=={released}"),
]


def install_lines(released: str = RELEASED) -> str:
    rows = [*([] if not released else FROM_INDEX), *FROM_CHECKOUT]
    width = max(len(command.format(released=released)) for command, _ in rows)
    lines = (f"    {command.format(released=released).ljust(width)}   # {what}" for command, what in rows)
    return "\n".join(lines).replace("{released}", released)


def readme(text: str) -> str:
    head, _, rest = text.partition(BEGIN)
    tail = rest.partition(END)[2]
    return f"{head}{BEGIN}\n\n{install_lines()}\n\n{END}{tail}"


def stale() -> list[Path]:
    return generated.stale(_pages())


def _pages() -> dict[Path, str]:
    path = ROOT / "README.md"
    return {path: readme(path.read_text(encoding="utf-8"))}


if __name__ == "__main__":
    generated.settle(_pages())
