"""The documentation page of a rule: what is wrong, why, which facts it reads, and its log patterns."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from gpuready.render.layout import PLAIN_SCREEN, Screen, join_sections


def render_rule_page(rule: Mapping[str, Any], screen: Screen = PLAIN_SCREEN) -> str:
    role = rule["severity"] if rule["severity"] in ("error", "warning") else "info"
    lines = screen.lead_paragraph(f"{rule['severity']}[{rule['code']}]:", rule["title"].rstrip("."), role)
    lines += screen.format_paragraph(rule["name"], 2)
    text = str(rule["text"]).replace("``", "`")
    sections = [
        lines,
        *(_format_rule_text(part.splitlines(), screen) for part in re.split(r"\n\s*\n", text.strip()) if part),
    ]
    read = ", ".join(dict.fromkeys(rule["reads"]))
    sections.append(_format_labelled_list("reads", [read] if read else [], screen))
    sections.append(_format_labelled_list("in a log", _log_wordings(rule["signs"]), screen))
    return join_sections(sections)


def render_rule_index(rules: Sequence[Mapping[str, Any]], screen: Screen = PLAIN_SCREEN) -> str:
    """All codes with their titles, one line each."""
    rows = [tuple(rule[k].rstrip(".") for k in ("code", "severity", "title")) for rule in rules]
    return "".join(line + "\n" for row in screen.format_table(rows) for line in row)


def _format_rule_text(lines: list[str], screen: Screen) -> list[str]:
    """Prose is refilled; a heading stands on its own line; indented or listed lines keep their breaks."""
    if lines[0].startswith("## "):
        return [screen.apply_style(lines[0][3:], "bold"), *_format_rule_text(lines[1:], screen)]
    if not any(line.startswith((" ", "- ", "* ")) for line in lines):
        return screen.format_paragraph(" ".join(lines))
    formatted = []
    for line in lines:
        indent = min(len(line) - len(line.lstrip(" ")), 8)
        formatted += screen.format_paragraph(line.strip(), indent, 2)
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
    return re.sub(r"\{\{|\}\}|\{[^{}]*\}", lambda found: {"{{": "{", "}}": "}"}.get(found[0], "…"), pattern)


def _format_labelled_list(label: str, items: Sequence[str], screen: Screen) -> list[str]:
    lines = [line[11:] for line in screen.format_paragraphs(items, 11, 2)]
    return screen.label_lines(label, lines, 9)
