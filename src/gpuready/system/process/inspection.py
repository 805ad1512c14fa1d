"""Other processes, from /proc: whether one lives, which use a folder, which carry a mark in their environment."""

from __future__ import annotations

import os
from collections.abc import Iterable

from gpuready.model import Record
from gpuready.system.files import read_link


class ProcessIdentity(Record):
    """One process, distinct from every other that has or had its pid."""

    host: str
    boot: str  # boot id of the kernel: two containers of one machine share it
    pid: int
    started: int  # ticks since boot
    space: str = ""  # pid namespace


def current_process(host: str) -> ProcessIdentity:
    return ProcessIdentity(host, _read_boot_id(), os.getpid(), read_process_stat(os.getpid())[1], _read_pid_namespace())


def _read_boot_id() -> str:
    return read_proc_file("/proc/sys/kernel/random/boot_id")


def _read_pid_namespace() -> str:
    return read_link("/proc/self/ns/pid") or ""


def read_proc_file(path: str) -> str:
    """Text of a small file in /proc; empty where it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(1 << 16).strip()
    except OSError:
        return ""


def read_process_stat(pid: int) -> tuple[str, int]:
    """State and start time of a process; an empty state where there is none."""
    fields = read_proc_file(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return (fields[0], int(fields[19])) if len(fields) > 19 else ("", 0)


def read_processor_seconds(pid: int) -> float:
    """Seconds of a processor that a process has had, without its children; 0 where there is none."""
    fields = read_proc_file(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") if len(fields) > 19 else 0.0


def process_state(process: ProcessIdentity) -> str:
    """running, stopped or dead, where this machine can tell; else elsewhere."""
    if not is_same_kernel(process) or process.space != _read_pid_namespace():
        return "elsewhere"
    letter, started = read_process_stat(process.pid)
    if not letter or started != process.started or letter in "ZX":
        return "dead"
    return "stopped" if letter in "Tt" else "running"


def is_same_kernel(process: ProcessIdentity) -> bool:
    """Whether a lock of this kernel applies to that process too."""
    return bool(process.boot) and process.boot == _read_boot_id()


def find_folder_users(folders: Iterable[str], shared: str) -> dict[str, int]:
    """Which of these folders a process uses, with one such pid.

    A process counts by its open files, libraries, current folder or command. One started through the `shared` folder
    that shows none of these may use any of them: then all count as used.
    """
    known = [os.path.realpath(folder) for folder in folders]
    user_of_folder: dict[str, int] = {}
    for pid in _list_other_pids():
        text = _visible_paths(pid)
        hits = [folder for folder in known if f"{folder}/" in text or f"{folder}\n" in text]
        if not hits and _was_started_in(pid, shared) and "/installs/" not in text:
            hits = known
        for folder in hits:
            user_of_folder.setdefault(folder, pid)
    return {f: user_of_folder[os.path.realpath(f)] for f in folders if os.path.realpath(f) in user_of_folder}


def _list_other_pids() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]
    except OSError:
        return []


def _visible_paths(pid: int) -> str:
    """All paths visible for a process, one per line."""
    parts = [read_link(f"/proc/{pid}/exe") or "", read_link(f"/proc/{pid}/cwd") or "", _command_words(pid)]
    try:
        parts += [read_link(f"/proc/{pid}/fd/{fd}") or "" for fd in os.listdir(f"/proc/{pid}/fd")]
        with open(f"/proc/{pid}/maps", "rb") as file:
            parts.append(file.read().decode("utf-8", "surrogateescape"))
    except OSError:
        pass  # another user's, or just ended: use what could be read
    return "\n".join([*parts, ""])


def _command_words(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read(1 << 16).decode("utf-8", "surrogateescape").replace("\0", "\n")
    except OSError:
        return ""


def _was_started_in(pid: int, shared: str) -> bool:
    return any(word.startswith(f"{shared}/bin/") for word in _command_words(pid).split("\n")[:2])


def find_marked_processes(mark: str) -> list[int]:
    """Our processes whose environment contains a mark: those that left the session they were started in."""
    found, wanted = [], mark.encode()
    for pid in _list_other_pids():
        try:
            if os.stat(f"/proc/{pid}").st_uid != os.geteuid():
                continue
            with open(f"/proc/{pid}/environ", "rb") as file:
                found += [pid] if wanted in file.read(1 << 20) else []
        except OSError:
            continue  # it ended, or is not readable
    return found
