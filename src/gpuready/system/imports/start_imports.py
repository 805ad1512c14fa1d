"""What do the commands of a package import at their start, beyond the package itself? From its syntax trees."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator, Sequence

from gpuready.model import Record
from gpuready.system.imports.package_source import SourceModules

MISSING_MODULE_ERRORS = ("ModuleNotFoundError", "ImportError", "Exception", "BaseException")
BROUGHT_IN = {"torch.utils.cpp_extension": "setuptools"}
"""Modules of torch that import what its metadata does not ask for on every Python: setuptools, below 3.12."""


class StartImport(Record):
    """A module of another package that a command cannot start without."""

    module: str
    path: str
    line: int
    through: str = ""  # the module of a third package that imports it


def find_start_imports(modules: SourceModules, commands: Sequence[str]) -> list[StartImport]:
    """Return the first import of each other package that every start of a command meets.

    A command imports its own module, and the modules that the functions of that module import: its subcommands. What a ``try``,
    an unknown condition or a function guards does not count.
    """
    follower = _Follower(modules)
    for name in commands:
        if name in modules:
            follower.follow(name)
            for inner in _imports_in_functions(modules[name][1]):
                follower.follow_statement(inner, name)
    return list(follower.found.values())


def _imports_in_functions(tree: ast.Module) -> Iterator[ast.stmt]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from (inner for inner in node.body if isinstance(inner, (ast.Import, ast.ImportFrom)))


class _Follower:
    """Follows the imports of a package's own modules, each once."""

    def __init__(self, modules: SourceModules):
        self.modules = modules
        self.own = {name.partition(".")[0] for name in modules}
        self.seen: set[str] = set()
        self.found: dict[str, StartImport] = {}

    def follow(self, name: str) -> None:
        """Follow a module and the packages that it is in."""
        parts = name.split(".")
        for end in range(1, len(parts) + 1):
            module = ".".join(parts[:end])
            if module in self.modules and module not in self.seen:
                self.seen.add(module)
                self._run(self.modules[module][1].body, module)

    def _run(self, statements: Iterable[ast.stmt], module: str) -> None:
        for statement in statements:
            self.follow_statement(statement, module)

    def follow_statement(self, node: ast.stmt, module: str) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                self._import_module(alias.name, node, module)
        elif isinstance(node, ast.ImportFrom):
            self._import_from(node, module)
        elif isinstance(node, ast.If):
            self._run(node.orelse if _is_never_true(node.test) else (), module)
        elif isinstance(node, ast.Try):
            if not any(_catches_missing_module(handler.type) for handler in node.handlers):
                self._run(node.body, module)
        elif isinstance(node, ast.With):
            if not any(_suppresses_missing_module(item.context_expr) for item in node.items):
                self._run(node.body, module)
        elif isinstance(node, ast.ClassDef):
            self._run(node.body, module)

    def _import_from(self, node: ast.ImportFrom, module: str) -> None:
        name = self._absolute_name(node, module)
        if not name:
            return
        self._import_module(name, node, module)
        if name.partition(".")[0] in self.own:
            for alias in node.names:
                self.follow(f"{name}.{alias.name}")
        else:
            for alias in node.names:
                self._note_brought_in(f"{name}.{alias.name}", node, module)

    def _absolute_name(self, node: ast.ImportFrom, module: str) -> str:
        if not node.level:
            return node.module or ""
        is_package = self.modules[module][0].endswith("__init__.py")
        parts = module.split(".")
        kept = parts[: len(parts) - node.level + is_package]
        return ".".join([*kept, *([node.module] if node.module else [])])

    def _import_module(self, name: str, node: ast.stmt, module: str) -> None:
        top = name.partition(".")[0]
        if top in self.own:
            self.follow(name)
        elif top not in sys.stdlib_module_names:
            self.found.setdefault(top, StartImport(top, self.modules[module][0], node.lineno))
            self._note_brought_in(name, node, module)

    def _note_brought_in(self, name: str, node: ast.stmt, module: str) -> None:
        brought = BROUGHT_IN.get(name)
        if brought:
            self.found.setdefault(brought, StartImport(brought, self.modules[module][0], node.lineno, name))


def _is_never_true(test: ast.expr) -> bool:
    """Whether a condition is for type checkers, or for a module that is run as a program."""
    return ast.unparse(test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING", "__name__ == '__main__'")


def _catches_missing_module(handler: ast.expr | None) -> bool:
    """Whether an ``except`` clause catches that a module is missing."""
    if isinstance(handler, ast.Tuple):
        return any(_catches_missing_module(one) for one in handler.elts)
    return handler is None or ast.unparse(handler) in MISSING_MODULE_ERRORS


def _suppresses_missing_module(context: ast.expr) -> bool:
    """``contextlib.suppress(ImportError)``, ``try_import()``"""
    if not isinstance(context, ast.Call):
        return False
    name = ast.unparse(context.func).rpartition(".")[2].lower()
    if name == "suppress":
        return any(_catches_missing_module(one) for one in context.args)
    return "import" in name or "optional" in name
