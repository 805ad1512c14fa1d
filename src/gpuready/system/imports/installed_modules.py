"""A quick look at what the modules of an installed distribution import: plain statements at the margin, by their text.

So are those of a ``try`` whose handler only raises. What stands in another ``try``, a condition or a function is left out.
It says where a longer look is worth its time.
"""

from __future__ import annotations

import re

from gpuready.system.imports.import_statements import list_statements
from gpuready.system.imports.package_source import module_name
from gpuready.system.imports.source_names import DYNAMIC_SIGNS
from gpuready.system.imports.watched_files import open_regular

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from gpuready.system.imports.distributions import Distribution
    from gpuready.system.imports.search_path import SearchPath

RAISED = re.compile(
    r"try:\n((?:[ \t][^\n]{0,300}\n){1,8})except[^\n]{0,200}:\n(?:[ \t][^\n]{0,300}\n){0,4}[ \t]+raise\b"
)
"""Imports whose failure is only worded anew: ``try: import torchao``, ``except ImportError as e: raise ImportError(...)``."""
MAX_MODULES = 3000


class StartImports:
    """What the modules that a framework starts from import: ``others`` of other packages, ``absent`` parts of its own.

    Each has the file that imports it. Only of an editable install parts can be absent: no RECORD tells which of its files are gone.
    """

    def __init__(self, copy: Distribution, path: SearchPath, starts: Sequence[str]):
        self.own = {name.partition(".")[0] for name in starts}
        self.others: dict[str, str] = {}
        self.absent: dict[str, str] = {}
        self._follow(SourceFiles(copy, path), [name for start in starts for name in _with_parents(start)])

    def _follow(self, sources: SourceFiles, waiting: list[str]) -> None:
        seen: set[str] = set()
        while waiting and len(seen) < MAX_MODULES:
            name = waiting.pop()
            if name in seen or (file := sources.find(name)) is None:
                continue
            seen.add(name)
            for wanted, is_module in _list_imports(name, file):
                if wanted.partition(".")[0] not in self.own:
                    self.others.setdefault(wanted, file)
                    continue
                waiting += _with_parents(wanted)
                if sources.lacks(wanted) if is_module else sources.lacks_name(wanted):
                    self.absent.setdefault(wanted, file)

    def list_absent(self, is_importable: Callable[[str], bool]) -> list[tuple[str, str]]:
        """Return the modules that are imported and that nothing provides, each with the file that does."""
        lacking = {name: file for name, file in self.others.items() if not is_importable(name)}
        short = {_shortest(name, lacking): file for name, file in lacking.items()}
        return [*short.items(), *self.absent.items()]


def _shortest(name: str, names: Mapping[str, str]) -> str:
    """The first package of a module that is absent itself: of ``a.b`` and ``a``, ``a``."""
    return next(one for one in _with_parents(name) if one in names)


class SourceFiles:
    """The sources of a distribution by module: of its RECORD, or of the folders that an editable install is taken from."""

    def __init__(self, copy: Distribution, path: SearchPath):
        files = [name for name, _, _ in copy.rows if name.endswith(".py") and not name.startswith(("..", "/"))]
        self.recorded = {module_name(name): f"{copy.site}/{name}" for name in files}
        self.is_editable = copy.find_editable_source() is not None
        self.path = path

    def find(self, name: str) -> str | None:
        """The source of a module; None where there is none."""
        if name in self.recorded or not self.is_editable:
            return self.recorded.get(name)
        base = self._find_base(name)
        if base is None:
            return None
        folder, _, tail = base.rpartition("/")
        if "__init__.py" in self.path.list_folder(base):
            return f"{base}/__init__.py"
        return f"{base}.py" if f"{tail}.py" in self.path.list_folder(folder) else None

    def lacks(self, name: str) -> bool:
        """Whether an editable package has nothing of the name of one of its parts, and no code that makes it up."""
        head, _, tail = name.rpartition(".")
        package = self.find(head) if self.is_editable and head else None
        if package is None or not package.endswith("/__init__.py"):
            return False
        names = self.path.list_folder(package.removesuffix("/__init__.py"))
        return tail not in names and not any(one.startswith(f"{tail}.") for one in names)

    def lacks_name(self, name: str) -> bool:
        """Whether the text of an editable module has no such word, and nothing that makes names up."""
        head, _, tail = name.rpartition(".")
        file = self.find(head) if self.is_editable else None
        if file is None or self.find(name) is not None or not tail.isidentifier():
            return False
        if file.endswith("/__init__.py") and not self.lacks(name):
            return False
        text = read_source(file)
        return not re.search(rf"\b{tail}\b", text) and not any(sign in text for sign in (*DYNAMIC_SIGNS, "import *"))

    def _find_base(self, name: str) -> str | None:
        """The path that a module has without ``.py`` or ``/__init__.py``."""
        top, _, rest = name.partition(".")
        source = self.path.modules.get(top, "").removesuffix("/__init__.py").removesuffix(".py")
        homes = [folder for folder in self.path.folders if self._has(folder, top)]
        base = source or (f"{homes[0]}/{top}" if homes else "")
        return f"{base}/{rest.replace('.', '/')}".rstrip("/") if base else None

    def _has(self, folder: str, top: str) -> bool:
        names = self.path.list_folder(folder)
        return f"{top}.py" in names or (top in names and "__init__.py" in self.path.list_folder(f"{folder}/{top}"))


def read_source(path: str) -> str:
    """The text of a source; empty where it cannot be read."""
    try:
        with open(path, encoding="utf-8-sig", errors="replace", opener=open_regular) as file:
            return file.read()
    except OSError:
        return ""


def _find_raised_blocks(text: str) -> Iterator[tuple[int, int]]:
    """Yield where each ``try`` at the margin whose handler only raises has its statements."""
    at = 0 if text.startswith("try:") else text.find("\ntry:") + 1
    while at or text.startswith("try:", at):
        match = RAISED.match(text, at)
        if match:
            yield match.span(1)
        at = text.find("\ntry:", at) + 1
        if not at:
            return


def _with_parents(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts) + 1)]


def _list_imports(name: str, path: str) -> Iterator[tuple[str, bool]]:
    """Yield what a module imports, and whether it must be a module; of ``from a import b``, both ``a`` and ``a.b``."""
    text = read_source(path)
    package = name if path.endswith("/__init__.py") else name.rpartition(".")[0]
    raised = list(_find_raised_blocks(text))
    for statement in list_statements(text, package, lambda at: any(start <= at < end for start, end in raised)):
        yield statement.module, True
        yield from ((f"{statement.module}.{one}", False) for one, _ in statement.names if one != "*")
