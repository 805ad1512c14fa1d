"""What a module's source says of itself: the names it binds, conditions that are known, exceptions that are caught."""

from __future__ import annotations

import ast
import builtins
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DERIVED_ERRORS: dict[str, type] = {"PackageNotFoundError": ModuleNotFoundError}
CALLS = re.compile(r"(?:\n[ \t]*|= )(\w+)\(")
"""A function that a statement calls at the start of a line, or for its value."""
DECORATORS = re.compile(r"^@(\w+)", re.M)
ELEMENTS = re.compile(r"[\[({:] ?(\w+)\([^()\n]{0,200}\) for ")
CLASSES = re.compile(r"^class (\w+)", re.M)
DYNAMIC_SIGNS = (
    "extend_path",
    "declare_namespace",
    "globals()",
    "sys.modules[",
    "def __getattr__",
    "locals()",
    "exec(",
    "setattr(",
    "vars(",
)


def is_dynamic(text: str) -> bool:
    """Whether a module may bind names that no statement of it shows."""
    return any(sign in text for sign in DYNAMIC_SIGNS)


def collect_names(tree: ast.Module, own_name: str) -> set[str]:
    """Return every name that the statements of a module may bind, in whatever branch; its submodules are none of them."""
    names = {"__name__", "__doc__", "__file__", "__path__", "__spec__", "__loader__", "__package__", "__dict__"}
    for node in _walk_statements(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.ImportFrom) and (node.module == own_name or (node.level and not node.module)):
            continue
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names.update((alias.asname or alias.name).partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Global):
            names.update(node.names)
        elif type(node).__name__ == "TypeAlias":
            names.add(node.name.id)  # type: ignore[attr-defined]
    return names


def list_exported_names(tree: ast.Module) -> tuple[str, ...]:
    """Return the names of a literal ``__all__``."""
    for node in tree.body:
        targets = [getattr(target, "id", "") for target in getattr(node, "targets", ())]
        value = getattr(node, "value", None)
        if "__all__" in targets and isinstance(value, (ast.List, ast.Tuple)):
            return tuple(str(one.value) for one in value.elts if isinstance(one, ast.Constant))
    return ()


def drop_function_bodies(text: str) -> str:
    """Replace the bodies of functions by ``pass``, but of those that the module itself calls."""
    kept: list[str] = []
    skipped = -1
    signature: list[str] = []
    called, inside = _list_called(text), -1  # inside: the margin of a function whose body is kept, with those in it
    quotes = ""
    for line in text.split("\n"):
        words = line.lstrip()
        indent = len(line) - len(words)
        if skipped >= 0:
            if quotes or '"""' in line or "'''" in line:
                quotes = _close_quotes(line, quotes)
                continue
            if not words or indent > skipped or words[0] == "#":
                continue
            skipped = -1
        if words and indent <= inside:
            inside = -1
        if signature or words.startswith(("def ", "async def ")):
            signature.append(line)
            whole = "".join(signature)
            if whole.count("(") == whole.count(")"):
                first, signature = signature[0], []
                start = len(first) - len(first.lstrip())
                if inside < 0 and _defined_name(first) in called:
                    inside = start
                elif inside < 0 and line.partition(" #")[0].rstrip().endswith(":"):
                    line, skipped = f"{line.partition(' #')[0]} pass", start
        kept.append(line)
    return "\n".join(kept)


def _list_called(text: str) -> set[str]:
    """The functions that a module may call when it is imported: by a statement, a decorator, a comprehension, or as those of a class."""
    called = {*CALLS.findall(text), *DECORATORS.findall(text), *ELEMENTS.findall(text)}
    if called & {*CLASSES.findall(text)} or "metaclass=" in text:
        called |= {"__init__", "__new__"}
    return called | ({"__init_subclass__"} if "__init_subclass__" in text else set())


def _close_quotes(line: str, quotes: str) -> str:
    """Return the triple quotes that are open after a line; empty for none."""
    rest = line
    while True:
        signs = [sign for sign in ([quotes] if quotes else ['"""', "'''"]) if sign in rest]
        if not signs:
            return quotes
        sign = min(signs, key=rest.index)
        rest = rest.partition(sign)[2]
        quotes = "" if quotes else sign


def _defined_name(definition: str) -> str:
    return definition.partition("def ")[2].partition("(")[0].rstrip()


def find_lazy_attributes(tree: ast.Module, text: str) -> dict[str, str]:
    """Return the submodule of each attribute that a package imports on demand: ``{"hf_api": ["HfApi", "login"]}``."""
    found: dict[str, str] = {}
    if "__getattr__" not in text and "azy" not in text:
        return found
    if not any(_binds_getattr(node) or _names_lazy(node) for node in tree.body):
        return found
    for node in tree.body:
        value = getattr(node, "value", None)
        value = value.args[0] if isinstance(value, ast.Call) and value.args else value  # MappingProxyType({...})
        if not isinstance(value, ast.Dict):
            continue
        for key, item in zip(value.keys, value.values, strict=True):
            if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
                continue
            if relative := _relative_module(item):  # {"BaseModel": (__spec__.parent, ".main")}
                found[key.value] = relative
            elif isinstance(item, (ast.List, ast.Tuple)):
                found.update(
                    {name: key.value for one in item.elts if isinstance(name := getattr(one, "value", None), str)}
                )
    return {name: module for name, module in found.items() if module.replace(".", "_").isidentifier()}


def _relative_module(item: ast.expr | None) -> str:
    parts = item.elts if isinstance(item, ast.Tuple) else [item]
    texts = [part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)]
    return next((text[1:] for text in texts if len(text) > 1 and text[0] == "." and text[1] != "."), "")


def _binds_getattr(node: ast.stmt) -> bool:
    """``def __getattr__(name):``, or ``__getattr__, __dir__, __all__ = attach(...)``."""
    targets = [one for target in getattr(node, "targets", ()) for one in getattr(target, "elts", [target])]
    return "__getattr__" in [getattr(node, "name", ""), *(getattr(one, "id", "") for one in targets)]


def _names_lazy(node: ast.stmt) -> bool:
    """Whether a statement is about a module that loads on demand: ``sys.modules[__name__] = _LazyModule(...)``."""
    names = [*getattr(node, "targets", ()), *([node] if isinstance(node, ast.If) else ())]
    return bool(names) and any("azy" in (getattr(one, "id", "") or getattr(one, "attr", "")) for one in ast.walk(node))


def _walk_statements(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield all nodes but those inside functions and classes; ``global`` statements of functions too."""
    queue: list[ast.AST] = [tree]
    while queue:
        node = queue.pop()
        yield node
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from _find_global_statements(node)
        elif not isinstance(node, (ast.ClassDef, ast.Lambda)):
            queue.extend(ast.iter_child_nodes(node))


def _find_global_statements(function: ast.AST) -> Iterator[ast.Global]:
    """Yield the ``global`` statements of a function; its expressions, which are most of it, are left out."""
    queue = [function]
    while queue:
        node = queue.pop()
        if isinstance(node, ast.Global):
            yield node
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            queue += getattr(node, field, ())


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
    import operator as comparisons

    names = {ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge"}
    name = names.get(type(operator))
    if isinstance(operator, (ast.In, ast.NotIn)):
        return comparisons.contains(right, left) == isinstance(operator, ast.In)  # type: ignore[arg-type]
    return None if name is None else bool(getattr(comparisons, name)(left, right))


def catches(
    handler: ast.expr | None, kind: str, find_expression: Callable[[str], ast.expr | None] | None = None, depth: int = 0
) -> bool | None:
    """Whether an ``except`` clause catches an error of this kind; None where it names a variable that is not known."""
    if handler is None:
        return True
    if isinstance(handler, ast.Tuple):
        answers = [catches(one, kind, find_expression, depth) for one in handler.elts]
        return True if True in answers else None if None in answers else False
    name = ast.unparse(handler).rpartition(".")[2]
    known = getattr(builtins, name, None)
    if isinstance(known, type):
        return issubclass(_error_class(kind), known)
    if name == kind:
        return True
    bound = find_expression(name) if find_expression and isinstance(handler, ast.Name) and depth < 9 else None
    if bound is not None:
        return catches(bound, kind, find_expression, depth + 1)
    is_class = name.isidentifier() and name[0].isupper() and not name.isupper()
    return False if is_class else None


def _error_class(kind: str) -> type:
    """The class of an error; of one that only a package has, what it is derived from."""
    found = getattr(builtins, kind, None)
    return found if isinstance(found, type) else DERIVED_ERRORS.get(kind, Exception)


def suppresses(context: ast.expr, kind: str) -> bool:
    """Whether a context swallows an error of this kind: ``contextlib.suppress(ImportError)``, ``try_import()``."""
    if not isinstance(context, ast.Call):
        return False
    name = ast.unparse(context.func).rpartition(".")[2].lower()
    if name == "suppress":
        return any(catches(one, kind) for one in context.args)
    return "import" in name or "optional" in name
