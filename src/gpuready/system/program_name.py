"""How to start this gpuready where the word ``gpuready`` does not: after ``make check``, and with uvx."""

from __future__ import annotations

import os
import sys

UV_CACHE_BUCKETS = ("archive-v", "environments-v")
"""Folders of uv's cache with the environments of uvx: a path in them is gone tomorrow, and on PATH for one program."""


def find_start_words() -> list[str]:
    """Return the words that start this gpuready, such as ``.venv/bin/gpuready``; none where its name alone does."""
    started = sys.argv[0] if sys.argv else ""
    if started.endswith("/gpuready/__main__.py"):
        return [] if _find_on_path() else [_shorten_path(sys.executable), "-m", "gpuready"]
    if os.path.basename(started) != "gpuready" or "/" not in started:
        return []
    path = os.path.abspath(started)
    if _is_in_uv_cache(path):
        source = _find_source()
        return ["uvx", "--from", source, "gpuready"] if source else ["uvx", "gpuready"]
    first = _find_on_path()
    return [] if first and os.path.realpath(first) == os.path.realpath(path) else [_shorten_path(path)]


def find_new_environment() -> str:
    """Return the folder that ``gpuready install`` can take here: ``.venv``, unless another program made it."""
    try:
        names = os.listdir(".venv")
    except OSError:
        return ".venv"
    return ".venv" if not names or ".gpuready" in names else ".venv-gpuready"


def _find_on_path() -> str:
    """Return the program that the word ``gpuready`` starts in a shell; empty where there is none."""
    programs = (f"{folder}/gpuready" for folder in os.environ.get("PATH", "").split(":") if folder)
    return next((program for program in programs if os.access(program, os.X_OK)), "")


def _is_in_uv_cache(path: str) -> bool:
    """Whether it is ``…/archive-v0/ID/bin/gpuready``."""
    parts = os.path.realpath(path).split("/")
    return len(parts) > 4 and parts[-4].startswith(UV_CACHE_BUCKETS) and parts[-4][-1].isdigit()


def _find_source() -> str:
    """Return the folder or file that this gpuready was installed from, by its direct_url.json; empty for an index."""
    import json

    site = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    for name in os.listdir(site):
        if name.startswith("gpuready-") and name.endswith(".dist-info"):
            try:
                with open(f"{site}/{name}/direct_url.json", encoding="utf-8") as file:
                    address = str(json.load(file)["url"])
            except (OSError, ValueError, KeyError, TypeError):
                return ""
            from urllib.parse import unquote

            return unquote(address.removeprefix("file://"))
    return ""


def _shorten_path(path: str) -> str:
    """Return a path below the current folder as it is typed there."""
    here = os.getcwd() + "/"
    return path.removeprefix(here) if path.startswith(here) else path
