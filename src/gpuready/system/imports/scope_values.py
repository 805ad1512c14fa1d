"""What an expression of a module is, as far as files tell: constants, the system, and which packages are there.

Nothing is run. ``UNKNOWN`` stands for everything that only running tells.
"""

from __future__ import annotations

import ast
import re

from gpuready.system.imports.available_functions import is_ruled_out
from gpuready.system.imports.source_names import evaluate_condition

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuready.system.imports.module_finder import ModuleFinder

    Imported = Callable[[str], "tuple[ScopeValues, str] | None"]

UNKNOWN = object()
IS_THERE = object()
"""Stands for a spec that ``find_spec`` returns."""
MAX_DEPTH = 24
TEXT_METHODS = ("startswith", "endswith", "lower", "upper", "strip", "split", "replace", "removeprefix", "removesuffix")
DICT_METHODS = ("get", "keys", "values", "items")
FUNCTIONS = {"bool": bool, "len": len, "tuple": tuple, "list": list, "str": str}
AVAILABLE = re.compile(r"_{0,2}is_(\w+?)_available")
DEVICES = ("cuda", "npu", "mps", "gpu", "xpu", "hpu", "mlu", "musa", "tpu", "cpu", "rocm", "hip", "device")
"""Words of ``is_cuda_available()`` and the like: they ask for hardware, not for a package."""
READS_ENVIRONMENT = re.compile(r"environ\b|getenv|_env\b|env_var|from_env", re.I)
"""What a function has whose answer also depends on a variable."""
SYSTEM_VALUES = {"sys.platform": "linux", "os.name": "posix"}
PARTS = (ast.Tuple, ast.List, ast.Set)


class ScopeValues:
    """The names of one scope, in an environment where ``packages`` finds modules."""

    def __init__(
        self,
        packages: ModuleFinder,
        find_imported: Imported | None = None,
        read_definition: Callable[[str, str], str] | None = None,
        parent: ScopeValues | None = None,
    ):
        self.packages, self.minor, self.parent = packages, packages.minor, parent
        self.find_imported, self.read_definition = find_imported, read_definition
        self.expressions: dict[str, ast.expr | None] = {}
        self.values: dict[str, object] = {}

    def open_scope(self) -> ScopeValues:
        """Return the scope of a function of this module."""
        return ScopeValues(self.packages, self.find_imported, self.read_definition, self)

    def bind(self, name: str, expression: ast.expr | None) -> None:
        """Bind a name to an expression; None for one that is not known."""
        self.values.pop(name, None)
        self.expressions[name] = expression

    def bind_value(self, name: str, value: object) -> None:
        self.expressions.pop(name, None)
        self.values[name] = value

    def find_truth(self, test: ast.expr, depth: int = 0) -> bool | None:
        """Return whether a condition holds; None where only running tells."""
        answer = evaluate_condition(test, self.minor)
        if answer is not None:
            return answer
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            inner = self.find_truth(test.operand, depth + 1)
            return None if inner is None else not inner
        if isinstance(test, ast.BoolOp):
            return self._combine(test, depth)
        value = self.evaluate(test, depth + 1)
        return None if value is UNKNOWN else bool(value)

    def _combine(self, test: ast.BoolOp, depth: int) -> bool | None:
        answers = [self.find_truth(value, depth + 1) for value in test.values]
        decisive = isinstance(test.op, ast.Or)
        if decisive in answers:
            return decisive
        return None if None in answers else not decisive

    def evaluate(self, node: ast.expr | None, depth: int = 0) -> object:
        if isinstance(node, ast.Constant):
            return node.value
        if node is None or depth > MAX_DEPTH:
            return UNKNOWN
        if isinstance(node, ast.Name):
            return self._look_up(node.id, depth)
        if isinstance(node, PARTS):
            return self._list_parts(node.elts, depth)
        if isinstance(node, ast.Dict):
            return self._build_table(node, depth)
        if isinstance(node, ast.Subscript):
            return self._take_item(node, depth)
        if isinstance(node, ast.Compare):
            return self._compare(node, depth)
        if isinstance(node, ast.Attribute):
            return SYSTEM_VALUES.get(ast.unparse(node), UNKNOWN)
        if isinstance(node, ast.IfExp):
            answer = self.find_truth(node.test, depth + 1)
            return UNKNOWN if answer is None else self.evaluate(node.body if answer else node.orelse, depth + 1)
        if isinstance(node, (ast.BinOp, ast.JoinedStr, ast.FormattedValue)):
            return self._join(node, depth)
        if isinstance(node, ast.BoolOp):
            return self._choose(node, depth)
        if isinstance(node, ast.UnaryOp):
            answer = self.find_truth(node, depth + 1) if isinstance(node.op, ast.Not) else None
            return UNKNOWN if answer is None else answer
        return self._call(node, depth) if isinstance(node, ast.Call) else UNKNOWN

    def _look_up(self, name: str, depth: int) -> object:
        if name in self.values:
            return self.values[name]
        if name in self.expressions:
            return self.evaluate(self.expressions[name], depth + 1)
        if self.parent is not None:
            return self.parent._look_up(name, depth + 1)
        found = self.find_imported(name) if self.find_imported and depth < MAX_DEPTH else None
        return found[0]._look_up(found[1], depth + 1) if found else UNKNOWN

    def find_expression(self, name: str, depth: int = 0) -> ast.expr | None:
        """Return the expression that a name is bound to, here or in the module that it is imported from."""
        if name in self.expressions or self.parent is None:
            if name in self.expressions or depth > MAX_DEPTH:
                return self.expressions.get(name)
            found = self.find_imported(name) if self.find_imported else None
            return found[0].find_expression(found[1], depth + 1) if found else None
        return self.parent.find_expression(name, depth + 1)

    def _list_parts(self, nodes: list[ast.expr], depth: int) -> object:
        values = [self.evaluate(one, depth + 1) for one in nodes]
        return UNKNOWN if UNKNOWN in values else tuple(values)

    def _build_table(self, node: ast.Dict, depth: int) -> object:
        pairs = [(self.evaluate(key, depth + 1), value) for key, value in zip(node.keys, node.values, strict=True)]
        if any(key is UNKNOWN or not isinstance(key, (str, int)) for key, _ in pairs):
            return UNKNOWN
        return {key: self.evaluate(value, depth + 1) for key, value in pairs}

    def _take_item(self, node: ast.Subscript, depth: int) -> object:
        whole, key = self.evaluate(node.value, depth + 1), self.evaluate(node.slice, depth + 1)
        try:
            return UNKNOWN if whole is UNKNOWN or key is UNKNOWN else whole[key]  # type: ignore[index]
        except (TypeError, KeyError, IndexError):
            return UNKNOWN

    def _choose(self, node: ast.BoolOp, depth: int) -> object:
        """The value of ``a or b``: the first that decides, if all before it are known."""
        value: object = UNKNOWN
        for one in node.values:
            value = self.evaluate(one, depth + 1)
            if value is UNKNOWN or bool(value) == isinstance(node.op, ast.Or):
                break
        return value

    def _join(self, node: ast.BinOp | ast.JoinedStr | ast.FormattedValue, depth: int) -> object:
        """``"kite." + name``, ``f"kite.{name}"``, and lists that are added."""
        if isinstance(node, ast.FormattedValue):
            is_plain = node.conversion == -1 and node.format_spec is None
            return self.evaluate(node.value, depth + 1) if is_plain else UNKNOWN
        if isinstance(node, ast.JoinedStr):
            parts = [self.evaluate(one, depth + 1) for one in node.values]
            return "".join(map(str, parts)) if all(isinstance(one, (str, int)) for one in parts) else UNKNOWN
        left, right = self.evaluate(node.left, depth + 1), self.evaluate(node.right, depth + 1)
        if not isinstance(node.op, ast.Add) or type(left) is not type(right) or not isinstance(left, (str, tuple)):
            return UNKNOWN
        return left + right  # type: ignore[operator]

    def _compare(self, node: ast.Compare, depth: int) -> object:
        answer = evaluate_condition(node, self.minor)
        if answer is not None or len(node.ops) != 1:
            return UNKNOWN if answer is None else answer
        left, right = self.evaluate(node.left, depth + 1), self.evaluate(node.comparators[0], depth + 1)
        operator = node.ops[0]
        if left is UNKNOWN or right is UNKNOWN:
            return UNKNOWN
        if isinstance(operator, (ast.Is, ast.IsNot)):
            return (left is right) == isinstance(operator, ast.Is)
        try:
            return _apply(operator, left, right)
        except TypeError:
            return UNKNOWN

    def _call(self, node: ast.Call, depth: int) -> object:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name == "find_spec" and node.args:
            return self._find_spec(self.evaluate(node.args[0], depth + 1))
        if match := AVAILABLE.fullmatch(name):
            return UNKNOWN if node.args else self._is_available(match[1], name)
        values = [self.evaluate(one, depth + 1) for one in node.args]
        if UNKNOWN in values or node.keywords:
            return UNKNOWN
        try:
            return self._call_plain(node.func, name, values, depth)
        except (TypeError, ValueError, AttributeError):
            return UNKNOWN

    def _call_plain(self, function: ast.expr, name: str, values: list[object], depth: int) -> object:
        if isinstance(function, ast.Name):
            return FUNCTIONS[name](*values) if name in FUNCTIONS else UNKNOWN  # type: ignore[operator]
        owner = self.evaluate(function.value, depth + 1) if isinstance(function, ast.Attribute) else UNKNOWN
        allowed = TEXT_METHODS if isinstance(owner, str) else DICT_METHODS if isinstance(owner, dict) else ()
        return getattr(owner, name)(*values) if name in allowed else UNKNOWN

    def _find_spec(self, name: object) -> object:
        """A package that is not there has no spec; a part of a package is not looked for."""
        there = self.packages.is_installed(name) if isinstance(name, str) and "." not in name else None
        return UNKNOWN if there is None else IS_THERE if there else None

    def _is_available(self, name: str, function: str) -> object:
        """``is_wandb_available()``; where nobody requires such a package the name may mean something else."""
        if name in DEVICES:
            return UNKNOWN
        if self.read_definition and is_ruled_out(function, self._read_inner(function), self.packages.is_installed):
            return False
        there = self.packages.is_installed(name)
        if there is False:
            return False if self.packages.is_required(name) else UNKNOWN
        text = self.read_definition(function, function) if there and self.read_definition else ""
        return UNKNOWN if there is None or READS_ENVIRONMENT.search(text) else True

    def _read_inner(self, function: str) -> Callable[[str], str]:
        """Read functions of the module that defines one."""
        read = self.read_definition
        return lambda name: read(function, name) if read else ""


def _apply(operator: ast.cmpop, left: object, right: object) -> object:
    import operator as comparisons

    if isinstance(operator, (ast.In, ast.NotIn)):
        return comparisons.contains(right, left) == isinstance(operator, ast.In)  # type: ignore[arg-type]
    names = {ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge"}
    name = names.get(type(operator))
    return UNKNOWN if name is None else getattr(comparisons, name)(left, right)
