"""The command line: the words that start this gpuready, and whether the disks of the files that it names answer."""

import os
import stat
import sys
from collections.abc import Iterator, Sequence

from gpuready.system.host_access import AccessError
from gpuready.system.process.isolation import call_within

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


def find_new_environment(takes_own: bool = True) -> str:
    """Return the folder for an environment here: ``.venv``, unless it is taken; ``gpuready install`` takes its own."""
    for name in (".venv", ".venv-gpuready"):
        try:
            names = os.listdir(name)
        except OSError:
            return name
        if not names or (takes_own and ".gpuready" in names):
            return name
    return ".venv-gpuready-2"


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


ANSWER_SECONDS = 5.0


def require_answering_disks(argv: Sequence[str]) -> None:
    """AccessError, in a sentence, if a disk with a file of this command line does not answer."""
    for path in dict.fromkeys(_named_paths(argv)):
        try:
            call_within(lambda path=path: _touch_file(path), ANSWER_SECONDS, path)  # type: ignore[misc]
        except AccessError:
            raise AccessError(f"{path} cannot be looked at: no answer within {ANSWER_SECONDS:g} s; is its disk there?") from None  # fmt: skip


def _named_paths(argv: Sequence[str]) -> Iterator[str]:
    """Every word that may be a path of another disk, until the words of the user's own script."""
    for word in argv:
        if word == "--":
            return
        value = word.partition("=")[2] if word.startswith("-") else word
        if "/" in value and "://" not in value and "\0" not in value:
            yield value


def _touch_file(path: str) -> str:
    """Ask for what any reader asks for first: the kind, and the first byte or entry. A pipe is left alone."""
    try:
        kind = os.stat(path).st_mode
        if stat.S_ISDIR(kind):
            with os.scandir(path) as entries:
                next(entries, None)
        elif stat.S_ISREG(kind):
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            os.pread(fd, 1, 0)
            os.close(fd)
    except OSError:
        pass  # it answers; what the answer means is for its reader
    return "answered"
