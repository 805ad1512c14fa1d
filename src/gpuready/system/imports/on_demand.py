"""Extension modules that cannot be loaded here and that nothing imports at its start, as many wheels ship them.

numba has one for a threading library that few people install, torchao one that was built for a single Python. The files are
as they were installed, and the package itself tries them inside of a function or catches the failure.
"""

from __future__ import annotations

import ast

from gpuready.system.imports.extension_names import extension_kind
from gpuready.system.imports.source_names import CALLS, catches, evaluate_condition, suppresses
from gpuready.system.imports.watched_files import get_size, open_regular

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpuready.system.imports.distributions import Distribution
    from gpuready.system.imports.extension_names import ExtensionTag

ERRORS = {"library": "ImportError", "python": "ModuleNotFoundError"}
"""What importing a module raises: one whose library is missing, and one for another Python."""
LOADERS = ("import_module", "__import__", "load_library", "load_dynamic", "LoadLibrary", "CDLL")


def is_on_demand(copy: Distribution, kind: str, path: str, tag: ExtensionTag) -> bool:
    """Whether no source of its distribution imports an extension module unless it is asked to, or minds the failure."""
    relative = path.removeprefix(f"{copy.site}/")
    folder, _, file = relative.rpartition("/")
    if not folder or extension_kind(path, tag) == "none" or not _is_as_recorded(copy, relative):
        return False
    stem = file.partition(".")[0]
    name = f"{folder.replace('/', '.')}.{stem}"
    sources = [source for source, _, _ in copy.rows if source.endswith(".py")]
    return not any(_imports(copy.site, source, name, stem, ERRORS[kind], tag.minor) for source in sources)


def _is_as_recorded(copy: Distribution, relative: str) -> bool:
    size = next((size for name, _, size in copy.rows if name == relative), None)
    try:
        return size is not None and get_size(f"{copy.site}/{relative}") == int(size)
    except (OSError, ValueError):
        return False


def _imports(site: str, source: str, name: str, stem: str, error: str, minor: str) -> bool:
    """Whether a source imports the module when it is imported itself; one that cannot be read or parsed may."""
    try:
        with open(f"{site}/{source}", "rb", opener=open_regular) as file:
            data = file.read()
        if stem.encode() not in data:
            return False
        tree = ast.parse(data)
    except (OSError, SyntaxError, ValueError, RecursionError):
        return True
    package = source.rpartition("/")[0].replace("/", ".")
    called = frozenset(CALLS.findall(data.decode("utf-8", "replace")))
    return any(_names_module(node, package, name) for node in _walk_unguarded(tree.body, called, error, minor))


def _walk_unguarded(
    statements: Iterable[ast.stmt], called: frozenset[str], error: str, minor: str
) -> Iterator[ast.stmt]:
    """Yield the statements that run when a module is imported and whose failure nobody catches."""
    for node in statements:
        yield node
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name not in called:
            continue
        if isinstance(node, ast.Try) and any(_goes_on(one, error) for one in node.handlers):
            inner: list[list[ast.stmt]] = [*(one.body for one in node.handlers), node.orelse, node.finalbody]
        elif isinstance(node, ast.With) and any(suppresses(item.context_expr, error) for item in node.items):
            inner = []
        elif isinstance(node, ast.If):
            answer = evaluate_condition(node.test, minor)
            inner = [node.body] * (answer is not False) + [node.orelse] * (answer is not True)
        else:
            inner = [getattr(node, field, []) for field in ("body", "orelse", "finalbody")]
            inner += [one.body for one in getattr(node, "handlers", ())]
        for body in inner:
            yield from _walk_unguarded(body, called, error, minor)


def _goes_on(handler: ast.ExceptHandler, error: str) -> bool:
    """Whether an ``except`` clause catches the error, and neither raises another nor ends the process."""
    inner = [node for statement in handler.body for node in ast.walk(statement)]
    ends = any(
        isinstance(node, ast.Raise) or (isinstance(node, ast.Call) and _function_name(node) == "exit") for node in inner
    )
    return bool(catches(handler.type, error)) and not ends


def _names_module(node: ast.stmt, package: str, name: str) -> bool:
    """Whether one statement imports the module, or gives its name to a function that loads modules."""
    if isinstance(node, ast.Import):
        return any(alias.name == name for alias in node.names)
    if isinstance(node, ast.ImportFrom):
        parts = package.split(".")
        start = ".".join(parts[: len(parts) - node.level + 1]) if node.level else ""
        module = ".".join(part for part in (start, node.module or "") if part)
        return module == name or any(f"{module}.{alias.name}" == name for alias in node.names)
    if not isinstance(node, (ast.Expr, ast.Assign, ast.AnnAssign)) or node.value is None:
        return False
    calls = [one for one in ast.walk(node.value) if isinstance(one, ast.Call) and _function_name(one) in LOADERS]
    texts = [one.value for call in calls for one in ast.walk(call) if isinstance(one, ast.Constant)]
    stem = name.rpartition(".")[2]
    return any(isinstance(text, str) and text.rpartition(".")[2] == stem for text in texts)


def _function_name(call: ast.Call) -> str:
    return str(getattr(call.func, "attr", "") or getattr(call.func, "id", ""))
