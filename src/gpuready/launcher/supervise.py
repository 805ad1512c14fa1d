"""Supervise one attempt: start the engine, watch all ranks until the last has ended."""

from __future__ import annotations

import os
import signal
import subprocess
import time

from gpuready.launcher import engines, watch
from gpuready.launcher.hub import Hub
from gpuready.launcher.job import HUNG, INTERRUPTED, TERMINATED, Attempt, Note
from gpuready.launcher.ledger import Ledger
from gpuready.system import redact

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Protocol

    from gpuready.launcher.hub import Link
    from gpuready.launcher.job import Job

    class Teller(Protocol):
        """Receives what happens during the run."""

        def line(self, rank: int, host: str, text: str) -> None: ...
        def engine(self, text: str) -> None: ...
        def note(self, note: Note) -> None: ...
        def alive(self, ledger: Ledger, now: float) -> None: ...


LINGER, GRACE, GRACEFUL, LOOK = 1.0, 5.0, 8.0, 1.0
"""Seconds: for the others to fail by themselves; from SIGTERM to SIGKILL after a failure; after Ctrl-C;
between checks."""
FAILURE = 1
CODES = {"missing": "NET016", "claimed": "NET006", "hung": "NET014"}


class Supervisor:
    def __init__(
        self, job: Job, environ: Mapping[str, str], tell: Teller, number: int = 0, mpi: str = "open"
    ):
        self.job, self.environ, self.tell, self.number, self.mpi = job, environ, tell, number, mpi
        self.started = time.monotonic()
        self.ledger = Ledger(job.expected, self.started)
        self.notes: list[Note] = []
        self.why, self.code = "", 0
        self.signals: list[int] = []
        self.heeded = 0
        self.going: float | None = None  # when all were told to start
        self.failing: float | None = None
        self.stopping: float | None = None
        self.seats: dict[int, dict[str, Any]] = {}
        self.said: list[str] = []
        self.rest = b""
        self.pending: dict[tuple[str, int | None], float] = {}
        self.looked = self.started
        self.stacks: dict[int, list[str]] = {}

    # -- start and end ----------------------------------------------------------------------------------

    def run(self) -> Attempt:
        here = self.job.engine in ("local", "torchrun")
        self.hub = Hub(os.urandom(16).hex(), "127.0.0.1" if here else "")
        before = self._heed()
        try:
            self.process = self._started(["127.0.0.1"] if here else _addresses())
            self._watch()
        finally:
            self._end()
            for number, handler in before.items():
                signal.signal(number, handler)
        return self._attempt()

    def _started(self, hosts: list[str]) -> subprocess.Popen[bytes]:
        variables = [*engines.shared(self.job, self.environ, self.number), *self.job.variables]
        told = engines.settings(self.job, hosts, self.hub.port, self.hub.token, self.number, variables)
        env = {**self.environ, **{v.name: v.value for v in variables}, "GPUREADY_ATTEND": told}
        process = subprocess.Popen(
            engines.command(self.job, self.mpi), env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        return process

    def _heed(self) -> dict[int, Any]:
        """Record signals for the loop to handle. Outside the main thread none can be received."""
        try:
            numbers = [signal.SIGINT, signal.SIGTERM]
            if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # else it was started with nohup
                numbers.append(signal.SIGHUP)
            return {n: signal.signal(n, lambda number, frame: self.signals.append(number)) for n in numbers}
        except ValueError:
            return {}

    def _end(self) -> None:
        """Whatever happened, leave no process behind."""
        self.hub.all(t="bye") if self.ledger.over() else self.hub.all(t="stop", signal=9, grace=0)
        process = getattr(self, "process", None)
        deadline = time.monotonic() + 3.0
        while process is not None and process.poll() is None and time.monotonic() < deadline:
            self._heard_from_engine()
            if not self.ledger.over() and time.monotonic() > deadline - 2.5:
                self.hub.close()
            time.sleep(0.005)
        if process is not None:
            _kill_session(process, 2.0 if self.job.engine in ("local", "torchrun") else 10.0)
            self._heard_from_engine()
            process.stdout.close()
        self.hub.close()

    # -- the loop ---------------------------------------------------------------------------------------

    def _watch(self) -> None:
        while not self.ledger.over():
            for link, message in self.hub.wait(0.1):
                self._take(link, message)
            self._heard_from_engine()
            now = time.monotonic()
            self._obey_signals()
            self._after_failure(now)
            if now - self.looked >= LOOK:
                self.looked = now
                self._look(now)
            if self._engine_gone() or (self.stopping is not None and now - self.stopping > GRACEFUL + 2):
                return

    def _take(self, link: Link, message: dict[str, Any]) -> None:
        kind = message["t"]
        if kind == "hello":
            self._hello(link, message)
        elif kind == "note":
            self._note(Note("engine", str(message["d"])))
        elif kind != "gone":
            for rank, line in self.ledger.take(message, time.monotonic()):
                self.tell.line(rank, self.ledger.lives[rank].host, line)

    def _hello(self, link: Link, message: dict[str, Any]) -> None:
        for seat in message["seats"]:
            rank = int(seat.get("RANK", -1))
            other = self.seats.get(rank)
            if other is not None or rank not in self.ledger.lives:
                self._refuse(rank, message, other)
                return
            self.seats[rank] = {**message, "link": link}
        if len(self.seats) == len(self.ledger.lives) and self.going is None and self._fit():
            self.going = time.monotonic()
            self.hub.all(t="go", env=self._rendezvous())

    def _fit(self) -> bool:
        """Report the nodes' preflight results before the ranks start; an error on one node stops all."""
        from gpuready.launcher import nodes

        looked = {str(seat["node"]): seat["seen"] for seat in self.seats.values() if seat.get("seen")}
        for says in nodes.remarks(looked):
            self._note(Note("node", says))
        says, fix, code = nodes.wrong(looked)
        if says:
            self._stop_for("unfit", says, fix, rule=code)
        return not says

    def _refuse(self, rank: int, message: dict[str, Any], other: dict[str, Any] | None) -> None:
        here = f"{message['host']} (pid {message['pid']})"
        if other is not None:
            says = f"rank {rank} is claimed twice: by {other['host']} (pid {other['pid']}) and by {here}"
        else:
            says = f"rank {rank} of {here} is none of the {len(self.ledger.lives)} that were asked for"
        self._stop_for(
            "claimed",
            says,
            "start each rank once: compare the numbers of nodes and ranks with what the engine was given",
        )

    def _rendezvous(self) -> dict[str, str]:
        """Choose where rank 0 listens: on its own node, at the address from which its agent connected."""
        if self.job.engine in ("local", "torchrun"):
            return {}
        first = self.seats[0]
        one_host = len({seat["host"] for seat in self.seats.values()}) == 1
        address = (
            "127.0.0.1"
            if one_host
            else (self.job.master if self.job.master != "127.0.0.1" else first["addresses"][0])
        )
        return {"MASTER_ADDR": address, "MASTER_PORT": str(self.job.port or first["port"])}

    def _heard_from_engine(self) -> None:
        stream = self.process.stdout
        try:
            data = os.read(stream.fileno(), 1 << 16) if stream is not None else b""
        except (BlockingIOError, ValueError, OSError):
            return
        *lines, self.rest = (self.rest + data).split(b"\n")
        for line in lines:
            text = redact(line.decode("utf-8", "surrogateescape"))
            self.said = [*self.said[-199:], text]
            self.tell.engine(text)

    def _engine_gone(self) -> bool:
        """Whether the engine has ended and no agent is left that could report more."""
        if self.process.poll() is None or self.hub.links:
            return False
        if not self.ledger.over() and not self.why and not self.ledger.failed():
            self._heard_from_engine()
            code = self.process.returncode
            self.why, self.code = "engine", code if code > 0 else 128 - code if code else FAILURE
        return True

    # -- stopping ---------------------------------------------------------------------------------------

    def _obey_signals(self) -> None:
        while self.heeded < len(self.signals):
            number = self.signals[self.heeded]
            self.heeded += 1
            if self.heeded == 1:
                self.why = self.why or "interrupted"
                self.code = INTERRUPTED if number == signal.SIGINT else TERMINATED
                self._stop(number if number != signal.SIGHUP else signal.SIGTERM, GRACEFUL)
            else:
                self._stop(signal.SIGKILL, 0)

    def _after_failure(self, now: float) -> None:
        if not self.ledger.failed() or self.stopping is not None:
            return
        if self.failing is None:
            self.failing = now
            self.hub.all(t="stacks")
        elif now - self.failing >= LINGER:
            self._keep_stacks()
            self._stop(signal.SIGTERM, GRACE)

    def _keep_stacks(self) -> None:
        self.stacks = {life.rank: life.stack[-60:] for life in self.ledger.alive() if life.stack}

    def _stop(self, number: int, grace: float) -> None:
        self.ledger.stopping = True
        self.stopping = self.stopping or time.monotonic()
        self.hub.all(t="stop", signal=int(number), grace=grace)
        if not self.hub.links or self.going is None:
            _signal(self.process, number)

    def _stop_for(self, why: str, says: str, fix: str = "", code: int = FAILURE, rule: str = "") -> None:
        if self.why:
            return
        self.why, self.code = why, code
        self._note(Note(why, says, fix, code=rule or CODES.get(why, "")))
        self._keep_stacks()
        self._stop(signal.SIGTERM, GRACE)

    def _look(self, now: float) -> None:
        self.tell.alive(self.ledger, now)
        if self.going is None and now - self.started > self.job.window:
            self._missing()
        if self.stopping is None and self.failing is None:
            self._seen(now)
            quiet = now - self.ledger.silent_since()
            if self.job.hang and not self.ledger.missing() and quiet > self.job.hang:
                self._hung(quiet)

    def _missing(self) -> None:
        if self.job.engine == "torchrun" and self.job.nnodes > 1 and not self.seats:
            from gpuready.launcher import peers

            says, fix = peers.missing(self.job)
            self._stop_for("missing", f"no rank has begun after {self.job.window:.0f} s: {says}", fix)
            return
        absent = [rank for rank in self.ledger.lives if rank not in self.seats]
        hosts = sorted({seat["host"] for seat in self.seats.values()})
        came = (
            f"{len(self.seats)} of {len(self.ledger.lives)} came, from {', '.join(hosts)}"
            if hosts
            else "none came"
        )
        says = f"missing after {self.job.window:.0f} s: {_ranks(absent)}; {came}"
        self._stop_for(
            "missing", says, f"see what {self.job.engine} says below; --window SECONDS waits longer"
        )

    def _hung(self, quiet: float) -> None:
        self.hub.all(t="stacks")
        deadline = time.monotonic() + 0.5
        while time.monotonic() < deadline:
            for link, message in self.hub.wait(0.05):
                self._take(link, message)
        places = {life.rank: watch.where(life.stack) for life in self.ledger.alive()}
        told = "; ".join(f"rank {rank} in {place}" for rank, place in places.items() if place)
        says = f"no rank has written anything for {quiet:.0f} s, longer than --hang-timeout allows" + (
            f"; {told}" if told else ""
        )
        self._stop_for("hung", says, code=HUNG)

    def _seen(self, now: float) -> None:
        """Report each observation once, with stacks requested when it was first seen."""
        found = {(note.kind, note.rank): note for note in watch.seen(self.ledger, now)}
        told = {(note.kind, note.rank) for note in self.notes}
        for key, note in found.items():
            if key in told or (note.kind == "still" and any(kind == "still" for kind, _ in told)):
                continue
            if key[0] not in {kind for kind, _ in self.pending}:
                self.pending[key] = now
                self.hub.all(t="stacks")
            else:
                life = self.ledger.lives.get(note.rank if note.rank is not None else -1)
                self._note(note.but(stack=tuple(life.stack[-30:]) if life else ()))
        self.pending = {key: at for key, at in self.pending.items() if key[0] in {kind for kind, _ in found}}

    def _note(self, note: Note) -> None:
        self.notes.append(note)
        self.tell.note(note)

    def _attempt(self) -> Attempt:
        first = (
            () if self.why in ("interrupted", "hung", "claimed", "missing", "unfit") else self.ledger.first()
        )
        code = self.code
        if first:
            end = self.ledger.lives[first[0]].end
            code = end.code if end is not None else FAILURE
        return Attempt(
            ends=self.ledger.ends(),
            first=first,
            notes=tuple(self.notes),
            code=code,
            why=self.why,
            seconds=round(time.monotonic() - self.started, 3),
            started=None if self.going is None else round(self.going - self.started, 3),
            engine_said=tuple(self.said),
            stacks=self.stacks,
        )


def _addresses() -> list[str]:
    from gpuready.rollcall import endpoint

    return [*endpoint.addresses(), "127.0.0.1"]


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    try:
        os.killpg(process.pid, number)
    except OSError:
        return


def _kill_session(process: subprocess.Popen[bytes], patience: float) -> None:
    """Kill the engine and its session. srun and mpirun need time to end what runs on other nodes."""
    if process.poll() is None:
        _signal(process, signal.SIGTERM)
        deadline = time.monotonic() + patience
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
    _signal(process, signal.SIGKILL)
    process.wait()


def _ranks(ranks: list[int]) -> str:
    shown = ", ".join(map(str, ranks[:16])) + (f" and {len(ranks) - 16} more" if len(ranks) > 16 else "")
    return f"rank {shown}" if len(ranks) == 1 else f"ranks {shown}"
