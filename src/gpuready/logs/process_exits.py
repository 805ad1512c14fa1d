"""How processes ended, as reported by launchers: torchrun's table, DeepSpeed, Slurm, accelerate, Ray."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from gpuready.logs.lazy_regex import LazyRegex
from gpuready.logs.log_lines import LogLine
from gpuready.model.record import Record


class ProcessExit(Record):
    """The end of one process. A negative code is a signal."""

    number: int
    source: int
    code: int | None
    rank: int | None = None
    host: str = ""
    pid: int | None = None
    first: bool = False  # the launcher reports this one as the first

    @property
    def ended_by_launcher(self) -> bool:
        """Whether it was terminated by the launcher: SIGTERM and SIGINT are sent during cleanup."""
        return self.code in (-15, -2, 143, 130)


_ENDED = LazyRegex(r"failed \(exitcode: (-?\d{1,12})\) (?:local_)?rank: (\d{1,12}) \(pid: (\d{1,12})\)")
_RETURNED = LazyRegex(
    r"[Ss]ubprocess (\d{1,12}) exits with return code = (-?\d{1,12})|exits with return code = (-?\d{1,12})"
)
_TASK = LazyRegex(r"srun: error: ([\w.-]{1,64}): tasks? ([\d,-]{1,60}): (.{1,120})")
_CANCELLED = LazyRegex(
    r"slurmstepd(?:-[\w.-]{1,64})?: error: \*{3} (?:JOB|STEP) [\w.+-]{1,40} ON ([\w.-]{1,64}) (?:CANCELLED|FAILED|KILLED)|srun: error: Node failure on ([\w.-]{1,64})"
)
_SPAWNED = LazyRegex(
    r"process (\d{1,12}) terminated with (?:signal (SIG\w+)|exit code (\d{1,12}))|Process (\d{1,12}) terminated with(?: the following error|$)"
)
_IN_WORDS = LazyRegex(
    r"--local[_-]rank[= ](\d{1,6})\b|^\S{0,80} ?\[(\d{1,6})\] is setting up NCCL communicator|between collectives on ranks\. Rank (\d{1,6}) is|init_process_group\(.{0,300}?\brank ?= ?(\d{1,6})\b"
    r"|Duplicate GPU detected : rank (\d{1,6}) and|\bbarrier on rank:? (\d{1,6})\b"
)
_MPI_NAME = LazyRegex(r"Process name: \[\[\d{1,9},\d{1,9}\],\s?(\d{1,6})\]")
_MPI_SIGNAL = LazyRegex(r"process rank (\d{1,6}) with PID (\d{1,9}) on node (\S{1,64}) exited on signal (\d{1,2})")
_MPI_RANK = LazyRegex(r"= RANK (\d{1,6}) PID (\d{1,9}) RUNNING AT (\S{1,64})")
_HYDRA_END = LazyRegex(r"KILLED BY SIGNAL: (\d{1,2})\b|EXIT STRING: .{1,60}\(signal (\d{1,2})\)")
_POD_END = LazyRegex(r"\s{0,20}Exit Code: {1,12}([1-9]\d{0,2})$")
"""``kubectl describe pod``: how a container ended."""
_EXITED = LazyRegex(r"\bexited with (?:exit )?code:? ([1-9]\d{0,2})\b")
"""docker compose and the operators of Kubernetes: ``worker-1 exited with code 137``."""
_SHARD_END = LazyRegex(
    r"[Ss]hard process was signaled to shutdown with signal (\d{1,2}) rank=(\d{1,6})|Worker proc VllmWorker-(\d{1,6}) died unexpectedly"
)
"""Servers that start a process per rank."""
_FORCED = LazyRegex(r"process (\d{1,9}) via ")
_FIELD = LazyRegex(r"\s*(rank|host|exitcode|time)\s*: (.{1,120})")
_PID = LazyRegex(r"pid: (\d{1,9})")
_SIGNALS = {"SIGKILL": -9, "SIGTERM": -15, "SIGSEGV": -11, "SIGABRT": -6, "SIGBUS": -7, "SIGHUP": -1, "SIGINT": -2}

_SHELL = LazyRegex(
    r"(?:.{0,200}: line \d{1,7}: +(\d{1,9}) |^\s{0,40})(Killed|Segmentation fault|Aborted|Bus error|Hangup)(?:$| \(core dumped\)| {2,})"
)
_USAGE = LazyRegex(
    r"\S{1,200}: error: (?:unrecognized arguments|the following arguments are required|argument |ambiguous option|one of the arguments)"
)
_WORDS = {"Killed": -9, "Segmentation fault": -11, "Aborted": -6, "Bus error": -7, "Hangup": -1}


def find_exits(lines: Iterable[LogLine]) -> list[ProcessExit]:
    """Every process exit that a launcher reports, in order."""
    found: list[ProcessExit] = []
    table: _FailureTable | None = None
    forced: set[int] = set()  # processes the launcher itself killed because they did not exit
    broken = ""  # the beginning of a line a terminal broke in two
    for line in lines:
        words = f"{broken} {line.folded_text}" if broken else line.folded_text
        broken = words if not broken and "(exitcode" in words and not _ENDED.search(words) else ""
        if table is not None:
            table.read_line(line)
        if "via Signals.SIGKILL" in words and (kill := _FORCED.search(words)):
            forced.add(int(kill[1]))
        if "Root Cause (first observed failure)" in words or words in ("Failures:", "Other Failures:"):
            table = _FailureTable(found, first="Root Cause" in words)
        elif (mpi := _parse_mpi_exit(line, words)) is not None:
            found.append(mpi)
        elif (shard := _SHARD_END.search(words[:400])) is not None:
            code = -int(shard[1]) if shard[1] else 1
            found.append(ProcessExit(line.number, line.source, code, int(shard[2] or shard[3]), line.host))
        elif "xit" in words or "terminated with" in words or "rror: " in words:
            found.extend(_parse_exit_line(line, words))
        elif (shell := _match_shell_exit(line, words)) is not None:
            pid = int(shell[1]) if shell[1] else None
            found.append(ProcessExit(line.number, line.source, _WORDS[shell[2]], line.rank, line.host, pid))
    return [end.replace(code=-15) if end.pid in forced and end.code in (-9, 137) else end for end in found]


def rank_named_in(words: str) -> int | None:
    """The rank a message names as its own."""
    found = _IN_WORDS.search(words[:2000]) if "ank" in words or "[" in words else None
    return int(next(group for group in found.groups() if group)) if found else None


_MISSED = LazyRegex(r"Ranks? (\d{1,6})(?:, ?\d{1,6}){0,999} failed to pass monitoredBarrier")


def rank_blamed_in(words: str) -> int | None:
    """The rank that others waited for in vain, as they report."""
    found = _MISSED.search(words[:4000]) if "monitoredBarrier" in words else None
    return int(found[1]) if found else None


_WAITED = LazyRegex(
    r"(?i)timed out waiting \d{1,12} ?ms for (?:recv|send) operation|caught collective operation timeout|timed out after \d{1,12} ?ms"
)


def says_waited(words: str) -> bool:
    """Whether a rank reports that it waited for others in vain."""
    return bool(_WAITED.search(words[:2000]))


def _parse_mpi_exit(line: LogLine, words: str) -> ProcessExit | None:
    """The first process to exit, as reported by mpirun of Open MPI or by Hydra."""
    if found := _MPI_NAME.search(words):
        return ProcessExit(line.number, line.source, 1, int(found[1]), line.host, first=True)
    if "PID" in words and (found := _MPI_SIGNAL.search(words)):
        return ProcessExit(line.number, line.source, -int(found[4]), int(found[1]), found[3], int(found[2]), True)
    if "PID" in words and (found := _MPI_RANK.search(words)):
        return ProcessExit(line.number, line.source, 1, int(found[1]), found[3], int(found[2]), True)
    if " SIGNAL: " in words or "EXIT STRING: " in words:
        found = _HYDRA_END.search(words)
        return ProcessExit(line.number, line.source, -int(found[1] or found[2]), first=True) if found else None
    return None


def _match_shell_exit(line: LogLine, words: str) -> re.Match[str] | None:
    """``run.sh: line 14:  3312 Killed  python train.py``, or that word alone."""
    ends = line.text.endswith(("Killed", "fault", "Aborted", "error", "Hangup", "dumped)"))
    return _SHELL.match(line.text) if ends or ": line " in words else None


def _parse_exit_line(line: LogLine, words: str) -> Iterator[ProcessExit]:
    if ended := _ENDED.search(words):
        yield ProcessExit(line.number, line.source, int(ended[1]), int(ended[2]), line.host, int(ended[3]))
    elif task := _TASK.search(words):
        for rank in _expand_task_ranges(task[2]):
            yield ProcessExit(line.number, line.source, _slurm_exit_code(task[3]), rank, task[1])
    elif cancelled := _CANCELLED.search(words):
        yield ProcessExit(line.number, line.source, None, host=cancelled[1] or cancelled[2])
    elif returned := _RETURNED.search(words):
        yield ProcessExit(
            line.number, line.source, int(returned[2] or returned[3]), pid=int(returned[1]) if returned[1] else None
        )
    elif pod := _POD_END.match(line.text) or _EXITED.search(words):
        yield ProcessExit(line.number, line.source, int(pod[1]), line.rank, line.host)
    elif _USAGE.match(words):
        yield ProcessExit(line.number, line.source, 2, line.rank, line.host)
    elif spawned := _SPAWNED.search(words):
        code = _SIGNALS.get(spawned[2] or "", int(spawned[3]) if spawned[3] else 1)
        yield ProcessExit(line.number, line.source, code, int(spawned[1] or spawned[4]))


def _expand_task_ranges(text: str) -> list[int]:
    """``0-2,5`` -> 0, 1, 2, 5; at most a thousand."""
    ranks: list[int] = []
    for part in text.split(","):
        low, _, high = part.partition("-")
        if low.isdecimal() and len(low) < 10 and len(ranks) < 1000:
            last = int(high) if high.isdecimal() and len(high) < 10 else int(low)
            ranks += range(int(low), min(last, int(low) + 1000) + 1)
    return ranks[:1000]


def _slurm_exit_code(words: str) -> int | None:
    if "Killed" in words or "Out Of Memory" in words:
        return -9
    for name, code in (("Terminated", -15), ("Segmentation", -11), ("Aborted", -6), ("Bus error", -7)):
        if name in words:
            return code
    digits = words.rpartition("exit code ")[2].split()
    return int(digits[0]) if digits and digits[0].isdecimal() and len(digits[0]) < 10 else None


class _FailureTable:
    """torchrun's table of failures: one field per line."""

    def __init__(self, found: list[ProcessExit], first: bool):
        self.found, self.first = found, first
        self.rank: int | None = None
        self.host = ""

    def read_line(self, line: LogLine) -> None:
        field = _FIELD.match(line.text)
        if not field:
            return
        name, value = field[1], field[2].strip()
        if name == "rank" and value.split()[0].isdecimal():
            self.rank = int(value.split()[0][:9])
        elif name == "host":
            self.host = value.split()[0]
        elif name == "exitcode":
            digits = value.split()[0]
            code = int(digits) if digits.removeprefix("-").isdecimal() and len(digits) < 10 else None
            pid = _PID.search(value)
            self.found.append(
                ProcessExit(
                    line.number, line.source, code, self.rank, self.host, int(pid[1]) if pid else None, self.first
                )
            )
