"""Archives of strangers: what a damaged one raises, and how far one is unpacked."""

from __future__ import annotations

import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from lzma import LZMAError

ARCHIVE_ERRORS = (OSError, ValueError, EOFError, LookupError, RuntimeError, tarfile.TarError, zipfile.BadZipFile, zlib.error, LZMAError)  # fmt: skip
"""RuntimeError: encrypted, or packed in a way that Python does not know."""
MAX_UNPACKED_BYTES = 1 << 30


def list_tar_members(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Yield the members; ValueError before one is unpacked that ends beyond 1 GiB: a megabyte of xz may hold terabytes."""
    for entry in archive:
        if entry.offset_data + entry.size > MAX_UNPACKED_BYTES:
            raise ValueError("the archive unpacks to more than 1 GiB")
        yield entry
