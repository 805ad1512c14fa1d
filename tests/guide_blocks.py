"""The paragraphs, list items and table rows of a guide: the places where it promises something."""

from __future__ import annotations

import re
from pathlib import Path

GUIDES = Path(__file__).parents[1] / "docs" / "how-to"


def read_blocks(name: str) -> list[str]:
    """Every block of a page as one line, without headings, examples and heads of tables."""
    text = re.sub(r"```.*?```", "", (GUIDES / f"{name}.md").read_text(), flags=re.S)
    found: list[str] = []
    for part in re.split(r"\n\s*\n", text):
        lines = part.strip("\n").splitlines()
        if not lines or lines[0].startswith("#") or all(line.startswith("    ") for line in lines):
            continue
        if lines[0].startswith("|"):
            found += lines[2:]
        else:
            found += re.split(r"\n(?=- |\d+\. )", part)
    return [" ".join(block.split()) for block in found]
