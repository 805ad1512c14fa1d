"""Calls that matter when a module is imported: what imports by name, what asks for versions, functions that do either."""

from __future__ import annotations

import ast
import re

from gpuready.system.imports.defined_code import INITIALISERS, find_method, find_returned
from gpuready.system.imports.module_records import ImportFailure, Module
from gpuready.system.imports.requirements import canonical_name, is_satisfied, parse_requirement
from gpuready.system.imports.scope_values import UNKNOWN
from gpuready.system.imports.source_parts import read_class

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.system.imports.module_body import Body
    from gpuready.system.imports.scope_values import ScopeValues

METADATA_CALL = re.compile(r"(?:\w+\.)*_?(?:importlib_)?metadata\.(?:version|distribution|metadata|requires|files)")
METADATA_MODULES = ("importlib.metadata", "importlib_metadata")
METADATA_NAMES = ("version", "distribution", "metadata", "requires", "files")
REQUIRE_NAMES = ("require_version", "require_version_core")
"""Functions of transformers and of those that copied them: they raise where a requirement is not met."""
MAX_CALLS = 4
"""How deep calls of functions are followed."""


class CallFollower:
    """Follows the calls of one module."""

    def __init__(self, body: Body):
        self.body, self.module, self.simulation = body, body.module, body.simulation

    @property
    def values(self) -> ScopeValues:
        return self.body.values

    def follow(self, call: ast.Call, certain: bool) -> None:
        function = call.func
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        if name in ("import_module", "__import__"):
            self._import_by_name(call, certain)
        elif name in METADATA_NAMES and self._asks_metadata(function, name):
            self._ask_version(call, certain)
        elif name == "get_distribution" and call.args:
            self._ask_version(call, certain, "DistributionNotFound")
        elif name in REQUIRE_NAMES and call.args:
            self._require(self.values.evaluate(call.args[0]), certain)
        elif isinstance(function, ast.Name):
            self._follow_function(call, name, certain)

    def _import_by_name(self, call: ast.Call, certain: bool) -> None:
        """``importlib.import_module("x")``, ``import_module(".y", __name__)``."""
        name = self.values.evaluate(call.args[0]) if call.args else UNKNOWN
        if not isinstance(name, str):
            return
        rest = name.lstrip(".")
        if rest != name:
            package = self.values.evaluate(call.args[1]) if len(call.args) > 1 else self.module.package
            parts = str(package).split(".") if isinstance(package, str) else []
            kept = parts[: len(parts) - (len(name) - len(rest)) + 1]
            name = ".".join([*kept, rest]) if kept else ""
        if name == self.module.name:
            self.body.guard(certain, lambda: self._import_native(str(name)))
        elif name and all(part.isidentifier() for part in name.split(".")):
            self.body.guard(certain, lambda: self.simulation.import_name(str(name), certain))

    def _import_native(self, name: str) -> None:
        """A package that imports its own name takes the extension module of that name in its folder, as cv2 does."""
        found = self.simulation.finder.find(f"{name}.{name}", self.module.folders)
        if found is not None and found.fault:
            raise ImportFailure(found.error, found.fault, found.path)

    def _asks_metadata(self, function: ast.expr, name: str) -> bool:
        if isinstance(function, ast.Name):
            return self.module.taken.get(name, ("", ""))[0] in METADATA_MODULES
        return bool(METADATA_CALL.fullmatch(ast.unparse(function)))

    def _ask_version(self, call: ast.Call, certain: bool, kind: str = "PackageNotFoundError") -> None:
        name = self.values.evaluate(call.args[0]) if call.args else UNKNOWN
        if isinstance(name, str) and name and not self.simulation.finder.has_metadata(canonical_name(name)):
            text = f"No package metadata was found for {name}"
            self.body.fail(certain, ImportFailure(kind, text, canonical_name(name)))

    def _require(self, requirement: object, certain: bool) -> None:
        if not isinstance(requirement, str):
            return
        name, _, specifier, _ = parse_requirement(requirement)
        version = self.simulation.finder.find_version(name)
        if name == "python" or version == "unknown":
            return
        if not version:
            text = f"No package metadata was found for {name}"
            self.body.fail(certain, ImportFailure("PackageNotFoundError", text, name))
        elif is_satisfied(version, specifier) is False:
            text = f"{requirement} is required for a normal functioning of this module, but found {name}=={version}."
            self.body.fail(certain, ImportFailure("ImportError", text, name))

    def _follow_function(self, call: ast.Call, name: str, certain: bool) -> None:
        """Follow a function of this module, or of the one that it is imported from, with the arguments that are known."""
        found = self.simulation.find_function(self.module, name) or self.find_method(name, INITIALISERS)
        if found is not None and self.simulation.depth < MAX_CALLS:
            self._call_function(*found, call, certain)

    def follow_returned(self, name: str, certain: bool) -> None:
        """Follow the function that a function of this name returns: what ``@name(1)`` calls with what it decorates."""
        found = self.simulation.find_function(self.module, name)
        inner = find_returned(found[1]) if found else None
        if found is not None and inner is not None and self.simulation.depth < MAX_CALLS:
            self._call_function(found[0], inner, ast.Call(ast.Name(name), [], []), certain)

    def follow_method(self, name: str, methods: tuple[str, ...], certain: bool) -> None:
        """Follow a method of a class of this name, with arguments that are not known."""
        found = self.find_method(name, methods)
        if found is not None and self.simulation.depth < MAX_CALLS:
            self._call_function(*found, ast.Call(ast.Name(name), [], []), certain)

    def find_method(self, name: str, methods: tuple[str, ...]) -> tuple[Module, ast.FunctionDef] | None:
        found = self._find_class(name)
        method = find_method(found[1], methods) if found else None
        return (found[0], method) if found and method else None

    def _find_class(self, name: str) -> tuple[Module, ast.ClassDef] | None:
        """Return a class by a name of this module, and the module that defines it."""
        source, inner = self.module.taken.get(name, (self.module.name, name))
        found = self.simulation.modules.get(source) if source != self.module.name else self.module
        if not isinstance(found, Module) or found.values is None:
            return None
        if found is not self.module and inner not in found.read_classes:
            found.read_classes[inner] = read_class(found.file, inner)
        node = found.classes.get(inner) if found is self.module else found.read_classes[inner]
        return (found, node) if node is not None else None

    def _call_function(self, module: Module, function: ast.FunctionDef, call: ast.Call, certain: bool) -> None:
        assert module.values is not None
        scope = module.values.open_scope()
        names = [one.arg for one in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]
        arguments = dict(zip(names, call.args, strict=False)) | {one.arg: one.value for one in call.keywords if one.arg}
        known = {one: self.values.evaluate(node) for one, node in arguments.items()}
        key = (module.name, function.name, repr(sorted((one, repr(value)) for one, value in known.items())))
        if key in self.simulation.called:
            return
        self.simulation.called.add(key)
        for one in names:
            scope.bind_value(one, known.get(one, UNKNOWN))
        self._run_function(module, function, scope, certain)

    def _run_function(self, module: Module, function: ast.FunctionDef, scope: ScopeValues, certain: bool) -> None:
        self.simulation.depth += 1
        try:
            type(self.body)(self.simulation, module, scope).run(function.body, certain)
        finally:
            self.simulation.depth -= 1
