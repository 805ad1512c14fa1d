"""Names that a module has not bound yet while it is imported: a circle of imports asks for them too early."""

from __future__ import annotations

import ast

from gpuready.system.imports.source_parts import read_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuready.system.imports.module_records import Module

UNKNOWN_NAMES = ("globals()", "vars()", "exec(", "sys.modules", "__getattr__", "import *", "setattr(", "global ")
"""What binds names that no statement at the level of the module shows."""


class RunningModule:
    """Where a module is while its statements run: ``line`` of its source, or ``at`` in its text."""

    def __init__(self, line: int = 0, at: int = 0):
        self.line, self.at = line, at


def lacks_name_yet(module: Module, name: str) -> bool:
    """Whether a module that is still being imported binds a name only later, and by a statement that shows it."""
    running = module.running
    text = read_text(module.file) if running is not None else None
    if running is None or text is None:
        return False
    line = running.line or text.count("\n", 0, running.at) + 1
    before = "\n".join(text.split("\n")[: line - 1])
    if name.startswith("__") or any(sign in before for sign in UNKNOWN_NAMES):
        return False
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return False
    lines = [first for one, first in _list_bindings(tree.body) if one == name]
    return bool(lines) and min(lines) > line


def _list_bindings(statements: list[ast.stmt]) -> Iterator[tuple[str, int]]:
    """Yield each name that statements of a module bind, and the line of it."""
    for node in statements:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name, node.lineno
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from ((one.asname or one.name.partition(".")[0], node.lineno) for one in node.names)
        else:
            stored = (one for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store))
            yield from ((one.id, one.lineno) for one in stored)
            for part in ("body", "orelse", "finalbody"):
                yield from _list_bindings(getattr(node, part, []))
            for part in (*getattr(node, "handlers", []), *getattr(node, "cases", [])):
                yield from _list_bindings(part.body)
