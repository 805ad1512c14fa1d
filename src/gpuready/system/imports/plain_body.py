"""A module followed by the text of its import statements, as long as none of them fails.

Most modules of an environment are as they were installed and import what is there: those need no syntax tree. Where anything
fails, or a module asks for something that is not installed, it is followed by its statements instead.
"""

from __future__ import annotations

import re

from gpuready.system.imports.import_statements import StatementPlaces, list_statements
from gpuready.system.imports.module_body import Body
from gpuready.system.imports.module_finder import LOAD_KINDS
from gpuready.system.imports.requirements import canonical_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.system.imports.import_statements import ImportStatement
    from gpuready.system.imports.module_finder import ModuleFinder
    from gpuready.system.imports.module_records import ImportFailure, Module
    from gpuready.system.imports.scope_values import ScopeValues
    from gpuready.system.imports.simulation import Simulation

ASKED_VERSION = re.compile(r"(?:version|distribution|metadata|requires|files)\([ \t\n]*[\"']([\w.-]+)[\"']")
LOOKED_UP = re.compile(r"find_spec\([\"'](\w+)[\"']\)")
REQUIRES = ("require_version", "version_check")


class PlainSources:
    """Tells which sources can be followed by their text."""

    def __init__(self, finder: ModuleFinder):
        rows = finder.survey.rows
        started = [str(row["detail"]).partition(" imports ")[2].partition(":")[0] for row in rows]
        words = {*finder.absent_tops, *(name.partition(".")[0] for name in started if name)}
        self.finder = finder
        self.watched = re.compile(rf"\b(?:{'|'.join(map(re.escape, sorted(words)))})\b") if words else None
        self.harm = {name for path in (*finder.missing, *finder.changed, *finder.other) if (name := _module_word(path))}
        self.faulty = {_module_word(row["path"]) for row in rows if row["kind"] in LOAD_KINDS}
        self._harm_pattern: re.Pattern[str] | None = None

    def add_harm(self, name: str) -> None:
        """Note a module whose names must be asked for: it differs, or its functions import what differs."""
        self.harm.add(name.rpartition(".")[2])
        self._harm_pattern = None

    def is_plain(self, path: str, text: str) -> bool:
        is_asked = self.finder.is_suspect(path) or self.finder.is_unrecorded(path)
        is_user = self.finder.top_of(path) in self.finder.odd.users  # of a package whose version it does not accept
        if is_asked or is_user or self.mentions_harm(text) or self._asks_in_vain(text):
            return False
        return not (self.faulty and "import_module" in text and self._names_faulty(text))

    def _names_faulty(self, text: str) -> bool:
        """Whether a source has the name of a module that cannot be loaded as a text: ``import_module("cv2")``."""
        return any(f'"{name}"' in text or f"'{name}'" in text for name in self.faulty)

    def mentions_harm(self, text: str) -> bool:
        """Whether a source has the name of a module that differs."""
        if self._harm_pattern is None and self.harm:
            self._harm_pattern = re.compile(rf"\b(?:{'|'.join(map(re.escape, sorted(self.harm)))})\b")
        return self._harm_pattern is not None and self._harm_pattern.search(text) is not None

    def _asks_in_vain(self, text: str) -> bool:
        """Whether a source asks for the version of something that is not installed, or whether it is there."""
        if any(sign in text for sign in REQUIRES):
            return True
        if "importlib.metadata" in text or "import metadata" in text or "lib_metadata" in text or "pkg_res" in text:
            asked = map(canonical_name, ASKED_VERSION.findall(text))
            if not all(map(self.finder.has_metadata, asked)):
                return True
        if "find_spec" in text and "raise" in text and not all(map(self.finder.is_installed, LOOKED_UP.findall(text))):
            return True
        asks = self.watched is not None and ("find_spec" in text or "_available" in text)
        return asks and self.watched is not None and bool(self.watched.search(text))


def _module_word(path: str) -> str:
    """The word that imports a file: ``nodes`` of yaml/nodes.py, ``yaml`` of yaml/__init__.py."""
    head, _, file = path.rpartition("/")
    stem = file.partition(".")[0]
    return head.rpartition("/")[2] if stem == "__init__" else stem


class PlainBody(Body):
    """Follows one module by its text. Any failure is raised: the caller follows the module again, by its statements."""

    def __init__(self, simulation: Simulation, module: Module, values: ScopeValues, text: str):
        super().__init__(simulation, module, values)
        self.text, self.places = text, StatementPlaces(text)

    def run_text(self) -> None:
        for statement in list_statements(self.text, self.module.package):
            if self.module.running is not None:
                self.module.running.at = statement.at
            if not statement.column:
                self._import(statement, True)
            elif self.places.is_in_function(statement.at):
                continue
            elif not self.places.never_runs(statement.at):
                self._import_guarded(statement)

    def _import_guarded(self, statement: ImportStatement) -> None:
        def is_caught(failure: ImportFailure) -> bool:
            return self.places.is_caught(statement.at, failure.kind)

        self.simulation.guards.append(is_caught)
        try:
            self._import(statement, False)
        finally:
            self.simulation.guards.pop()

    def _import(self, statement: ImportStatement, certain: bool) -> None:
        if statement.names:
            self.import_names(statement.module, statement.names, certain)
            self.bind_names(statement.module, statement.names)
            return
        self.simulation.import_name(statement.module, certain)
        top = statement.module.partition(".")[0]
        self.module.bound[statement.alias or top] = statement.module if statement.alias else top

    def note_harm(self) -> None:
        """Who calls a function that imports what differs must be followed by its statements."""
        for statement in list_statements(self.text, self.module.package):
            names = [statement.module, *(f"{statement.module}.{name}" for name, _ in statement.names)]
            if statement.column and any(map(self.simulation.is_damaged, names)):
                self.simulation.plain.add_harm(self.module.name)
