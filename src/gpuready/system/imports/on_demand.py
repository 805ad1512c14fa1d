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
    sources = [f"{copy.site}/{source}" for source, _, _ in copy.rows if source.endswith(".py")]
    search = _ImporterSearch(copy.site, name, ERRORS[kind], tag.minor)
    return not any(search.imports_it(source) for source in sources) and not any(map(search.calls_loader, sources))


def _is_as_recorded(copy: Distribution, relative: str) -> bool:
    size = next((size for name, _, size in copy.rows if name == relative), None)
    try:
        return size is not None and get_size(f"{copy.site}/{relative}") == int(size)
    except (OSError, ValueError):
        return False


class _ImporterSearch:
    """Looks for the sources that import one extension module when they are imported themselves."""

    def __init__(self, site: str, name: str, error: str, minor: str):
        self.site, self.name, self.error, self.minor = site, name, error, minor
        self.stem = name.rpartition(".")[2]
        self.functions: set[tuple[str, str]] = set()
        """Functions that import it, as (name of their module, own name)."""

    def imports_it(self, source: str) -> bool:
        """Whether a source imports the module; one that cannot be read or parsed may."""
        data, tree = _parse_source(source, [self.stem])
        if data is None or tree is None:
            return data is None
        package = source[len(self.site) + 1 :].rpartition("/")[0].replace("/", ".")
        called = frozenset(CALLS.findall(data.decode("utf-8", "replace")))
        if any(self._names_it(node, package, data) for node in self._walk(tree.body, called)):
            return True
        own = _module_stem(source)
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and any(
                self._names_it(one, package, data) for one in self._walk(node.body, called)
            ):
                self.functions.add((own, node.name))
        return False

    def calls_loader(self, source: str) -> bool:
        """Whether a source calls, when it is imported, a function of another one that imports the module."""
        if not self.functions:
            return False
        _, tree = _parse_source(source, [name for _, name in self.functions])
        if tree is None:
            return False
        imported = {
            ((node.module or "").rpartition(".")[2], alias.name)
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        known = self.functions & imported
        for node in self._walk(tree.body, frozenset()):
            for call in _list_calls(node):
                func = call.func
                if isinstance(func, ast.Name) and any(func.id == name for _, name in known):
                    return True
                if isinstance(func, ast.Attribute) and (_last_name(func.value), func.attr) in self.functions:
                    return True
        return False

    def _walk(self, statements: Iterable[ast.stmt], called: frozenset[str]) -> Iterator[ast.stmt]:
        return _walk_unguarded(statements, called, self.error, self.minor)

    def _names_it(self, node: ast.stmt, package: str, data: bytes) -> bool:
        return _names_module(node, package, self.name) or _loads_computed_name(node, self.stem, data)


def _parse_source(path: str, words: Iterable[str]) -> tuple[bytes | None, ast.Module | None]:
    """The text and the tree of a source that has any of these words; no text for one that cannot be read or parsed."""
    try:
        with open(path, "rb", opener=open_regular) as file:
            data = file.read()
        return data, ast.parse(data) if any(word.encode() in data for word in words) else None
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None, None


def _module_stem(source: str) -> str:
    """``h`` of kite/h.py, ``kite`` of kite/__init__.py: how other sources name it."""
    folder, _, file = source.rpartition("/")
    stem = file.removesuffix(".py")
    return folder.rpartition("/")[2] if stem == "__init__" else stem


def _last_name(node: ast.expr) -> str:
    return str(getattr(node, "attr", "") or getattr(node, "id", ""))


def _list_calls(node: ast.stmt) -> list[ast.Call]:
    """The calls of one statement itself, without the statements inside of it."""
    own = [one for one in ast.iter_child_nodes(node) if isinstance(one, (ast.expr, ast.withitem))]
    return [call for one in own for call in ast.walk(one) if isinstance(call, ast.Call)]


def _loads_computed_name(node: ast.stmt, stem: str, data: bytes) -> bool:
    """Whether a statement loads a module by a name that is put together, in a source that has ours as a text."""
    is_text = f"'{stem}'".encode() in data or f'"{stem}"'.encode() in data
    return is_text and any(
        _function_name(call) in LOADERS and call.args and not isinstance(call.args[0], (ast.Constant, ast.Name))
        for call in _list_calls(node)
    )


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
    calls = [call for call in _list_calls(node) if _function_name(call) in LOADERS]
    texts = [one.value for call in calls for one in ast.walk(call) if isinstance(one, ast.Constant)]
    stem = name.rpartition(".")[2]
    return any(isinstance(text, str) and text.rpartition(".")[2] == stem for text in texts)


def _function_name(call: ast.Call) -> str:
    return str(getattr(call.func, "attr", "") or getattr(call.func, "id", ""))
