"""Functions such as ``is_torchvision_available()``: what their text says they need besides the package of their name."""

from __future__ import annotations

import ast

from gpuready.system.imports.source_names import catches

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def list_needed_modules(text: str) -> list[str]:
    """The modules without which it returns False.

    ``try: import PIL.Image``, ``except ImportError: return False``; ``return _is_package_available("jinja2")[0]``.
    """
    tries = [node for node in _statements(text) if isinstance(node, ast.Try)]
    asked = [name for part in _list_conditions(text) if (name := _asked_package(part))]
    return [*(name for node in tries for name in _guarded_imports(node)), *asked]


def list_needed_functions(text: str) -> list[str]:
    """The functions that must hold: of ``return is_vision_available() and is_torch_available()``, both."""
    calls = [one for one in _list_conditions(text) if isinstance(one, ast.Call) and not one.args and not one.keywords]
    return [one.func.id for one in calls if isinstance(one.func, ast.Name)]


def _list_conditions(text: str) -> list[ast.expr]:
    """What must all hold: the parts of the only ``return``, if nothing comes before it that may return something else."""
    body = [node for node in _statements(text) if not isinstance(node, ast.Expr)]
    value = body[0].value if len(body) == 1 and isinstance(body[0], ast.Return) else None
    is_and = isinstance(value, ast.BoolOp) and isinstance(value.op, ast.And)
    return list(value.values) if isinstance(value, ast.BoolOp) and is_and else [value] if value is not None else []


def _asked_package(node: ast.expr) -> str:
    """``jinja2`` of ``_is_package_available("jinja2")[0]`` and of ``find_spec("jinja2") is not None``."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], ast.IsNot):
        node = node.left
    node = node.value if isinstance(node, ast.Subscript) else node
    if not isinstance(node, ast.Call) or not node.args or not isinstance(node.args[0], ast.Constant):
        return ""
    function = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    name = node.args[0].value
    return name if isinstance(name, str) and function.endswith(("_package_available", "find_spec")) else ""


def is_ruled_out(name: str, read: Callable[[str], str], is_installed: Callable[[str], bool | None]) -> bool:
    """Whether a function returns False because something else that it asks for is not installed."""
    waiting: list[str] = [name]
    seen: set[str] = set()
    while waiting and len(seen) < 20:
        one = waiting.pop()
        if one in seen:
            continue
        seen.add(one)
        text = read(one)
        if any(is_installed(module.partition(".")[0]) is False for module in list_needed_modules(text)):
            return True
        waiting += list_needed_functions(text)
    return False


def _statements(text: str) -> list[ast.stmt]:
    try:
        (node,) = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError):
        return []
    return node.body if isinstance(node, ast.FunctionDef) else []


def _guarded_imports(node: ast.Try) -> Iterator[str]:
    handlers = [one for one in node.handlers if catches(one.type, "ModuleNotFoundError")]
    ends = [one.body[-1] for one in handlers if one.body]
    if not ends or not all(
        isinstance(end, ast.Return) and isinstance(end.value, ast.Constant) and end.value.value is False for end in ends
    ):
        return
    for one in node.body:
        if isinstance(one, ast.Import):
            yield from (alias.name for alias in one.names)
        elif isinstance(one, ast.ImportFrom) and not one.level and one.module:
            yield one.module
