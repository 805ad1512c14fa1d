"""Distributions of another version than an installed package asks for: which names they lack."""

from __future__ import annotations

from gpuready.system.imports.watched_files import open_regular, walk_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuready.system.imports.damage import Survey

NAMING_SUFFIXES = (".py", ".pyi", ".so")
MAX_BYTES = 256 << 20


class OddVersions:
    """``tops`` are the modules of distributions whose version somebody does not accept, ``users`` those of that somebody."""

    def __init__(self, survey: Survey):
        rows = [row for row in survey.rows if row["kind"] == "version"]
        self.tops, self.users = (
            {top for row in rows for top in survey.copies[row[key]][0].list_top_modules()}
            for key in ("distribution", "by")
        )
        self._path = survey.path
        self._texts: dict[str, tuple[bytes, ...]] = {}

    def lacks_word(self, module: str, name: str) -> bool:
        """Whether no file of a module's package has a name, so that nothing can define it: ``numpy.dtypes``, ``StringDType``."""
        top = module.partition(".")[0]
        if top not in self.tops or len(name) < 4:
            return False
        if top not in self._texts:
            self._texts[top] = tuple(self._read_files(top))
        word = name.encode()
        return bool(self._texts[top]) and not any(word in text for text in self._texts[top])

    def _read_files(self, top: str) -> Iterator[bytes]:
        homes = [folder for folder in self._path.folders if top in self._path.list_folder(folder)]
        budget = MAX_BYTES
        for folder, _, names in walk_folder(f"{homes[0]}/{top}") if homes else ():
            for name in names:
                if name.endswith(NAMING_SUFFIXES) and budget > 0:
                    data = _read_file(f"{folder}/{name}")
                    budget -= len(data)
                    yield data


def _read_file(path: str) -> bytes:
    try:
        with open(path, "rb", opener=open_regular) as file:
            return file.read()
    except OSError:
        return b""
