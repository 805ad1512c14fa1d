"""The metadata in a wheel or an sdist on an index. No code is run, and no wheel is downloaded whole."""

import io
import re
import tarfile
import zipfile
from collections.abc import Iterator
from http.client import HTTPException
from itertools import islice
from typing import Any

from gpuready.model.metadata import parse_requires_file
from gpuready.system.archive_members import ARCHIVE_ERRORS, list_tar_members
from gpuready.system.download import _download_error, _open_url, read_whole
from gpuready.system.host_access import AccessError
from gpuready.system.process.isolation import call_within

MAX_SDIST_BYTES = 64 << 20
MAX_METADATA_BYTES = 4 << 20
_METADATA_FILES = ("/PKG-INFO", ".egg-info/requires.txt")
MAX_CODE_FILES = 80
"""How much of a release's code is read: the first files of an sdist, the outermost of a wheel."""
SearchedCode = tuple[re.Pattern[str], tuple[str, ...]]
"""What is looked for in the code of a release, and the ends of the files that may have it."""
IMPORTS_TORCH = re.compile(r"^[ \t]*(?:import|from)[ \t]+torch\b", re.M), (".py",)
COMPILES_CUDA = re.compile(r"\bCUDAExtension\b|(?i:language)[^)]{0,80}\bCUDA\b"), ("/setup.py", "/CMakeLists.txt")
MAX_SECONDS = 60.0
"""For all of one release: a server that sends a letter now and then is never late with the next one."""
_TAIL_BYTES = 1 << 16
"""How much of a wheel's end is read at first: the list of its files, and mostly the metadata, which come last."""


def fetch_release_metadata(url: str, auth: str = "", cafile: str = "", timeout: float = 30.0) -> str:
    """Return the text of the metadata in a wheel or an sdist; AccessError where it has none or cannot be read.

    Of a wheel only the few bytes that matter are fetched: the file beside it that many indexes have, or a range.
    """
    return call_within(lambda: _fetch(url, auth, cafile, timeout), MAX_SECONDS, "the index")


def search_release(url: str, what: SearchedCode, auth: str = "", cafile: str = "", timeout: float = 30.0) -> str | None:
    """Return the first file of a wheel or an sdist whose text has something; empty for none, None where it cannot be read."""
    try:
        return call_within(lambda: _find_text(url, *what, auth, cafile, timeout), MAX_SECONDS, "the index")
    except (AccessError, *ARCHIVE_ERRORS, HTTPException):
        return None


def _find_text(url: str, text: re.Pattern[str], ends: tuple[str, ...], auth: str, cafile: str, timeout: float) -> str:
    if url.partition("#")[0].endswith(".whl"):
        files = _zip_texts(RangedFile(url.partition("#")[0], auth, cafile, timeout), ends)
    else:
        files = _archive_texts(url, auth, cafile, timeout, ends)
    return next((name for name, code in islice(files, MAX_CODE_FILES) if text.search(code)), "")


def _fetch(url: str, auth: str, cafile: str, timeout: float) -> str:
    try:
        if not url.partition("#")[0].endswith(".whl"):
            return _read_sdist(url, auth, cafile, timeout)
        if url.startswith("http"):
            try:
                with _open_url(f"{url.partition('#')[0]}.metadata", auth, cafile, timeout) as stream:
                    return _decode(read_whole(stream, MAX_METADATA_BYTES))
            except (OSError, HTTPException):
                pass  # an index without such files
        return _read_wheel(RangedFile(url.partition("#")[0], auth, cafile, timeout))
    except (*ARCHIVE_ERRORS, HTTPException) as error:
        raise AccessError(_download_error(error) if isinstance(error, OSError) else str(error)[:120]) from None


def _decode(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _read_wheel(file: Any) -> str:
    with zipfile.ZipFile(file) as archive:
        named = [n for n in archive.namelist() if n.count("/") == 1 and n.endswith(".dist-info/METADATA")]
        if len(named) != 1:
            raise ValueError("the wheel has no metadata")
        with archive.open(named[0]) as stream:
            return _decode(stream.read(MAX_METADATA_BYTES))


def _read_sdist(url: str, auth: str, cafile: str, timeout: float) -> str:
    """Return PKG-INFO of an sdist: what its requirements were when it was made."""
    files = _archive_texts(url, auth, cafile, timeout, _METADATA_FILES)
    texts = {name.removeprefix("./"): text for name, text in files}
    found = next((text for name, text in texts.items() if name.count("/") == 1 and name.endswith("/PKG-INFO")), None)
    if found is None:
        raise ValueError("the source archive has no PKG-INFO")
    if "\nRequires-Dist:" in found:
        return found
    listed = next((text for name, text in texts.items() if name.endswith(".egg-info/requires.txt")), "")
    return "".join(f"Requires-Dist: {one}\n" for one in parse_requires_file(listed)) + found


def _archive_texts(
    url: str, auth: str, cafile: str, timeout: float, ends: tuple[str, ...]
) -> Iterator[tuple[str, str]]:
    with _open_url(url.partition("#")[0], auth, cafile, timeout) as stream:
        data = io.BytesIO(read_whole(stream, MAX_SDIST_BYTES))
    return _zip_texts(data, ends) if zipfile.is_zipfile(data) else _tar_texts(data, ends)


def _zip_texts(file: Any, ends: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    with zipfile.ZipFile(file) as archive:
        for name in sorted(archive.namelist(), key=lambda one: one.count("/")):
            if name.endswith(ends):
                with archive.open(name) as member:
                    yield name, _decode(member.read(MAX_METADATA_BYTES))


def _tar_texts(file: Any, ends: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    file.seek(0)
    with tarfile.open(fileobj=file) as archive:
        for entry in list_tar_members(archive):
            member = archive.extractfile(entry) if entry.name.endswith(ends) and entry.isfile() else None
            if member is not None:
                yield entry.name, _decode(member.read(MAX_METADATA_BYTES))


class RangedFile:
    """A file on a server, read by ranges, as far as ``zipfile`` needs one; keeps the piece that was read last."""

    def __init__(self, url: str, auth: str = "", cafile: str = "", timeout: float = 60.0):
        self.url, self.auth, self.cafile, self.timeout = url, auth, cafile, timeout
        self.at, self.ahead = 0, _TAIL_BYTES
        self.known = self._fetch(f"-{_TAIL_BYTES}")
        self.start = self.size - len(self.known)

    def _fetch(self, wanted: str) -> bytes:
        if not self.url.startswith("http"):
            with _open_url(self.url, "", "", self.timeout) as stream:
                whole: bytes = stream.read()
            self.size = len(whole)
            return whole
        headers = {"Range": f"bytes={wanted}", "Accept-Encoding": "identity"}
        with _open_url(self.url, self.auth, self.cafile, self.timeout, headers) as stream:
            data = read_whole(stream, MAX_SDIST_BYTES)  # an index that cannot send a part of a file sends all of it
            self.size = int((stream.headers["Content-Range"] or str(len(data))).rpartition("/")[2])
            return data

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.at

    def seek(self, offset: int, whence: int = 0) -> int:
        self.at = max(0, offset + (0, self.at, self.size)[whence])
        return self.at

    def read(self, count: int = -1) -> bytes:
        end = self.size if count < 0 else min(self.size, self.at + count)
        if end > self.at and not (self.start <= self.at and end <= self.start + len(self.known)):
            self.known = self._fetch(f"{self.at}-{min(max(end, self.at + self.ahead), self.size) - 1}")
            self.start = self.at if len(self.known) < self.size else 0
        piece = self.known[self.at - self.start : end - self.start]
        self.at += len(piece)
        return piece
