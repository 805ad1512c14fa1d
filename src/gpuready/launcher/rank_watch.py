"""What an agent sees of a living rank: once a second whether anything has moved, and on request where it stands.

Everything is read from /proc and from the rank's memory; nothing is sent to it. Standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

import os
from typing import Any

from gpuready.launcher import process_status
from gpuready.launcher.memory_stacks import Position, StackReader

IDLE_SHARE, FEW_SWITCHES, FEW_BYTES = 0.05, 3, 4096
"""A rank that uses less of a processor, wakes up less often and reads or writes less, within a second, has not moved."""
MEETING_POINT = "/torch/distributed/rendezvous.py"
"""Where a rank waits for the others before the group is made; rank 0 polls for them, a hundred times a second."""
DEEP_SECONDS = 3.0
"""After so long without a move its threads and its control group are looked at too."""
MAX_CHILDREN = 8


class RankWatch:
    """One rank; ``forked`` from this process, or started as a program of its own."""

    def __init__(self, pid: int, forked: bool, reader: StackReader, now: float):
        self.pid, self.forked, self.reader = pid, forked, reader
        self.python_pid, self.files = pid, {}  # type: int, dict[int, str]
        self.looked = self.moved = self.ran = self.roamed = now
        self.position: Position | None = None
        self.seconds, self.counts = 0.0, (0.0, 0, 0)

    def look(self, now: float) -> list[object]:
        """Return its state; its processor seconds; for how many seconds it has not moved, not run any Python, and
        stayed in the same functions; and whether it waits in a collective.
        """
        state, seconds, _ = process_status.read_process_stat(self.pid)
        here, before, span = self._read_position(), self.position, max(now - self.looked, 0.01)
        busy = seconds - self.seconds > IDLE_SHARE * span
        waits = here is not None and any("/torch/distributed/" in file for file in here.files[:12])
        awake, transfers = self._read_activity(span, busy, waits)
        if here is not None and any(file.endswith(MEETING_POINT) for file in here.files[:6]):
            awake = transfers = False
        if here is None or before is None or here.codes != before.codes or transfers:
            self.roamed = now
        if here is None or before is None or not here.count or here.count != before.count:
            self.ran = now
        if awake or _differs(here, before):
            self.ran = self.moved = now
        if busy:
            self.moved = now
        self.position, self.seconds, self.looked = here, seconds, now
        if now - self.moved >= DEEP_SECONDS and state not in "TtZ":
            state = self._look_deeper(state)
        ages = [round(now - since, 1) for since in (self.moved, self.ran, self.roamed)]
        return [state, round(seconds, 2), *ages, int(waits)]

    def _read_activity(self, span: float, busy: bool, waits: bool) -> tuple[bool, bool]:
        """Whether it wakes up, or its children compute (a compiler, a loader); and whether it reads or writes."""
        before, children = self.counts, self.counts[0] if busy else self._children_seconds()
        self.counts = (children, *process_status.read_activity(self.pid))
        # Who waits in a collective wakes up only when it goes on: to wait there again in the next step.
        limits = (IDLE_SHARE, 0 if waits else FEW_SWITCHES, FEW_BYTES)
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

    def _children_seconds(self) -> float:
        return sum(process_status.read_process_stat(pid)[1] for pid in process_status.list_descendants(self.pid))

    def _look_deeper(self, state: str) -> str:
        if process_status.is_frozen(self.pid):
            return "F"
        return "D" if process_status.list_kernel_waits(self.pid) else state

    def describe(self) -> dict[str, Any]:
        """Where it stands: the stacks of its threads, its children, and what it waits for in the kernel."""
        children = []
        for pid in process_status.list_descendants(self.pid)[:MAX_CHILDREN]:
            stack = self.reader.read_stacks(pid, self.forked)
            row = {"pid": pid, "state": process_status.read_process_stat(pid)[0], "command": read_command(pid)}
            children.append({**row, "stack": stack[-40:]})
        stack = self.reader.read_stacks(self.python_pid, self.forked)
        waits = describe_wait(self.python_pid)
        return {
            "d": stack,
            "children": children,
            "kernel": process_status.list_kernel_waits(self.pid)[:4],
            "waits": waits,
        }


def _differs(here: Position | None, before: Position | None) -> bool:
    if here is None or before is None:
        return here is not before
    return here.codes != before.codes or here.places != before.places


def describe_wait(pid: int, locks: str = "/proc/locks") -> str:
    """``standard input``, or who holds the file lock that a process waits for; empty where it is neither.

    4: FLOCK  ADVISORY  WRITE 812 00:1b:189278 0 EOF
    4: -> FLOCK  ADVISORY  WRITE 977 00:1b:189278 0 EOF
    """
    read = {"x86_64": "0", "aarch64": "63"}.get(os.uname().machine)
    if process_status.read_text(f"/proc/{pid}/syscall").split()[:2] == [read, "0x0"]:  # read(0, ...)
        return "standard input"
    rows = [row.split() for row in process_status.read_text(locks, 1 << 20).splitlines()]
    waited = next((row[0] for row in rows if row[1:2] == ["->"] and row[5:6] == [str(pid)]), "")
    holder = next((int(row[4]) for row in rows if row[0] == waited and row[1] != "->"), 0)
    return f"a file lock that pid {holder} holds ({read_command(holder)[:60]})" if holder > 0 else ""


def read_command(pid: int) -> str:
    """The words of a process's command line."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read(400).replace(b"\0", b" ").strip().decode("utf-8", "replace")
    except OSError:
        return ""
