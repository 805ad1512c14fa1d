"""Which file an import takes: the folders of sys.path in order, as the import system searches them."""

from __future__ import annotations

import re
import sys

from gpuready.system.imports.distributions import split_metadata_name
from gpuready.system.imports.extension_names import extension_kind
from gpuready.system.imports.odd_versions import OddVersions
from gpuready.system.imports.requirements import parse_requirement
from gpuready.system.imports.usual_modules import list_usual_modules
from gpuready.system.imports.watched_files import open_regular

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuready.system.imports.damage import Survey

STARTED_WITH = frozenset(
    [
        "abc",
        "builtins",
        "codecs",
        "encodings",
        "genericpath",
        "importlib",
        "io",
        "marshal",
        "os",
        "posix",
        "posixpath",
        "runpy",
        "site",
        "stat",
        "sys",
        "time",
        "zipimport",
        "__main__",
        "_collections_abc",
        "_sitebuiltins",
    ]
)
"""Modules that Python has imported, or has frozen, before the current folder counts."""

STARTUP_FILES = {"torch": ("lib/libtorch_global_deps.so", "bin/torch_shm_manager")}
"""Files that a package opens by their path when it is imported; no import statement names them."""
CHANGES_PATH = re.compile(r"sys\.path(?:\.(?:insert|append|extend)\b|\[[\w: ]{0,20}\] ?=| ?\+=)|\baddsitedir\b")
MADE_MODULE = re.compile(r"sys\.modules\[[\"'](\w{1,80})[\"']\] ?=")
QUOTED_NAME = re.compile(r"[\"']([\w./-]{1,80})[\"']")
MAX_SCANNED_BYTES = 64 << 20
LOAD_KINDS = ("library", "numpy")
"""Kinds of rows of extension modules that cannot be loaded."""


ALSO_IMPORTED = {"torch": {"numpy"}}
"""What a distribution imports if it is there, and does not require."""


def list_unaffected_modules(survey: Survey) -> frozenset[str]:
    """Return the top-level modules of distributions that are whole, as is all that they require: they import as ever."""
    if any(row["distribution"] == "python" for row in survey.hidden):
        return frozenset()
    rows = [row for row in (*survey.rows, *survey.hidden) if row not in survey.on_demand]
    affected = {str(row[key]) for row in rows for key in ("distribution", "by") if row.get(key)}
    affected |= {name for name in survey.request["roots"] if name != "torch"}
    needs = {name: _list_wanted_names(survey, name) for name in survey.looked_at}
    while more := {name for name, wanted in needs.items() if not affected.isdisjoint(wanted)} - affected:
        affected |= more
    tops = {name: survey.copies[name][0].list_top_modules() for name in survey.looked_at}
    kept = {top for name in affected & tops.keys() for top in tops[name]}
    return frozenset(top for name in tops.keys() - affected for top in tops[name]) - kept


def _list_wanted_names(survey: Survey, name: str) -> set[str]:
    """What a distribution may import: all that it requires, with every extra."""
    wanted = {parse_requirement(text)[0] for text in survey.copies[name][0].list_requirements()}
    return wanted | ALSO_IMPORTED.get(name, set())


def _is_metadata(entry: str) -> bool:
    return entry.endswith((".dist-info", ".egg-info"))


class FoundModule:
    """Where a module is. ``fault`` says why importing it raises ``error``; only a ``source`` can be followed."""

    def __init__(self, path: str, folders: Sequence[str] = (), source: bool = False, fault: str = "", error: str = ""):
        self.path, self.folders, self.source = path, folders, source
        self.fault, self.error = fault, error or "ImportError"


class ModuleFinder:
    """Finds modules in the environment of a survey, and knows which of its files differ."""

    def __init__(self, survey: Survey):
        self.survey, self.path, self.minor, self.tag = survey, survey.path, survey.minor, survey.tag
        rows = survey.rows
        self.missing = {row["path"] for row in rows if row["kind"] == "missing"}
        self.changed = {row["path"] for row in rows if row["kind"] in ("resized", "changed", "short", "unreadable")}
        self.short = {row["path"]: row["detail"] for row in rows if row["kind"] == "short"}
        self.other = {row["path"] for row in rows if row["kind"] == "python"}
        self.absent = {row["distribution"] for row in rows if row["kind"] in ("absent", "source")}
        self.absent_tops = {module for name in self.absent for module in list_usual_modules(name)}
        self.odd = OddVersions(survey)
        self.hidden = {row["path"] for row in survey.hidden}
        self.added: list[str] = []
        self.made: set[str] = set()
        self.stdlib = survey.request.get("stdlib") or ""
        here = survey.request.get("cwd") or ""
        self.before = [folder for folder in (here, *(survey.request.get("first") or ())) if folder]
        self.names_here = {
            split_metadata_name(entry)[0] for entry in self.path.list_folder(here) if _is_metadata(entry)
        }
        sources = [survey.copies[name][0].find_editable_source() for name in survey.looked_at]
        self.editable = tuple(f"{source}/" for source in sources if source)
        self.unaffected = list_unaffected_modules(survey)
        self.follows_stdlib = any(row["distribution"] == "python" for row in survey.hidden)

    def find(self, name: str, folders: Sequence[str] | None) -> FoundModule | None:
        """Return where a module is; ``folders`` are those of its package, None for a top-level module."""
        tail = name.rpartition(".")[2]
        if folders is not None:
            found = self._find_in(folders, tail)
            is_stand_in = found is not None and not found.path and self.is_damaged_module(name, folders)
            return None if is_stand_in else found  # a plain folder takes the place of a module that is gone
        if tail in STARTED_WITH or tail in sys.builtin_module_names or tail in self.made:
            return FoundModule("")
        if tail not in self.survey.stdlib_names:
            return self._find_top(tail)
        shadow = self._find_in(self.before, tail) if self.follows_stdlib else None
        if shadow and not shadow.path:
            shadow = None
        return shadow or (self.follows_stdlib and self._find_in([self.stdlib], tail)) or FoundModule("")

    def _find_top(self, name: str) -> FoundModule | None:
        source = self.path.modules.get(name)
        before = self._find_in(self.before, name)
        if before and before.path:
            return before
        found = self._find_in(self.path.folders, name)
        if source and (found is None or not found.path):
            folder, _, file = source.removesuffix("/__init__.py").removesuffix(".py").rpartition("/")
            return self._find_in([folder], file)
        return (
            found
            or self._find_in(self.added, name)
            or (FoundModule("") if self.survey.is_editable_name(name) else None)
        )

    def add_folders(self, path: str, text: str) -> None:
        """Search the folders too that a module adds to sys.path: its own, and those beside it or in its package that it names."""
        if "sys.modules[" in text:
            self.made.update(MADE_MODULE.findall(text))
        if ("sys.path" not in text and "addsitedir" not in text) or not CHANGES_PATH.search(text):
            return
        parts = path[len(self._site_of(path)) + 1 :].split("/")
        homes = dict.fromkeys([path.rpartition("/")[0], f"{self._site_of(path)}/{parts[0]}"])
        self.added += homes
        for name in dict.fromkeys(QUOTED_NAME.findall(text)):
            self.added += [f"{home}/{name}" for home in homes if name.partition("/")[0] in self.path.list_folder(home)]

    def _find_in(self, folders: Sequence[str], name: str) -> FoundModule | None:
        portions = []
        for folder in folders:
            names = self.path.list_folder(folder)
            if name in names and self.path.is_folder(f"{folder}/{name}"):
                found = self._find_package(f"{folder}/{name}", self.path.list_folder(f"{folder}/{name}"))
                if found:
                    return found
                portions.append(f"{folder}/{name}")
            found = self._find_file(folder, names, name)
            if found:
                return found
        return FoundModule("", portions) if portions else None

    def _find_package(self, folder: str, inside: frozenset[str]) -> FoundModule | None:
        start = f"{folder}/__init__.py"
        if start in self.missing:
            return FoundModule(
                start, [folder], fault=f"{start} is missing, so the package is empty", error="AttributeError"
            )
        if "__init__.py" in inside:
            return self._find_start_fault(folder) or FoundModule(start, [folder], source=True)
        compiled = self._find_file(folder, inside, "__init__")
        return FoundModule(compiled.path, [folder], fault=compiled.fault) if compiled else None

    def _find_start_fault(self, folder: str) -> FoundModule | None:
        """Return the fault of a file that a package opens by its path when it is imported."""
        for name in STARTUP_FILES.get(folder.rpartition("/")[2], ()):
            path = f"{folder}/{name}"
            if path in self.missing or (fault := self._library_fault(path)):
                return FoundModule(
                    path, [folder], fault=fault if path not in self.missing else f"{path} is missing", error="OSError"
                )
        return None

    def _find_file(self, folder: str, names: frozenset[str], name: str) -> FoundModule | None:
        prefix = f"{name}."
        if f"{folder}/{name}.py" in self.missing:  # a link that leads nowhere has a name too
            names = names - {f"{name}.py"}
        files = [file for file in names if file.startswith(prefix)] if f"{name}.py" not in names else [f"{name}.py"]
        for file in sorted(files, key=lambda file: not file.endswith(".so")):
            if extension_kind(file, self.tag) == "own":
                path = f"{folder}/{file}"
                return FoundModule(path, fault=self._library_fault(path))
        if f"{name}.py" in names:
            beside = [f for f in names if f.startswith(prefix) and extension_kind(f, self.tag) == "own"]
            if beside:
                return FoundModule(f"{folder}/{beside[0]}", fault=self._library_fault(f"{folder}/{beside[0]}"))
            return FoundModule(f"{folder}/{name}.py", (), source=True)
        return FoundModule(f"{folder}/{name}.pyc") if f"{name}.pyc" in names else None

    def _library_fault(self, path: str) -> str:
        row = next((row for row in self.survey.rows if row["path"] == path and row["kind"] in LOAD_KINDS), None)
        return f"{path}: {row['detail']}" if row else ""

    # -- what is installed

    def is_installed(self, name: str) -> bool | None:
        """Whether a top-level module is there; None where code that was not run may provide it."""
        found = self.find(name, None)
        return True if found is not None else None if self.path.unread_hooks else False

    def is_leftover(self, name: str, folders: Sequence[str]) -> bool:
        """Whether folders without ``__init__`` are below a site folder, and belong to no installed distribution."""
        if "." in name or not all(folder.rpartition("/")[0] in self.path.folders for folder in folders):
            return False
        return not any(name in copies[0].list_top_modules() for copies in self.survey.copies.values())

    def is_required(self, name: str) -> bool:
        return name in self.absent_tops

    def has_metadata(self, name: str) -> bool:
        """Whether a distribution can be found by its name, as importlib.metadata does."""
        return bool(self.path.unread_hooks) or name in self.survey.copies or name in self.names_here

    def find_version(self, name: str) -> str:
        """The installed version; empty where there is none, ``unknown`` where it cannot be read."""
        copies = self.survey.copies.get(name)
        if copies:
            return copies[0].get_version() or "unknown"
        return "unknown" if self.has_metadata(name) else ""

    # -- what differs

    def is_unrecorded(self, path: str) -> bool:
        """Whether a source is of an editable install: no RECORD tells how it was."""
        return path.startswith(self.editable) if self.editable else False

    def may_fail(self, cause: str) -> bool:
        """Whether damage, or a requirement that is not met, speaks for a failure of a statement that may not run."""
        return bool(cause) and (self.is_suspect(cause) or cause.partition(".")[0] in self.absent_tops | self.absent)

    def is_as_installed(self, path: str) -> bool:
        """Whether a source is the recorded one; its package may be of a version that others do not accept."""
        return not (path in self.changed or path in self.hidden or path in self.other or self.is_unrecorded(path))

    def is_suspect(self, cause: str) -> bool:
        """Whether a file or a name is one that differs from what was installed."""
        if cause in self.changed or cause in self.missing or cause in self.hidden or cause in self.other:
            return True
        if any(row["path"] == cause for row in self.survey.rows if row["kind"] in LOAD_KINDS):
            return True
        top = self.top_of(cause)
        return top in self.odd.tops

    def _site_of(self, path: str) -> str:
        return next((folder for folder in self.path.folders if path.startswith(f"{folder}/")), "")

    def top_of(self, path: str) -> str:
        site = self._site_of(path)
        return path[len(site) + 1 :].partition("/")[0].removesuffix(".py") if site else ""

    def is_damaged_module(self, name: str, folders: Sequence[str]) -> bool:
        """Whether a file that would be this submodule is recorded and missing, or is for another Python."""
        tail = name.rpartition(".")[2]
        starts = [f"{folder}/{tail}" for folder in folders]
        return any(
            path.startswith((f"{start}.", f"{start}/__init__."))
            for start in starts
            for path in (*self.missing, *self.other)
        )

    def list_damaged_names_in(self, path: str) -> list[str]:
        """Return the damaged modules that a compiled module names, and so may import."""
        names = [name for name in map(self._dotted_name, sorted((*self.missing, *self.changed, *self.other))) if name]
        if not names or not path.endswith(".so"):
            return []
        try:
            with open(path, "rb", opener=open_regular) as file:
                data = file.read(MAX_SCANNED_BYTES)
        except OSError:
            return []
        short = {self._dotted_name(one) for one in self.short if self.top_of(one) == self.top_of(path)}
        tails = {
            name: b"\0" + name.rpartition(".")[2].encode() + b"\0" for name in short
        }  # ``yaml.nodes.Node`` in Cython
        return [name for name in names if name.encode() in data or (name in tails and tails[name] in data)]

    def _dotted_name(self, path: str) -> str:
        """``/site/numpy/dtypes.py`` -> ``numpy.dtypes``; empty for a module at the top."""
        folder = self._site_of(path)
        head, slash, file = path[len(folder) + 1 :].rpartition("/")
        stem = file.partition(".")[0]
        return f"{head.replace('/', '.')}{'' if stem == '__init__' else f'.{stem}'}" if folder and slash else ""

    def explain_absence(self, name: str, folders: Sequence[str] | None, certain: bool) -> str:
        """Return the path or name at fault for a module that is not found; empty where nothing speaks for damage."""
        tail = name.rpartition(".")[2]
        if folders is None:
            return name if certain or name in self.absent_tops else ""
        for path in sorted((*self.missing, *self.other)):
            if any(path.startswith((f"{folder}/{tail}.", f"{folder}/{tail}/")) for folder in folders):
                return str(path)
        top = name.partition(".")[0]
        hidden = next((row["path"] for row in self.survey.hidden if row["module"] == top), "")
        return hidden or (name if top in self.odd.tops and certain else "")
