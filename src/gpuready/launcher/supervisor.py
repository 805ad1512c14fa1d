"""Supervise one attempt: start the engine, watch all ranks until the last has ended."""

import os
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Protocol

from gpuready.launcher import (
    agent_hub,
    engines,
    flight_dumps,
    preflight,
    process_status,
    rank_process,
    rank_votes,
    stack_places,
)
from gpuready.launcher.agent_hub import AgentHub
from gpuready.launcher.hang_watch import HangWatch
from gpuready.launcher.missing_place import explain_missing
from gpuready.launcher.peer_nodes import READ_SECONDS, PeerNodes
from gpuready.launcher.rank_ledger import RankLedger
from gpuready.launcher.ray_driver import NO_ROOM
from gpuready.model.last_error import last_error_line
from gpuready.model.run import CRASHED, LaunchAttempt, LaunchJob, RankEnd, RunNote
from gpuready.rollcall import endpoint
from gpuready.rollcall.line_server import LineConnection
from gpuready.system import redact_text


class RunReporter(Protocol):
    """Receives what happens during the run."""

    def write_lines(self, rank: int, host: str, texts: list[str]) -> None: ...
    def write_engine_line(self, text: str) -> None: ...
    def write_note(self, note: RunNote) -> None: ...
    def show_progress(self, ledger: RankLedger, now: float) -> None: ...


FAIL_TOGETHER_SECONDS, CLEAN_UP_SECONDS, KILL_GRACE_SECONDS, INTERRUPT_GRACE_SECONDS = 1.0, 20.0, 5.0, 30.0
STILL_GRACE_SECONDS, NOTICE_SECONDS = 4.0, 2.0
"""Seconds: for the others to fail by themselves; for a rank whose script failed to end; from SIGTERM to SIGKILL after a
failure; after Ctrl-C and SIGTERM, where --grace says nothing else, and where what stood still before goes on to; a signal itself wakes
who waits, for so long."""
SCHEDULER_GRACE_SECONDS = 3600.0
"""Under a scheduler, which kills by itself when its time is over."""
SCHEDULERS = ("SLURM_JOB_ID", "KUBERNETES_SERVICE_HOST", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID")
LOOK_SECONDS = 1.0
TELL_SECONDS = 1.7
"""After a failure: so long its first line waits for what explains it."""
OWN_LINE_AFTER = 60
"""Letters that an engine may write before a line of an agent: ``(run_rank_agent pid=71) gpuready: ...``"""
FAILURE = 1
CODES = {"missing": "NET016", "claimed": "NET006", "hung": "NET014"}


class Supervisor:
    def __init__(
        self, job: LaunchJob, environ: Mapping[str, str], reporter: RunReporter, number: int = 0, mpi: str = "open"
    ):
        self.job, self.environ, self.reporter, self.number, self.mpi = job, environ, reporter, number, mpi
        self.started = time.monotonic()
        single = job.nnodes == 1 and job.engine in ("local", "torchrun")
        store = (job.master, job.port) if single else ("", 0)
        self.ledger = RankLedger(job.expected_ranks, self.started, job.world if job.nnodes == 1 else 0, store)
        self.notes: list[RunNote] = []
        self.why, self.code = "", 0
        self.signals: list[int] = []
        self.signals_handled = 0
        self.started_ranks_at: float | None = None  # when all were asked to start
        self.failed_at: float | None = None
        self.told_first = False
        self.stopped_at: float | None = None
        self.hello_of_rank: dict[int, dict[str, Any]] = {}
        self.engine_lines: list[str] = []
        self.partial_line = b""
        self.looked_at = self.started
        self.stacks: dict[int, list[str]] = {}
        self.hangs = HangWatch(self)
        self.memory_kills_before = process_status.count_oom_kills()
        self.peers = PeerNodes(job, number) if job.engine == "torchrun" and job.nnodes > 1 else None
        self.kill_at: float | None = None  # when ranks that were asked to stop are killed

    # -- start and end ----------------------------------------------------------------------------------

    def run(self) -> LaunchAttempt:
        here = self.job.engine in ("local", "torchrun")
        self.hub = AgentHub(os.urandom(16).hex(), "127.0.0.1" if here else "")
        before = self._install_signal_handlers()
        try:
            self.process = self._start_engine([*(() if here else endpoint.list_own_addresses()), "127.0.0.1"])
            self._watch_loop()
        finally:
            self._end_everything()
            for number, handler in before.items():
                signal.signal(number, handler)
        return self._build_attempt()

    def _start_engine(self, hosts: list[str]) -> subprocess.Popen[bytes]:
        variables = [*engines.common_variables(self.job, self.environ, self.number), *self.job.variables]
        variables += engines.secret_variables(self.job, self.environ)
        environ, kept_from_engine = engines.split_torchrun_defaults(self.job, self.environ)
        settings_json = engines.agent_settings_json(
            self.job, hosts, self.hub.port, self.hub.token, self.number, [*variables, *kept_from_engine]
        )
        env = {**environ, **{v.name: v.value for v in variables}, "GPUREADY_ATTEND": settings_json}
        process = subprocess.Popen(
            engines.engine_command(self.job, self.mpi), env=env, stdin=None if self.job.engine in ("local", "torchrun") else subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        return process

    def _install_signal_handlers(self) -> dict[int, Any]:
        """Record signals for the loop to handle. Outside the main thread none can be received."""
        try:
            numbers = [signal.SIGINT, signal.SIGTERM, *rank_process.PASSED_SIGNALS]
            if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # else it was started with nohup
                numbers.append(signal.SIGHUP)
            return {n: signal.signal(n, lambda number, frame: self.signals.append(number)) for n in numbers}
        except ValueError:
            return {}

    def _end_everything(self) -> None:
        """Whatever happened, leave no process behind."""
        if self.why == "hung" and self.peers is not None and not self.job.node_rank:
            time.sleep(2 * READ_SECONDS)  # the other nodes read why before this node's store ends
        order = {"t": "bye"} if self.ledger.all_ended() else {"t": "stop", "signal": 9, "grace": 0}
        self.hub.broadcast_order(**order)
        process = getattr(self, "process", None)
        deadline = time.monotonic() + 3.0
        while process is not None and process.poll() is None and time.monotonic() < deadline:
            self._read_engine_output()
            if not self.ledger.all_ended() and time.monotonic() > deadline - 2.5:
                self.hub.close()
            time.sleep(0.005)
        if process is not None:
            agent_hub.end_session(process, 2.0 if self.job.engine in ("local", "torchrun") else 10.0)
            self._read_engine_output()
            process.stdout.close()
        self.hub.close()
        with suppress(OSError):  # where no recorder has written
            os.rmdir(os.path.join(self.job.logs, flight_dumps.FOLDER))
        if self.peers is not None:
            self.peers.close()

    # -- the loop ---------------------------------------------------------------------------------------

    def _watch_loop(self) -> None:
        while not self.ledger.all_ended() or self._must_agree():
            for link, message in self.hub.receive_messages(0.1):
                self._handle_message(link, message)
            self._read_engine_output()
            now = time.monotonic()
            self._handle_signals()
            self._stop_after_failure(now)
            if now - self.looked_at >= LOOK_SECONDS:
                self.looked_at = now
                self._check_progress(now)
            too_late = self.kill_at is not None and now > self.kill_at + 3
            if self._engine_has_ended() or too_late:
                return

    def _must_agree(self) -> bool:
        """Whether ranks have failed here, all have ended, and the other nodes may still say who was the first."""
        if self.peers is None or self.stopped_at is not None or not self.ledger.list_failed_ends():
            return False
        return not self.peers.is_settled(self.ledger, time.monotonic())

    def _handle_message(self, link: LineConnection, message: dict[str, Any]) -> None:
        kind = message["t"]
        if kind == "hello":
            self._handle_hello(link, message)
        elif kind == "note":
            self.add_note(RunNote("engine", str(message["d"])))
        elif kind == "gone":
            self._handle_lost_agent(link)
        elif kind == "memory":
            fix = "give the job more memory, or find what this rank keeps: a list of losses, a cache, a loader"
            self.add_note(RunNote("memory", str(message["d"]), fix, int(message["r"]), code="MEM003", sure=False))
        elif kind == "dump":
            flight_dumps.keep_dump(self.job.logs, int(message["r"]), str(message["d"]))
        else:
            self._record_message(message)

    def _record_message(self, message: dict[str, Any]) -> None:
        rank, lines = self.ledger.record_message(message, time.monotonic())
        if lines:
            self.reporter.write_lines(rank, self.ledger.ranks[rank].host, lines)

    def _handle_lost_agent(self, link: LineConnection) -> None:
        """An agent is gone before its ranks ended: its node died, or somebody killed it."""
        for rank, hello in self.hello_of_rank.items():
            if hello["link"] is link and self.ledger.ranks[rank].end is None:
                end = {"t": "end", "r": rank, "code": FAILURE, "signal": 0, "lost": True}
                self._record_message({**end, "memory_kills": self._kernel_killed(hello["host"])})

    def _kernel_killed(self, host: str) -> bool | None:
        """Whether the kernel has killed something for memory since the start; None if that is another host's to say."""
        now, before = process_status.count_oom_kills(), self.memory_kills_before
        if host != rank_process.own_hostname() or now is None or before is None:
            return None
        return now > before

    def _handle_hello(self, link: LineConnection, message: dict[str, Any]) -> None:
        self._number_ranks(message["ranks"])
        for hello in message["ranks"]:
            rank = int(hello.get("RANK", -1))
            other = self.hello_of_rank.get(rank)
            if other is not None or rank not in self.ledger.ranks:
                self._refuse_rank(rank, message, other)
                return
            self.hello_of_rank[rank] = {**message, "link": link}
        all_came = len(self.hello_of_rank) == len(self.ledger.ranks)
        if (
            all_came
            and self.started_ranks_at is None
            and self._nodes_are_fit()
            and self._place_is_free(message)
            and self._heed_refusal(2.0)
        ):
            self.started_ranks_at = time.monotonic()
            self.hub.broadcast_order(t="go", env=self._rendezvous_variables())

    def _number_ranks(self, rows: list[dict[str, str]]) -> None:
        """Take over the first rank of this node from torchrun: other nodes may have other numbers of ranks."""
        first = int(rows[0].get("RANK", -1)) - int(rows[0].get("LOCAL_RANK", 0))
        if self.peers is not None and not self.hello_of_rank and first >= 0:
            self.ledger = RankLedger(range(first, first + self.job.nproc), self.started)

    def _nodes_are_fit(self) -> bool:
        """Report the nodes' preflight results before the ranks start; an error on one node stops all."""
        node_results = {str(hello["node"]): hello["seen"] for hello in self.hello_of_rank.values() if hello.get("seen")}
        for message_text in preflight.summarize_warnings(node_results):
            self.add_note(RunNote("node", message_text))
        message_text, fix, code = preflight.summarize_errors(node_results)
        if message_text:
            self.stop_with_reason("unfit", message_text, fix, rule=code)
        return not message_text

    def _place_is_free(self, message: dict[str, Any]) -> bool:
        """Whether no other gpuready is this node of the job; one that comes late is refused, and the job continues."""
        other = self.peers.claim_place(str(message["host"]), self.ledger.ranks) if self.peers is not None else ""
        if other:
            job = self.job
            message_text = f"node {job.node_rank} of this job is running already, on {other}: this is another one, on {message['host']}"
            fix = f"give each node its own --node-rank, and another job its own port: {job.master}:{job.port} is taken by this one"
            self.stop_with_reason("claimed", message_text, fix)
        return not other

    def _refuse_rank(self, rank: int, message: dict[str, Any], other: dict[str, Any] | None) -> None:
        here = f"{message['host']} (pid {message['pid']})"
        if other is not None:
            message_text = f"rank {rank} is claimed twice: by {other['host']} (pid {other['pid']}) and by {here}"
        else:
            message_text = f"rank {rank} of {here} is not one of the {len(self.ledger.ranks)} that were asked for"
        fix = "start each rank once: compare the numbers of nodes and ranks with what the engine was given"
        self.stop_with_reason("claimed", message_text, fix)

    def _rendezvous_variables(self) -> dict[str, str]:
        """Choose where rank 0 listens: on its own node, at the address from which its agent connected."""
        if self.job.engine in ("local", "torchrun"):
            return {}
        first = self.hello_of_rank[0]
        address = self.job.master if self.job.master != "127.0.0.1" else first["addresses"][0]
        if len({hello["host"] for hello in self.hello_of_rank.values()}) == 1:
            address = "127.0.0.1"
        return {"MASTER_ADDR": address, "MASTER_PORT": str(self.job.port or first["port"])}

    def _read_engine_output(self) -> None:
        stream = self.process.stdout
        try:
            data = os.read(stream.fileno(), 1 << 16) if stream is not None else b""
        except (BlockingIOError, ValueError, OSError):
            return
        *lines, self.partial_line = (self.partial_line + data).split(b"\n")
        over = self.stopped_at is not None or self.ledger.all_ended()
        if self.job.engine == "torchrun" and over:
            return  # tracebacks of the signal that we have sent, and of the store that another node has closed
        for line in lines:
            text = redact_text(line.decode("utf-8", "surrogateescape"))
            self.engine_lines = [*self.engine_lines[-199:], text]
            before, ours, said = text.partition("gpuready: ")
            if ours and len(before) < OWN_LINE_AFTER:  # no log of the job: nobody looks for a cause in it
                self.add_note(RunNote("engine", said))
            else:
                self.reporter.write_engine_line(text)

    def _engine_has_ended(self) -> bool:
        """Whether the engine has ended and no agent is left that could report more."""
        if self.process.poll() is None or self.hub.links:
            return False
        if not self.ledger.all_ended() and not self.why and not self.ledger.list_failed_ends():
            self._read_engine_output()
            self._heed_refusal()
            code = self.process.returncode
            if not self.why:
                self.why, self.code = "engine", code if code > 0 else 128 - code if code else FAILURE
        return True

    # -- stopping ---------------------------------------------------------------------------------------

    def _handle_signals(self) -> None:
        while self.signals_handled < len(self.signals):
            number = self.signals[self.signals_handled]
            self.signals_handled += 1
            if number in rank_process.PASSED_SIGNALS:
                self.hub.broadcast_order(t="signal", signal=int(number))
            elif self.why != "interrupted":
                self.why = self.why or "interrupted"
                self.code = 128 + number
                self._stop_ranks(number if number != signal.SIGHUP else signal.SIGTERM, self._interrupt_grace(number))
            else:
                self._stop_ranks(signal.SIGKILL, 0)

    def _interrupt_grace(self, number: int) -> float:
        if self.job.grace:
            return self.job.grace
        scheduled = number == signal.SIGTERM and any(name in self.environ for name in SCHEDULERS)
        return SCHEDULER_GRACE_SECONDS if scheduled else INTERRUPT_GRACE_SECONDS

    def _stop_after_failure(self, now: float) -> None:
        if self.stopped_at is not None:
            return
        leaving = self.ledger.list_leaving_ranks()
        elsewhere = self.peers is not None and self.peers.leave_waiting(self.ledger)
        if not self.ledger.list_failed_ends() and not leaving and not elsewhere:
            self.failed_at = None
            return
        if self.failed_at is None:
            self.failed_at = now
            self.hub.broadcast_order(t="stacks")
        if not self.told_first and now - self.failed_at >= FAIL_TOGETHER_SECONDS:
            self.told_first = self._tell_first(now)
        if now - self.failed_at >= self._seconds_to_fail():
            self.ledger.suspects = self._find_suspects()
            if self.peers is None or self.peers.is_settled(self.ledger, now):
                self._keep_stacks()
                self._stop_ranks(signal.SIGTERM, self.job.grace or KILL_GRACE_SECONDS)

    def _tell_first(self, now: float) -> bool:
        """Tell the verdict before the rest of the evidence is there: as soon as nothing that comes later can change it."""
        says = self._describe_first(now) if self.peers is None else self.peers.describe_first(self.ledger, now)
        if says:
            self.reporter.write_note(RunNote("first", says))
        return bool(says)

    def _describe_first(self, now: float) -> str:
        """Who failed first: one rank alone by itself, all that have failed once each has spoken, or one that did not come."""
        ledger, failures = self.ledger, self.ledger.list_failures()
        own = [end for end in failures if not ledger.lost_its_peer(end)]
        spoke = {end.rank for end in failures}
        silent = [state for state in ledger.living_ranks() if state.rank not in spoke]
        if silent and not own and ledger.gave_up_waiting(failures):
            late = [s for s in silent if stack_places.describe_place(s).kind == stack_places.OTHER]
            where = stack_places.describe_place(late[0]).text if len(late) == 1 else ""
            who = f"rank {late[0].rank} on {late[0].host}" if where else ""
            stood = f"{state}, " if where and (state := late[0].describe_stand()) else ""
            return (
                f"{who} failed first: it did not come, the others gave up waiting for it; it is {stood}in {where}"
                if who
                else ""
            )
        accuses = len(own) == 1 and rank_votes.explain_vote(own, own[0].rank, len(ledger.ranks)) != ""
        if silent and (len(own) != 1 or (accuses and not self._had_time_to_tell(now))):
            return ""
        first = (own[0].rank,) if silent and not accuses else ledger.first_failed_ranks(failures)
        ends = [*failures, *(end for end in ledger.list_ends() if end.rank not in spoke)]
        named = [end for end in ends if end.rank in first]
        if any(self._may_say_more(end, now) for end in named):
            return ""
        return rank_votes.describe_first([end.rank for end in named], ends, len(ledger.ranks)) if named else ""

    def _may_say_more(self, end: RankEnd, now: float) -> bool:
        """Whether its error, its exit code or a rank that failed before it may still come."""
        tells = last_error_line(end.last) and not self.ledger.lost_its_peer(end)
        if tells or end.signal or not end.failed:
            return False
        return not self._had_time_to_tell(now) or self.ledger.ranks[end.rank].is_alive

    def _had_time_to_tell(self, now: float) -> bool:
        return self.failed_at is not None and now - self.failed_at >= TELL_SECONDS

    def _seconds_to_fail(self) -> float:
        """How long ranks may take to end: one that failed by itself cleans up; who waited in vain is not waited for again."""
        if any(not self.ledger.lost_its_peer(state) for state in self.ledger.list_leaving_ranks()):
            return CLEAN_UP_SECONDS
        if self.ledger.waits_for_one_that_left():
            return CLEAN_UP_SECONDS
        if self.ledger.gave_up_waiting():
            has_stacks = all(state.stack for state in self.ledger.living_ranks())
            return FAIL_TOGETHER_SECONDS if has_stacks else KILL_GRACE_SECONDS
        return CLEAN_UP_SECONDS if self._find_suspects() else FAIL_TOGETHER_SECONDS

    def _find_suspects(self) -> list[int]:
        """Return the ranks that may have closed their connections and still clean up, if all others only lost a peer."""
        if not self.ledger.only_victims_failed():
            return []
        busy = [state for state in self.ledger.living_ranks() if state.script_failed is None]
        places = {state.rank: stack_places.describe_place(state) for state in busy}
        return [rank for rank, place in places.items() if place.text and place.kind == stack_places.OTHER]

    def _keep_stacks(self) -> None:
        self.stacks = {state.rank: state.stack[-60:] for state in self.ledger.living_ranks() if state.stack}

    def _stop_ranks(self, number: int, grace: float) -> None:
        self.ledger.stopping = True
        for state in self.ledger.living_ranks():
            state.stood = state.stood or state.describe_stand()
        self.stopped_at = self.stopped_at or time.monotonic()
        self.kill_at = time.monotonic() + grace
        self.hub.broadcast_order(t="stop", signal=int(number), grace=grace)
        if not self.hub.links or self.started_ranks_at is None:
            agent_hub.signal_session(self.process, number)

    def stop_with_reason(
        self, why: str, message_text: str, fix: str = "", code: int = FAILURE, rule: str = "", rank: int | None = None
    ) -> None:
        if self.why:
            return
        self.why, self.code = why, code
        self.add_note(RunNote(why, message_text, fix, rank, code=rule or CODES.get(why, "")))
        self._keep_stacks()
        if why == "hung" and self.peers is not None:
            self.peers.tell_hung(self.ledger, rank)
        self._stop_ranks(signal.SIGTERM, self.job.grace or KILL_GRACE_SECONDS)

    def _check_progress(self, now: float) -> None:
        self.reporter.show_progress(self.ledger, now)
        if self.started_ranks_at is None and now - self.started > self.job.window:
            self._stop_for_missing()
        elif self.started_ranks_at is None:
            self._heed_refusal()
        if self._stands_still_after(self.stopped_at, now):
            self._stop_ranks(signal.SIGKILL, 0)
        if self.stopped_at is None and self.failed_at is None:
            if self.peers is not None:
                self.peers.exchange_beats(now)
            self.hangs.check(now)

    def _stands_still_after(self, stopped_at: float | None, now: float) -> bool:
        """Whether what was named as standing still has not moved since Ctrl-C either: it saves nothing, and needs no --grace."""
        if self.why != "interrupted" or stopped_at is None or now - stopped_at < STILL_GRACE_SECONDS or self.job.grace:
            return False
        since = now - stopped_at - NOTICE_SECONDS
        still = [bool(state.beats) and state.beats[-1].still > since for state in self.ledger.living_ranks()]
        return all(still) and any(note.kind == "still" for note in self.notes)

    def _heed_refusal(self, seconds: float = 0.0) -> bool:
        """Stop where another node has said that it does not start, or that it was told another number of nodes; whether none has."""
        refusal = self.peers.read_refusal() or self.peers.find_other_nnodes(seconds) if self.peers is not None else ""
        if refusal:
            self.stop_with_reason("unfit", refusal, "look there; then start all nodes again")
        return not refusal

    def _stop_for_missing(self) -> None:
        if self.peers is not None and not self.hello_of_rank:
            message_text, fix = self.peers.explain_missing_nodes()
            self.stop_with_reason("missing", f"no rank has begun after {self.job.window:.0f} s: {message_text}", fix)
            return
        absent = [rank for rank in self.ledger.ranks if rank not in self.hello_of_rank]
        hosts = sorted({hello["host"] for hello in self.hello_of_rank.values()})
        came = f"{len(self.hello_of_rank)} of {len(self.ledger.ranks)} came, from {', '.join(hosts)}"
        room = next((line for line in reversed(self.engine_lines) if NO_ROOM in line), "")
        message_text = (
            f"missing after {self.job.window:.0f} s: {stack_places.list_ranks(absent)}; {came if hosts else 'none came'}"
            + (f"; {room.removesuffix('; waiting')}" if room else "")
        )
        fix = f"see what {self.job.engine} says below; --window SECONDS waits longer"
        self.stop_with_reason("missing", message_text, fix)

    def add_note(self, note: RunNote) -> None:
        self.notes.append(note)
        self.reporter.write_note(note)

    def _build_attempt(self) -> LaunchAttempt:
        stopped = self.why in ("interrupted", "hung", "claimed", "missing", "unfit")
        first = () if stopped else self.ledger.first_failed_ranks()
        code = self.code
        if first:
            failed = [
                end for end in (self.ledger.ranks[first[0]].end, *self.ledger.list_failed_ends()) if end is not None
            ]
            code = _own_code(failed)
            paths = {state.rank: state.paths for state in self.ledger.ranks.values()} if self.job.nnodes == 1 else {}
            says, fix = explain_missing(failed[0], paths) if len(first) == 1 else ("", "")
            self.notes += [RunNote("place", says, fix, first[0], seconds=failed[0].seconds)] if says else []
        ends = self.ledger.list_ends()
        crashed = [end for end in ends if end.crashed_at_exit]
        if crashed and not (first or code or self.why):
            first, code, self.why = (crashed[0].rank,), crashed[0].code, CRASHED
        ends = tuple(self._add_stand(end) if end.rank in first else end for end in ends)
        ended_here = bool(first) or (self.stopped_at is not None and not stopped)
        elsewhere = self.peers.find_first(self.ledger) if self.peers is not None and ended_here else []
        if elsewhere:
            first, ends = tuple(end.rank for end in elsewhere), (*ends, *elsewhere)
            code = _own_code([*elsewhere, *self.ledger.list_failed_ends()])
        return LaunchAttempt(
            ends=ends,
            first=first,
            decided=rank_votes.explain_first(first, ends, len(ends)) if first else "",
            notes=tuple(self.notes),
            code=code,
            why=self.why,
            seconds=round(time.monotonic() - self.started, 3),
            started=None if self.started_ranks_at is None else round(self.started_ranks_at - self.started, 3),
            engine_said=tuple(self.engine_lines),
            stacks=self.stacks,
        )

    def _add_stand(self, end: RankEnd) -> RankEnd:
        """Say where a rank stood that the others waited for in vain, and for what it waited itself."""
        place = stack_places.describe_place(self.ledger.ranks[end.rank]).text if end.stopped and end.signal else ""
        return end.replace(stood=", ".join(filter(None, (end.stood, f"in {place}" if place else ""))))


def _own_code(failed: Iterable[RankEnd]) -> int:
    """The first exit code that is not that of the signal by which we have stopped a rank."""
    return next((end.code for end in failed if end.code and not (end.stopped and end.code > 128)), FAILURE)
