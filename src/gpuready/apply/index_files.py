"""Files of an index, as a lock names them: name, address, size and hash, and the login for them."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from gpuready.apply.uv import UvSettings
from gpuready.system.download import unquote_url


def parse_file_entry(entry: dict[str, Any]) -> tuple[str, str, int, str]:
    """Return name, address, size (0 if unknown) and hash of a file in a pylock."""
    url = str(entry.get("url") or entry.get("path") or "")
    url = unquote_url(url.removeprefix("file://")) if url.startswith("file://") else url
    name = str(entry.get("name") or unquote_url(url.partition("#")[0].rpartition("/")[2]))
    digest = (entry.get("hashes") or {}).get("sha256", "")
    size = entry.get("size")
    if "/" in name or name.startswith("."):
        raise ValueError(f"the index calls a file {name[:60]!r}, which is not a valid file name")
    return name, url, size if isinstance(size, int) else 0, f"sha256:{digest}"


def index_authorization(url: str, settings: UvSettings) -> str:
    """Return the login of the user's own index, for a file on the same host."""
    host = url.partition("://")[2].partition("/")[0]
    for known in (settings.env.get("UV_DEFAULT_INDEX") or "", *settings.extra):
        login, at, at_host = known.partition("://")[2].partition("/")[0].rpartition("@")
        if at and at_host == host:
            return f"Basic {b64encode(login.encode()).decode()}"
    return ""
