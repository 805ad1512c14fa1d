"""The statements of a module, followed as they would run when it is imported.

Each runs for certain or perhaps: below a condition that only running tells, in a loop that may be empty. A failure of a statement
that may not run is noted as possible, and the rest is followed.
"""

from __future__ import annotations

import ast
from functools import partial

from gpuready.system.imports.defined_code import (
    COMPREHENSIONS,
    MAX_ROUNDS,
    describe_raised_error,
    find_asked_name,
    follow_class_hooks,
    follow_comprehension,
    follow_decorators,
    list_comprehensions,
    list_dotted_parts,
    walk_executed,
)
from gpuready.system.imports.module_calls import CallFollower
from gpuready.system.imports.module_records import ImportFailure, Module
from gpuready.system.imports.partial_modules import lacks_name_yet
from gpuready.system.imports.scope_values import UNKNOWN
from gpuready.system.imports.source_names import catches, suppresses

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from gpuready.system.imports.scope_values import ScopeValues
    from gpuready.system.imports.simulation import Simulation


class Body:
    """Follows the statements of one module, or of one of its functions. ``run`` tells whether what comes next runs, too."""

    def __init__(self, simulation: Simulation, module: Module, values: ScopeValues):
        self.simulation, self.module, self.values = simulation, module, values
        self.finder = simulation.finder
        self.handled: ImportFailure | None = None
        self.calls = CallFollower(self)

    def run(self, statements: Iterable[ast.stmt], certain: bool) -> bool | None:
        """Follow statements. False: they end what they are in (``return``, ``continue``); None: they may."""
        whole: bool | None = True
        for statement in statements:
            goes_on = self._run_statement(statement, certain)
            if goes_on is False:
                return False
            if goes_on is None:
                certain, whole = False, None
        return whole

    def _run_statement(self, node: ast.stmt, certain: bool) -> bool | None:
        if self.module.running is not None and self.values is self.module.values:
            self.module.running.line = node.lineno
        runner = RUNNERS.get(type(node).__name__)
        if runner is not None:
            return runner(self, node, certain)
        for expression in ast.iter_child_nodes(node):
            self.run_expression(expression, certain)
        return not isinstance(node, (ast.Return, ast.Break, ast.Continue))

    # -- failures

    def guard(self, certain: bool, step: Callable[[], object]) -> None:
        """Run an import; a failure of one that is not certain is noted."""
        try:
            step()
        except ImportFailure as failure:
            self.fail(certain, failure)

    def fail(self, certain: bool, failure: ImportFailure) -> None:
        if certain and failure.cause:
            raise failure
        self.simulation.note_possible(failure)

    # -- imports

    def _run_import(self, node: ast.Import, certain: bool) -> bool:
        for alias in node.names:
            self.guard(certain, partial(self.simulation.import_name, alias.name, certain))
            top = alias.name.partition(".")[0]
            self.module.bound[alias.asname or top] = alias.name if alias.asname else top
        return True

    def _run_import_from(self, node: ast.ImportFrom, certain: bool) -> bool:
        name = self._absolute_name(node)
        if name is not None:
            names = [(alias.name, alias.asname or alias.name) for alias in node.names]
            self.guard(certain, lambda: self.import_names(name, names, certain))
            self.bind_names(name, names)
        return True

    def import_names(self, name: str, names: list[tuple[str, str]], certain: bool) -> None:
        """Import a module and take names of it."""
        module = self.simulation.import_name(name, certain)
        for one, _ in names:
            if self._asks_too_early(module, one):
                place = f"partially initialized module {module.name!r} (most likely due to a circular import)"
                raise ImportFailure("ImportError", f"cannot import name {one!r} from {place}", self.module.file)
            if one == "*":
                self._import_all(module)
            elif one not in module.names:
                self._import_attribute(module, one, certain)

    def _asks_too_early(self, module: Module, name: str) -> bool:
        """Whether a name is taken of a module before that binds it, in a circle of imports that a file which differs makes."""
        if module.running is None or name == "*" or not self.simulation.odd_running:
            return False
        return lacks_name_yet(module, name) and self.finder.find(f"{module.name}.{name}", module.folders) is None

    def bind_names(self, name: str, names: list[tuple[str, str]]) -> None:
        for one, local in names:
            full = f"{name}.{one}"
            self.values.expressions.pop(local, None)
            if isinstance(self.simulation.modules.get(full), Module):
                self.module.bound[local] = full
            else:
                self.module.taken[local] = (name, one)

    def _import_all(self, module: Module) -> None:
        """``from x import *``: each name of a literal ``__all__`` must be there."""
        self.module.stars.append(module.name)
        for name in module.listed if not module.dynamic else ():
            full = f"{module.name}.{name}"
            if self.simulation.has_name(module, name) is False and self.finder.find(full, module.folders) is None:
                raise ImportFailure("AttributeError", f"module {module.name!r} has no attribute {name!r}", module.file)

    def _import_attribute(self, module: Module, name: str, certain: bool) -> None:
        """Import a submodule, or take an attribute: only a module that differs may lack one."""
        full = f"{module.name}.{name}"
        attributes = self.simulation.list_lazy_attributes(module)
        if name in attributes:
            self.simulation.import_name(f"{module.name}.{attributes[name]}", certain)
        elif full in self.simulation.modules or self.finder.find(full, module.folders) is not None:
            self.simulation.import_part(full, module, certain)
        elif self.finder.is_damaged_module(full, module.folders):
            self.simulation.load(full, module, certain)
        elif self._lacks_attribute(module, name, certain) if module.dynamic else self._lacks_name(module, name):
            text = f"cannot import name {name!r} from {module.name!r} ({module.file or 'unknown location'})"
            raise ImportFailure("ImportError", text, module.file or module.name)

    def _lacks_name(self, module: Module, name: str) -> bool:
        return self.simulation.has_name(module, name) is False

    def _absolute_name(self, node: ast.ImportFrom) -> str | None:
        if not node.level:
            return node.module
        parts = self.module.package.split(".")
        kept = parts[: len(parts) - node.level + 1]
        return ".".join([*kept, *([node.module] if node.module else [])]) or None

    # -- branches

    def _run_if(self, node: ast.If, certain: bool) -> bool | None:
        self.run_expression(node.test, certain)
        answer = self.values.find_truth(node.test)
        if answer is not None:
            return self.run(node.body if answer else node.orelse, certain)
        return _merge([self.run(node.body, False), self.run(node.orelse, False)])

    def _run_match(self, node: ast.Match, certain: bool) -> bool | None:
        self.run_expression(node.subject, certain)
        subject = self.values.evaluate(node.subject)
        ends: list[bool | None] = []
        for case in node.cases:
            answer = self._matches(case.pattern, subject) if case.guard is None else None
            if answer is False:
                continue
            ends.append(self.run(case.body, certain and answer is True and not ends))
            if answer is True:
                return _merge(ends)
        return _merge([*ends, True])

    def _matches(self, pattern: ast.pattern, subject: object) -> bool | None:
        if isinstance(pattern, ast.MatchAs) and pattern.pattern is None:
            return True
        if isinstance(pattern, ast.MatchOr):
            answers = [self._matches(one, subject) for one in pattern.patterns]
            return True if True in answers else None if None in answers else False
        value = self.values.evaluate(pattern.value) if isinstance(pattern, ast.MatchValue) else UNKNOWN
        return None if value is UNKNOWN or subject is UNKNOWN else value == subject

    def _run_try(self, node: ast.Try, certain: bool) -> bool | None:
        if self._asks_for_unbound_name(node):
            return self.run(node.handlers[0].body, certain)
        self.simulation.guards.append(lambda failure: self._is_handled(node, failure))
        try:
            ends = self._run_guarded(node, certain)
        finally:
            self.simulation.guards.pop()
        if isinstance(ends, ImportFailure):
            ends = self._run_handler(node, ends, certain)
        elif ends is not False:
            ends = _merge([ends, self.run(node.orelse, certain)])
        last = self.run(node.finalbody, certain)
        return False if last is False else ends

    def _asks_for_unbound_name(self, node: ast.Try) -> bool:
        """``try: __NUMPY_SETUP__`` with ``except NameError``, where nothing binds that name."""
        asked = find_asked_name(node)
        known = (self.module.bound, self.module.taken, self.values.expressions, self.values.values)
        return bool(asked) and not self.module.stars and not any(asked in names for names in known)

    def _run_guarded(self, node: ast.Try, certain: bool) -> bool | ImportFailure | None:
        try:
            return self.run(node.body, certain)
        except ImportFailure as failure:
            return failure

    def _run_handler(self, node: ast.Try, failure: ImportFailure, certain: bool) -> bool | None:
        handler, answer = self._find_handler(node, failure)
        if handler is None:
            self.run(node.finalbody, certain)
            raise failure
        if answer is None:
            self.simulation.note_possible(
                failure, f"{ast.unparse(handler.type) if handler.type else ''} may not catch it"
            )
        before, self.handled = self.handled, failure
        try:
            return self.run(handler.body, certain)
        finally:
            self.handled = before

    def _find_handler(self, node: ast.Try, failure: ImportFailure) -> tuple[ast.ExceptHandler | None, bool | None]:
        for one in node.handlers:
            answer = catches(one.type, failure.kind, self.values.find_expression)
            if answer is not False:
                return one, answer
        return None, False

    def _is_handled(self, node: ast.Try, failure: ImportFailure) -> bool:
        handler, _ = self._find_handler(node, failure)
        return handler is not None and not any(isinstance(one, ast.Raise) for one in handler.body)

    def _run_with(self, node: ast.With, certain: bool) -> bool | None:
        for item in node.items:
            self.run_expression(item.context_expr, certain)

        def is_caught(failure: ImportFailure) -> bool:
            return any(suppresses(item.context_expr, failure.kind) for item in node.items)

        self.simulation.guards.append(is_caught)
        try:
            return self.run(node.body, certain)
        except ImportFailure as failure:
            if not is_caught(failure):
                raise
            return True
        finally:
            self.simulation.guards.pop()

    def _run_for(self, node: ast.For, certain: bool) -> bool | None:
        self.run_expression(node.iter, certain)
        values = self.values.evaluate(node.iter)
        rounds = list(values)[:MAX_ROUNDS] if isinstance(values, (tuple, list, dict, str)) else None
        for value in rounds or ():
            self.bind_target(node.target, value)
            self.run(node.body, certain)
        if rounds is None:
            self.bind_target(node.target, UNKNOWN)
            self.run(node.body, False)
        self.run(node.orelse, False)
        return None if any(isinstance(inner, ast.Return) for inner in ast.walk(node)) else True

    def bind_target(self, target: ast.expr, value: object) -> None:
        names = target.elts if isinstance(target, ast.Tuple) else [target]
        fits = isinstance(target, ast.Tuple) and isinstance(value, tuple) and len(value) == len(names)
        parts = list(value) if fits else [UNKNOWN if isinstance(target, ast.Tuple) else value] * len(names)  # type: ignore[call-overload]
        for name, part in zip(names, parts, strict=True):
            if isinstance(name, ast.Name):
                self.values.bind_value(name.id, part)

    def _run_while(self, node: ast.While, certain: bool) -> bool | None:
        answer = self.values.find_truth(node.test)
        if answer is not False:
            self.run(node.body, certain and answer is True)
        return None if any(isinstance(inner, ast.Return) for inner in ast.walk(node)) else True

    def _run_raise(self, node: ast.Raise, certain: bool) -> bool | None:
        """An error that is raised for certain; one below an unknown condition is not expected."""
        if not certain:
            return True
        if self.handled is not None:
            raise self.handled
        kind, text = describe_raised_error(node.exc)
        raise ImportFailure(kind, text, self.module.file)

    # -- definitions and expressions

    def _run_class(self, node: ast.ClassDef, certain: bool) -> bool:
        for expression in (*node.bases, *(keyword.value for keyword in node.keywords)):
            self.run_expression(expression, certain)
        outer, self.values = self.values, self.values.open_scope()
        self.run(node.body, certain)
        self.values = outer
        follow_class_hooks(self, node, certain)
        follow_decorators(self, node.decorator_list, certain)
        return True

    def _run_definition(self, node: ast.FunctionDef, certain: bool) -> bool:
        defaults = [one for one in (*node.args.defaults, *node.args.kw_defaults) if one is not None]
        for expression in defaults:
            self.run_expression(expression, certain)
        follow_decorators(self, node.decorator_list, certain)
        return True

    def _run_assign(self, node: ast.Assign | ast.AnnAssign | ast.AugAssign, certain: bool) -> bool:
        if node.value is not None:
            self.run_expression(node.value, certain)
        is_plain = certain and not isinstance(node, ast.AugAssign)
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            if isinstance(target, ast.Name):
                self.values.bind(target.id, node.value if is_plain else None)
            elif not isinstance(target, ast.Attribute):
                self.bind_target(target, UNKNOWN)
        return True

    def run_expression(self, node: ast.AST, certain: bool) -> None:
        """Follow the calls of an expression, and the attributes that it takes of modules that differ."""
        checks = bool(self.simulation.closed) or self.module.file in self.finder.changed
        if not self.module.has_calls and not checks and not isinstance(node, (ast.Call, *COMPREHENSIONS)):
            return
        for inner in walk_executed(node, self.values):
            for made in list_comprehensions(inner):
                follow_comprehension(self, made, certain)
            if isinstance(inner, ast.Call):
                self.calls.follow(inner, certain)
            elif checks and isinstance(inner, (ast.Attribute, ast.Name)):
                self._check_reference(inner, certain)

    def _check_reference(self, node: ast.AST, certain: bool) -> None:
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            self._check_attribute(node, certain)
            return
        is_name = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and self.values.parent is None
        name = node.id if isinstance(node, ast.Name) and is_name and self.module.stars else ""
        if name and self.simulation.lacks_name(self.module, name):
            self.fail(certain, ImportFailure("NameError", f"name {name!r} is not defined", self.module.file))

    def _check_attribute(self, node: ast.Attribute, certain: bool) -> None:
        """``yaml.nodes.Node`` where yaml or yaml.nodes differs from what was installed, and has no such name."""
        base, *parts = list_dotted_parts(node) or [""]
        name = self.module.bound.get(base, "")
        for part in parts:
            known, full = self.simulation.modules.get(name), f"{name}.{part}"
            if full in self.simulation.modules:
                name = full
                continue
            if isinstance(known, Module) and self._lacks_attribute(known, part, certain):
                text = f"module {name!r} has no attribute {part!r}"
                self.fail(certain, ImportFailure("AttributeError", text, known.file or known.name))
            return

    def _lacks_attribute(self, module: Module, name: str, certain: bool) -> bool:
        """Whether an attribute is lacking; of a module whose names are not known, where none of its files has the name at all."""
        if self.simulation.lacks_attribute(module, name):
            return True
        own = self.finder.top_of(self.module.file)
        if certain and own in self.finder.odd.users and self.finder.odd.lacks_word(module.name, name):
            return True
        is_own_part = module.file.endswith(".so") and self.finder.top_of(module.file) == own
        is_asked = certain and is_own_part and self.module.file in self.finder.changed
        return is_asked and self.finder.odd.lacks_compiled_word(module.file, name)


RUNNERS: dict[str, Callable[[Body, Any, bool], bool | None]] = {
    "Import": Body._run_import,
    "ImportFrom": Body._run_import_from,
    "If": Body._run_if,
    "Match": Body._run_match,
    "Try": Body._run_try,
    "TryStar": Body._run_try,
    "With": Body._run_with,
    "For": Body._run_for,
    "While": Body._run_while,
    "Raise": Body._run_raise,
    "ClassDef": Body._run_class,
    "FunctionDef": Body._run_definition,
    "AsyncFunctionDef": Body._run_definition,
    "Assign": Body._run_assign,
    "AnnAssign": Body._run_assign,
    "AugAssign": Body._run_assign,
}


def _merge(ends: list[bool | None]) -> bool | None:
    """What several branches together do, of which one runs."""
    return ends[0] if ends and all(end is ends[0] for end in ends) else None
