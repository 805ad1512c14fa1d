"""Logs as byte streams: files, folders, pipes and compressed files, within limits, in constant memory."""

from __future__ import annotations

import os
from stat import S_ISDIR, S_ISFIFO, S_ISREG, S_ISSOCK

from gpuready.system.door import Blind
from gpuready.system.files import text, why

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

CHUNK = 2 << 20
FILES, DEPTH = 20_000, 12
"""How many files of a folder are read, and how deep."""

SWELL, HARMLESS = 150, 256 << 20
"""Compressed data that expands more than this many times is not a log, once it has given this many bytes."""

_MAGIC = {b"\x1f\x8b": "gz", b"BZh": "bz2", b"\xfd7zXZ\x00": "xz", b"\x28\xb5\x2f\xfd": "zst"}
_SEALED = "it is compressed with {}, which this Python cannot read; unpack it first"
_FOREIGN = {
    b"PK\x03\x04": "a zip archive", b"PK\x05\x06": "a zip archive", b"\x7fELF": "a program", b"\x89HDF": "an HDF5 file",
    b"\x93NUMPY": "an array of numpy", b"GGUF\x02\0": "a model in GGUF", b"GGUF\x03\0": "a model in GGUF", b"PAR1\x15": "a Parquet file", b"\x89PNG": "a picture", b"%PDF-": "a PDF",
    b"7z\xbc\xaf": "a 7z archive", b"Rar!\x1a\x07": "a rar archive", b"\x80\x02": "a pickle", b"\x80\x03": "a pickle",
    b"\x80\x04": "a pickle", b"\x80\x05": "a pickle",
}  # fmt: skip
_WIDE = {
    b"\xff\xfe\x00\x00": "utf-32",
    b"\x00\x00\xfe\xff": "utf-32",
    b"\xff\xfe": "utf-16",
    b"\xfe\xff": "utf-16",
}
_UNWRITTEN = bytes(sorted({*range(1, 32), 127} - {*b"\a\b\t\n\v\f\r\x1b"}))
"""Control characters that neither texts nor terminals use."""


class Stream:
    """One log: its name, and its bytes on iteration. ``cut`` says why it was not read to its end."""

    def __init__(self, name: str, path: str | None):
        self.name, self.path, self.cut = name, path, ""

    def __iter__(self) -> Iterator[bytes]:
        fd = 0 if self.path is None else _open(self.path)
        try:
            yield from _unwrapped(_pieces(fd), self)
        except OSError as error:
            self.cut = f"reading stopped: {why(error)}"
        finally:
            if fd:
                os.close(fd)

    def head(self, size: int = 4096) -> bytes:
        """The first bytes of a regular file, as they are stored."""
        if self.path is None or not S_ISREG(os.stat(self.path).st_mode):
            return b""
        fd = _open(self.path)
        try:
            return os.read(fd, size)
        finally:
            os.close(fd)


def sealed(head: bytes) -> str:
    """Why this Python cannot read a log that begins so; empty where it can."""
    kind = next((kind for magic, kind in _MAGIC.items() if head.startswith(magic)), "")
    return _SEALED.format(kind) if kind and _decompressor(kind) is None else ""


def foreign(head: bytes) -> str:
    """What kind of file begins so, where it is not a log; nothing is ever unpacked or loaded."""
    kind = next((kind for magic, kind in _FOREIGN.items() if head.startswith(magic)), "")
    kind = kind or ("a tar archive" if head[257:262] == b"ustar" else "")
    kind = kind or ("no text" if _is_binary(head) else "")
    return f"it is {kind}, not a log; name the text that the run wrote" if kind else ""


def _is_binary(head: bytes) -> bool:
    """Whether it contains control characters that no text has. NUL is allowed: a file cut while written begins so."""
    if head.startswith((*_MAGIC, *_WIDE)) or _unmarked(head[:2000]):
        return False
    return len(head) >= 64 and len(head) - len(head.translate(None, _UNWRITTEN)) > len(head) // 32


def streams(path: str) -> list[Stream]:
    """A file, a pipe, every file of a folder, or stdin (-). AccessError says why nothing can be read."""
    if path == "-":
        return [Stream("stdin", None)]
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        raise Blind(why(error)) from None
    except ValueError:
        raise Blind("not a path") from None
    if S_ISDIR(mode):
        return [Stream(text(os.path.relpath(found, path)), found) for found in _walk(path)]
    if not (S_ISREG(mode) or S_ISFIFO(mode) or S_ISSOCK(mode)):
        raise Blind("is a device, not a log")
    if S_ISREG(mode):
        os.close(_open(path))  # report an unreadable file at once
    return [Stream(text(os.path.basename(path)), path)]


def growing(path: str, pause: float = 0.5, patience: float | None = None) -> Iterator[bytes]:
    """A file that is still being written: its content, then what is appended. Starts again where it was replaced.

    Empty pieces mean that nothing came for a while. Ends when nothing has come for ``patience`` seconds.
    """
    import time

    fd, quiet = _open(path), 0.0
    try:
        while patience is None or quiet < patience:
            piece = os.read(fd, CHUNK)
            if piece:
                quiet = 0.0
                yield piece
                continue
            yield b""
            time.sleep(pause)
            quiet += pause
            if _replaced(fd, path):
                os.close(fd)
                fd = _open(path)
    finally:
        os.close(fd)


def _replaced(fd: int, path: str) -> bool:
    """Whether another file is at the path, or this one was truncated."""
    try:
        now, ours = os.stat(path), os.fstat(fd)
        return now.st_ino != ours.st_ino or now.st_size < os.lseek(fd, 0, os.SEEK_CUR)
    except OSError:
        return False


def _walk(root: str) -> list[str]:
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
            if entry.is_dir(follow_symlinks=False) and depth < DEPTH:
                left.append((entry.path, depth + 1))
            elif entry.is_file(follow_symlinks=False) and len(found) < FILES:
                found.append(entry.path)
    return sorted(found, key=_natural)


def _natural(path: str) -> list[tuple[int, str]]:
    """Sort 2 before 10."""
    parts, digits = [], ""
    for char in path:
        if char.isdecimal():
            digits += char
            continue
        if digits:
            parts.append((int(digits[:18]), ""))
            digits = ""
        parts.append((-1, char))
    return [*parts, (int(digits[:18]), "")] if digits else parts


def _open(path: str) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError as error:
        raise Blind(why(error)) from None


def _pieces(fd: int) -> Iterator[bytes]:
    while piece := os.read(fd, CHUNK):
        yield piece


# -- compression and encoding --------------------------------------------------------------------------------------


def _unwrapped(pieces: Iterator[bytes], stream: Stream) -> Iterator[bytes]:
    first = next(pieces, b"")
    while len(first) < 8 and (more := next(pieces, b"")):  # a pipe may deliver it byte by byte
        first += more
    kind = next((kind for magic, kind in _MAGIC.items() if first.startswith(magic)), "")
    rest = _and(first, pieces)
    if kind:
        rest = _inflated(rest, kind, stream)
    return _text_of(rest)


def _and(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    if first:
        yield first
    yield from rest


def _text_of(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Convert UTF-16 and UTF-32 to UTF-8; everything else stays as it is."""
    first = next(pieces, b"")
    wide = next((name for mark, name in _WIDE.items() if first.startswith(mark)), "") or _unmarked(
        first[:2000]
    )
    if not wide:
        yield from _and(first, pieces)
        return
    import codecs

    decoder = codecs.getincrementaldecoder(wide)("replace")
    for piece in _and(first, pieces):
        yield decoder.decode(piece).encode("utf-8", "replace")


def _unmarked(sample: bytes) -> str:
    """UTF-16 without a byte order mark: every other byte of ASCII text is NUL."""
    if len(sample) < 64 or sample.count(0) < len(sample) // 3:
        return ""
    odd, even = sample[1::2].count(0), sample[0::2].count(0)
    half = len(sample) // 2
    return (
        "utf-16-le"
        if odd > 0.8 * half and even < 0.1 * half
        else "utf-16-be"
        if even > 0.8 * half and odd < 0.1 * half
        else ""
    )


def _inflated(pieces: Iterator[bytes], kind: str, stream: Stream) -> Iterator[bytes]:
    """Decompressed bytes; data that is broken or expands too much ends there, and ``cut`` says so."""
    make = _decompressor(kind)
    if make is None:
        raise Blind(_SEALED.format(kind))
    one, taken, given = make(), 0, 0
    for piece in pieces:
        taken += len(piece)
        while piece or one.more:
            try:
                out = one(piece)
            except Exception:  # each library has its own errors
                stream.cut = f"the {kind} data is broken after {given} bytes"
                return
            given += len(out)
            if given > HARMLESS and given > SWELL * taken:
                stream.cut = f"it gives more than {SWELL} times its size: reading stopped after {given} bytes"
                return
            if out:
                yield out
            piece = one.left
            if one.ended:
                one = make()
                piece = piece.lstrip(b"\0")  # padding after the last member
    if one.fed:
        stream.cut = f"the {kind} data ends too early, after {given} bytes"


class _Inflate:
    """One interface to the decompressors: at most a chunk at a time; ``left`` is unconsumed input."""

    def __init__(self, kind: str):
        self.kind, self.left, self.ended, self.more, self.fed = kind, b"", False, False, False
        self._one = _made(kind)

    def __call__(self, data: bytes) -> bytes:
        self.fed = True
        if self.kind == "gz":
            out: bytes = self._one.decompress(data, CHUNK)
            self.ended = self._one.eof
            self.left = self._one.unused_data if self.ended else self._one.unconsumed_tail
            self.more = not self.ended and len(out) >= CHUNK
            return out
        out = self._one.decompress(data, CHUNK)
        self.ended = self._one.eof
        self.left = self._one.unused_data if self.ended else b""
        self.more = not self.ended and not self._one.needs_input
        return out


def _made(kind: str) -> Any:
    if kind == "gz":
        import zlib

        return zlib.decompressobj(31)
    if kind == "bz2":
        import bz2

        return bz2.BZ2Decompressor()
    if kind == "xz":
        import lzma

        return lzma.LZMADecompressor(memlimit=192 << 20)
    zstd = __import__("compression.zstd", fromlist=["ZstdDecompressor"])  # Python 3.14
    return zstd.ZstdDecompressor()


def _decompressor(kind: str) -> Callable[[], _Inflate] | None:
    try:
        _made(kind)
    except ImportError:
        return None
    return lambda: _Inflate(kind)
