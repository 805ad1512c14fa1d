"""Code that runs where a function or a class is defined, and the parts of expressions that are evaluated: comprehensions."""

from __future__ import annotations

import ast
import builtins

from gpuready.system.imports.scope_values import UNKNOWN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuready.system.imports.module_body import Body
    from gpuready.system.imports.scope_values import ScopeValues

    Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp

NOT_NOW = (ast.Lambda, ast.FunctionDef, ast.AsyncFunctionDef, ast.GeneratorExp)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp)
CONSUMERS = ("tuple", "list", "set", "frozenset", "dict", "sorted", "sum", "max", "min")
"""Functions that take all of a generator at once."""
MAX_ROUNDS = 200
"""How many rounds of a loop over known values are followed."""
INITIALISERS = ("__init__", "__new__")


def follow_decorators(body: Body, decorators: list[ast.expr], certain: bool) -> None:
    """``@f`` calls f; ``@f(1)`` calls f, and then the function that it returns."""
    for node in reversed(decorators):
        body.run_expression(node, certain)
        if isinstance(node, ast.Name):
            body.calls.follow(ast.Call(node, [], []), certain)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            body.calls.follow_returned(node.func.id, certain)


def follow_class_hooks(body: Body, node: ast.ClassDef, certain: bool) -> None:
    """``class A(B, metaclass=M)`` runs ``M.__new__`` and ``B.__init_subclass__``, where these are functions of a source."""
    for keyword in node.keywords:
        if keyword.arg == "metaclass" and isinstance(keyword.value, ast.Name):
            body.calls.follow_method(keyword.value.id, INITIALISERS, certain)
    for base in node.bases:
        if isinstance(base, ast.Name):
            body.calls.follow_method(base.id, ("__init_subclass__",), certain)


def find_method(node: ast.ClassDef, names: tuple[str, ...]) -> ast.FunctionDef | None:
    """Return a method of a class as a function without ``self``."""
    found = next((one for one in node.body if isinstance(one, ast.FunctionDef) and one.name in names), None)
    if found is None or not found.args.args:
        return None
    whole = found.args
    rest = ast.arguments(
        whole.posonlyargs,
        whole.args[1:],
        whole.vararg,
        whole.kwonlyargs,
        whole.kw_defaults,
        whole.kwarg,
        whole.defaults,
    )
    return ast.FunctionDef(f"{node.name}.{found.name}", rest, found.body, [])


def find_returned(function: ast.FunctionDef) -> ast.FunctionDef | None:
    """Return the function that a function defines and returns, as one that makes a decorator does."""
    inner = {one.name: one for one in function.body if isinstance(one, ast.FunctionDef)}
    last = function.body[-1]
    value = last.value if isinstance(last, ast.Return) else None
    return inner.get(value.id) if isinstance(value, ast.Name) else None


def walk_executed(node: ast.AST, values: ScopeValues) -> Iterator[ast.AST]:
    """Yield the parts of an expression that are evaluated for certain: not what ``or``, ``and``, ``if`` may leave out."""
    queue: list[ast.AST] = [node]
    while queue:
        one = queue.pop()
        if isinstance(one, NOT_NOW):
            continue
        yield one
        if isinstance(one, ast.BoolOp):
            queue.append(one.values[0])
        elif isinstance(one, ast.IfExp):
            answer = values.find_truth(one.test)
            queue += [one.test, *([] if answer is None else [one.body if answer else one.orelse])]
        elif isinstance(one, COMPREHENSIONS):
            queue.append(one.generators[0].iter)
        else:
            queue.extend(ast.iter_child_nodes(one))


def list_comprehensions(node: ast.AST) -> Iterator[Comprehension]:
    """Yield what of a node makes all of its elements now: a comprehension, or the generator that ``tuple()`` takes."""
    if isinstance(node, COMPREHENSIONS):
        yield node
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CONSUMERS:
        yield from (one for one in node.args[:1] if isinstance(one, ast.GeneratorExp))


def follow_comprehension(body: Body, node: Comprehension, certain: bool) -> None:
    """Follow the elements of a comprehension over known values; those over others may not be made at all."""
    first = node.generators[0]
    values = body.values.evaluate(first.iter) if len(node.generators) == 1 else UNKNOWN
    is_known = isinstance(values, (tuple, list, dict, str))
    outer, body.values = body.values, body.values.open_scope()
    try:
        for value in list(values)[:MAX_ROUNDS] if is_known else [UNKNOWN]:  # type: ignore[call-overload]
            for generator in node.generators:
                body.bind_target(generator.target, value if generator is first else UNKNOWN)
            answers = [body.values.find_truth(one) for generator in node.generators for one in generator.ifs]
            if False not in answers:
                _follow_elements(body, node, certain and is_known and None not in answers)
    finally:
        body.values = outer


def _follow_elements(body: Body, node: Comprehension, certain: bool) -> None:
    for element in (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,):
        body.run_expression(element, certain)


def find_asked_name(node: ast.Try) -> str:
    """Return the name of ``try: NAME`` with one ``except NameError``; empty for any other statement."""
    first = node.body[0].value if len(node.body) == 1 and isinstance(node.body[0], ast.Expr) else None
    caught = node.handlers[0].type if len(node.handlers) == 1 else None
    is_asked = isinstance(first, ast.Name) and isinstance(caught, ast.Name) and caught.id == "NameError"
    return first.id if isinstance(first, ast.Name) and is_asked and not hasattr(builtins, first.id) else ""


def list_dotted_parts(node: ast.expr) -> list[str] | None:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return [node.id, *reversed(parts)] if isinstance(node, ast.Name) else None


def describe_raised_error(node: ast.expr | None) -> tuple[str, str]:
    """``ImportError("pip install it")`` -> its kind and text."""
    call = node if isinstance(node, ast.Call) else None
    name = ast.unparse(call.func if call else node).rpartition(".")[2] if node is not None else "RuntimeError"
    texts = [one.value for one in (call.args if call else ()) if isinstance(one, ast.Constant)]
    return name, str(texts[0])[:160] if texts else "raised by its source"
