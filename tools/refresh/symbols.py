"""The public symbols of one Python file, from its syntax tree; nothing is imported or run."""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

LAZY_TABLES = ("_import_structure", "_SUBMOD_ATTRS", "_extra_objects", "__all__")


@dataclass
class FileSymbols:
    """What one file defines: importable names, and of public classes and functions attributes and parameters."""

    names: set[str] = field(default_factory=set)
    exported: tuple[str, ...] = ()  # __all__
    stars: tuple[str, ...] = ()  # modules of which everything is imported
    lazy: bool = False  # its names are collected from the files below it
    classes: set[str] = field(default_factory=set)
    callables: set[str] = field(default_factory=set)
    attributes: set[str] = field(default_factory=set)  # Class.attribute
    parameters: set[str] = field(default_factory=set)  # function(parameter, Class(parameter, Class.method(parameter


def read_symbols(text: str, package: str) -> FileSymbols:
    """The symbols of a file; of one that this Python cannot parse, none. Imports of other packages do not count."""
    found = FileSymbols()
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return found
    exported: list[str] = []
    stars: list[str] = []
    for node in _statements(tree.body):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found.names.add(node.name)
            _add_function(found, node.name, node, 0)
        elif isinstance(node, ast.ClassDef):
            found.names.add(node.name)
            _add_class(found, node)
        elif isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").split(".")[0] == package):
            stars += ["." * node.level + (node.module or "") for alias in node.names if alias.name == "*"]
            found.names |= {alias.asname or alias.name for alias in node.names if alias.name != "*"}
        elif not isinstance(node, (ast.Import, ast.ImportFrom)):
            names = set(_bound_names(node))
            found.names |= names
            if "__all__" in names:
                exported += _strings(node)
            if names & set(LAZY_TABLES):
                found.names |= {word for word in _strings(node) if word.isidentifier()}
    found.exported, found.stars = tuple(exported), tuple(stars)
    found.lazy = "define_import_structure" in text
    found.names = {name for name in found.names if name.isidentifier() and not name.startswith("__")}
    return found


def _statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a module, with those inside ``if``, ``try`` and ``with``."""
    for node in body:
        yield node
        if isinstance(node, (ast.If, ast.Try, ast.With)):
            yield from _statements(node.body)
            yield from _statements(getattr(node, "orelse", []))
            for handler in getattr(node, "handlers", []):
                yield from _statements(handler.body)


def _bound_names(node: ast.stmt) -> Iterator[str]:
    """Names that an assignment binds; also ``_import_structure["a"] = [...]`` and ``.extend([...])``."""
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, (ast.AnnAssign, ast.AugAssign)):
        targets = [node.target]
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        inner: ast.expr = node.value.func
        while isinstance(inner, (ast.Attribute, ast.Subscript)):
            inner = inner.value
        if isinstance(inner, ast.Name) and inner.id in LAZY_TABLES:
            yield inner.id
    for target in targets:
        while isinstance(target, ast.Subscript):
            target = target.value
        parts = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
        yield from (part.id for part in parts if isinstance(part, ast.Name))


def _strings(node: ast.AST) -> list[str]:
    return [n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)]


def _add_class(found: FileSymbols, node: ast.ClassDef) -> None:
    if node.name.startswith("_"):
        return
    found.classes.add(node.name)
    found.callables.add(node.name)
    fields = []
    for item in node.body:
        if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef)):
            _add_method(found, node.name, item)
        elif isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            fields.append(item.target.id)
        elif isinstance(item, ast.Assign):
            fields += [target.id for target in item.targets if isinstance(target, ast.Name)]
    public = [name for name in fields if not name.startswith("_")]
    found.attributes |= {f"{node.name}.{name}" for name in public}
    if not any(isinstance(item, ast.FunctionDef) and item.name == "__init__" for item in node.body):
        annotated = [i.target.id for i in node.body if isinstance(i, ast.AnnAssign) and isinstance(i.target, ast.Name)]
        found.parameters |= {f"{node.name}({name}" for name in annotated if not name.startswith("_")}


def _add_method(found: FileSymbols, owner: str, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
    stored = (n for n in ast.walk(node) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store))
    own = [n.attr for n in stored if isinstance(n.value, ast.Name) and n.value.id == "self"]
    found.attributes |= {f"{owner}.{name}" for name in own if not name.startswith("_")}
    static = any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in node.decorator_list)
    if node.name in ("__init__", "__new__"):
        _add_function(found, owner, node, 1)
    elif not node.name.startswith("_"):
        found.attributes.add(f"{owner}.{node.name}")
        _add_function(found, f"{owner}.{node.name}", node, 0 if static else 1)


def _add_function(found: FileSymbols, name: str, node: ast.FunctionDef | ast.AsyncFunctionDef, skipped: int) -> None:
    if name.startswith("_"):
        return
    found.callables.add(name)
    requested = [*node.args.posonlyargs, *node.args.args][skipped:] + node.args.kwonlyargs
    found.parameters |= {f"{name}({one.arg}" for one in requested if not one.arg.startswith("_")}
    if node.args.kwarg is not None:
        found.parameters.add(f"{name}(**")
    found.parameters |= {f"{name}({old}" for old in _deprecated_names(node)}


def _deprecated_names(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    """Parameters that a decorator still takes: ``@deprecate_kwarg("tokenizer", new_name="processing_class", version="5.0")``."""
    for call in node.decorator_list:
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and "deprecate_kwarg" in call.func.id:
            first = [*call.args[:1], *(k.value for k in call.keywords if k.arg == "old_name")]
            yield from (a.value for a in first if isinstance(a, ast.Constant) and isinstance(a.value, str))
