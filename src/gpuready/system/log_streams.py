"""Logs as byte streams: files, folders, pipes and compressed files, within limits, in constant memory."""

import codecs
import os
import re
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from stat import S_ISDIR, S_ISFIFO, S_ISREG, S_ISSOCK
from typing import Any

from gpuready.system.files import error_reason, printable_name
from gpuready.system.host_access import AccessError
from gpuready.system.path_allowlist import PathAllowlist

CHUNK_BYTES = 2 << 20
MAX_FILES, MAX_DEPTH = 20_000, 12
"""How many files of a folder are read, and how deep."""

MAX_EXPANSION, EXPANSION_CHECK_BYTES = 150, 256 << 20
"""Compressed data that expands more than this many times is not a log, once it has yielded this many bytes."""

BASE_SECONDS, STORED_BYTES_PER_SECOND = 20.0, 1 << 20
"""Processor time that logs may take: some for any log, and more for large ones. Plain logs need a hundredth of it."""

_MAGIC = {b"\x1f\x8b": "gz", b"BZh": "bz2", b"\xfd7zXZ\x00": "xz", b"\x28\xb5\x2f\xfd": "zst"}
_DECOMPRESSORS: dict[str, tuple[Any, ...]] = {
    "gz": ("zlib", "decompressobj", 31),
    "bz2": ("bz2", "BZ2Decompressor"),
    "xz": ("lzma", "LZMADecompressor", 0, 192 << 20),  # any format, at most this much memory
    "zst": ("compression.zstd", "ZstdDecompressor"),  # Python 3.14
}
_CANNOT_DECOMPRESS = "it is compressed with {}, which this Python cannot read; unpack it first"
_OTHER_FORMATS = {
    b"PK\x03\x04": "a zip archive", b"PK\x05\x06": "a zip archive", b"\x7fELF": "a program", b"\x89HDF": "an HDF5 file",
    b"\x93NUMPY": "an array of numpy", b"GGUF\x02\0": "a model in GGUF", b"GGUF\x03\0": "a model in GGUF", b"PAR1\x15": "a Parquet file", b"\x89PNG": "a picture", b"%PDF-": "a PDF",
    b"7z\xbc\xaf": "a 7z archive", b"Rar!\x1a\x07": "a rar archive", b"\x80\x02": "a pickle", b"\x80\x03": "a pickle",
    b"\x80\x04": "a pickle", b"\x80\x05": "a pickle",
}  # fmt: skip
_WIDE_ENCODINGS = {
    b"\xff\xfe\x00\x00": "utf-32",
    b"\x00\x00\xfe\xff": "utf-32",
    b"\xff\xfe": "utf-16",
    b"\xfe\xff": "utf-16",
}
_BINARY_CONTROL_BYTES = bytes(sorted({*range(1, 32), 127} - {*b"\a\b\t\n\v\f\r\x1b"}))
"""Control characters that neither texts nor terminals use."""


class ReadBudget:
    """What the logs of one diagnosis may cost together: processor time of this thread, and unpacked bytes, by the bytes that are stored."""

    most_seconds = float("inf")
    """A server lowers it: nobody waits there for a large log."""

    def __init__(self) -> None:
        self.started, self.stored, self.packed, self.unpacked, self.is_over = time.thread_time(), 0, 0, 0, False

    @property
    def seconds(self) -> float:
        return min(self.most_seconds, BASE_SECONDS + self.stored / STORED_BYTES_PER_SECOND)

    def is_spent(self, share: float = 1.0, ahead: float = 0.0) -> bool:
        """Whether that share of the time is over, or would be after so many more seconds; the others are for what follows."""
        is_over = time.thread_time() - self.started + ahead > self.seconds * share
        self.is_over = self.is_over or is_over
        return is_over

    def is_too_large(self) -> bool:
        return self.unpacked > EXPANSION_CHECK_BYTES and self.unpacked > MAX_EXPANSION * self.packed


class LogStream:
    """One log: its name, and its bytes on iteration. ``cut`` says why it was not read to its end."""

    def __init__(self, name: str, path: str | None, allowlist: PathAllowlist | None, budget: ReadBudget):
        self.name, self.path, self.cut, self.allowlist, self.budget = name, path, "", allowlist, budget

    def __iter__(self) -> Iterator[bytes]:
        fd = 0 if self.path is None else _open_log(self.path, self.allowlist)
        try:
            yield from _decompress_and_decode(self._read_chunks(fd), self)
        except OSError as error:
            self.cut = f"reading stopped: {error_reason(error)}"
        finally:
            if fd:
                os.close(fd)

    def _read_chunks(self, fd: int) -> Iterator[bytes]:
        found, read = os.fstat(fd), 0
        stored = (
            found.st_blocks * 512 if S_ISREG(found.st_mode) else float("inf")
        )  # holes, and files of /proc, hold nothing
        while not self.budget.is_spent() and (piece := os.read(fd, CHUNK_BYTES)):
            read += len(piece)
            self.budget.stored += len(piece) if read <= stored else 0
            yield piece

    @property
    def size(self) -> int:
        """The size of a regular file, as it is stored; 0 of what has none."""
        try:
            return 0 if self.path is None else os.stat(self.path).st_size
        except OSError:
            return 0

    def read_head(self, size: int = 4096) -> bytes:
        """The first bytes of a regular file, as they are stored."""
        if self.path is None or not S_ISREG(os.stat(self.path).st_mode):
            return b""
        fd = _open_log(self.path, self.allowlist)
        try:
            return os.read(fd, size)
        finally:
            os.close(fd)


def unreadable_reason(head: bytes) -> str:
    """Why this Python cannot read a log that begins so; empty where it can."""
    kind = next((kind for magic, kind in _MAGIC.items() if head.startswith(magic)), "")
    return _CANNOT_DECOMPRESS.format(kind) if kind and _decompressor_factory(kind) is None else ""


def non_log_reason(head: bytes) -> str:
    """What kind of file begins so, where it is not a log; nothing is ever unpacked or loaded."""
    kind = next((kind for magic, kind in _OTHER_FORMATS.items() if head.startswith(magic)), "")
    kind = kind or ("a tar archive" if head[257:262] == b"ustar" else "")
    kind = kind or ("binary data" if _is_binary(head) else "")
    return f"it is {kind}, not a log; name the text that the run wrote" if kind else ""


def _is_binary(head: bytes) -> bool:
    """Whether it contains control characters that no text has. NUL is allowed: a file cut while written begins so."""
    if head.startswith((*_MAGIC, *_WIDE_ENCODINGS)) or _detect_utf16(head[:2000]):
        return False
    return len(head) >= 64 and len(head) - len(head.translate(None, _BINARY_CONTROL_BYTES)) > len(head) // 32


def open_log_streams(
    path: str, allowlist: PathAllowlist | None = None, budget: ReadBudget | None = None
) -> list[LogStream]:
    """A file, a pipe, every file of a folder, or stdin (-). AccessError says why nothing can be read: also what leads outside the allowlist."""
    budget = budget or ReadBudget()
    if path == "-":
        return [LogStream("stdin", None, None, budget)]
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        raise AccessError(error_reason(error)) from None
    except ValueError:
        raise AccessError("not a path") from None
    if S_ISDIR(mode):
        found = _list_regular_files(path)
        return [LogStream(printable_name(os.path.relpath(name, path)), name, allowlist, budget) for name in found]
    if not (S_ISREG(mode) or S_ISFIFO(mode) or S_ISSOCK(mode)):
        raise AccessError("is a device, not a log")
    if S_ISREG(mode):
        os.close(_open_log(path, allowlist))  # report an unreadable file at once
    return [LogStream(printable_name(os.path.basename(path)), path, allowlist, budget)]


def follow_growing_file(path: str, pause: float = 0.5, patience: float | None = None) -> Iterator[bytes]:
    """A file that is still being written: its content, then what is appended. Starts again where it was replaced.

    Empty pieces mean that nothing came for a while. Ends when nothing has come for ``patience`` seconds.
    """
    fd, quiet = _open_log(path), 0.0
    try:
        while patience is None or quiet < patience:
            piece = os.read(fd, CHUNK_BYTES)
            if piece:
                quiet = 0.0
                yield piece
                continue
            yield b""
            time.sleep(pause)
            quiet += pause
            if _was_replaced(fd, path):
                os.close(fd)
                fd = _open_log(path)
    finally:
        os.close(fd)


def _was_replaced(fd: int, path: str) -> bool:
    """Whether another file is at the path, or this one was truncated."""
    try:
        now, ours = os.stat(path), os.fstat(fd)
        return now.st_ino != ours.st_ino or now.st_size < os.lseek(fd, 0, os.SEEK_CUR)
    except OSError:
        return False


def _list_regular_files(root: str) -> list[str]:
    """The regular files of a folder, links not followed, in order."""
    found: list[str] = []
    left = [(root, 0)]
    while left:
        folder, depth = left.pop()
        try:
            with os.scandir(folder) as entries:
                rows = sorted(entries, key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in rows:
            if entry.is_dir(follow_symlinks=False) and depth < MAX_DEPTH:
                left.append((entry.path, depth + 1))
            elif entry.is_file(follow_symlinks=False) and len(found) < MAX_FILES:
                found.append(entry.path)
    return sorted(found, key=_natural_order)


def _natural_order(path: str) -> list[tuple[int, str]]:
    """Sort 2 before 10."""
    parts = re.findall(r"\d+|\D", path)
    return [(int(part[:18]), "") if part.isdecimal() else (-1, part) for part in parts]


def _open_log(path: str, allowlist: PathAllowlist | None = None) -> int:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError as error:
        raise AccessError(error_reason(error)) from None
    try:
        if allowlist is not None:
            allowlist.check_opened(fd)
    except AccessError:
        os.close(fd)
        raise
    return fd


# -- compression and encoding --------------------------------------------------------------------------------------


def _decompress_and_decode(pieces: Iterator[bytes], stream: LogStream) -> Iterator[bytes]:
    first = next(pieces, b"")
    while len(first) < 8 and (more := next(pieces, b"")):  # a pipe may deliver it byte by byte
        first += more
    kind = next((kind for magic, kind in _MAGIC.items() if first.startswith(magic)), "")
    rest = _prepend_chunk(first, pieces)
    if kind:
        rest = _decompress_chunks(rest, kind, stream)
    return _decode_to_utf8(rest)


def _prepend_chunk(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    if first:
        yield first
    yield from rest


def _decode_to_utf8(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Convert UTF-16 and UTF-32 to UTF-8; everything else stays as it is."""
    first = next(pieces, b"")
    marked = (name for mark, name in _WIDE_ENCODINGS.items() if first.startswith(mark))
    wide = next(marked, "") or _detect_utf16(first[:2000])
    if not wide:
        yield from _prepend_chunk(first, pieces)
        return
    decoder = codecs.getincrementaldecoder(wide)("replace")
    for piece in _prepend_chunk(first, pieces):
        yield decoder.decode(piece).encode("utf-8", "replace")


def _detect_utf16(sample: bytes) -> str:
    """UTF-16 without a byte order mark: every other byte of ASCII text is NUL."""
    if len(sample) < 64 or sample.count(0) < len(sample) // 3:
        return ""
    odd, even = sample[1::2].count(0), sample[0::2].count(0)
    half = len(sample) // 2
    if odd > 0.8 * half and even < 0.1 * half:
        return "utf-16-le"
    return "utf-16-be" if even > 0.8 * half and odd < 0.1 * half else ""


def _decompress_chunks(pieces: Iterator[bytes], kind: str, stream: LogStream) -> Iterator[bytes]:
    """Decompressed bytes; data that is broken or expands too much ends there, and ``cut`` says so."""
    make = _decompressor_factory(kind)
    if make is None:
        raise AccessError(_CANNOT_DECOMPRESS.format(kind))
    decompressor, produced, budget = make(), 0, stream.budget
    for piece in pieces:
        budget.packed += len(piece)
        while piece or decompressor.more:
            if budget.is_spent():
                return
            try:
                out = decompressor(piece)
            except Exception:  # each library has its own errors
                stream.cut = f"the {kind} data is broken after {produced} bytes"
                return
            produced += len(out)
            budget.unpacked += len(out)
            if budget.is_too_large():
                stream.cut = (
                    f"read {produced >> 20} MiB of it; the rest was not looked at: it gives more than {MAX_EXPANSION} times "
                    "its size; a log that is unpacked first has no such limit"
                )
                return
            if out:
                yield out
            piece = decompressor.left
            if decompressor.ended:
                decompressor = make()
                piece = piece.lstrip(b"\0")  # padding after the last member
    if decompressor.fed and not budget.is_over:
        stream.cut = f"the {kind} data ends too early, after {produced} bytes"


class _ChunkDecompressor:
    """One interface to the decompressors: at most a chunk at a time; ``left`` is unconsumed input."""

    def __init__(self, kind: str):
        self.left, self.ended, self.more, self.fed = b"", False, False, False
        self._decompressor = _make_decompressor(kind)

    def __call__(self, data: bytes) -> bytes:
        self.fed = True
        out: bytes = self._decompressor.decompress(data, CHUNK_BYTES)
        self.ended = self._decompressor.eof
        # zlib has the unconsumed input itself, the others keep it inside
        self.left = (
            self._decompressor.unused_data if self.ended else getattr(self._decompressor, "unconsumed_tail", b"")
        )
        self.more = not self.ended and not getattr(self._decompressor, "needs_input", len(out) < CHUNK_BYTES)
        return out


def _make_decompressor(kind: str) -> Any:
    module, name, *arguments = _DECOMPRESSORS[kind]
    return getattr(import_module(module), name)(*arguments)


def _decompressor_factory(kind: str) -> Callable[[], _ChunkDecompressor] | None:
    try:
        _make_decompressor(kind)
    except ImportError:
        return None
    return lambda: _ChunkDecompressor(kind)
