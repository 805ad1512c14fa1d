"""Installed distributions: their metadata, their recorded files, and which of those files differ."""

import os
from collections.abc import Iterable, Iterator
from hashlib import algorithms_guaranteed
from typing import Any
from urllib.parse import unquote

from gpuready.model.facts import find_missing_library
from gpuready.model.metadata import parse_metadata_headers, parse_requires_file, split_metadata_name
from gpuready.system.file_contents import hash_as_recorded, hash_large_files
from gpuready.system.imports.search_path import SearchPath, read_lines
from gpuready.system.imports.watched_files import (
    get_write_time,
    is_readable,
    open_regular,
    path_exists,
    read_status,
    resolve_path,
)

RecordRow = tuple[str, str, int | None]
Difference = tuple[str, str, str]
"""Kind, path and detail of a file that is not as it was recorded."""


METADATA_SUFFIXES = (".dist-info", ".egg-info")
MAX_METADATA_BYTES, MAX_RECORD_BYTES = 1 << 18, 1 << 24
COPIES_SUFFIX = ".gpuready-fix"
"""How the folder ends in which ``gpuready fix`` keeps copies of the environment beside it."""
MAX_COPIES = 8
"""Metadata of one distribution that are compared; a broken environment has two or three."""
READABLE = 0o444
EDITABLE_HOOK = "__editable__"
"""How the module begins that setuptools writes for an editable install; importing it says nothing of the package."""
UNUSED_FOLDERS = ("/tests/", "/test/")
"""Folders whose files no import needs; images are often made without them."""
METADATA_FILES = (".dist-info/METADATA", ".dist-info/entry_points.txt")
DATA_SUFFIXES = (".json", ".toml", ".pem", ".ini", ".cfg", ".jinja", ".npz", ".txt", ".yaml")
"""Files of the upper folders that a package may open when it is imported."""
TOUCHED_SECONDS = 60.0
"""How much later than its RECORD a file was written, if somebody edited it: installers write the RECORD last."""
LARGE_FILE = 1 << 20
"""Bytes from which on a file is hashed beside others: these files are most of an environment."""


class Distribution:
    """One installed distribution. ``info`` is its dist-info folder, its egg-info, or the EGG-INFO of an egg."""

    def __init__(self, name: str, version: str, site: str, info: str):
        self.name, self.version, self.site, self.info = name, version, site, info
        self._headers: list[tuple[str, str]] | None = None
        self._rows: list[RecordRow] | None = None
        self._tops: list[str] | None = None
        self._source: tuple[str | None] | None = None

    @property
    def headers(self) -> list[tuple[str, str]]:
        """The headers of its metadata: ``("requires-dist", "numpy>=1.17")``."""
        if self._headers is None:
            self._headers = read_headers(self.info)
        return self._headers

    def has_metadata(self) -> bool:
        return not self.info.endswith(".dist-info") or path_exists(f"{self.info}/METADATA")

    def list_requirements(self) -> list[str]:
        texts = [value for name, value in self.headers if name == "requires-dist"]
        return texts or parse_requires_file("\n".join(read_lines(f"{self.info}/requires.txt")))

    def get_version(self) -> str:
        return self.version or next((value for name, value in self.headers if name == "version"), "")

    @property
    def rows(self) -> list[RecordRow]:
        """Path below the site folder, hash and size of each recorded Python file and library, and of its metadata."""
        if self._rows is None:
            self._rows = read_record(f"{self.info}/RECORD") or _egg_files(self.info)
        return self._rows

    def has_files(self) -> bool:
        """Whether anything but its metadata is recorded."""
        return any(".dist-info/" not in name for name, _, _ in self.rows)

    def has_lost_files(self) -> bool:
        """Whether nothing of what it recorded is there but its metadata."""
        files = [name for name, _, _ in self.rows if ".dist-info/" not in name]
        return bool(files) and not any(path_exists(f"{self.site}/{name}") for name in files)

    def list_hooks(self) -> list[str]:
        """Its recorded .pth files."""
        return [line.partition(",")[0] for line in read_lines(f"{self.info}/RECORD") if ".pth," in line]

    def get_record_time(self) -> float:
        """When its RECORD was written, after all of its files; 0 where there is none."""
        return get_write_time(f"{self.info}/RECORD")

    def list_top_modules(self) -> list[str]:
        """Top-level modules: of its RECORD, else of top_level.txt, else none are known."""
        if self._tops is None:
            heads = {path.partition("/")[0]: None for path, _, _ in self.rows}
            tops = [top for top in dict.fromkeys(map(_top_module, heads)) if top]
            self._tops = tops or [line for line in read_lines(f"{self.info}/top_level.txt") if line]
        return self._tops

    def list_commands(self) -> list[str]:
        """The paths of its recorded commands."""
        lines = [line for line in read_lines(f"{self.info}/RECORD") if line.startswith("../") and "/bin/" in line]
        return [os.path.normpath(f"{self.site}/{line.partition(',')[0]}") for line in lines]

    def list_libraries(self) -> list[str]:
        """The paths of its recorded libraries, extension modules among them."""
        return [f"{self.site}/{name}" for name, _, _ in self.rows if is_library(name)]

    def is_torch_backend(self) -> bool:
        """Whether ``import torch`` imports it too, whatever requires it."""
        return "[torch.backends]" in read_lines(f"{self.info}/entry_points.txt")

    def find_editable_source(self) -> str | None:
        """The folder that an editable install was made from (PEP 610); None for any other."""
        if self._source is None:
            self._source = (_read_editable_source(self.info),)
        return self._source[0]


def add_owners(results: dict[str, dict[str, Any]], sites: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Add to each import that failed who installed what raised the error."""
    if not any(one["error"] for one in results.values()):
        return results
    copies = [copies[0] for copies in find_distributions(SearchPath((), sites)).values()]
    return {root: one | (_name_owners(copies, one) if one["error"] else {}) for root, one in results.items()}


def _name_owners(copies: Iterable[Distribution], failed: dict[str, Any]) -> dict[str, Any]:
    """Who installed what raised an error, nearest first, and where a library lies that was not found."""
    library = find_missing_library(failed)
    places = dict.fromkeys([failed["file"], *(step.rpartition(":")[0] for step in reversed(failed["chain"]))])
    owners: dict[str, str] = {}
    found: dict[str, Any] = {}
    for copy in copies:
        for name, _, _ in copy.rows:
            path = f"{copy.site}/{name}"
            if path in places:
                owners[path] = copy.name
            if library and name.endswith(f"/{library}") and path_exists(path):
                found = {"library": path, "library_of": copy.name}
    return {"packages": tuple(dict.fromkeys(owners[place] for place in places if place in owners))[:1], **found}


def is_library(path: str) -> bool:
    return path.endswith(".so") or ".so." in path


def _read_editable_source(info: str) -> str | None:
    text = "".join(read_lines(f"{info}/direct_url.json")).replace(" ", "")
    if '"editable":true' not in text or '"url":"file://' not in text:
        return None
    return unquote(text.partition('"url":"file://')[2].partition('"')[0]) or None


def find_distributions(path: SearchPath) -> dict[str, list[Distribution]]:
    """Return the copies of every distribution by canonical name; the copy that Python sees first comes first."""
    found: dict[str, list[Distribution]] = {}
    for folder in path.folders:
        for entry in sorted(path.list_folder(folder)):
            if entry.endswith(METADATA_SUFFIXES):
                name, version = split_metadata_name(entry)
                found.setdefault(name, []).append(Distribution(name, version, folder, f"{folder}/{entry}"))
        if folder.endswith(".egg") and "EGG-INFO" in path.list_folder(folder):
            name, version = split_metadata_name(os.path.basename(folder).removesuffix(".egg") + ".egg-info")
            found.setdefault(name, []).append(Distribution(name, version, folder, f"{folder}/EGG-INFO"))
    return found


def put_present_first(copies: list[Distribution]) -> None:
    """Of several metadata in one folder, put that first whose files are there: the others are of versions that were replaced."""
    site = copies[0].site
    if 1 < len(copies) <= MAX_COPIES and copies[1].site == site:
        copies.sort(key=lambda copy: (copy.site != site, _share_that_differs(copy)))


def list_replaced(sites: Iterable[str]) -> list[str]:
    """Metadata beside that of the version whose files are there, as an interrupted upgrade leaves it, after the files that it alone records."""
    found = find_distributions(SearchPath((), sites))
    old: list[Distribution] = []
    for copies in found.values():
        put_present_first(copies)
        least = _share_that_differs(copies[0]) if len(copies) > 1 else 1.0
        old += [copy for copy in copies[1:] if copy.site == copies[0].site and _share_that_differs(copy) > least]
    rows = {
        copy.info: [f"{copy.site}/{row[0]}" for row in copy.rows] for copies in found.values() if old for copy in copies
    }
    own = [path for copy in old for path in rows.pop(copy.info)]
    kept = {path for paths in rows.values() for path in paths}
    return [*(path for path in own if path not in kept), *(copy.info for copy in old)]


def _share_that_differs(copy: Distribution) -> float:
    """The share of recorded files that are not there as recorded; one half where nothing is recorded."""
    return len(list(compare_rows(copy.site, copy.rows))) / len(copy.rows) if copy.rows else 0.5


def read_headers(info: str) -> list[tuple[str, str]]:
    for path in (f"{info}/METADATA", f"{info}/PKG-INFO", info):
        try:
            with open(path, "rb", opener=open_regular) as file:
                text = file.read(MAX_METADATA_BYTES)
        except OSError:
            continue
        return list(parse_metadata_headers(text.decode("utf-8", "replace")))
    return []


def read_record(path: str) -> list[RecordRow]:
    """Return the Python files and libraries of a RECORD: ``torch/__init__.py,sha256=abc,1234``."""
    try:
        with open(path, "rb", opener=open_regular) as file:
            text = file.read(MAX_RECORD_BYTES).decode("utf-8", "replace")
    except OSError:
        return []
    lines = [
        line for line in text.splitlines() if ".py," in line or ".so" in line or _is_wanted(line.partition(",")[0])
    ]
    is_unusual = any(sign in text for sign in ('"', "\n./", "/./", "//", "\0")) or text.startswith("./")
    try:
        return list(_read_unusual_lines(lines) if is_unusual else _read_plain_lines(lines))
    except ValueError:  # a line with other fields
        return list(_read_unusual_lines(lines))


def _read_plain_lines(lines: Iterable[str]) -> Iterator[RecordRow]:
    """Yield the rows of lines with three fields, as nearly all are."""
    for line in lines:
        name, digest, size = line.split(",")
        if (name[-3:] in (".py", ".so") or _is_wanted(name)) and name[0] not in "./":
            yield name, digest, int(size) if size else None


def _read_unusual_lines(lines: Iterable[str]) -> Iterator[RecordRow]:
    for line in lines:
        name, digest, size = line.rsplit(",", 2) if line.count(",") > 1 else (line, "", "")
        name = name.strip('"')
        if "./" in name or "//" in name:
            name = os.path.normpath(name)  # ``./demo/__init__.py``, as some build tools write it
        if _is_wanted(name) and not name.startswith(("../", "/")) and "\0" not in name:
            yield name, digest, int(size) if size.isascii() and size.isdigit() and len(size) < 16 else None


def _is_wanted(name: str) -> bool:
    """Whether an import may open a file: code, metadata, and data of the upper folders."""
    if ".dist-info/" in name:
        return name.endswith(METADATA_FILES)
    is_code = name.endswith((".py", ".so", "/torch_shm_manager")) or ".so." in name
    return is_code or (name.endswith(DATA_SUFFIXES) and name.count("/") <= 2)


def _egg_files(info: str) -> list[RecordRow]:
    """The files that an egg-info lists: installed-files.txt is relative to it, and has no sizes."""
    if not info.endswith(".egg-info"):
        return []
    names = [line[3:] for line in read_lines(f"{info}/installed-files.txt") if line.startswith("../")]
    return [(name, "", None) for name in names if name.endswith((".py", ".so")) and not name.startswith("../")]


def _top_module(head: str) -> str:
    """The module of a first path part: ``numpy`` -> numpy; ``six.py`` -> six; ``numpy.libs`` -> nothing."""
    top = head.partition(".")[0] if head.endswith((".py", ".so")) else head
    return top if top.isidentifier() and not top.startswith(EDITABLE_HOOK) else ""


# -- comparison ---------------------------------------------------------------------------------------


def select_rows(rows: Iterable[RecordRow], limit: int) -> list[RecordRow]:
    """Return the rows to compare: all of them, or those of the upper folders and some of each deeper one."""
    used = [row for row in rows if "test" not in row[0] or not any(folder in f"/{row[0]}" for folder in UNUSED_FOLDERS)]
    if len(used) <= limit:
        return used
    upper = [row for row in used if row[0].count("/") <= 2 or not row[0].endswith(".py")][:limit]
    deeper = [row for row in used if row[0].count("/") > 2 and row[0].endswith(".py")]
    step = max(len(deeper) // max(limit - len(upper), 1), 1)
    return upper + deeper[::step][: limit - len(upper)]


def compare_rows(
    site: str, rows: Iterable[RecordRow], latest: float = float("inf"), is_strict: bool = False
) -> Iterator[Difference]:
    """Yield each file that is missing, has another size, cannot be read or was written after ``latest``.

    Byte-code stands for its source, unless the comparison is strict.
    """
    stat = read_status
    for name, _, size in rows:
        path = f"{site}/{name}"
        try:
            status = stat(path)
        except OSError:
            if is_strict or not (name.endswith(".py") and path_exists(f"{path}c")):
                yield "missing", path, "recorded when it was installed, and not there"
            continue
        if size is not None and status.st_size != size:
            yield _size_kind(path, status.st_size, size), path, f"{status.st_size} bytes instead of {size}"
        elif status.st_mode & READABLE != READABLE and not is_readable(path):
            yield "unreadable", path, "this user may not read it"
        elif status.st_mtime > latest:
            yield "touched", path, "written after it was installed"


def _size_kind(path: str, found: int, recorded: int) -> str:
    """Call a source short that lost more than half, or whose last line does not end; data that programs add to, as a company its certificates, has grown."""
    if found > recorded and path.endswith(DATA_SUFFIXES):
        return "grown"
    if found >= recorded or not path.endswith(".py"):
        return "resized"
    if found * 2 < recorded:
        return "short"
    try:
        with open(path, "rb", opener=open_regular) as file:
            return "resized" if file.read()[-1:] == b"\n" else "short"
    except OSError:
        return "resized"


def find_command_fault(path: str) -> tuple[str, str] | None:
    """The kind and the words of why a command cannot be started; None where its interpreter is there."""
    if not path_exists(path):
        return "command-gone", "recorded when it was installed, and not there"
    if not read_status(path).st_mode & 0o111:
        return "command", "it has no permission to be executed"
    first, second, *_ = [*read_lines(path)[:2], "", ""]
    words = first.removeprefix("#!").split() if first.startswith("#!/") else []
    if words == ["/bin/sh"] and second.startswith("'''exec' "):  # how a path is written that is too long for one line
        words = [second.split()[1].strip("'\"")]
    if not words or not words[0].startswith("/"):
        return None
    if not path_exists(words[0]):
        return "command", f"its interpreter {words[0]} is not there"
    return ("command", f"its interpreter {words[0]} is another Python") if _is_of_another(path, words[0]) else None


def _is_of_another(path: str, interpreter: str) -> bool:
    """Whether a command of a virtual environment starts the Python of another folder; a copy that ``fix`` changes has the commands of its original."""
    (home, _, folder), own = interpreter.rpartition("/bin/"), os.path.dirname(path)
    if not folder.startswith("python") or not path_exists(f"{os.path.dirname(own)}/pyvenv.cfg"):
        return False
    is_same = read_status(f"{home}/bin").st_ino == read_status(own).st_ino
    return not is_same and not path.startswith(f"{resolve_path(home)}{COPIES_SUFFIX}/")


def is_as_shipped(kind: str, path: str, copy: Distribution) -> bool:
    """Whether a file differs from its RECORD since before that was written: then the package itself has it wrong."""
    if kind not in ("resized", "missing"):
        return False
    while kind == "missing" and path and not path_exists(path):
        path = path.rpartition("/")[0]  # of a file that is not there, the folder that it would have been removed from
    return 0.0 < get_write_time(path) <= copy.get_record_time()


def compare_hashes(site: str, rows: Iterable[RecordRow]) -> Iterator[Difference]:
    """Yield each file whose contents are not those of its RECORD (``sha256=``, base64 without padding)."""
    large = [
        f"{site}/{name}" for name, digest, size in rows if digest.startswith("sha256=") and (size or 0) >= LARGE_FILE
    ]
    known = hash_large_files(large)
    for name, digest, _ in rows:
        kind, _, wanted = digest.partition("=")
        if not wanted or kind not in algorithms_guaranteed or kind.startswith("shake"):
            continue
        try:
            found = known.get(f"{site}/{name}") or hash_as_recorded(f"{site}/{name}", kind)
        except OSError:
            continue  # a missing file is reported as such
        if found != wanted:
            yield "changed", f"{site}/{name}", "its contents are not those of its RECORD"
