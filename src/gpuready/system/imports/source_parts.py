"""Parts of a source: its text, a short tree of it, one of its functions."""

from __future__ import annotations

import ast
import re

from gpuready.system.imports.source_names import drop_function_bodies
from gpuready.system.imports.watched_files import open_regular

LAZY_SIGNS = re.compile(
    r"^(?:def )?__getattr__\b|_LazyModule\b|\blazy\w*\.attach|^\s*sys\.modules\[__name__\] = \w*Lazy", re.M
)
"""What the text of a package has that imports its attributes on demand."""
CALL_SIGNS = ("import_module", "__import__", "metadata", "require_version", "get_distribution", "version_check")
"""What the text of a module has that may import by name or ask for a version."""
FUNCTION_SIGNS = ("import", *CALL_SIGNS)
"""What a function of another module has if it is worth following."""


def read_text(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8-sig", errors="replace", opener=open_regular) as file:
            return file.read()
    except OSError:
        return None


def parse_short(text: str) -> ast.Module | None:
    """Parse a source without the bodies of its functions, several times faster; None where that does not parse."""
    try:
        return ast.parse(drop_function_bodies(text))
    except (SyntaxError, ValueError, RecursionError):
        return None


def read_function_text(path: str, name: str) -> str:
    """Return the text of one function of a source; empty where it has none."""
    text = read_text(path) or ""
    return _read_block(text, rf"^def {name}\(")


def _read_block(text: str, pattern: str) -> str:
    """Return the lines of a definition that begins with a pattern at the margin; empty where there is none."""
    start = re.search(pattern, text, re.M)
    end = re.compile(r"^[^\s)#\]}]", re.M).search(text, start.end()) if start else None
    return text[start.start() : end.start() if end else len(text)] if start else ""


def read_function(path: str, name: str) -> ast.FunctionDef | None:
    """Parse one function of a source, if it imports anything or asks for a version."""
    node = _parse_block(read_function_text(path, name))
    return node if isinstance(node, ast.FunctionDef) else None


def read_class(path: str, name: str) -> ast.ClassDef | None:
    """Parse one class of a source, if anything in it imports or asks for a version."""
    node = _parse_block(_read_block(read_text(path) or "", rf"^class {name}\b"))
    return node if isinstance(node, ast.ClassDef) else None


def _parse_block(block: str) -> ast.stmt | None:
    if not any(sign in block for sign in FUNCTION_SIGNS):
        return None
    try:
        (node,) = ast.parse(block).body
    except (SyntaxError, ValueError, RecursionError):
        return None
    return node
