"""Would ``import torch`` fail? The import statements of modules followed on paper, where files of an environment differ.

Sources are parsed, never run. Statements at the level of a module count, with their ``try``, and with the conditions that can
be known (TYPE_CHECKING, the system, the version of Python, what is installed). Damage that other conditions guard is a gap.
"""

from __future__ import annotations

import ast
import builtins
import sys

from gpuready.system.imports.module_body import Body
from gpuready.system.imports.module_finder import ModuleFinder
from gpuready.system.imports.module_records import MAX_DOUBTS, ImportFailure, Module
from gpuready.system.imports.partial_modules import RunningModule
from gpuready.system.imports.plain_body import PlainBody, PlainSources
from gpuready.system.imports.scope_values import ScopeValues
from gpuready.system.imports.source_names import collect_names, find_lazy_attributes, is_dynamic, list_exported_names
from gpuready.system.imports.source_parts import LAZY_SIGNS, parse_short, read_function, read_function_text, read_text
from gpuready.system.imports.watched_files import open_regular

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpuready.system.imports.module_finder import FoundModule

MAX_MODULES = 6000


class Simulation:
    """Follows imports as the interpreter would, each module once.

    ``closed`` are modules whose names are known and that differ from what was installed; ``guards`` tell whether what surrounds
    the statement that runs catches a failure; ``odd_running`` counts the files that differ and are being imported; ``possible`` are failures of statements that may not run.
    """

    def __init__(self, finder: ModuleFinder):
        self.finder, self.plain = finder, PlainSources(finder)
        self.modules: dict[str, Module | ImportFailure] = {}
        self.modules_followed = 0
        self.depth = self.odd_running = 0
        self.called: set[tuple[str, str, str]] = set()
        self.closed: set[str] = set(finder.odd.tops)
        self.guards: list[Callable[[ImportFailure], bool]] = []
        self.possible: list[tuple[ImportFailure, str]] = []
        self.doubts: list[tuple[ImportFailure, str]] = []
        self._own_names: dict[str, set[str] | None] = {}
        self._definitions: dict[tuple[str, str], str] = {}

    def note_possible(self, failure: ImportFailure, why: str = "") -> None:
        """Keep a failure that may happen, unless something catches it or nothing speaks for it; ``doubts`` has all of them."""
        self.doubts.append((failure, why))
        if self.finder.may_fail(failure.cause) and not any(is_caught(failure) for is_caught in self.guards):
            self.possible.append((failure, why))

    def import_name(self, name: str, certain: bool) -> Module:
        """Import ``a.b.c`` with its parents; ImportFailure where that fails."""
        parent: Module | None = None
        parts = name.split(".")
        for end in range(1, len(parts) + 1):
            parent = self.import_part(".".join(parts[:end]), parent, certain)
        assert parent is not None
        return parent

    def import_part(self, name: str, parent: Module | None, certain: bool) -> Module:
        """Import one module whose package is imported."""
        known = self.modules.get(name)
        if isinstance(known, ImportFailure) and known.folders_added == len(self.finder.added):
            raise known
        if isinstance(known, Module):
            for failure, why in known.doubts:  # something else around it may have caught them before
                self.note_possible(failure, why)
            return known
        before = len(self.doubts)
        try:
            module = self.load(name, parent, certain)
            module.doubts = self.doubts[before:][:MAX_DOUBTS]
            return module
        except ImportFailure as failure:
            failure.chain.append(name)
            if failure.cause:
                failure.folders_added = len(self.finder.added)
                self.modules[name] = failure
            raise

    def load(self, name: str, parent: Module | None, certain: bool) -> Module:
        found = self.finder.find(name, parent.folders if parent else None)
        if found is None:
            if parent is not None and parent.dynamic and not self.finder.is_damaged_module(name, parent.folders):
                return self._keep(Module(name, "", ()))  # made by code, or an attribute of an extension
            cause = self.finder.explain_absence(name, parent.folders if parent else None, certain)
            if parent is not None and not cause and not parent.dynamic:
                cause = name
            raise ImportFailure("ModuleNotFoundError", f"No module named {name!r}", cause)
        if found.fault:
            raise ImportFailure(found.error, found.fault, found.path)
        if found.source:
            return self._follow(name, found.path, found.folders)
        return self._load_other(name, found)

    def _load_other(self, name: str, found: FoundModule) -> Module:
        """Keep what has no source: an extension module, byte-code, or a folder without ``__init__``, which has no names."""
        is_folder = bool(found.folders) and not found.path
        module = self._keep(Module(name, found.path, found.folders, dynamic=not is_folder))
        if is_folder and self.finder.is_leftover(name, found.folders):
            self._close(name)
        for inner in self.finder.list_damaged_names_in(found.path):
            used = self.import_name(inner, certain=False)
            if used.file in self.finder.short:  # what a compiled module takes of it cannot be seen
                text = f"{used.file} is cut off ({self.finder.short[used.file]}), and {found.path} uses it"
                raise ImportFailure("AttributeError", text, used.file)
        return module

    def _keep(self, module: Module) -> Module:
        self.modules[module.name] = module
        return module

    def _follow(self, name: str, path: str, folders: Sequence[str]) -> Module:
        is_odd = self.finder.is_suspect(path)
        if name.partition(".")[0] in self.finder.unaffected:
            return self._keep(Module(name, path, folders))
        self.odd_running += is_odd
        try:
            return self._follow_source(name, path, folders)
        finally:
            self.odd_running -= is_odd

    def _follow_source(self, name: str, path: str, folders: Sequence[str]) -> Module:
        self.modules_followed += 1
        if self.modules_followed > MAX_MODULES:
            return self._keep(Module(name, path, folders))
        text = read_text(path)
        if text is not None and self.plain.is_plain(path, text):
            self.finder.add_folders(path, text)
            if (module := self._follow_text(name, path, folders, text)) is not None:
                return module
        tree, text = self._parse(path)
        if tree is None:
            return self._keep(Module(name, path, folders))
        module = self._keep(self._describe(name, path, folders, tree, text))
        self.finder.add_folders(path, text)
        PlainBody(self, module, get_values(module), text).note_harm()
        module.running = RunningModule()
        Body(self, module, get_values(module)).run(tree.body, certain=True)
        module.running = None
        return module

    def _follow_text(self, name: str, path: str, folders: Sequence[str], text: str) -> Module | None:
        """Follow a module by its text; None where that does not do."""
        module = self._keep(self._open_values(Module(name, path, folders)))
        module.is_plain, module.running = True, RunningModule()
        try:
            PlainBody(self, module, get_values(module), text).run_text()
        except ImportFailure:
            return None
        finally:
            module.running = None
        return None if self.plain.mentions_harm(text) else module

    def _open_values(self, module: Module) -> Module:
        module.values = ScopeValues(
            self.finder,
            lambda local: self._find_values(module, local),
            lambda local, inner: self._read_definition(module, local, inner),
        )
        module.values.bind_value("__name__", module.name)
        module.values.bind_value("__package__", module.package)
        return module

    def _describe(self, name: str, path: str, folders: Sequence[str], tree: ast.Module, text: str) -> Module:
        is_suspect = self.finder.is_suspect(path)  # names are only asked of what differs, or of what nobody recorded
        is_open = not (is_suspect or self.finder.is_unrecorded(path)) or is_dynamic(text)
        module = self._open_values(Module(name, path, folders, () if is_open else collect_names(tree, name), is_open))
        module.attributes = find_lazy_attributes(tree, text)
        module.take_definitions(tree, text)
        if not is_open:
            module.listed = list_exported_names(tree)
        if is_suspect and not is_open:
            self._close(name)
        return module

    def _close(self, name: str) -> None:
        """Note a module whose names are known, and that may lack some."""
        self.closed.add(name)
        self.plain.add_harm(name)

    def list_lazy_attributes(self, module: Module) -> dict[str, str]:
        """Return the submodule of each attribute that a package imports on demand."""
        if module.attributes is None:
            text = (read_text(module.file) if module.file.endswith(".py") else "") or ""
            tree = parse_short(text) if LAZY_SIGNS.search(text) else None
            module.attributes = find_lazy_attributes(tree, text) if tree is not None else {}
        return module.attributes

    def is_damaged(self, name: str) -> bool:
        """Whether a module that was not imported yet is damaged."""
        known = self.modules.get(name)
        head = name.rpartition(".")[0]
        parent = self.modules.get(head)
        if known is not None or not isinstance(parent, Module):
            return isinstance(known, ImportFailure) and self.finder.may_fail(known.cause)
        found = self.finder.find(name, parent.folders)
        if found is None:
            return self.finder.is_damaged_module(name, parent.folders)
        return bool(found.fault) or (bool(found.path) and self.finder.is_suspect(found.path))

    def _find_values(self, module: Module, local: str) -> tuple[ScopeValues, str] | None:
        """The values of the module that a name is imported from, and its name there."""
        source, name = module.taken.get(local, ("", ""))
        found = self.modules.get(source)
        if not isinstance(found, Module) or found.values is None:
            return None
        if found.is_plain:
            self._read_values(found)
        return found.values, name

    def _read_definition(self, module: Module, local: str, inner: str) -> str:
        """The text of a function beside the one that a name of a module means, wherever that is defined; or of that one."""
        found: Module | None = module
        is_own = inner == local
        for _ in range(5):
            if found is None or local not in found.taken:
                break
            source, local = found.taken[local]
            next_module = self.modules.get(source)
            found = next_module if isinstance(next_module, Module) else None
        key = (found.file if found is not None else "", local if is_own else inner)
        if key not in self._definitions:
            self._definitions[key] = read_function_text(*key) if key[0] else ""
        return self._definitions[key]

    def _read_values(self, module: Module) -> None:
        """Bind what a module that was followed by its text assigns at its margin."""
        module.is_plain = False
        tree, _ = self._parse(module.file)
        for node in tree.body if tree is not None else ():
            if isinstance(node, ast.Assign):
                names = [target.id for target in node.targets if isinstance(target, ast.Name)]
                for name in names:
                    get_values(module).bind(name, node.value)

    def find_function(self, module: Module, name: str, hops: int = 0) -> tuple[Module, ast.FunctionDef] | None:
        """Return a function by a name of a module, and the module that defines it."""
        if name in module.taken and hops < 5:
            source, inner = module.taken[name]
            found = self.modules.get(source)
            return self.find_function(found, inner, hops + 1) if isinstance(found, Module) else None
        if module.values is None:
            return None
        if hops and name not in module.read:
            module.read.add(name)
            if (function := read_function(module.file, name)) is not None:
                module.functions[name] = function
            else:
                module.functions.pop(name, None)
        return (module, module.functions[name]) if name in module.functions else None

    # -- names

    def has_name(self, module: Module, name: str, hops: int = 0) -> bool | None:
        """Whether a module has a name; None where its source does not tell."""
        if name in module.names or name in module.bound or name in module.taken:
            return True
        if module.dynamic or hops > 9:
            return None
        answers = [self._star_has_name(star, name, hops) for star in module.stars]
        return True if True in answers else None if None in answers else False

    def _star_has_name(self, star: str, name: str, hops: int) -> bool | None:
        module = self.modules.get(star)
        if not isinstance(module, Module) or not module.file.endswith(".py"):
            return None
        if module.dynamic:
            names = self._read_names(module)
            return None if names is None else name in names
        return self.has_name(module, name, hops + 1)

    def _read_names(self, module: Module) -> set[str] | None:
        """The names of a module that is as it was installed; None where it has others than its statements show."""
        tree, text = self._parse(module.file)
        if tree is None or is_dynamic(text) or "import *" in text:
            return None
        return collect_names(tree, module.name)

    def lacks_attribute(self, module: Module, name: str) -> bool:
        """Whether a module that differs has neither an attribute nor a part of this name."""
        if module.dynamic or name.startswith("__") or self.has_name(module, name) is not False:
            return False
        return self.finder.find(f"{module.name}.{name}", module.folders) is None

    def lacks_name(self, module: Module, name: str) -> bool:
        """Whether nothing binds a name of a module that takes all names of one that differs."""
        if not any(star in self.closed for star in module.stars) or hasattr(builtins, name):
            return False
        if name in module.bound or name in module.taken or f"{module.name}.{name}" in self.modules:
            return False  # a module of its own, which an import of it binds
        if module.name not in self._own_names:
            tree, text = self._parse(module.file)
            is_known = tree is not None and not is_dynamic(text)
            self._own_names[module.name] = collect_names(tree, module.name) if tree and is_known else None
        own = self._own_names[module.name]
        if own is None or name in own:
            return False
        return all(self._star_has_name(star, name, 0) is False for star in module.stars)

    def _parses_as_well(self) -> bool:
        """Whether this Python knows all that the environment's may have in its sources."""
        major, minor = (int(part) for part in self.finder.minor.split(".")[:2])
        return sys.version_info[:2] >= (major, minor)

    def _is_short_enough(self, path: str, text: str) -> bool:
        """Whether a source can be parsed without the bodies of its functions: it is as installed, and they bind no name that is asked for."""
        is_asked = self.finder.is_suspect(path) or self.finder.is_unrecorded(path)
        return not is_asked or (self.finder.is_as_installed(path) and "global " not in text)

    def _parse(self, path: str) -> tuple[ast.Module | None, str]:
        """Parse a source. One that is whole and that this Python cannot parse is for a newer Python: taken as it is."""
        try:
            with open(path, "rb", opener=open_regular) as file:
                data = file.read()
            text = data.decode("utf-8", "replace")
            short = parse_short(text) if self._is_short_enough(path, text) else None
            return short or ast.parse(data), text
        except (SyntaxError, ValueError) as error:
            if self.finder.is_suspect(path) or (self.finder.is_unrecorded(path) and self._parses_as_well()):
                raise ImportFailure("SyntaxError", f"{path}: {error}"[:200], path) from None
        except PermissionError as error:
            raise ImportFailure("PermissionError", f"{error}", path) from None
        except (OSError, RecursionError, MemoryError):
            pass
        return None, ""


def get_values(module: Module) -> ScopeValues:
    """The values of a module whose source is followed."""
    assert module.values is not None
    return module.values
