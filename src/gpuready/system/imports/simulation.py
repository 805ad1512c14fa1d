"""Would ``import torch`` fail? The import statements of modules followed on paper, where files of an environment differ.

Sources are parsed, never run. Statements at the level of a module count, with their ``try``, and with the conditions that can
be known (TYPE_CHECKING, the system, the version of Python); what other conditions guard counts only for damaged files.
"""

from __future__ import annotations

import ast
import gc
import sys

from gpuready.system.files import open_regular
from gpuready.system.imports.module_finder import ModuleFinder
from gpuready.system.imports.source_names import (
    catches,
    collect_names,
    drop_function_bodies,
    evaluate_condition,
    find_lazy_attributes,
    is_dynamic,
    suppresses,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from gpuready.system.imports.damage import Survey

MAX_MODULES = 6000
MAX_CALLS = 3
"""How deep calls of a module's own functions are followed."""


class ImportFailure(Exception):
    """An import that fails. ``kind`` is the error that Python would raise; ``cause`` the path or name at fault."""

    def __init__(self, kind: str, text: str, cause: str):
        super().__init__(text)
        self.kind, self.text, self.cause = kind, text, cause
        self.chain: list[str] = []


class Module:
    """A module that was followed: the names that it binds, and the folders of its submodules."""

    def __init__(self, name: str, file: str, folders: Sequence[str], names: Iterable[str] = (), dynamic: bool = True):
        self.name, self.file, self.folders = name, file, list(folders)
        self.names, self.dynamic = set(names), dynamic
        self.functions: dict[str, ast.FunctionDef] = {}
        self.attributes: dict[str, str] = {}


def simulate_roots(survey: Survey, roots: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return for each root whether its import fails: error, module, cause, and the chain of imports that leads there."""
    limit, collects = sys.getrecursionlimit(), gc.isenabled()
    sys.setrecursionlimit(max(limit, 30000))
    gc.disable()  # thousands of trees, none of them garbage until the end
    try:
        simulation = Simulation(ModuleFinder(survey))
        starts = survey.request.get("starts") or {}
        return {
            root: _simulate_modules(simulation, [survey.choose_module(root), *starts.get(root, ())]) for root in roots
        }
    finally:
        sys.setrecursionlimit(limit)
        if collects:
            gc.enable()


def _simulate_modules(simulation: Simulation, names: Sequence[str]) -> dict[str, Any]:
    """Return the outcome of the first module; if it imports, of the first that its commands start from and that fails."""
    outcome = _simulate_module(simulation, names[0])
    if not names[0] or outcome["error"]:
        return outcome
    for start in names[1:]:
        later = _simulate_module(simulation, start)
        if later["error"] and not _is_of_another_release(simulation, later):
            return later
    return outcome


def _is_of_another_release(simulation: Simulation, outcome: dict[str, Any]) -> bool:
    """Whether a start is not there because this release starts elsewhere, and not because a file is missing."""
    start = outcome["module"]
    own = [start, *(start[:at] for at, letter in enumerate(start) if letter == ".")]
    names_start = outcome["error"] in [f"ModuleNotFoundError: No module named {name!r}" for name in own]
    return names_start and outcome["cause"] not in simulation.finder.missing


def _simulate_module(simulation: Simulation, name: str) -> dict[str, Any]:
    outcome: dict[str, Any] = {"module": name, "error": "", "cause": "", "chain": [], "modules": 0}
    if not name:  # no file says what it is imported by, and the survey says that it was not looked at
        return outcome
    try:
        simulation.import_name(name, certain=True)
    except ImportFailure as failure:
        outcome |= {
            "error": f"{failure.kind}: {failure.text}",
            "cause": failure.cause,
            "chain": failure.chain[::-1][:12],
        }
    except RecursionError:
        return outcome | {"gap": "its imports are nested too deeply to follow"}
    if simulation.modules_followed > MAX_MODULES:
        return outcome | {"gap": f"it imports more than {MAX_MODULES} modules"}
    return outcome | {"modules": simulation.modules_followed}


class Simulation:
    """Follows imports as the interpreter would, each module once."""

    def __init__(self, finder: ModuleFinder):
        self.finder = finder
        self.modules: dict[str, Module | ImportFailure] = {}
        self.modules_followed = 0
        self.calls = 0

    def import_name(self, name: str, certain: bool) -> Module:
        """Import ``a.b.c`` with its parents; ImportFailure where that fails."""
        parent: Module | None = None
        parts = name.split(".")
        for end in range(1, len(parts) + 1):
            parent = self._import_one(".".join(parts[:end]), parent, certain)
        assert parent is not None
        return parent

    def _import_one(self, name: str, parent: Module | None, certain: bool) -> Module:
        known = self.modules.get(name)
        if isinstance(known, ImportFailure):
            raise known
        if known is not None:
            return known
        try:
            return self._load(name, parent, certain)
        except ImportFailure as failure:
            failure.chain.append(name)
            if failure.cause:
                self.modules[name] = failure
            raise

    def _load(self, name: str, parent: Module | None, certain: bool) -> Module:
        found = self.finder.find(name, parent.folders if parent else None)
        if found is None:
            if parent is not None and parent.dynamic and not self.finder.is_damaged_module(name, parent.folders):
                return self._keep(Module(name, "", ()))  # made by code, or an attribute of an extension
            cause = self.finder.explain_absence(name, parent.folders if parent else None, certain)
            raise ImportFailure("ModuleNotFoundError", f"No module named {name!r}", cause)
        if found.fault:
            raise ImportFailure(found.error, found.fault, found.path)
        if not found.source:
            module = self._keep(Module(name, found.path, found.folders))
            for inner in self.finder.list_damaged_names_in(found.path):
                self.import_name(inner, certain=False)
            return module
        return self._follow(name, found.path, found.folders)

    def _keep(self, module: Module) -> Module:
        self.modules[module.name] = module
        return module

    def _follow(self, name: str, path: str, folders: Sequence[str]) -> Module:
        self.modules_followed += 1
        tree, text = self._parse(path)
        if tree is None or self.modules_followed > MAX_MODULES:
            return self._keep(Module(name, path, folders))
        is_open = not self.finder.is_suspect(path) or is_dynamic(text)  # names are only asked of what differs
        module = self._keep(Module(name, path, folders, () if is_open else collect_names(tree, name), is_open))
        module.attributes = find_lazy_attributes(tree, text)
        module.functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
        self.finder.add_folders(path, text)
        Body(self, module).run(tree.body, certain=True)
        return module

    def _parse(self, path: str) -> tuple[ast.Module | None, str]:
        """Parse a source. One that is whole and that this Python cannot parse is for a newer Python: taken as it is."""
        try:
            with open(path, "rb", opener=open_regular) as file:
                data = file.read()
            text = data.decode("utf-8", "replace")
            short = None if self.finder.is_suspect(path) else _parse_short(text)
            return short or ast.parse(data), text
        except (SyntaxError, ValueError) as error:
            if self.finder.is_suspect(path):
                raise ImportFailure("SyntaxError", f"{path}: {error}"[:200], path) from None
        except (OSError, RecursionError, MemoryError):
            pass
        return None, ""


def _parse_short(text: str) -> ast.Module | None:
    """Parse a source without the bodies of its functions, several times faster; None where that does not parse."""
    try:
        return ast.parse(drop_function_bodies(text))
    except (SyntaxError, ValueError, RecursionError):
        return None


class Body:
    """The statements of one module."""

    def __init__(self, simulation: Simulation, module: Module):
        self.simulation, self.module = simulation, module
        self.finder = simulation.finder
        self.handled: ImportFailure | None = None

    def run(self, statements: Iterable[ast.stmt], certain: bool) -> None:
        for statement in statements:
            self._run_statement(statement, certain)

    def _run_statement(self, node: ast.stmt, certain: bool) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                self._guard(certain, lambda alias=alias: self.simulation.import_name(alias.name, certain))
        elif isinstance(node, ast.ImportFrom):
            self._guard(certain, lambda: self._import_from(node, certain))
        elif isinstance(node, ast.If):
            self._run_condition(node, certain)
        elif isinstance(node, ast.Try) or type(node).__name__ == "TryStar":
            self._run_try(node, certain)  # type: ignore[arg-type]
        elif isinstance(node, ast.With):
            self._run_with(node, certain)
        elif isinstance(node, (ast.For, ast.While)):
            self.run(node.body, False)
        elif isinstance(node, ast.ClassDef):
            self.run(node.body, certain)
        elif isinstance(node, ast.Raise) and self.handled is not None and certain:
            raise self.handled
        elif isinstance(node, (ast.Expr, ast.Assign, ast.AnnAssign)) and isinstance(node.value, ast.Call):
            self._run_call(node.value, certain)

    def _guard(self, certain: bool, step: Any) -> None:
        """Run an import; what is neither certain nor due to damage does not count."""
        try:
            step()
        except ImportFailure as failure:
            if failure.cause and (certain or self.finder.is_suspect(failure.cause)):
                raise

    def _import_from(self, node: ast.ImportFrom, certain: bool) -> None:
        name = self._absolute_name(node)
        if name is None:
            return
        module = self.simulation.import_name(name, certain)
        for alias in node.names:
            if alias.name == "*" or alias.name in module.names:
                continue
            self._import_attribute(module, alias.name, certain)

    def _import_attribute(self, module: Module, name: str, certain: bool) -> None:
        """Import a submodule, or take an attribute: only a module that differs may lack one."""
        full = f"{module.name}.{name}"
        if name in module.attributes:
            self.simulation.import_name(f"{module.name}.{module.attributes[name]}", certain)
        elif full in self.simulation.modules or self.finder.find(full, module.folders) is not None:
            self.simulation._import_one(full, module, certain)
        elif self.finder.is_damaged_module(full, module.folders):
            self.simulation._load(full, module, certain)
        elif not module.dynamic:
            text = f"cannot import name {name!r} from {module.name!r} ({module.file})"
            raise ImportFailure("ImportError", text, module.file)

    def _absolute_name(self, node: ast.ImportFrom) -> str | None:
        if not node.level:
            return node.module
        package = self.module.name if self.module.folders else self.module.name.rpartition(".")[0]
        parts = package.split(".")
        kept = parts[: len(parts) - node.level + 1]
        return ".".join([*kept, *([node.module] if node.module else [])]) or None

    def _run_condition(self, node: ast.If, certain: bool) -> None:
        answer = evaluate_condition(node.test, self.finder.minor)
        if answer is not False:
            self.run(node.body, certain and answer is True)
        if answer is not True:
            self.run(node.orelse, certain and answer is False)

    def _run_try(self, node: ast.Try, certain: bool) -> None:
        try:
            self.run(node.body, certain)
        except ImportFailure as failure:
            handler = next((one for one in node.handlers if catches(one.type, failure.kind)), None)
            if handler is None:
                raise
            before, self.handled = self.handled, failure
            try:
                self.run(handler.body, certain)
            finally:
                self.handled = before
        else:
            self.run(node.orelse, certain)
        self.run(node.finalbody, certain)

    def _run_with(self, node: ast.With, certain: bool) -> None:
        try:
            self.run(node.body, certain)
        except ImportFailure as failure:
            if not any(suppresses(item.context_expr, failure.kind) for item in node.items):
                raise

    def _run_call(self, call: ast.Call, certain: bool) -> None:
        """Follow ``importlib.import_module("x")`` and calls of the module's own functions."""
        function = call.func
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        first = call.args[0].value if call.args and isinstance(call.args[0], ast.Constant) else None
        if name in ("import_module", "__import__") and isinstance(first, str) and not first.startswith("."):
            self._guard(certain, lambda: self.simulation.import_name(first, certain))
        elif isinstance(function, ast.Name) and name in self.module.functions and self.simulation.calls < MAX_CALLS:
            self.simulation.calls += 1
            try:
                self.run(self.module.functions[name].body, False)
            finally:
                self.simulation.calls -= 1
