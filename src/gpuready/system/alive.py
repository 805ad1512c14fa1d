"""Processes identified by pid and start time: whether they live, and which of them use a folder."""

from __future__ import annotations

import os

from gpuready.model import Noun

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


class Somebody(Noun):
    """One process, distinct from every other that has or had its pid."""

    host: str
    boot: str  # boot id of the kernel: two containers of one machine share it
    pid: int
    started: int  # ticks since boot
    space: str = ""  # pid namespace


def me(host: str) -> Somebody:
    return Somebody(host, _boot(), os.getpid(), _stat(os.getpid())[1], _space())


def _boot() -> str:
    return _first_line("/proc/sys/kernel/random/boot_id")


def _space() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _first_line(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.readline().strip()
    except OSError:
        return ""


def _stat(pid: int) -> tuple[str, int]:
    """State and start time of a process; an empty state where there is none."""
    fields = _first_line(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return (fields[0], int(fields[19])) if len(fields) > 19 else ("", 0)


def state(who: Somebody) -> str:
    """running, stopped or dead, where this machine can tell; else elsewhere."""
    if not same_kernel(who) or who.space != _space():
        return "elsewhere"
    letter, started = _stat(who.pid)
    if not letter or started != who.started or letter in "ZX":
        return "dead"
    return "stopped" if letter in "Tt" else "running"


def same_kernel(who: Somebody) -> bool:
    """Whether a lock of this kernel applies to that process too."""
    return bool(who.boot) and who.boot == _boot()


def users(folders: Iterable[str], shared: str) -> dict[str, int]:
    """Which of these folders a process uses, with one such pid.

    A process counts by its open files, libraries, current folder or command. One started through the `shared` folder
    that shows none of these may use any of them: then all count as used.
    """
    known = [os.path.realpath(folder) for folder in folders]
    found: dict[str, int] = {}
    for pid in _pids():
        text = _traces(pid)
        hits = [folder for folder in known if f"{folder}/" in text or f"{folder}\n" in text]
        if not hits and _began_in(pid, shared) and "/generations/" not in text:
            hits = known
        for folder in hits:
            found.setdefault(folder, pid)
    return {f: found[os.path.realpath(f)] for f in folders if os.path.realpath(f) in found}


def _pids() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]
    except OSError:
        return []


def _traces(pid: int) -> str:
    """All paths visible for a process, one per line."""
    parts = [_link(f"/proc/{pid}/exe"), _link(f"/proc/{pid}/cwd"), _words(pid)]
    try:
        parts += [_link(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
        with open(f"/proc/{pid}/maps", "rb") as file:
            parts.append(file.read().decode("utf-8", "surrogateescape"))
    except OSError:
        pass  # another user's, or just ended: use what could be read
    return "\n".join([*parts, ""])


def _words(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read(1 << 16).decode("utf-8", "surrogateescape").replace("\0", "\n")
    except OSError:
        return ""


def _began_in(pid: int, shared: str) -> bool:
    return any(word.startswith(f"{shared}/bin/") for word in _words(pid).split("\n")[:2])


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""
