"""What a module's source says of itself: the names it binds, conditions that are known, exceptions that are caught."""

from __future__ import annotations

import ast

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

IMPORT_ERRORS = {"ImportError": ("ModuleNotFoundError", "ImportError"), "ModuleNotFoundError": ("ModuleNotFoundError",)}
ALL_ERRORS = ("Exception", "BaseException")
DYNAMIC_SIGNS = ("globals()", "sys.modules[", "def __getattr__", "import *", "locals()", "exec(", "setattr(", "vars(")


def is_dynamic(text: str) -> bool:
    """Whether a module may bind names that no statement of it shows."""
    return any(sign in text for sign in DYNAMIC_SIGNS)


def collect_names(tree: ast.Module) -> set[str]:
    """Return every name that the statements of a module may bind, in whatever branch."""
    names = {"__name__", "__doc__", "__file__", "__path__", "__spec__", "__loader__", "__package__", "__dict__"}
    for node in _walk_statements(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names.update((alias.asname or alias.name).partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Global):
            names.update(node.names)
        elif type(node).__name__ == "TypeAlias":
            names.add(node.name.id)  # type: ignore[attr-defined]
    return names


def find_lazy_attributes(tree: ast.Module) -> dict[str, str]:
    """Return the submodule of each attribute that a package imports on demand: ``{"hf_api": ["HfApi", "login"]}``."""
    found: dict[str, str] = {}
    for node in tree.body:
        value = getattr(node, "value", None)
        if not isinstance(value, ast.Dict):
            continue
        for key, item in zip(value.keys, value.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str) and isinstance(item, (ast.List, ast.Tuple)):
                found.update(
                    {name: key.value for one in item.elts if isinstance(name := getattr(one, "value", None), str)}
                )
    return {name: module for name, module in found.items() if module.replace(".", "_").isidentifier()}


def _walk_statements(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield all nodes but those inside functions and classes; ``global`` statements of functions too."""
    queue: list[ast.AST] = [tree]
    while queue:
        node = queue.pop()
        yield node
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from (inner for inner in ast.walk(node) if isinstance(inner, ast.Global))
        elif not isinstance(node, (ast.ClassDef, ast.Lambda)):
            queue.extend(ast.iter_child_nodes(node))


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
    if left.startswith("sys.version_info"):
        known = tuple(int(part) for part in minor.split("."))
        value = value[:2] if isinstance(value, tuple) else value
        known = known[0] if left.endswith(("[0]", ".major")) else known
    if known is None:
        return None
    try:
        return _apply(operator, known, value)
    except TypeError:
        return None


def _apply(operator: ast.cmpop, left: object, right: object) -> bool | None:
    answers = {
        ast.Eq: lambda: left == right,
        ast.NotEq: lambda: left != right,
        ast.Lt: lambda: left < right,  # type: ignore[operator]
        ast.LtE: lambda: left <= right,  # type: ignore[operator]
        ast.Gt: lambda: left > right,  # type: ignore[operator]
        ast.GtE: lambda: left >= right,  # type: ignore[operator]
        ast.In: lambda: left in right,  # type: ignore[operator]
        ast.NotIn: lambda: left not in right,  # type: ignore[operator]
    }
    answer = answers.get(type(operator))
    return None if answer is None else bool(answer())


def catches(handler: ast.expr | None, kind: str) -> bool:
    """Whether an ``except`` clause catches an error of this kind."""
    if handler is None:
        return True
    if isinstance(handler, ast.Tuple):
        return any(catches(one, kind) for one in handler.elts)
    name = ast.unparse(handler).rpartition(".")[2]
    return name in ALL_ERRORS or name == kind or kind in IMPORT_ERRORS.get(name, ())


def suppresses(context: ast.expr, kind: str) -> bool:
    """Whether ``with contextlib.suppress(ImportError):`` is a context for an error of this kind."""
    if not isinstance(context, ast.Call) or not ast.unparse(context.func).endswith("suppress"):
        return False
    return any(catches(one, kind) for one in context.args)
