"""Which environment variables does a package read and set? From its syntax trees: nothing is run."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

from gpuready.model import Record
from gpuready.system.imports.package_source import SourceModules

_VARIABLE = re.compile(r"[A-Z_][A-Za-z0-9_]{0,80}[A-Z0-9][A-Za-z0-9_]{0,80}|[a-z]{1,9}_proxy")
SOURCES_WITH_VARIABLES = r"environ|[gp]etenv|env_?var|(?i:_env\b|\benvs?_)|^[A-Z_]+ = [\"'][A-Z_]+[\"']"
"""What a source has that may use a variable, or bind the name of one."""

_READERS = ("get", "pop", "__contains__")


class VariableUse(Record):
    """One place where a variable is read or set. ``value``: the constant that is set, or the default where it is unset."""

    name: str
    access: str  # read or set
    path: str
    line: int
    value: str = ""
    keeps: bool = False  # it is set only where it is unset


def find_variable_uses(modules: SourceModules) -> list[VariableUse]:
    """Return all uses in a package, in the order of its files. A name that is put together at run time ends in ``*``."""
    helpers = {name for _, tree in modules.values() for name in _find_helpers(tree)}
    fields = _find_field_classes([tree for _, tree in modules.values()])
    shared = _unique_constants(tree for _, tree in modules.values())
    found: list[VariableUse] = []
    for path, tree in modules.values():
        found += _ModuleUses(path, shared | _constants(tree), helpers, fields).collect(tree)
    return found


def _constants(tree: ast.Module) -> dict[str, str]:
    """Return the texts that a module binds to names: ``NAME = "CUDA_HOME"``."""
    found = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            found.update({target.id: node.value.value for target in node.targets if isinstance(target, ast.Name)})
    return found


def _unique_constants(trees: Iterator[ast.Module]) -> dict[str, str]:
    """Return the texts that have the same name in all modules that bind it: a module may import them."""
    found: dict[str, set[str]] = {}
    for tree in trees:
        for name, text in _constants(tree).items():
            found.setdefault(name, set()).add(text)
    return {name: texts.pop() for name, texts in found.items() if len(texts) == 1}


def _find_helpers(tree: ast.Module) -> Iterator[str]:
    """Yield the functions that look up the variable that their first argument names."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            names = [one.arg for one in node.args.args if one.arg not in ("self", "cls")][:1]
            looked_up = {
                key.id for inner in ast.walk(node) for key in _looked_up_keys(inner) if isinstance(key, ast.Name)
            }
            if set(names) & looked_up:
                yield node.name


def _find_field_classes(trees: list[ast.Module]) -> set[str]:
    """Return the classes whose instances look up the variable of the name that they are bound to, with their subclasses.

    ``class EnvField: def __set_name__(…)…os.getenv(self.name)``, ``class EnvBool(EnvField)``.
    """
    classes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    found = {one.name for one in classes if _is_field_class(one)}
    while more := {one.name for one in classes if any(getattr(base, "id", "") in found for base in one.bases)} - found:
        found |= more
    return found


def _is_field_class(node: ast.ClassDef) -> bool:
    has_name = any(isinstance(one, ast.FunctionDef) and one.name == "__set_name__" for one in node.body)
    return has_name and any(True for inner in ast.walk(node) for _ in _looked_up_keys(inner))


def _looked_up_keys(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, ast.Call) and node.args:
        function = node.func
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        if name == "getenv" or (
            name in _READERS and isinstance(function, ast.Attribute) and _is_environ(function.value)
        ):
            yield node.args[0]
    elif isinstance(node, ast.Subscript) and _is_environ(node.value):
        yield node.slice


def _is_environ(node: ast.expr) -> bool:
    return getattr(node, "attr", getattr(node, "id", "")) == "environ"


def _without_keys(node: ast.expr) -> ast.expr:
    """``os.environ.keys()`` -> ``os.environ``."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "keys":
        return node.func.value
    return node


class _ModuleUses:
    """The uses of one module."""

    def __init__(self, path: str, constants: Mapping[str, str], helpers: set[str], fields: set[str]):
        self.path, self.constants, self.helpers, self.fields = path, constants, helpers, fields
        self.copies: set[str] = set()
        self.found: list[VariableUse] = []

    def collect(self, tree: ast.Module) -> list[VariableUse]:
        self.copies = {name for node in ast.walk(tree) for name in _environment_copies(node)}
        self._visit(tree, frozenset())
        return self.found

    def _visit(self, node: ast.AST, guards: frozenset[str]) -> None:
        self._note_node(node, guards)
        if isinstance(node, ast.If):
            before = len(self.found)
            self._visit(node.test, guards)
            inside = guards | {use.name for use in self.found[before:]}
            for part in node.body:
                self._visit(part, inside)
            for part in node.orelse:
                self._visit(part, guards)
            return
        for child in ast.iter_child_nodes(node):
            self._visit(child, guards)

    def _note_node(self, node: ast.AST, guards: frozenset[str]) -> None:
        if isinstance(node, ast.Subscript) and self._is_environment(node.value):
            is_read = isinstance(node.ctx, ast.Load)
            if is_read and _is_environ(node.value):
                self._note(node.slice, "read", node)
            elif not is_read and not isinstance(node.ctx, ast.Store):
                self._note(node.slice, "set", node)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Subscript) and self._is_environment(target.value):
                    self._note(target.slice, "set", node, node.value, guards)
            self._note_variable_tables(node)
        elif isinstance(node, ast.ClassDef):
            self._note_fields(node)
        elif isinstance(node, ast.Compare) and any(_is_environ(_without_keys(one)) for one in node.comparators):
            self._note(node.left, "read", node)
        elif isinstance(node, ast.Call):
            self._note_call(node, guards)
        elif isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and key.value == "env_vars" and isinstance(value, ast.Dict):
                    self._note_table(value)

    def _is_environment(self, node: ast.expr) -> bool:
        return _is_environ(node) or getattr(node, "id", getattr(node, "attr", "")) in self.copies

    def _note_variable_tables(self, node: ast.Assign) -> None:
        """``env_vars = {"NCCL_CUMEM_ENABLE": "0"}``: for processes that it will start."""
        names = [getattr(target, "id", getattr(target, "attr", "")) for target in node.targets]
        if isinstance(node.value, ast.Dict) and any(name in ("env", "envs") or "env_var" in name for name in names):
            self._note_table(node.value)

    def _note_fields(self, node: ast.ClassDef) -> None:
        """``class Envs: SGLANG_PORT = EnvInt(30000)``: each field reads the variable of its own name."""
        for one in node.body:
            value = one.value if isinstance(one, (ast.Assign, ast.AnnAssign)) else None
            function = value.func if isinstance(value, ast.Call) else None
            if not isinstance(one, (ast.Assign, ast.AnnAssign)) or getattr(function, "id", "") not in self.fields:
                continue
            default = value.args[0] if isinstance(value, ast.Call) and value.args else None
            for target in one.targets if isinstance(one, ast.Assign) else [one.target]:
                if isinstance(target, ast.Name):
                    self._note(ast.Constant(target.id), "read", one, default)

    def _note_table(self, table: ast.Dict) -> None:
        for key, value in zip(table.keys, table.values, strict=True):
            if key is not None:
                self._note(key, "set", table, value)

    def _note_call(self, node: ast.Call, guards: frozenset[str]) -> None:
        function = node.func
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        owner = function.value if isinstance(function, ast.Attribute) else None
        is_environment = owner is not None and self._is_environment(owner)
        default = node.args[1] if len(node.args) > 1 else None
        if name == "update" and is_environment:
            for table in [one for one in node.args if isinstance(one, ast.Dict)]:
                self._note_table(table)
            for keyword in node.keywords:
                self._note(ast.Constant(keyword.arg), "set", node, keyword.value)
        elif not node.args:
            return
        elif name == "setdefault" and is_environment:
            self._note(node.args[0], "read", node)
            self._note(node.args[0], "set", node, default, keeps=True)
        elif name in ("putenv", "unsetenv"):
            self._note(node.args[0], "set", node, default)
        elif name == "getenv" or (name in _READERS and is_environment):
            self._note(node.args[0], "read", node, default)
        elif name in self.helpers or re.search(r"(?:^|_)env(?:$|_)|envvar|from_env", name):
            first = node.args[0]
            for one in first.elts if isinstance(first, (ast.List, ast.Tuple)) else [first]:
                self._note(one, "read", node, None, is_plain=True)

    def _note(
        self,
        key: ast.expr,
        access: str,
        node: ast.AST,
        value: ast.expr | None = None,
        guards: frozenset[str] = frozenset(),
        keeps: bool = False,
        is_plain: bool = False,
    ) -> None:
        """Note a use where its key is known. ``is_plain``: the call may take other texts, so only names of variables count."""
        name = self._text(key)
        pattern = r"[A-Z][A-Z0-9]*_[A-Z0-9_]+\*?" if is_plain else rf"(?:{_VARIABLE.pattern})\*?"
        if name and re.fullmatch(pattern, name):
            text = self._text(value) if value is not None else ""
            self.found.append(VariableUse(name, access, self.path, node.lineno, text, keeps or name in guards))  # type: ignore[attr-defined]

    def _text(self, node: ast.expr | None) -> str:
        """Return a constant, a name of one, or the beginning of a text that is put together: ``FSDP_*``."""
        if isinstance(node, ast.Constant):
            return str(node.value) if node.value is not None else ""
        if isinstance(node, (ast.Name, ast.Attribute)):
            return self.constants.get(node.id if isinstance(node, ast.Name) else node.attr, "")
        if isinstance(node, ast.JoinedStr) and node.values and isinstance(node.values[0], ast.Constant):
            return f"{node.values[0].value!s}*"
        return ""


def _environment_copies(node: ast.AST) -> Iterator[str]:
    """``env = os.environ.copy()``, ``dict(os.environ)``, ``{**os.environ}``: names that hold a copy."""
    if not isinstance(node, ast.Assign) or not isinstance(node.value, (ast.Call, ast.Dict)):
        return
    parts = [*node.value.args, node.value.func] if isinstance(node.value, ast.Call) else list(node.value.values)
    if any(_is_environ(getattr(part, "value", part)) or _is_environ(part) for part in parts):
        yield from (getattr(target, "id", getattr(target, "attr", "")) for target in node.targets)
