"""Files of the current folder, and of folders before the right one, that hide a module which is imported."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from gpuready.system.imports.distributions import Distribution
from gpuready.system.imports.extension_names import extension_kind
from gpuready.system.imports.surveyed_environment import SurveyedEnvironment
from gpuready.system.imports.watched_files import resolve_path


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
        return [*rows, *(row for name in names for row in self._find_hidden_extensions(self.copies[name][0]))]

    def _find_hidden_extensions(self, copy: Distribution) -> Iterator[dict[str, str]]:
        """Yield packages that nobody recorded beside an extension module of the same name, which Python takes first."""
        for path in copy.list_libraries():
            folder, _, file = path.rpartition("/")
            stem = file.partition(".")[0]
            if stem not in self.path.list_folder(folder) or extension_kind(path, self.tag) != "own":
                continue
            start = f"{folder}/{stem}/__init__.py"
            is_there = "__init__.py" in self.path.list_folder(f"{folder}/{stem}")
            if is_there and not any(f"{copy.site}/{name}" == start for name, _, _ in copy.rows):
                module = start.removeprefix(f"{copy.site}/").removesuffix("/__init__.py").replace("/", ".")
                yield {"module": module, "path": start, "distribution": copy.name}

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
