"""The documentation page of a rule: what is wrong, why, which facts it reads, and its log patterns."""

from __future__ import annotations

from gpuready.render.escape import visible
from gpuready.render.layout import Screen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any


def page(told: Mapping[str, Any], screen: Screen | None = None) -> str:
    on = screen or Screen()
    role = told["severity"] if told["severity"] in ("error", "warning") else "info"
    lines = on.led(
        f"{visible(told['severity'])}[{visible(told['code'])}]:", visible(told["title"]).rstrip("."), role
    )
    lines += on.paragraph(visible(told["name"]), 2)
    sections = [lines, *(_paragraph(text, on) for text in _paragraphs(str(told["text"]).replace("``", "`")))]
    read = ", ".join(dict.fromkeys(told["reads"]))
    sections += [_listed("reads", [read] if read else [], on), _listed("in a log", _heard(told["signs"]), on)]
    return "\n\n".join("\n".join(section) for section in sections if section) + "\n"


def index(every: Sequence[Mapping[str, Any]], screen: Screen | None = None) -> str:
    """All codes with their titles, one line each."""
    on = screen or Screen()
    rows = [tuple(visible(told[k]).rstrip(".") for k in ("code", "severity", "title")) for told in every]
    return "".join(line + "\n" for row in on.table(rows) for line in row)


def _paragraphs(text: str) -> list[list[str]]:
    """Split at blank lines; each paragraph keeps its lines."""
    blocks: list[list[str]] = [[]]
    for line in text.splitlines():
        if line.strip():
            blocks[-1].append(line)
        elif blocks[-1]:
            blocks.append([])
    return [block for block in blocks if block]


def _paragraph(lines: list[str], screen: Screen) -> list[str]:
    """Prose is refilled; indented or listed lines keep their breaks."""
    if not any(line.startswith((" ", "- ", "* ")) for line in lines):
        return screen.paragraph(" ".join(visible(line) for line in lines))
    kept = []
    for line in lines:
        indent = min(len(line) - len(line.lstrip(" ")), 8)
        kept += screen.paragraph(visible(line.strip()), indent, 2)
    return kept


HEARD = 6
"""Shown on the page; --json has all of them."""


def _heard(signs: Sequence[str]) -> list[str]:
    """Log wordings, shortest first, with an ellipsis for the parts that vary."""
    plain = sorted(dict.fromkeys(_without_names(sign) for sign in signs), key=len)
    more = [f"and {len(plain) - HEARD} more wordings: --json"] if len(plain) > HEARD else []
    return plain[:HEARD] + more


def _without_names(sign: str) -> str:
    """``GPU {gpu} has`` -> ``GPU … has``."""
    parts = sign.replace("{{", "\0").replace("}}", "\1").split("{")
    text = parts[0] + "".join("…" + part.partition("}")[2] for part in parts[1:])
    return text.replace("\0", "{").replace("\1", "}")


def _listed(label: str, items: Sequence[str], screen: Screen) -> list[str]:
    lines = [line for item in items for line in screen.paragraph(visible(item), 11, 2)]
    if not lines:
        return []
    return [screen.paint(f"{label:>9}", "dim") + "  " + lines[0][11:], *lines[1:]]
