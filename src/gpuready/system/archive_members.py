"""Archives of strangers: what a damaged one raises, and how far one is unpacked."""

import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from lzma import LZMAError

from gpuready.system.files import open_regular
from gpuready.system.host_access import AccessError

ARCHIVE_ERRORS = (OSError, ValueError, EOFError, LookupError, RuntimeError, tarfile.TarError, zipfile.BadZipFile, zlib.error, LZMAError)  # fmt: skip
"""RuntimeError: encrypted, or packed in a way that Python does not know."""
MAX_UNPACKED_BYTES = 1 << 30
MAX_RECORD_BYTES = 64 << 20


def list_tar_members(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Yield the members; ValueError before one is unpacked that ends beyond 1 GiB: a megabyte of xz may hold terabytes."""
    for entry in archive:
        if entry.offset_data + entry.size > MAX_UNPACKED_BYTES:
            raise ValueError("the archive unpacks to more than 1 GiB")
        yield entry


def read_wheel_record(wheel: str) -> str:
    """Text of a wheel's RECORD; AccessError where it has none, or it cannot be read whole."""
    try:
        with open(wheel, "rb", opener=open_regular) as opened, zipfile.ZipFile(opened) as file:
            [name] = [name for name in file.namelist() if name.count("/") == 1 and name.endswith(".dist-info/RECORD")]
            with file.open(name) as member:
                data = member.read(MAX_RECORD_BYTES + 1)
    except ARCHIVE_ERRORS as error:
        raise AccessError(f"the RECORD in {wheel} cannot be read ({str(error)[:120]})") from None
    if len(data) > MAX_RECORD_BYTES:
        raise AccessError(f"the RECORD in {wheel} is larger than 64 MiB")
    return data.decode("utf-8", "replace")


def unpacked_wheel_size(wheel: str) -> tuple[int, int] | None:
    """Number of bytes and files a wheel unpacks to; None where it is not a zip file."""
    try:
        with open(wheel, "rb", opener=open_regular) as opened, zipfile.ZipFile(opened) as file:
            members = file.infolist()
    except ARCHIVE_ERRORS:
        return None
    return sum(member.file_size for member in members), len(members)
