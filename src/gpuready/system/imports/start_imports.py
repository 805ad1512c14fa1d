"""What do the commands of a package import at their start, beyond the package itself? From its syntax trees."""

from __future__ import annotations

import ast
import builtins
import operator as comparisons
import sys
from collections.abc import Iterable, Iterator, Sequence

from gpuready.model import Record
from gpuready.system.imports.package_source import SourceModules

USUAL_PYTHON = "3.12"
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
            answer = evaluate_condition(node.test, USUAL_PYTHON)
            self._run(node.body if answer else node.orelse if answer is False else (), module)
        elif isinstance(node, ast.Try):
            if not any(catches(handler.type, "ModuleNotFoundError") for handler in node.handlers):
                self._run(node.body, module)
        elif isinstance(node, ast.With):
            if not any(suppresses(item.context_expr, "ModuleNotFoundError") for item in node.items):
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


def evaluate_condition(test: ast.expr, minor: str) -> bool | None:
    """Return what a condition is on Linux with this Python; None where only running tells."""
    if isinstance(test, ast.Constant):
        return bool(test.value)
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        answer = evaluate_condition(test.operand, minor)
        return None if answer is None else not answer
    if isinstance(test, ast.BoolOp):
        return _combine(test, minor)
    if "TYPE_CHECKING" in (getattr(test, "id", ""), getattr(test, "attr", "")):
        return False
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        return _compare(ast.unparse(test.left), test.ops[0], test.comparators[0], minor)
    words = ast.unparse(test) if isinstance(test, ast.Call) else ""
    return "linux" in words if words.startswith("sys.platform.startswith(") else None


def _combine(test: ast.BoolOp, minor: str) -> bool | None:
    answers = [evaluate_condition(value, minor) for value in test.values]
    decisive = isinstance(test.op, ast.Or)
    if decisive in answers:
        return decisive
    return None if None in answers else not decisive


def _compare(left: str, operator: ast.cmpop, right: ast.expr, minor: str) -> bool | None:
    try:
        value = ast.literal_eval(right)
    except (ValueError, SyntaxError):
        return None
    if left == "__name__":
        return False
    known: object = {"sys.platform": "linux", "os.name": "posix", "platform.system()": "Linux"}.get(left)
    left = left.lstrip("_")
    if left.startswith("sys.version_info"):
        numbers = tuple(int(part) for part in minor.split("."))
        if isinstance(value, tuple) and len(value) > 2 and value[:2] == numbers:
            return None  # the patch decides
        whole = left == "sys.version_info"  # (3, 12, 1, ...) is more than (3, 12)
        known = numbers[0] if left.endswith(("[0]", ".major")) else (*numbers, 0.5) if whole else numbers
    if known is None:
        return None
    try:
        return _apply(operator, known, value)
    except TypeError:
        return None


def _apply(operator: ast.cmpop, left: object, right: object) -> bool | None:
    names = {ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge"}
    name = names.get(type(operator))
    if isinstance(operator, (ast.In, ast.NotIn)):
        return comparisons.contains(right, left) == isinstance(operator, ast.In)  # type: ignore[arg-type]
    return None if name is None else bool(getattr(comparisons, name)(left, right))


def catches(handler: ast.expr | None, kind: str) -> bool | None:
    """Whether an ``except`` clause catches an error of this kind; None where it names a variable that is not known."""
    if handler is None:
        return True
    if isinstance(handler, ast.Tuple):
        answers = [catches(one, kind) for one in handler.elts]
        return True if True in answers else None if None in answers else False
    name = ast.unparse(handler).rpartition(".")[2]
    known = getattr(builtins, name, None)
    if isinstance(known, type):
        return issubclass(getattr(builtins, kind), known)
    is_class = name.isidentifier() and name[0].isupper() and not name.isupper()
    return name == kind if is_class else None


def suppresses(context: ast.expr, kind: str) -> bool:
    """Whether a context swallows an error of this kind: ``contextlib.suppress(ImportError)``, ``try_import()``."""
    if not isinstance(context, ast.Call):
        return False
    name = ast.unparse(context.func).rpartition(".")[2].lower()
    if name == "suppress":
        return any(catches(one, kind) for one in context.args)
    return "import" in name or "optional" in name
