"""The documentation page of a rule: what is wrong, why, which facts it reads, and its log patterns."""

from __future__ import annotations

from gpuready.render.escape import escape_unprintable
from gpuready.render.layout import Screen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any


def render_rule_page(rule: Mapping[str, Any], screen: Screen | None = None) -> str:
    display = screen or Screen()
    role = rule["severity"] if rule["severity"] in ("error", "warning") else "info"
    lines = display.lead_paragraph(
        f"{escape_unprintable(rule['severity'])}[{escape_unprintable(rule['code'])}]:",
        escape_unprintable(rule["title"]).rstrip("."),
        role,
    )
    lines += display.format_paragraph(escape_unprintable(rule["name"]), 2)
    sections = [
        lines,
        *(_format_paragraph(text, display) for text in _split_paragraphs(str(rule["text"]).replace("``", "`"))),
    ]
    read = ", ".join(dict.fromkeys(rule["reads"]))
    sections += [
        _format_labelled_list("reads", [read] if read else [], display),
        _format_labelled_list("in a log", _log_wordings(rule["signs"]), display),
    ]
    return "\n\n".join("\n".join(section) for section in sections if section) + "\n"


def render_rule_index(rules: Sequence[Mapping[str, Any]], screen: Screen | None = None) -> str:
    """All codes with their titles, one line each."""
    display = screen or Screen()
    rows = [tuple(escape_unprintable(rule[k]).rstrip(".") for k in ("code", "severity", "title")) for rule in rules]
    return "".join(line + "\n" for row in display.format_table(rows) for line in row)


def _split_paragraphs(text: str) -> list[list[str]]:
    """Split at blank lines; each paragraph keeps its lines."""
    blocks: list[list[str]] = [[]]
    for line in text.splitlines():
        if line.strip():
            blocks[-1].append(line)
        elif blocks[-1]:
            blocks.append([])
    return [block for block in blocks if block]


def _format_paragraph(lines: list[str], screen: Screen) -> list[str]:
    """Prose is refilled; indented or listed lines keep their breaks."""
    if not any(line.startswith((" ", "- ", "* ")) for line in lines):
        return screen.format_paragraph(" ".join(escape_unprintable(line) for line in lines))
    formatted = []
    for line in lines:
        indent = min(len(line) - len(line.lstrip(" ")), 8)
        formatted += screen.format_paragraph(escape_unprintable(line.strip()), indent, 2)
    return formatted


MAX_WORDINGS = 6
"""Shown on the page; --json has all of them."""


def _log_wordings(patterns: Sequence[str]) -> list[str]:
    """Log wordings, shortest first, with an ellipsis for the parts that vary."""
    plain = sorted(dict.fromkeys(_replace_placeholders(pattern) for pattern in patterns), key=len)
    more = [f"and {len(plain) - MAX_WORDINGS} more wordings: --json"] if len(plain) > MAX_WORDINGS else []
    return plain[:MAX_WORDINGS] + more


def _replace_placeholders(pattern: str) -> str:
    """``GPU {gpu} has`` -> ``GPU … has``."""
    parts = pattern.replace("{{", "\0").replace("}}", "\1").split("{")
    text = parts[0] + "".join("…" + part.partition("}")[2] for part in parts[1:])
    return text.replace("\0", "{").replace("\1", "}")


def _format_labelled_list(label: str, items: Sequence[str], screen: Screen) -> list[str]:
    lines = [line for item in items for line in screen.format_paragraph(escape_unprintable(item), 11, 2)]
    if not lines:
        return []
    return [screen.apply_style(f"{label:>9}", "dim") + "  " + lines[0][11:], *lines[1:]]
