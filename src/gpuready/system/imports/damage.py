"""What is wrong with the files of an environment: of torch, of its frameworks, and of all that these require.

One request, one answer, both plain JSON: the answer has what differs, not what was read. Nothing is judged here: whether
an import notices is found out by importing (``real_import``).
"""

from collections.abc import Iterator
from functools import cached_property
from typing import Any

from gpuready.model.facts import LIBRARY_KINDS, NO_METADATA
from gpuready.model.metadata import is_for_other_extra, marker_applies, marker_environment, parse_requirement
from gpuready.model.versions import is_satisfied
from gpuready.system.imports import distributions as listing
from gpuready.system.imports import numpy_abi
from gpuready.system.imports.distributions import Distribution
from gpuready.system.imports.hidden_modules import MAX_SECONDS, SearchedEnvironment, extension_kind
from gpuready.system.imports.libraries import LibraryFault, Loader
from gpuready.system.imports.undeclared_needs import describe_absence, list_optional_names, list_users
from gpuready.system.imports.unjudged import list_reasons
from gpuready.system.imports.watched_files import get_size, is_folder, path_exists

MAX_FILES = 36000
"""How many recorded files are compared without --deep."""
MAX_DEEP_FILES, MAX_HASHED_BYTES = 200_000, 32 << 30
"""How many are with --deep, and how much of them is hashed; the largest environments have half of that."""
MAX_ROWS = 200
RESIZED = ("resized", "short", "changed")
TORCH_LIBRARIES = ("lib/libtorch_global_deps.so", "lib/libtorch_python.so", "lib/libtorch_cuda.so")
"""What ``import torch`` loads first; what it loads serves every extension that is built against it."""


class Survey(SearchedEnvironment):
    """The look at one environment."""

    def __init__(self, request: dict[str, Any]):
        super().__init__(request)
        self.loader = Loader(
            self.path, request.get("machine") or "", request.get("library_path") or "", request.get("interpreter") or ""
        )
        self.rows: list[dict[str, Any]] = []
        self.hidden: list[dict[str, str]] = []
        self.files = self.skipped = self.extensions = 0
        self.bytes_left = MAX_HASHED_BYTES
        self.closure: dict[str, list[str]] = {}
        self.looked_at: list[str] = []
        self._reported: set[tuple[str, ...]] = set()
        self._needs: dict[tuple[str, str], list[tuple[str, tuple[str, ...]]]] = {}
        self.environment = marker_environment(
            str(request["python"]), str(request.get("machine") or ""), str(request.get("release") or "")
        )

    def run(self) -> dict[str, Any]:
        roots = [name for name in self.request["roots"] if name in self.copies]
        beside = [name for name in self.request.get("beside") or () if roots and name in self.copies]
        for root in (*roots, *beside):
            self.closure[root] = self._follow_requirements(root)
        names = list(dict.fromkeys([*self.closure, *(name for found in self.closure.values() for name in found)]))
        optional = list_optional_names(self, names)
        more = [name for one in optional for name in self._follow_requirements(one)]
        self.looked_at = list(dict.fromkeys([*names, *optional, *more]))
        self._load_torch(names)
        for name in names:
            self._look_at(name)
        for name in optional:
            self._look_at_optional(self.copies[name][0])
        self.hidden = self.shadows.find_hidden(names)
        rows = [row | {"roots": self._roots_of(row)} for row in self.rows[:MAX_ROWS]]
        return {
            "roots": roots,
            "modules": self._choose_modules(roots),
            "distributions": len(self.looked_at),
            "rows": [row if row["roots"] else row | {"users": self._users_of(row)} for row in rows],
            "hidden": self.hidden,
            "files": self.files,
            "skipped": self.skipped,
            "extensions": self.extensions,
            "unchecked": self.unchecked,
            "unjudged": list_reasons(self, names),
        }

    def _choose_modules(self, roots: list[str]) -> dict[str, list[str]]:
        """The modules of each root: one that requires others comes before them, so that its import may show that they import."""
        ordered = sorted(roots, key=lambda root: -len(self.closure[root]))
        return {root: [module, *self._list_starts(root)] for root in ordered if (module := self.choose_module(root))}

    def _list_starts(self, root: str) -> list[str]:
        """The modules that its commands start from, as far as this release has them."""
        files = {name for name, _, _ in self.copies[root][0].rows}
        starts = (self.request.get("starts") or {}).get(root, ())
        paths = {start: start.replace(".", "/") for start in starts}
        return [start for start, path in paths.items() if {f"{path}.py", f"{path}/__init__.py"} & files]

    def _users_of(self, row: dict[str, Any]) -> list[str]:
        """Who requires what a row is about, which no root needs."""
        return list_users(self, row.get("by") or row["distribution"])

    def _roots_of(self, row: dict[str, Any]) -> list[str]:
        """The roots that need what a row is about."""
        name = row.get("by") or row["distribution"]
        return [root for root, found in self.closure.items() if name in found]

    def choose_module(self, root: str) -> str:
        """The module that a distribution is imported by: the one of its own name, else its first; empty where it is not known."""
        copy, guess = self.copies[root][0], root.replace("-", "_")
        tops = copy.list_top_modules()
        own = [top for top in tops if top.lower().replace("_", "") == root.replace("-", "")]
        if tops:
            return (own or tops)[0]
        is_there = any(guess in self.path.list_folder(folder) for folder in self.path.folders)
        return guess if is_there or guess in self.path.modules or copy.find_editable_source() else ""

    def _report(self, name: str, kind: str, path: str, detail: str) -> None:
        self.rows.append({"distribution": name, "kind": kind, "path": path, "detail": detail})

    def _report_fault(self, name: str, path: str, fault: LibraryFault) -> None:
        """Report the library that cannot be loaded, with the one who installed it."""
        owner = next((other for other, _ in self._owners.get(fault.path, ())), name)
        if (key := (fault.kind, fault.path or path)) not in self._reported:
            self._reported.add(key)
            self._report(owner, fault.kind, fault.path or path, fault.detail)

    # -- requirements

    def _follow_requirements(self, root: str) -> list[str]:
        """Return the names that a distribution requires, itself included; what is not met becomes a row."""
        seen = {(root, "")}
        queue = [(root, "")]
        while queue:
            name, extra = queue.pop(0)
            if (name, extra) not in self._needs:
                self._needs[name, extra] = list(self._list_needs(name, extra))
            for wanted, extras in self._needs[name, extra]:
                new = {(wanted, one) for one in ("", *extras)} - seen
                seen |= new
                queue += sorted(new)
        return list(dict.fromkeys([root, *sorted(name for name, _ in seen)]))

    def _list_needs(self, name: str, extra: str) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yield what one distribution needs and is installed."""
        asked = frozenset([extra])
        for text in self.copies[name][0].list_requirements():
            if is_for_other_extra(text, asked):
                continue
            wanted, extras, specifier, marker = parse_requirement(text)
            if not marker_applies(marker, self.environment, asked):
                continue
            if wanted not in self.copies:
                self._report_need(name, *describe_absence(self, wanted), wanted, specifier)
                continue
            version = self.copies[wanted][0].get_version()
            if not self.copies[wanted][0].has_metadata():
                self._report_need(name, NO_METADATA, "its metadata is missing", wanted, specifier)
            elif version and is_satisfied(version, specifier) is False:
                self._report_need(name, "version", f"{version} is installed", wanted, specifier)
            yield wanted, extras

    def _report_need(self, name: str, kind: str, detail: str, wanted: str, specifier: str) -> None:
        if (key := (name, kind, detail, wanted, specifier)) not in self._reported:
            self._reported.add(key)
            self._report(wanted, kind, "", detail)
            self.rows[-1] |= {"by": name, "want": specifier}

    # -- files

    def _look_at(self, name: str) -> None:
        """Compare the copy that matches its RECORD best: of two, one may be the metadata of a removed version."""
        if self.is_spent():
            self.unchecked[name] = f"{MAX_SECONDS:.0f} s of processor time were used up before"
            return
        copies = [copy for copy in self.copies[name] if copy.site == self.copies[name][0].site]
        looks = [self._compare_copy(copy) for copy in copies[: listing.MAX_COPIES]]
        rows, copy = min(looks, key=lambda look: len(look[0]))
        for kind, path, detail in rows:
            self._report(name, kind, path, detail)
        source = copy.find_editable_source()
        if source and not is_folder(source):
            self._report(name, "source-gone", source, "the folder it was installed from is gone")
        elif source:
            self.unchecked[name] = f"an editable install of {source}: its files are not recorded"
            self._look_for_root(copy, source)
        elif not copy.has_files():
            self._look_at_modules(copy)
        if path_exists(record := f"{copy.info}/RECORD") and get_size(record) > listing.MAX_RECORD_BYTES:
            self.unchecked[name] = "not read beyond 16 MiB of its RECORD"
        self._look_at_extensions(copy)
        for path in copy.list_commands() if name in self.request["roots"] else ():
            if found := listing.find_command_fault(path):
                self._report(name, found[0], path, found[1])

    def _look_at_optional(self, copy: Distribution) -> None:
        """A shorter look at what may be imported: its files, and whether it takes the installed numpy."""
        for kind, path, detail in self._compare_copy(copy)[0]:
            self._report(copy.name, kind, path, detail)
        files = copy.list_libraries()
        self._look_for_other_numpy(copy, [path for path in files if extension_kind(path, self.tag) == "own"], files)

    def _look_for_root(self, copy: Distribution, source: str) -> None:
        """Report a framework whose editable source has no module of its name."""
        top = self.choose_module(copy.name)
        if copy.name not in self.request["roots"] or top in self.path.modules:
            return
        if not any(self.shadows.find_module_file(folder, top) for folder in self.path.folders):
            self._report(copy.name, "source", source, f"it has no module {top}")

    def _compare_copy(self, copy: Distribution) -> tuple[list[tuple[str, str, str]], Distribution]:
        deep = bool(self.request.get("deep"))
        limit = max((MAX_DEEP_FILES if deep else MAX_FILES) - self.files, 50)
        chosen = listing.select_rows(copy.rows, limit)  # without tests, which images often leave out
        hashed = [row for row in copy.rows[:limit] if self._may_hash(f"{copy.site}/{row[0]}")] if deep else chosen
        self.files += len(hashed)
        self.skipped += len(copy.rows) - len(hashed)
        rows = list(listing.compare_rows(copy.site, chosen, self._latest_write(copy)))
        if deep:
            rows += listing.compare_hashes(copy.site, hashed)
        counted = [row for row in rows if self._counts(row, copy)]
        left = {
            row: 0 for row in counted if row[0] == "touched" or _is_data(row) or listing.is_as_shipped(*row[:2], copy)
        }
        loaded = [row for row in left if row[0] != "missing" and not row[1].endswith(listing.DATA_SUFFIXES)]
        self.reasons |= {path: detail for _, path, detail in loaded}
        resized = [row for row in rows if row[0] in RESIZED and listing.is_library(row[1])]
        self.reasons |= {row[1]: row[2] for row in resized if not listing.is_as_shipped(*row[:2], copy)}
        return [row for row in counted if row not in left], copy

    def _may_hash(self, path: str) -> bool:
        """Whether the bytes of a file are within the bound: one of holes has any size, and may be recorded many times."""
        size = get_size(path) if path_exists(path) else 0
        is_within = size <= self.bytes_left
        self.bytes_left -= size if is_within else 0
        return is_within

    def _latest_write(self, copy: Distribution) -> float:
        """Until when its files were installed; conda changes files after their RECORD was written."""
        is_conda = "conda-meta" in self.path.list_folder(copy.site.partition("/lib/python")[0])
        recorded = 0.0 if is_conda else copy.get_record_time()
        return recorded + listing.TOUCHED_SECONDS if recorded else float("inf")

    def _counts(self, row: tuple[str, str, str], copy: Distribution) -> bool:
        """Whether another size matters: a library may have been stripped, and is read for itself; a file may be another's too."""
        if row[0] not in RESIZED:
            return row[0] != "grown"
        is_stripped = row[0] == "resized" and listing.is_library(row[1])
        return not is_stripped and not self._is_of_another(row[1], copy.name)

    def _is_of_another(self, path: str, name: str) -> bool:
        """Whether another distribution has the same file, of the size that it has: the last one installed has written it."""
        size = get_size(path)
        return any(other != name and length == size for other, length in self._owners.get(path, ()))

    @cached_property
    def _owners(self) -> dict[str, list[tuple[str, int | None]]]:
        """Who has recorded a file, and of which size."""
        found: dict[str, list[tuple[str, int | None]]] = {}
        for name, [copy, *_] in self.copies.items():
            for file, _, length in copy.rows:
                found.setdefault(f"{copy.site}/{file}", []).append((name, length))
        return found

    def _look_at_modules(self, copy: Distribution) -> None:
        """A distribution without RECORD: only its top-level modules can be looked for."""
        tops = copy.list_top_modules() or [copy.name.replace("-", "_")]
        gone = [top for top in tops if not self._is_module(copy.site, top)]
        known = bool(copy.list_top_modules())
        if gone and (known or copy.name == "torch"):
            for top in gone:
                self._report(copy.name, "missing", f"{copy.site}/{top}", "a top-level module, and not there")
        elif not path_exists(f"{copy.info}/RECORD"):  # one without a module has nothing to record
            self.unchecked[copy.name] = "no RECORD of its files"

    def _is_module(self, site: str, top: str) -> bool:
        names = self.path.list_folder(site)
        files = [name for name in names if name.startswith(f"{top}.") and name.endswith((".py", ".pyc", ".so"))]
        return top in names or top in self.path.modules or bool(files)

    # -- libraries

    def _load_torch(self, names: list[str]) -> None:
        if "torch" not in names:
            return
        folder = f"{self.copies['torch'][0].site}/torch"
        for name in TORCH_LIBRARIES:
            if path_exists(f"{folder}/{name}") and (fault := self.loader.find_fault(f"{folder}/{name}")):
                self._report_fault("torch", f"{folder}/{name}", fault)

    def _look_at_extensions(self, copy: Distribution) -> None:
        files = copy.list_libraries()
        others, loadable = [], []
        faults: dict[str, LibraryFault] = {}
        for path in files:
            kind = extension_kind(path, self.tag)
            if kind == "other":
                others.append(path)
            if kind != "own" or self.is_spent() or not path_exists(path) or "/tests/" in path:
                continue
            self.extensions += 1
            if fault := self.loader.find_fault(path, files):
                faults[path] = fault
            else:
                loadable.append(path)
        for path, fault in faults.items():
            if not self._is_variant(fault, loadable):
                self._report_fault(copy.name, path, fault)
        self._look_for_other_numpy(copy, loadable, files)
        for path in others if not loadable else ():
            if not self._has_variant(path):
                self._report(copy.name, "python", path, f"an extension module for another Python than {self.minor}")

    def _is_variant(self, fault: LibraryFault, loadable: list[str]) -> bool:
        """Whether a whole file is only made for elsewhere, as wheels bring them beside the one that loads, or for another CUDA."""
        return fault.kind in LIBRARY_KINDS and (bool(loadable) or self.loader.is_of_other_cuda(fault))

    def _look_for_other_numpy(self, copy: Distribution, modules: list[str], files: list[str]) -> None:
        """Report modules that the installed numpy refuses. torch goes on without numpy, and has a rule of its own."""
        version = self.copies["numpy"][0].get_version() if "numpy" in self.copies else ""
        if not modules or copy.name == "torch" or not version:
            return
        for path, want in numpy_abi.list_refused_modules(copy, modules, files, self.loader, version):
            self._report(copy.name, "numpy", path, f"it takes numpy {want}, and {version} is installed")
            self.rows[-1]["want"] = want

    def _has_variant(self, path: str) -> bool:
        """Whether a module has a file for this Python beside one for another."""
        folder, _, file = path.rpartition("/")
        stem = file.partition(".")[0]
        beside = [name for name in self.path.list_folder(folder) if name.startswith(f"{stem}.")]
        return any(name == f"{stem}.py" or extension_kind(name, self.tag) == "own" for name in beside)


def _is_data(row: tuple[str, str, str]) -> bool:
    """Whether a file has another size that programs may write, such as certificates: Python loads none of it."""
    return row[0] == "resized" and row[1].endswith(listing.DATA_SUFFIXES)


def survey_below_root(root: str, request: dict[str, Any]) -> dict[str, Any]:
    """Survey an environment whose paths are below a root; the answer has them without it."""
    if not root:
        return Survey(request).run()
    moved = {
        name: _move_paths(request.get(name), "", root) for name in ("interpreter", "first", "sites", "cwd", "stdlib")
    }
    answer: dict[str, Any] = _move_paths(Survey(request | moved).run(), root, "")
    return answer


def _move_paths(value: Any, old: str, new: str) -> Any:
    """Replace the start of every path in a request or an answer."""
    if isinstance(value, dict):
        return {_move_paths(name, old, new): _move_paths(item, old, new) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_move_paths(item, old, new) for item in value]
    if isinstance(value, str) and old:
        return value.replace(old, new)
    return f"{new}{value}" if isinstance(value, str) and value.startswith("/") else value
