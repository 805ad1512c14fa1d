"""An environment as a survey finds it: where its modules lie, and which distributions it has."""

from __future__ import annotations

from typing import Any

from gpuready.system.imports import distributions as listing
from gpuready.system.imports.extension_names import ExtensionTag
from gpuready.system.imports.search_path import SearchPath, list_stdlib_names


class SurveyedEnvironment:
    """One environment, by the request for a look at it.

    The request has: python (its version), machine, release, interpreter, stdlib, first (PYTHONPATH), sites, cwd, library_path,
    variables (names of those that change what Python does), roots (distributions to import), starts (modules that their commands
    start from), beside (others to look at), deep.
    """

    def __init__(self, request: dict[str, Any]):
        self.request = request
        self.minor = ".".join(str(request["python"]).split(".")[:2])
        is_free_threaded = any(f"/python{self.minor}t/" in f"{site}/" for site in request["sites"])
        self.tag = ExtensionTag(self.minor, is_free_threaded, str(request.get("machine") or ""))
        self.path = SearchPath(request.get("first") or (), request["sites"])
        self.copies = listing.find_distributions(self.path)
        for copies in self.copies.values():
            listing.put_present_first(copies)
        self.unchecked: dict[str, str] = {}
        self.reasons: dict[str, str] = {}  # why the files do not tell whether an import works, by path or name
        self.stdlib_names = list_stdlib_names(self.path, request.get("stdlib") or "")
