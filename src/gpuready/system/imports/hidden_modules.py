"""An environment as a survey finds it, and the files in it that hide a module which is imported."""

import os
import time
from collections.abc import Iterator
from typing import Any

from gpuready.system.imports import distributions as listing
from gpuready.system.imports.distributions import Distribution
from gpuready.system.imports.search_path import SearchPath, list_stdlib_names
from gpuready.system.imports.watched_files import path_exists, resolve_path

MAX_SECONDS = 40.0
"""Processor time of one survey; a real environment takes some seconds."""


class ExtensionTag:
    """The Python that loads an extension module: its minor version, whether it is free-threaded, and its machine."""

    def __init__(self, minor: str, is_free_threaded: bool = False, machine: str = ""):
        self.minor = minor
        self.number = minor.replace(".", "") + ("t" if is_free_threaded else "")
        self.is_free_threaded, self.machine = is_free_threaded, machine

    def fits(self, tag: str) -> bool:
        """``cpython-313t-x86_64-linux-gnu``: for a free-threaded 3.13 on this machine only."""
        _, number, *rest = tag.split("-")
        is_here = not rest or not self.machine or rest[0] == self.machine
        return number.rstrip("dm") == self.number and is_here


def extension_kind(path: str, tag: ExtensionTag) -> str:
    """own, other or none: whether a file is an extension module for a Python.

    ``_x.cpython-311-x86_64-linux-gnu.so`` is for 3.11, ``_x.abi3.so`` for all that are not free-threaded; ``_x.so`` may be one,
    ``libx.so`` is a library.
    """
    file = path.rpartition("/")[2]
    stem, *tags = file.split(".")
    if tags[-1:] != ["so"] or not stem:
        return "none"
    if len(tags) == 1:
        return "none" if stem.startswith("lib") and stem not in ("libtriton", "libproton") else "own"
    if tags[0] == "abi3":
        return "other" if tag.is_free_threaded else "own"
    if tags[0].startswith("cpython-"):
        return "own" if tag.fits(tags[0]) else "other"
    return "other" if tags[0].startswith(("pypy", "graalpy", "cp3")) else "none"


class SurveyedEnvironment:
    """One environment, by the request for a look at it.

    The request has: python (its version), machine, release, interpreter, stdlib, first (PYTHONPATH), sites, cwd, library_path,
    variables (names of those that change what Python does), roots (distributions to import), starts (modules that their commands
    start from), beside (others to look at), deep.
    """

    def __init__(self, request: dict[str, Any]):
        self.request, self._started = request, time.thread_time()
        self.minor = ".".join(str(request["python"]).split(".")[:2])
        is_free_threaded = any(f"/python{self.minor}t/" in f"{site}/" for site in request["sites"])
        self.tag = ExtensionTag(self.minor, is_free_threaded, str(request.get("machine") or ""))
        self.path = SearchPath(request.get("first") or (), request["sites"])
        self.copies = listing.find_distributions(self.path)
        for copies in self.copies.values():
            if not self.is_spent():
                listing.put_present_first(copies)
        self.unchecked: dict[str, str] = {}
        self.reasons: dict[str, str] = {}  # why the files do not tell whether an import works, by path or name
        self.stdlib_names = list_stdlib_names(self.path, request.get("stdlib") or "")

    def is_spent(self) -> bool:
        """Whether a survey has used its processor time: what is left is named, and not looked at."""
        return time.thread_time() - self._started > MAX_SECONDS


class HiddenModules:
    """The search for files that hide modules, in one survey."""

    def __init__(self, survey: SurveyedEnvironment):
        self.copies, self.path, self.request = survey.copies, survey.path, survey.request
        self.tag, self.stdlib_names = survey.tag, survey.stdlib_names

    def find_hidden(self, names: list[str]) -> list[dict[str, str]]:
        """Files of the current folder, and of folders before the right one, with the name of a module that is imported."""
        owners = {top: copy for name in names for copy in [self.copies[name][0]] for top in copy.list_top_modules()}
        rows = self._find_hidden_stdlib()
        for folder in dict.fromkeys([self.request.get("cwd") or "", *self.path.folders]):
            if not folder:
                continue
            for top, copy in owners.items():
                at = self.find_module_file(folder, top)
                if at and not self._belongs(copy, folder, top):
                    rows.append({"module": top, "path": at, "distribution": copy.name})
        return [*rows, *(row for name in names for row in self._find_stray(self.copies[name][0]))]

    def _find_stray(self, copy: Distribution) -> Iterator[dict[str, str]]:
        """Yield packages and extension modules that nobody recorded and that Python takes before a recorded module of their name."""
        files = {name for name, _, _ in copy.rows}
        sources = {name.removesuffix(".py") for name in files if name.endswith(".py")}
        modules = {name for name in files if extension_kind(name, self.tag) == "own"}
        extensions = {
            f"{folder}{end}{name.partition('.')[0]}" for folder, end, name in (name.rpartition("/") for name in modules)
        }
        heads = {f"{top}/" for top in copy.list_top_modules() if f"{top}/__init__.py" in files}
        heads |= {name[: name.rfind("/") + 1] for name in extensions} | {"" for name in sources if "/" not in name}
        for head in sorted(heads):
            for name in self.path.list_folder(f"{copy.site}/{head}".rstrip("/")):
                stem, _, ending = name.partition(".")
                path = f"{head}{name}" if ending else f"{head}{name}/__init__.py"
                hides = f"{head}{stem}" in (sources if ending else sources | extensions) and path not in files
                if hides and (
                    extension_kind(name, self.tag) == "own" if ending else path_exists(f"{copy.site}/{path}")
                ):
                    row = {"module": f"{head}{stem}".replace("/", "."), "path": f"{copy.site}/{path}"}
                    yield row | {"distribution": copy.name, "stray": "no package has installed it"}

    def _find_hidden_stdlib(self) -> list[dict[str, str]]:
        folders = [self.request.get("cwd") or "", *(self.request.get("first") or ())]
        names = {
            (folder, name.partition(".")[0]) for folder in folders if folder for name in self.path.list_folder(folder)
        }
        rows = []
        for folder, name in sorted(names):
            at = self.find_module_file(folder, name) if name in self.stdlib_names else None
            if at and folder != self.request.get("stdlib"):
                rows.append({"module": name, "path": at, "distribution": "python"})
        return rows

    def _belongs(self, copy: Distribution, folder: str, top: str) -> bool:
        """Whether a folder is where a distribution has this module, or comes after it and so hides nothing."""
        source = self.path.modules.get(top)
        if source:
            return os.path.dirname(source.removesuffix("/__init__.py")) == folder
        if resolve_path(folder) == resolve_path(copy.site):
            return True
        if folder == self.request.get("cwd") and folder not in self.path.folders:
            return False
        home = self.path.folders.index(copy.site)
        editable = copy.find_editable_source()
        if editable and (folder == editable or folder.startswith(f"{editable}/")):
            return True
        if self.find_module_file(copy.site, top) is None:  # a namespace package, which a plain one hides from anywhere
            return folder not in self.path.folders or top not in self.path.list_folder(copy.site)
        return self.path.folders.index(folder) > home

    def find_module_file(self, folder: str, top: str) -> str | None:
        """The file that an import of a top-level name takes from a folder; a folder without __init__ hides nothing."""
        names = self.path.list_folder(folder)
        if top in names and "__init__.py" in self.path.list_folder(f"{folder}/{top}"):
            return f"{folder}/{top}/__init__.py"
        for name in names:
            if name == f"{top}.py" or (name.startswith(f"{top}.") and extension_kind(name, self.tag) == "own"):
                return f"{folder}/{name}"
        return None


class SearchedEnvironment(SurveyedEnvironment):
    """An environment, and the search for what hides modules in it."""

    def __init__(self, request: dict[str, Any]):
        super().__init__(request)
        self.shadows = HiddenModules(self)
