"""Modules that were followed on paper, and imports that fail."""

from __future__ import annotations

import ast

from gpuready.system.imports.source_parts import CALL_SIGNS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from gpuready.system.imports.partial_modules import RunningModule
    from gpuready.system.imports.scope_values import ScopeValues

MAX_DOUBTS = 4
"""How many failures that may happen are kept of a module."""


class ImportFailure(Exception):
    """An import that fails. ``kind`` is the error that Python would raise; ``cause`` the path or name at fault."""

    def __init__(self, kind: str, text: str, cause: str):
        super().__init__(text)
        self.kind, self.text, self.cause = kind, text, cause
        self.chain: list[str] = []
        self.folders_added = 0  # to sys.path, when it failed


class Module:
    """A module that was followed: the names that it binds, and the folders of its submodules.

    ``dynamic``: it may have names that nobody knows. ``bound`` maps its names to modules, ``taken`` to attributes of modules;
    ``is_plain``: it was followed by its text, and its values are not known yet. ``stars`` are the modules of ``from x import *``, ``listed`` the names of a literal ``__all__``.
    """

    def __init__(self, name: str, file: str, folders: Sequence[str], names: Iterable[str] = (), dynamic: bool = True):
        self.name, self.file, self.folders = name, file, list(folders)
        self.names, self.dynamic = set(names), dynamic
        self.functions: dict[str, ast.FunctionDef] = {}
        self.classes: dict[str, ast.ClassDef] = {}
        self.read_classes: dict[str, ast.ClassDef | None] = {}  # whole, where other modules ask for them
        self.read: set[str] = set()
        self.attributes: dict[str, str] | None = None
        self.is_plain = False
        self.bound: dict[str, str] = {}
        self.taken: dict[str, tuple[str, str]] = {}
        self.stars: list[str] = []
        self.listed: tuple[str, ...] = ()
        self.has_calls = False
        self.running: RunningModule | None = None  # while its own statements are followed
        self.values: ScopeValues | None = None
        self.doubts: list[tuple[ImportFailure, str]] = []  # failures that may happen while it is imported

    @property
    def package(self) -> str:
        return self.name if self.folders else self.name.rpartition(".")[0]

    def take_definitions(self, tree: ast.Module, text: str) -> None:
        """Note the functions and classes of its source, and whether it may import by name."""
        self.functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
        self.classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
        self.has_calls = any(sign in text for sign in CALL_SIGNS)


def find_cut_module(modules: Iterable[Module | ImportFailure], short: Collection[str]) -> str:
    """Return the file of a module that lost a part, where its package has imported compiled code, which may use that."""
    imported = [one for one in modules if isinstance(one, Module)]
    compiled = {one.name.partition(".")[0] for one in imported if one.file.endswith((".so", ".pyd"))}
    return next((one.file for one in imported if one.name.partition(".")[0] in compiled and one.file in short), "")
