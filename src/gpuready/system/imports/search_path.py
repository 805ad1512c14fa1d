"""Where Python looks for modules: PYTHONPATH, site folders, the plain lines of their .pth files, editable installs."""

from __future__ import annotations

import os
import sys

from gpuready.system.files import open_regular

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MAX_HOOK_BYTES = 65536


class SearchPath:
    """The folders of sys.path after the standard library, and what hooks of editable installs add.

    ``modules`` maps a top-level module to the folder or file an editable install takes it from. ``gone`` are folders that a
    .pth line names and that do not exist; ``hooks`` are code lines of .pth files, which were not run.
    """

    def __init__(self, first: Iterable[str], sites: Iterable[str]):
        self.folders: list[str] = []
        self.modules: dict[str, str] = {}
        self.gone: list[tuple[str, str]] = []
        self.hooks: list[str] = []
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
                names = frozenset(os.listdir(folder))
            except OSError:
                names = frozenset()
            self.listings[folder] = names
        return names

    def _add_folder(self, folder: str) -> None:
        if folder not in self.folders:
            self.folders.append(folder)

    def _read_site(self, site: str) -> None:
        names = self.list_folder(site)
        for name in sorted(name for name in names if name.endswith(".pth") and not name.startswith(".")):
            for line in read_lines(f"{site}/{name}"):
                self._read_pth_line(site, name, line.strip())
        for name in sorted(name for name in names if _is_editable_hook(name)):
            self.modules.update(parse_editable_hook("\n".join(read_lines(f"{site}/{name}"))))

    def _read_pth_line(self, site: str, name: str, line: str) -> None:
        if not line or line.startswith("#"):
            return
        if line.startswith(("import ", "import\t")):
            self.hooks.append(f"{site}/{name}")
            return
        folder = os.path.normpath(os.path.join(site, line))
        if os.path.exists(folder):
            self._add_folder(folder)
        else:
            self.gone.append((f"{site}/{name}", folder))


def list_stdlib_names(path: SearchPath, stdlib: str) -> frozenset[str]:
    """Return the modules of the target's own standard library; of this Python's, where its folder cannot be listed."""
    names = path.list_folder(stdlib) if stdlib else frozenset()
    if "os.py" not in names:
        return sys.stdlib_module_names
    shims = ["distutils"] if any("_distutils_hack" in path.list_folder(site) for site in path.folders) else []
    files = [*names, *path.list_folder(f"{stdlib}/lib-dynload"), *sys.builtin_module_names, *shims]
    return frozenset(name.partition(".")[0] for name in files)


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
    import ast

    try:
        value = ast.literal_eval(text.strip())
    except (ValueError, SyntaxError):
        return {}
    pairs: Iterator[tuple[object, object]] = iter(value.items() if isinstance(value, dict) else ())
    return {name: path for name, path in pairs if isinstance(name, str) and isinstance(path, str)}


def _quoted_words(line: str) -> list[str]:
    return line.replace('"', "'").split("'")[1::2]
