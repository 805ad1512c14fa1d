"""What an agent sees of a living rank: once a second whether anything has moved, and on request where it stands.

Everything is read from /proc and from the rank's memory; nothing is sent to it. Standard library only, Python 3.8 and newer.
"""

import math
import os
import socket
import time
from contextlib import suppress
from typing import Any

from gpuready.launcher import process_status
from gpuready.launcher.memory_stacks import Position, StackReader
from gpuready.rollcall.endpoint import process_command, read_text

IDLE_SHARE, FEW_SWITCHES, FEW_BYTES = 0.05, 3, 4096
"""A rank that uses less of a processor, wakes up less often and reads or writes less, within a second, has not moved."""
MEETING_POINT = "/torch/distributed/rendezvous.py"
"""Where a rank waits for the others before the group is made; rank 0 polls for them, a hundred times a second."""
DEEP_SECONDS = 3.0
"""After so long without a move its threads and its control group are looked at too."""
MAX_CHILDREN, MAX_PLACES = 8, 256
RESTART_SECONDS = 20.0
"""So long a main thread must have slept at one place before the children that other threads have started since then are counted."""


class RankWatch:
    """One rank; ``forked`` from this process, or started as a program of its own."""

    def __init__(self, pid: int, forked: bool, reader: StackReader, now: float):
        self.pid, self.forked, self.reader = pid, forked, reader
        self.python_pid, self.files = pid, {}  # type: int, dict[int, str]
        self.looked = self.moved = self.ran = self.roamed = now
        self.position: Position | None = None
        self.seconds, self.counts = 0.0, (0.0, 0, 0)
        self.arrived, self.children, self.born, self.failed = now, set(), 0, set()  # type: float, set[int], int, set[int]
        self.folder, self.errors, self.places = "", "", {os.environ.get("TMPDIR", "/tmp"), "/dev/shm"}
        self.polls = False

    def look(self, now: float) -> list[object]:
        """Return its state; its processor seconds; for how many seconds it has not moved, not run any Python, and stayed in the same
        functions; whether it waits in a collective; how many children were started, and failed, while it slept at one place; and
        whether it woke up to look again at what it waits for.
        """
        self.look_at_places()
        state, seconds, _ = process_status.read_process_stat(self.pid)
        here, before, span = self._read_position(), self.position, max(now - self.looked, 0.01)
        busy = seconds - self.seconds > IDLE_SHARE * span
        waits = here is not None and any("/torch/distributed/" in file for file in here.files[:12])
        self.polls = not waits and not _differs(here, before) and self._sleeps_between_looks()
        switches, born = self.counts[1], self._find_new_children()
        awake, transfers = self._read_activity(span, busy, waits)
        woke = self.counts[1] != switches
        if here is None or _differs(here, before) or woke:
            self.arrived, self.born, self.failed = now, 0, set()
        self.born += born
        meets = here is not None and any(file.endswith(MEETING_POINT) for file in here.files[:6])
        if meets:
            awake = transfers = False
        if here is None or before is None or (here.codes != before.codes and not meets) or transfers:
            self.roamed = now
        if here is None or before is None or not here.count or here.count != before.count:
            self.ran = now
        if awake or _differs(here, before):
            self.ran = self.moved = now
        if busy:
            self.moved = now
        self.position, self.seconds, self.looked = here, seconds, now
        if now - self.moved >= DEEP_SECONDS and state not in "TtZ":
            state = "D" if process_status.list_kernel_waits(self.pid) else state
            state = "F" if process_status.is_frozen(self.pid) else state
        ages = [round(now - since, 1) for since in (self.moved, self.ran, self.roamed)]
        restarts = (self.born, len(self.failed)) if now - self.arrived >= RESTART_SECONDS else (0, 0)
        return [state, round(seconds, 2), *ages, int(waits), *restarts, int(self.polls and woke)]

    def look_at_places(self) -> None:
        """Keep its working folder, those of its open files and where its stderr leads: when it has ended, nobody can tell."""
        self.folder = process_status.read_link(f"/proc/{self.pid}/cwd") or self.folder
        if os.path.exists(f"/proc/{self.python_pid}/exe"):  # else it has ended, and its files are closed
            self.errors = process_status.read_link(f"/proc/{self.python_pid}/fd/2") or "nowhere: it is closed"
            if len(self.places) < MAX_PLACES:
                files = (path for path in list_open_files(self.python_pid) if not path.startswith(("/dev/", "/proc/")))
                self.places |= {self.folder, *(os.path.dirname(path) for path in files if path.startswith("/"))}

    def _find_new_children(self) -> int:
        """Look at the children: which are seen to have failed, and how many there were not a second ago."""
        before, self.children = self.children, set(process_status.list_descendants(self.pid))
        self.failed |= {pid for pid in self.children if process_status.read_exit_status(pid)}
        return len(self.children - before)

    def _sleeps_between_looks(self) -> bool:
        """Whether it sleeps, or waits with a time limit, to look again at a file, a lock or a program: to wake up for that is no move."""
        call, arguments = read_call(self.python_pid)
        return call == SLEEP or (call == LOCK and arguments[3] != 0) or (call == RUNNING and self.polls)

    def _read_activity(self, span: float, busy: bool, waits: bool) -> tuple[bool, bool]:
        """Whether it wakes up, or its children compute (a compiler, a loader); and whether it or they read or write."""
        before, seconds = self.counts, [process_status.read_process_stat(pid)[1] for pid in self.children if not busy]
        switches, moved = process_status.read_activity(self.pid)
        moved += sum(process_status.read_activity(pid)[1] for pid in self.children if self.polls)
        self.counts = (self.counts[0] if busy else sum(seconds), switches, moved)
        # Who waits in a collective wakes up only when it goes on: to wait there again in the next step.
        limits = (IDLE_SHARE, 0 if waits else math.inf if self.polls else FEW_SWITCHES, FEW_BYTES)
        more = [new - old > limit * span for new, old, limit in zip(self.counts, before, limits)]  # noqa: B905
        return any(more), more[2]

    def _read_position(self) -> Position | None:
        position = self.reader.read_position(self.python_pid, self.forked, self.files)
        if position is not None or self.forked:
            return position
        for pid in process_status.list_descendants(self.pid)[:MAX_CHILDREN]:  # a shell script that starts Python
            position = self.reader.read_position(pid, False, self.files)
            if position is not None:
                self.python_pid = pid
                break
        return position

    def describe(self) -> dict[str, Any]:
        """Where it stands: the stacks of its threads, its children, and what it waits for in the kernel."""
        children = []
        for pid in process_status.list_descendants(self.pid)[:MAX_CHILDREN]:
            stack = self.reader.read_stacks(pid, self.forked)
            row = {"pid": pid, "state": process_status.read_process_stat(pid)[0], "command": process_command(pid)}
            children.append({**row, "stack": stack[-40:]})
        stack = self.reader.read_stacks(self.python_pid, self.forked)
        waits = describe_wait(self.python_pid)
        tracer = process_status.read_number(f"/proc/{self.pid}/status", "TracerPid:")
        return {
            "d": stack,
            "children": children,
            "kernel": process_status.list_kernel_waits(self.pid)[:4],
            "waits": waits,
            "tracer": f"{process_command(tracer)!r}, pid {tracer}" if tracer else "",
        }


def _differs(here: Position | None, before: Position | None) -> bool:
    if here is None or before is None:
        return here is not before
    return here.codes != before.codes or here.places != before.places


SLEEP, LOCK, RUNNING, FILES = "the end of a sleep", "a lock (futex)", "running", "one of several descriptors"
_CALLS = {
    "read": ("0 17 19 45 47", "63 65 67 207 212"),
    "write": ("1 18 20 44 46", "64 66 68 206 211"),
    "connect": ("42", "203"),
    "a child process to end": ("61 247", "95 260"),
    SLEEP: ("35 230", "101 115"),
    LOCK: ("202", "98"),
    RUNNING: (RUNNING, RUNNING),
    FILES: ("7 23 270 271", "72 73"),
    "a signal": ("34 128 130", "133 137"),
    "somebody to connect to it": ("43 288", "202 242"),
    "a file to open, as a FIFO that nobody writes": ("2 257", "56"),
    "a semaphore": ("65 220", "192 193"),
}
"""What a main thread waits for in a system call, by its numbers on x86_64 and aarch64; of the first three it is a descriptor."""


def describe_wait(pid: int, locks: str = "/proc/locks") -> str:
    """What the main thread of a process waits for in the kernel, with who holds it; empty where that cannot be seen.

    4: FLOCK  ADVISORY  WRITE 812 00:1b:189278 0 EOF
    4: -> FLOCK  ADVISORY  WRITE 977 00:1b:189278 0 EOF
    """
    rows = [row.split() for row in read_text(locks, 1 << 20).splitlines()]
    waited = next((row[0] for row in rows if row[1:2] == ["->"] and row[5:6] == [str(pid)]), "")
    holder = next((int(row[4]) for row in rows if row[0] == waited and row[1] != "->"), 0)
    if holder > 0:
        return f"a file lock that {_name_process(holder)} holds"
    call, arguments = read_call(pid)
    if call in ("read", "write", "connect"):
        return _describe_descriptor(pid, arguments[0], call)
    return "" if call in (RUNNING, FILES) else call


def describe_polled_file(path: str, locks: str = "/proc/locks") -> str:
    """``/cache/lock, which is there since 95 s and which no process has open``: what a rank looks at again and again, or tries to lock."""
    try:
        seen = os.stat(path)
    except OSError:
        return f"{path}, which is not there"
    place = f"{os.major(seen.st_dev):02x}:{os.minor(seen.st_dev):02x}:{seen.st_ino}"
    rows = (row.split() for row in read_text(locks, 1 << 20).splitlines())
    holder = next((int(row[4]) for row in rows if row[5:6] == [place] and int(row[4]) > 0), 0)
    if holder:
        return f"{path}, which {_name_process(holder)} has locked"
    user = next((pid for pid in process_status.list_process_ids() if path in list_open_files(pid)), 0)
    whose = f"{_name_process(user)} has open" if user else "no process that can be seen has open"
    return f"{path}, which is there since {max(0.0, time.time() - seen.st_mtime):.0f} s and which {whose}"


def _name_process(pid: int) -> str:
    """``rank 2 (pid 812)``, as a rank is named, else ``pid 812 (sleep 3000)``"""
    name = read_text(f"/proc/{pid}/comm").strip()
    return f"{name} (pid {pid})" if name.startswith("rank ") else f"pid {pid} ({process_command(pid)})"


def read_call(pid: int) -> tuple[str, list[int]]:
    """What the main thread of a process waits for in a system call, in words, and the arguments: ``230 0x1 0x0 0xffff...``"""
    number, *words = read_text(f"/proc/{pid}/syscall").split() or [""]
    column = {"x86_64": 0, "aarch64": 1}.get(os.uname().machine, 0)
    call = next((words for words, numbers in _CALLS.items() if number in numbers[column].split()), "")
    arguments = [int(word, 16) for word in words]
    return (SLEEP if call == FILES and not arguments[0] else call), arguments  # before Python 3.11 it sleeps by select


def _describe_descriptor(pid: int, number: int, call: str) -> str:
    """``a pipe that pid 812 holds (sleep 3000)``, ``10.0.0.7:5432``, ``standard input``: what it reads from or writes to."""
    target = process_status.read_link(f"/proc/{pid}/fd/{number}")
    if call == "read" and number == 0:
        return "standard input"
    if target.startswith("pipe:"):
        others = dict.fromkeys([*process_status.list_descendants(pid), *process_status.list_process_ids()])
        holder = next((one for one in others if one not in (pid, os.getpid()) and target in list_open_files(one)), 0)
        return f"a pipe that {_name_process(holder)} holds" if holder else "a pipe that only it has"
    inode = target.partition("[")[2].rstrip("]")
    tables = [read_text(f"/proc/{pid}/net/{name}", 1 << 20).splitlines()[1:] for name in ("tcp", "tcp6")]
    rows = [row.split() for table in tables for row in table]
    peer = next((_format_peer(row[2]) for row in rows if target.startswith("socket:") and row[9] == inode), "")
    return f"a connection to {peer}" if peer else "a connection" if target.startswith("socket:") else target


def _format_peer(text: str) -> str:
    """``0100007F:1F90`` as 127.0.0.1:8080: each word of the address has its bytes in the machine's order."""
    address, _, port = text.partition(":")
    raw = b"".join(bytes.fromhex(address[at : at + 8])[::-1] for at in range(0, len(address), 8))
    return f"{socket.inet_ntop(socket.AF_INET if len(raw) == 4 else socket.AF_INET6, raw)}:{int(port, 16)}"


def list_open_files(pid: int) -> list[str]:
    with suppress(OSError):
        return [process_status.read_link(f"/proc/{pid}/fd/{number}") for number in os.listdir(f"/proc/{pid}/fd")]
    return []
