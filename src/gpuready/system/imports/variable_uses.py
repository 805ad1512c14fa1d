"""Which environment variables does a package read and set by ``os.environ`` and ``os.getenv``? From its syntax trees: nothing is run."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

from gpuready.model import Record
from gpuready.system.imports.package_source import Modules

_VARIABLE = re.compile(r"(?:[A-Z_][A-Za-z0-9_]{0,80}[A-Z0-9][A-Za-z0-9_]{0,80}|[a-z]{1,9}_proxy)\*?")
SOURCES_WITH_VARIABLES = r"environ|[gp]etenv"
"""What a source has that may use a variable."""

_READERS = ("get", "pop", "__contains__")


class VariableUse(Record):
    """One place where a variable is read or set. ``value``: the constant that is set, or the default where it is unset."""

    name: str
    access: str  # read or set
    path: str
    line: int
    value: str = ""
    keeps: bool = False  # it is set only where it is unset


def find_variable_uses(modules: Modules) -> list[VariableUse]:
    """Return all uses in a package, in the order of its files. A name that is put together at run time ends in ``*``."""
    return [use for path, tree in modules for use in _ModuleUses(path, tree).found]


class _ModuleUses:
    """The uses of one module."""

    def __init__(self, path: str, tree: ast.Module):
        self.path, self.constants = path, _find_constants(tree)
        self.found: list[VariableUse] = []
        self._visit(tree, frozenset())

    def _visit(self, node: ast.AST, guards: frozenset[str]) -> None:
        """Note the uses below a node. ``guards``: the variables that the conditions around it ask for."""
        for access, key, value, keeps in _list_uses(node):
            name = self._text(key)
            if _VARIABLE.fullmatch(name):
                is_kept = keeps or (access == "set" and name in guards)
                use = VariableUse(name, access, self.path, node.lineno, self._text(value), is_kept)  # type: ignore[attr-defined]
                self.found.append(use)
        before = len(self.found)
        for field, child in ast.iter_fields(node):
            asked = {use.name for use in self.found[before:]} if isinstance(node, ast.If) and field == "body" else ()
            for part in child if isinstance(child, list) else [child]:
                if isinstance(part, ast.AST):
                    self._visit(part, guards.union(asked))

    def _text(self, node: ast.expr | None) -> str:
        """Return a constant, the constant of a name, or the beginning of a text that is put together: ``FSDP_*``."""
        if isinstance(node, ast.Constant):
            return str(node.value) if node.value is not None else ""
        if isinstance(node, ast.JoinedStr) and node.values and isinstance(node.values[0], ast.Constant):
            return f"{node.values[0].value!s}*"
        return self.constants.get(getattr(node, "id", ""), "")


def _find_constants(tree: ast.Module) -> Mapping[str, str]:
    """Return the texts that a module binds to names: ``NAME = "CUDA_HOME"``."""
    return {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _list_uses(node: ast.AST) -> Iterator[tuple[str, ast.expr, ast.expr | None, bool]]:
    """Yield the uses that a node is itself: read or set, the variable, the value, and whether one that is there is kept."""
    if isinstance(node, ast.Subscript) and _is_environ(node.value) and isinstance(node.ctx, ast.Load):
        yield "read", node.slice, None, False
    elif isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Subscript) and _is_environ(target.value):
                yield "set", target.slice, node.value, False
    elif isinstance(node, ast.Compare) and any(_is_environ(one) for one in node.comparators):
        yield "read", node.left, None, False
    elif isinstance(node, ast.Call):
        yield from _list_call_uses(node)


def _list_call_uses(node: ast.Call) -> Iterator[tuple[str, ast.expr, ast.expr | None, bool]]:
    name = getattr(node.func, "attr", getattr(node.func, "id", ""))
    is_environ = _is_environ(getattr(node.func, "value", node.func))
    default = node.args[1] if len(node.args) > 1 else None
    if name == "update" and is_environ:
        for table in node.args:
            if isinstance(table, ast.Dict):
                yield from (("set", k, v, False) for k, v in zip(table.keys, table.values, strict=True) if k)
        yield from (("set", ast.Constant(one.arg), one.value, False) for one in node.keywords)
    elif node.args and (name == "getenv" or (is_environ and name in (*_READERS, "setdefault"))):
        yield "read", node.args[0], None if name == "setdefault" else default, False
        if name == "setdefault":
            yield "set", node.args[0], default, True


def _is_environ(node: ast.expr) -> bool:
    """``os.environ``, ``environ``, ``os.environ.keys()``"""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "keys":
        node = node.func.value
    return getattr(node, "attr", getattr(node, "id", "")) == "environ"
