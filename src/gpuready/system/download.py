"""Download files: streamed to disk, checked against their hash, and renamed into place only when correct."""

import os
import ssl
from collections.abc import Collection, Mapping
from functools import cache
from hashlib import sha256
from http.client import HTTPException
from typing import IO, Any
from urllib.parse import quote, unquote
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from gpuready.system.durable_files import unlink_quietly
from gpuready.system.file_contents import hash_file_contents
from gpuready.system.files import error_reason
from gpuready.system.host_access import AccessError
from gpuready.system.process.isolation import call_within

_CHUNK_BYTES = 1 << 20
FREE_SPACE_MARGIN = 64 << 20
"""Bytes that must stay free on the disk beyond the file itself."""


def download_file(
    url: str, path: str, hashes: Collection[str], auth: str = "", cafile: str = "", timeout: float = 60.0
) -> int:
    """Download one file to a path; return its size. On AccessError nothing is left at the path."""
    draft, digest, size = f"{path}.part", sha256(), 0
    try:
        with _open_url(url, auth, cafile, timeout) as stream, open(draft, "wb") as file:
            _require_disk_space(path, _announced_length(stream) or 0)
            while piece := stream.read(_CHUNK_BYTES):
                digest.update(piece)
                size += file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        if _announced_length(stream) not in (None, size):
            raise AccessError(f"broke off after {size} of {_announced_length(stream)} bytes")
        if f"sha256:{digest.hexdigest()}" not in hashes:
            raise AccessError("the file that came has another hash than the lock")
        os.rename(draft, path)
    except AccessError:
        unlink_quietly(draft)
        raise
    except (OSError, ValueError, HTTPException) as error:
        unlink_quietly(draft)
        raise AccessError(_download_error(error)) from None
    return size


def fetch_text(url: str, limit: int, auth: str = "", timeout: float = 60.0) -> str:
    """Return a small text; AccessError if it cannot be had in this time, or is larger than the limit."""
    return call_within(lambda: _fetch_text(url, limit, auth, timeout), timeout, "the server")


def _fetch_text(url: str, limit: int, auth: str, timeout: float) -> str:
    try:
        with _open_url(url, auth, "", timeout) as stream:
            return read_whole(stream, limit).decode("utf-8")
    except (OSError, ValueError, HTTPException) as error:
        raise AccessError(_download_error(error)) from None


def read_whole(stream: Any, limit: int) -> bytes:
    """Return what a server sends; AccessError where it is more than the limit, or less than the server announced."""
    data: bytes = stream.read(limit + 1)
    if len(data) > limit:
        raise AccessError(f"it is larger than {limit} bytes")
    if _announced_length(stream) not in (None, len(data)):
        raise AccessError(f"broke off after {len(data)} of {_announced_length(stream)} bytes")
    return data


def _announced_length(stream: Any) -> int | None:
    length = stream.headers.get("Content-Length") or "" if hasattr(stream, "headers") else ""
    return int(length) if length.isascii() and length.isdigit() and len(length) < 16 else None


class _LoginStays(HTTPRedirectHandler):
    """Follows redirects; the login of an index is not sent to another server than its own."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> Request | None:
        request = super().redirect_request(req, fp, code, msg, headers, newurl)
        if request is not None and (request.type, request.host) != (req.type, req.host):
            request.remove_header("Authorization")
        return request


def _open_url(url: str, auth: str, cafile: str, timeout: float, headers: Mapping[str, str] | None = None):  # type: ignore[no-untyped-def]
    if url.startswith("/"):
        return open(url, "rb")
    if not url.startswith(("https://", "http://", "file://")):
        raise AccessError("not an address that files are fetched from")
    request = Request(url, headers={**(headers or {}), **({"Authorization": auth} if auth else {})})
    context = _load_certificates(cafile, os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))
    return build_opener(_LoginStays(), HTTPSHandler(context=context)).open(request, timeout=timeout)


# 40 ms; of an http address too, which may lead to https. By the file, and by the variables that name another.
_load_certificates = cache(lambda cafile, *_: ssl.create_default_context(cafile=cafile or None))


def _require_disk_space(path: str, size: int) -> None:
    found = os.statvfs(os.path.dirname(path) or ".")
    if found.f_bavail * found.f_frsize < size + (FREE_SPACE_MARGIN if size else 0):
        raise AccessError("no space left on device")


def _download_error(error: Exception) -> str:
    inner = getattr(error, "reason", None)
    if isinstance(inner, OSError):
        return error_reason(inner)
    if isinstance(error, OSError) and error.strerror:
        return error_reason(error)
    return str(inner or error or type(error).__name__)[:120]


def sha256_of_file(path: str) -> str:
    """``sha256:`` hash of a file; empty where it cannot be read."""
    try:
        return f"sha256:{hash_file_contents(path)}"
    except OSError:
        return ""


def ensure_folder(path: str) -> None:
    """Make a folder if it does not exist."""
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise AccessError(error_reason(error)) from None


def publish_folder(draft: str, path: str) -> None:
    """Rename a finished folder into place. AccessError where that name is taken."""
    try:
        if os.path.isdir(path) and not os.listdir(path):
            os.rmdir(path)
        os.rename(draft, path)
    except OSError as error:
        raise AccessError(error_reason(error)) from None


def quote_path(path: str) -> str:
    return quote(path, safe="/+")


def unquote_url(text: str) -> str:
    """``%2B`` -> ``+``."""
    return unquote(text)
