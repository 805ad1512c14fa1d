"""Which names a package cannot have, because none of its files has them: of another version than somebody asks for, or compiled."""

from __future__ import annotations

from gpuready.system.imports.watched_files import get_size, open_regular, path_exists, walk_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuready.system.imports.damage import Survey

NAMING_SUFFIXES = (".py", ".pyi", ".so")
MAX_BYTES = 96 << 20
"""How much is read for the names of one package; of a larger one they are not known."""
MIN_LETTERS = 4
"""Shorter names occur by chance, or are put together."""


class OddVersions:
    """``tops`` are the modules of distributions whose version somebody does not accept, ``users`` those of that somebody."""

    def __init__(self, survey: Survey):
        rows = [row for row in survey.rows if row["kind"] == "version"]
        self.tops, self.users = (
            {top for row in rows for top in survey.copies[row[key]][0].list_top_modules()}
            for key in ("distribution", "by")
        )
        self._path, self._loader = survey.path, survey.loader
        self._texts: dict[str, tuple[bytes, ...]] = {}

    def lacks_word(self, module: str, name: str) -> bool:
        """Whether no file of a module's package has a name, so that nothing can define it: ``numpy.dtypes``, ``StringDType``."""
        top = module.partition(".")[0]
        if top not in self.tops:
            return False
        if top not in self._texts:
            self._texts[top] = _read_all(self._list_files(top))
        return _lacks(self._texts[top], name)

    def lacks_compiled_word(self, path: str, name: str) -> bool:
        """Whether neither an extension module nor the libraries of its package that it needs have a name."""
        if path not in self._texts:
            self._texts[path] = _read_all([path, *self._list_own_libraries(path)])
        return _lacks(self._texts[path], name)

    def _list_files(self, top: str) -> list[str]:
        homes = [folder for folder in self._path.folders if top in self._path.list_folder(folder)]
        found = walk_folder(f"{homes[0]}/{top}") if homes else ()
        return [f"{folder}/{name}" for folder, _, names in found for name in names if name.endswith(NAMING_SUFFIXES)]

    def _list_own_libraries(self, path: str) -> list[str]:
        """``torch/lib/libtorch_python.so`` of ``torch/_C.so``."""
        header, folder = self._loader.read_header(path), path.rpartition("/")[0]
        needed = () if isinstance(header, str) else header.get("needed") or ()
        places = [f"{place}/{name}" for name in needed for place in (folder, f"{folder}/lib")]
        return [place for place in places if path_exists(place)]


def _lacks(texts: tuple[bytes, ...], name: str) -> bool:
    word = name.encode()
    return bool(texts) and len(name) >= MIN_LETTERS and not any(word in text for text in texts)


def _read_all(paths: Iterable[str]) -> tuple[bytes, ...]:
    """The contents of files; none of them where they are too large, or one cannot be read."""
    names = list(paths)
    try:
        if sum(map(get_size, names)) > MAX_BYTES:
            return ()
        return tuple(map(_read_file, names))
    except OSError:
        return ()


def _read_file(path: str) -> bytes:
    with open(path, "rb", opener=open_regular) as file:
        return file.read()
