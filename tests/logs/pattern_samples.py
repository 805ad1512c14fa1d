"""A text that a pattern matches, made from the pattern itself."""

from __future__ import annotations

import re
from typing import Any

from gpuready.logs.log_patterns import _split_regex, is_regex, pattern_text
from gpuready.logs.regex_pieces import parse_regex

LETTERS = "x1 .-_:/'\"a0("


def sample_text(row: Any) -> str:
    """The shortest text of a pattern's first alternatives; gaps are filled with 7."""
    if is_regex(row):
        return "7".join(_sample_nodes(parse_regex(piece.text)) for piece in _split_regex(pattern_text(row)))
    bare = pattern_text(row).replace("{{", "\0").replace("}}", "\1").replace("{...}", "\n")
    return re.sub(r"\{[a-z_]*\}", "7", bare).replace("\0", "{").replace("\1", "}")


def _sample_nodes(nodes: Any) -> str:
    return "".join(_sample_node(str(op), value) for op, value in nodes)


def _sample_node(op: str, value: Any) -> str:
    if op == "LITERAL":
        return chr(value)
    if op in ("IN", "NOT_LITERAL"):
        return _sample_class(op, value)
    if op == "ANY":
        return "x"
    if op.endswith("REPEAT"):
        return _sample_nodes(value[2]) * value[0]
    if op == "SUBPATTERN":
        return _sample_nodes(value[3])
    return _sample_nodes(value[1][0]) if op == "BRANCH" else ""


def _sample_class(op: str, value: Any) -> str:
    if op == "NOT_LITERAL":
        return "x" if value != ord("x") else "y"
    kind, first = value[0]
    if str(kind) == "NEGATE":
        return next(c for c in LETTERS if not any(_is_in(c, one) for one in value[1:]))
    if str(kind) == "LITERAL":
        return chr(first)
    return chr(first[0]) if str(kind) == "RANGE" else next(c for c in LETTERS if _is_in(c, value[0]))


def _is_in(char: str, one: Any) -> bool:
    kind, value = str(one[0]), one[1]
    if kind == "LITERAL":
        return ord(char) == value
    if kind == "RANGE":
        return value[0] <= ord(char) <= value[1]
    classes = {"CATEGORY_DIGIT": r"\d", "CATEGORY_WORD": r"\w", "CATEGORY_SPACE": r"\s", "CATEGORY_NOT_SPACE": r"\S"}
    return re.match(classes[str(value)], char) is not None
