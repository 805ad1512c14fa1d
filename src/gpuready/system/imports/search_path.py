"""Where Python looks for modules: PYTHONPATH, site folders, the plain lines of their .pth files, editable installs."""

import ast
import os
import re
import sys
from collections.abc import Iterable, Iterator
from zipfile import BadZipFile, ZipFile

from gpuready.system.host_access import MAX_PTH_LINES
from gpuready.system.imports.watched_files import is_folder, list_names, open_regular, path_exists

MAX_HOOK_BYTES = 65536
OPTIONAL_MODULES = frozenset((
    "_bz2", "_ctypes", "_curses", "_dbm", "_gdbm", "_hashlib", "_lzma", "_sqlite3", "_ssl", "_tkinter", "_uuid", "readline",
))  # fmt: skip
"""Extension modules that a build of Python leaves out where the library behind them is missing."""
KNOWN_HOOKS = ("distutils-precedence.pth", "_virtualenv.pth", "_0_gpuready.pth", "~gpuready.pth")
"""Hooks that provide no modules of packages."""
ADDED_FOLDERS = (
    r"sys\.path\.(?:insert\(\s*\d+\s*,|append\()\s*(r?[\"'][^\"'\\]+[\"'])\s*\)",
    r"sys\.path(?:\[[\w: ]*\]\s*=|\s*\+=|\.extend\()\s*(\[[^\]\\()]*\])\)?",
    r"site\.addsitedir\(\s*(r?[\"'][^\"'\\]+[\"'])\s*\)",
)
"""Code that adds folders whose names are written out."""

ARCHIVE_SUFFIXES = (".zip", ".egg", ".whl")
MAX_ARCHIVED_FILES = 20000


class SearchPath:
    """The folders of sys.path after the standard library, and what hooks of editable installs add.

    ``modules`` maps a top-level module to the folder or file an editable install takes it from. ``hooks`` are .pth files with
    code, which was not run; ``unread`` those that have more lines than are read.
    """

    def __init__(self, first: Iterable[str], sites: Iterable[str]):
        self.folders: list[str] = []
        self.modules: dict[str, str] = {}
        self.hooks: list[str] = []
        self.unread: list[str] = []
        self._lines_left = MAX_PTH_LINES
        self.listings: dict[str, frozenset[str]] = {}
        for folder in first:
            self._add_folder(folder)
        for site in sites:
            self._add_folder(site)
            self._read_site(site)

    def list_folder(self, folder: str) -> frozenset[str]:
        """Names in a folder; none where it cannot be listed."""
        names = self.listings.get(folder)
        if names is None:
            try:
                names = frozenset(list_names(folder))
            except OSError:
                names = frozenset()
            self.listings[folder] = names
        return names

    def is_folder(self, path: str) -> bool:
        """Whether a path that its folder lists is a folder itself; an empty one counts."""
        return bool(self.list_folder(path)) or is_folder(path)

    def _add_folder(self, folder: str) -> None:
        if folder not in self.folders:
            self.folders.append(folder)
            if folder.endswith(ARCHIVE_SUFFIXES) and not is_folder(folder):
                self.listings.update(list_archive(folder))

    def _read_site(self, site: str) -> None:
        names = self.list_folder(site)
        for name in sorted(name for name in names if name.endswith(".pth") and not name.startswith(".")):
            lines = read_lines(f"{site}/{name}") if self._lines_left else []
            if len(lines) >= self._lines_left:
                self.unread.append(f"{site}/{name}")
            for line in lines[: self._lines_left]:
                self._read_pth_line(site, name, line.strip())
            self._lines_left -= min(len(lines), self._lines_left)
        for name in sorted(name for name in names if _is_editable_hook(name)):
            self.modules.update(parse_editable_hook("\n".join(read_lines(f"{site}/{name}"))))

    def _read_pth_line(self, site: str, name: str, line: str) -> None:
        if not line or line.startswith("#"):
            return
        if line.startswith(("import ", "import\t")):
            self._read_hook(site, name, line)
            return
        folder = os.path.normpath(os.path.join(site, line))
        if path_exists(folder):
            self._add_folder(folder)

    # -- lines that are code

    def _read_hook(self, site: str, name: str, line: str) -> None:
        """Note a code line, and follow one that adds folders by their names."""
        self.hooks.append(f"{site}/{name}")
        for text in _list_added_folders(line):
            for folder in _quoted_words(text):
                self._add_hooked(os.path.normpath(os.path.join(site, folder)), "insert" in line, "addsitedir" in line)

    def _add_hooked(self, folder: str, is_first: bool, is_site: bool) -> None:
        if not is_folder(folder) or folder in self.folders:
            return
        self.folders.insert(0 if is_first else len(self.folders), folder)
        if is_site:
            self._read_site(folder)


def _list_added_folders(line: str) -> list[str]:
    """The folders that a code line adds by their names, as they are written."""
    if "sys.path" not in line and "addsitedir" not in line:
        return []
    return [match for pattern in ADDED_FOLDERS for match in re.findall(pattern, line)]


def list_stdlib_names(path: SearchPath, stdlib: str) -> frozenset[str]:
    """Return the modules of the target's own standard library; of this Python's, where its folder cannot be listed.

    An extension module of this Python without a file there is taken for built in: Debian's Python has math inside, uv's has all of them. One that a
    build leaves out where a library was missing is so only where none of these has a file.
    """
    names = path.list_folder(stdlib) if stdlib else frozenset()
    if "os.py" not in names:
        return sys.stdlib_module_names
    shims = ["distutils"] if any("_distutils_hack" in path.list_folder(site) for site in path.folders) else []
    files = frozenset(name.partition(".")[0] for name in (*names, *path.list_folder(f"{stdlib}/lib-dynload"), *shims))
    own = [*path.list_folder(f"{os.path.dirname(os.__file__)}/lib-dynload"), *sys.builtin_module_names]
    built_in = frozenset(name.partition(".")[0] for name in own)
    return files | (built_in - OPTIONAL_MODULES if files & OPTIONAL_MODULES else built_in)


def list_archive(path: str) -> dict[str, frozenset[str]]:
    """The names in each folder of a zip file, which Python imports from as from a folder; none where it cannot be read."""
    try:
        with open(path, "rb", opener=open_regular) as file, ZipFile(file) as archive:
            names = archive.namelist()[:MAX_ARCHIVED_FILES]
    except (OSError, BadZipFile, ValueError, NotImplementedError):
        return {}
    found: dict[str, set[str]] = {}
    for name in names:
        place = path
        for part in name.strip("/").split("/"):
            found.setdefault(place, set()).add(part)
            place = f"{place}/{part}"
    return {folder: frozenset(inside) for folder, inside in found.items()}


def read_lines(path: str) -> list[str]:
    try:
        with open(path, "rb", opener=open_regular) as file:
            return file.read(MAX_HOOK_BYTES).decode("utf-8", "replace").splitlines()
    except OSError:
        return []


def _is_editable_hook(name: str) -> bool:
    return name.endswith(".py") and (
        name.startswith(("__editable__", "_editable_impl_")) or name.endswith("_editable.py")
    )


def parse_editable_hook(text: str) -> dict[str, str]:
    """Return the top-level modules of an editable install's hook.

    setuptools: ``MAPPING: dict[str, str] = {'demo': '/src/demo'}``; editables: ``F.map_module('demo', '/src/demo.py')``.
    """
    found: dict[str, str] = {}
    for line in text.splitlines():
        if line.startswith("MAPPING"):
            found.update(_literal_mapping(line.partition("=")[2]))
        elif ".map_module(" in line:
            words = _quoted_words(line)
            found.update([(words[0], words[1])] if len(words) == 2 else ())
    return {name: path for name, path in found.items() if "." not in name}


def _literal_mapping(text: str) -> dict[str, str]:
    try:
        value = ast.literal_eval(text.strip())
    except (ValueError, SyntaxError):
        return {}
    pairs: Iterator[tuple[object, object]] = iter(value.items() if isinstance(value, dict) else ())
    return {name: path for name, path in pairs if isinstance(name, str) and isinstance(path, str)}


def _quoted_words(line: str) -> list[str]:
    return line.replace('"', "'").split("'")[1::2]
