"""What a source says of itself: conditions that are known before it runs, and exceptions that are caught."""

from __future__ import annotations

import ast
import builtins
import operator as comparisons


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
