"""Records of a run: what is started, and how it ended."""

from __future__ import annotations

from signal import Signals
from typing import Any

from gpuready.model import Record
from gpuready.model.record import field

EXIT_USELESS, EXIT_HUNG = 93, 124
"""Our own exit codes: a restart cannot help; no output for --hang-timeout seconds; Ctrl-C; SIGTERM."""

CRASHED = "crashed"
"""Why an attempt failed whose scripts had all ended well: a rank has crashed while exiting."""
LATER = "later"
"""Kind of the note that a start failed otherwise than the first one."""
ENGINES = ("local", "torchrun", "slurm", "mpi", "ray")
HANG_ACTIONS = ("report", "stop", "kill", "restart")
REMOTE_ENGINES = ("slurm", "mpi", "ray")
"""Engines that start ranks on other nodes themselves: the agents there run the preflight."""


class RankVariable(Record):
    """A variable that is set for the ranks, and why."""

    name: str
    value: str
    why: str


class LaunchJob(Record):
    """Everything that a start needs."""

    engine: str
    python: str
    kind: str  # script, module, program
    words: tuple[str, ...]  # the script or module and its arguments
    nproc: int  # ranks on each node
    nnodes: int = 1
    node_rank: int = 0
    master: str = "127.0.0.1"
    port: int = 0
    run_id: str = ""
    logs: str = ""
    restarts: int = 0
    spares: int = 0  # nodes of the allocation beyond nnodes, for a restart without one that failed
    avoided: tuple[str, ...] = ()  # nodes that failed
    window: float = 60.0  # seconds within which every rank must have started
    hang: float = 0.0  # --hang-timeout: seconds of standstill or silence; 0: not given, or off
    on_hang: str = "report"  # report, stop, kill, restart; off: nobody looks
    grace: float = 0.0  # --grace: seconds from a signal to SIGKILL; 0: not given
    preload: bool = False
    start: str = ""  # how the ranks start, in a sentence
    variables: tuple[RankVariable, ...] = ()
    framework: str = ""
    looks: tuple[str, ...] = ()  # the preflight command, run on each node before its ranks start

    @property
    def world(self) -> int:
        return self.nproc * self.nnodes

    @property
    def expected_ranks(self) -> range:
        """The ranks that report to this supervisor: with torchrun each node has its own."""
        first = self.node_rank * self.nproc if self.engine == "torchrun" else 0
        return range(first, first + (self.nproc if self.engine == "torchrun" else self.world))


class RankEnd(Record):
    """How one rank ended, and in which order the ends were received."""

    rank: int
    host: str = ""
    pid: int = 0
    code: int = 0
    signal: int = 0
    order: int = 0  # of receipt, over all messages
    seconds: float = 0.0  # after the start
    oom: bool | None = False  # the kernel killed it for memory; None: unknown
    memory_kills: bool | None = None  # whether the kernel killed anything of the run for memory; None: unknown
    shm_free: float | None = None  # the share of /dev/shm that was free when it failed
    limits: dict[str, int] = field(default_factory=dict)  # by their names in read_limits; empty: not looked at
    full: tuple[str, ...] = ()  # the disks that it used which had no room when it failed
    folder: str = ""  # its working folder, if that was deleted
    errors: str = ""  # where its stderr led, if not to its log
    done: bool = False  # its script had already ended successfully
    stood: str = ""  # in state D or T, and where, if the others waited for it in vain
    lost: bool = False  # its node or its side process is gone: nobody saw its end
    stopped: bool = False  # by gpuready or the engine, after another one failed
    call: str = ""  # the collective that it was in when its script failed: all_reduce(float32 [8])
    last: tuple[str, ...] = ()
    stack: tuple[str, ...] = ()

    @property
    def failed(self) -> bool:
        """A crash after the script's good end is none; a code of its own is, as under torchrun."""
        return self.code != 0 and not (self.done and self.signal)

    @property
    def left_group(self) -> bool:
        """Whether torch says that its process group was still open at the end: to crash then is a known effect."""
        return any("destroy_process_group() was not called" in line for line in self.last)

    @property
    def crashed_at_exit(self) -> bool:
        """Whether it crashed after its script's good end: what it had still to write may be lost."""
        return self.done and bool(self.signal) and not self.stopped and not self.left_group

    @property
    def left_early(self) -> bool:
        """Whether it ended well by itself."""
        return not self.failed and not self.stopped

    @property
    def how(self) -> str:
        """How it ended, in words."""
        if self.lost:
            return "no longer heard of: its node, or gpuready's process beside it, is gone"
        if self.oom:
            return "the kernel killed it because memory ran out (SIGKILL, OOM killer)"
        if self.signal == 9:
            if self.oom is None:
                return "killed by SIGKILL: by a user, or by the kernel because memory ran out (not visible from here)"
            return "killed by SIGKILL by a user or a program (the kernel reports no lack of memory)"
        names = {one.value: one.name for one in Signals}
        if self.signal:
            return f"ended by {names.get(self.signal, f'signal {self.signal}')}"
        if self.done:
            return f"exit {self.code} by an exit handler or a thread, after its script had ended well"
        meant = names.get(self.code - 128, "") if self.code > 128 else ""
        return f"exit {self.code}" + (f", as after {meant}" if meant else "")


class RunNote(Record):
    """Something observed during the run: certain, or only a hint."""

    kind: str
    says: str
    fix: str = ""
    rank: int | None = None
    host: str = ""
    sure: bool = True
    seconds: float = 0.0
    stack: tuple[str, ...] = ()
    code: str = ""  # of the rule that explains it


class PreflightItem(Record):
    """One preflight result: ok, warning or error."""

    what: str
    severity: str
    says: str
    fix: str = ""
    usage: bool = False  # the command line is wrong, not the machine
    code: str = ""  # of the rule that explains it


class LaunchAttempt(Record):
    """One start of all ranks, and how it ended."""

    ends: tuple[RankEnd, ...] = ()
    first: tuple[int, ...] = ()  # the first failing rank; several if they are tied
    decided: str = ""  # by what the first one differs from the others, where they decided it and not the order
    notes: tuple[RunNote, ...] = ()
    code: int = 0
    why: str = ""  # missing, hung, interrupted, engine ... if no rank's end decided
    seconds: float = 0.0
    started: float | None = None  # seconds until the last rank had started
    engine_said: tuple[str, ...] = ()
    stacks: dict[int, Any] = field(default_factory=dict)  # stacks of the others when the first one failed

    def end(self, rank: int) -> RankEnd | None:
        return next((e for e in self.ends if e.rank == rank), None)

    @property
    def first_ends(self) -> tuple[RankEnd, ...]:
        """The ends of the first failing ranks, in their order."""
        return tuple(end for rank in self.first if (end := self.end(rank)) is not None)


class RunOutcome(Record):
    """The run as a whole."""

    job: LaunchJob
    attempts: tuple[LaunchAttempt, ...] = ()
    code: int = 0
    verdict: str = ""  # done, failed, useless, hung, missing, interrupted
    says: str = ""
    seconds: float = 0.0
    diagnosis: dict[str, Any] = field(default_factory=dict)

    @property
    def last(self) -> LaunchAttempt:
        """The last start; an empty one where nothing was started."""
        return self.attempts[-1] if self.attempts else LaunchAttempt()
