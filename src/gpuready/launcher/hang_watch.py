"""Report what stands still, each thing once, and end the run where that was asked for."""

from typing import Protocol

from gpuready.launcher import standstill
from gpuready.launcher.agent_hub import AgentHub
from gpuready.launcher.peer_nodes import BEAT_SECONDS, PeerNodes
from gpuready.launcher.rank_ledger import RankLedger, RankState
from gpuready.launcher.stack_places import describe_place, list_ranks
from gpuready.model.last_error import last_error_line
from gpuready.model.run import EXIT_HUNG, LaunchJob, RunNote
from gpuready.model.visible_text import cut_middle


class WatchedRun(Protocol):
    """What the watch uses of a Supervisor."""

    job: LaunchJob
    ledger: RankLedger
    hub: AgentHub
    peers: PeerNodes | None
    notes: list[RunNote]

    def add_note(self, note: RunNote) -> None: ...
    def stop_with_reason(self, why: str, message_text: str, *, code: int, rank: int | None) -> None: ...


KILL_SECONDS, STOP_SECONDS = 300.0, 20.0
"""How long a run must stand still before --on-hang kill ends it, where --hang-timeout names no time; and how much longer than until it
was named before --on-hang stop does."""


class HangWatch:
    """Looks at the ledger once a second."""

    def __init__(self, supervisor: WatchedRun):
        self.supervisor = supervisor
        self.pending: dict[tuple[str, int | None], float] = {}
        self.named: dict[str, float] = {}  # since when what was reported goes on
        self.asked, self.hold = False, 0.0  # whether stacks were, and for how long a standstill waits to be reported

    def check(self, now: float) -> None:
        supervisor = self.supervisor
        job, ledger = supervisor.job, supervisor.ledger
        least = min(job.hang or standstill.STILL_SECONDS, standstill.STILL_SECONDS)
        notes = find_liveness_notes(ledger, now, least)
        if job.on_hang == "off":
            notes = [note for note in notes if note.kind not in ("still", "slow")]
        if supervisor.peers is not None:
            notes = self._heed_other_nodes(notes, supervisor.peers, now)
        self._report_notes(notes, now)
        if job.on_hang == "stop":
            self._stop_named_standstill(notes, now)
        if job.on_hang in ("kill", "restart") and not ledger.missing_ranks():
            self._end_hung_run(notes, now)

    def _heed_other_nodes(self, notes: list[RunNote], peers: PeerNodes, now: float) -> list[RunNote]:
        """Tell the other nodes who keeps all waiting here, and hear it of them: where all wait alike, for two of their beats."""
        own = next((note for note in notes if note.kind == "still"), None)
        peers.stands = own.says if own is not None and own.rank is not None else ""
        others = peers.describe_other_nodes(now) if own is not None else ""
        self.hold = 0.0 if others or own is None or own.rank is not None else 2 * BEAT_SECONDS
        if own is None or not others:
            return notes
        fix = own.fix if own.rank is not None else "look there first"
        return [note if note is not own else own.replace(says=f"{others}; {own.says}", fix=fix) for note in notes]

    def _report_notes(self, notes: list[RunNote], now: float) -> None:
        """Report each observation once, with stacks that were requested when it was first seen."""
        supervisor = self.supervisor
        new = {(note.kind, note.rank): note for note in notes}
        reported = {(note.kind, note.rank) for note in supervisor.notes}
        for key, note in new.items():
            if key in reported or (note.kind == "still" and any(kind == "still" for kind, _ in reported)):
                continue
            if note.kind not in {kind for kind, _ in self.pending}:
                self.pending[key] = now
                supervisor.hub.broadcast_order(t="stacks")
            elif (
                now - self.pending.get(key, now) > (self.hold if key[0] == "still" else 0.0) or key not in self.pending
            ):
                state = supervisor.ledger.ranks.get(note.rank if note.rank is not None else -1)
                supervisor.add_note(note.replace(stack=tuple(state.stack[-60:]) if state else ()))
        self.pending = {key: at for key, at in self.pending.items() if key[0] in {kind for kind, _ in new}}

    def _stop_named_standstill(self, notes: list[RunNote], now: float) -> None:
        """End it where what was named goes on: a pause that ends within STOP_SECONDS of its name costs no run."""
        going_on = {note.kind for note in notes if note.kind != "slow"}
        self.named = {kind: at for kind, at in self.named.items() if kind in going_on}
        for note in self.supervisor.notes:
            if note.kind in going_on and now - self.named.setdefault(note.kind, now) >= STOP_SECONDS:
                self.supervisor.stop_with_reason("hung", note.says, code=EXIT_HUNG, rank=note.rank)

    def _end_hung_run(self, notes: list[RunNote], now: float) -> None:
        """End it when it has stood still, or nobody has written, for as long as --hang-timeout allows."""
        supervisor, limit = self.supervisor, self.supervisor.job.hang or KILL_SECONDS
        found = next((note for note in notes if note.kind != "slow"), None)
        alive = [state for state in supervisor.ledger.living_ranks() if state.beats]
        stuck = [state.beats[-1].stuck for state in alive]
        still = max(stuck, default=0.0) if found is not None else 0.0
        # Who imports or reads is silent and not hanging, as who computes and keeps nobody waiting; who polls for ever stays in the same functions.
        works = any(map(_computes, alive)) and not any(state.beats[-1].in_collective for state in alive)
        idle = 0.0 if works else min((state.beats[-1].idle for state in alive), default=0.0)
        quiet = min(now - max(state.last_output for state in supervisor.ledger.ranks.values()), idle)
        if max(still, quiet) <= limit:
            return
        if not self.asked:  # first where every rank stands
            self.asked = True
            supervisor.hub.broadcast_order(t="stacks")
            return
        what = "no rank has written anything" if quiet > limit else "the run has stood still"
        rank = found.rank if found is not None else None
        places = standstill.describe_all_places(supervisor.ledger, [] if rank is None else [rank])
        places = found.says if found is not None and found.kind != "still" else places
        message = (
            f"{places}{': ' if places else ''}{what} for {max(still, quiet):.0f} s, longer than --hang-timeout allows"
        )
        supervisor.stop_with_reason("hung", message, code=EXIT_HUNG, rank=rank)


MANY_CHILDREN, FAILED_CHILDREN = 6, 3
"""A rank that has started so many children at one place, of which so many were seen to fail, starts them for ever."""
STOPPED_SECONDS, GIL_SECONDS, KERNEL_SECONDS, SLOW_SECONDS = 3.0, 10.0, 20.0, 20.0
"""Seconds after which each is reported."""
SILENT_SECONDS, FRESH_SECONDS = 12.0, 4.0
"""A host is silent after the first, if another was heard of within the second."""
IDLE_SHARE = 0.05
"""Share of one processor below which a process is idle."""
RARE_SHARE, OFTEN_SHARE = 0.34, 0.66
"""A rank that is found in a collective so rarely, while all others are there so often, is slower than they are."""

CODES = {
    "silent": "NET014",
    "stopped": "RUN024",
    "frozen": "RUN024",
    "gil": "RUN024",
    "kernel": "RUN024",
    "restarts": "RUN016",
    "still": "RUN016",
    "slow": "RUN026",
}


def find_liveness_notes(ledger: RankLedger, now: float, least: float = standstill.STILL_SECONDS) -> list[RunNote]:
    """Return the current notes on each rank and on all together."""
    alive = ledger.living_ranks()
    notes = _silent_host_notes(alive, now)
    notes = notes or [note for rank_state in alive for note in [_note_for_rank(rank_state, now)] if note]
    if not notes:
        still = standstill.find_standstill(ledger, least)
        notes = [still] if still is not None else _slow_rank_notes(alive, ledger)
    return [note.replace(seconds=round(now - ledger.started, 1), code=CODES[note.kind]) for note in notes]


def _silent_host_notes(alive: list[RankState], now: float) -> list[RunNote]:
    """Note hosts whose agents say nothing while others do: a pulled cable, a host that hangs."""
    ages: dict[str, float] = {}
    for state in alive:
        if state.beats:
            ages[state.host] = min(ages.get(state.host, now), now - state.beats[-1].at)
    if not ages or min(ages.values()) > FRESH_SECONDS:
        return []
    silent = {host: age for host, age in ages.items() if age >= SILENT_SECONDS}
    notes = []
    for host, age in silent.items():
        ranks = [state.rank for state in alive if state.host == host]
        message = (
            f"nothing has been heard from {host} ({list_ranks(ranks)}) for {age:.0f} s: its network or the host itself"
        )
        fix = f"look at {host}: ping, its cable and its interface; the other ranks wait for it"
        notes.append(RunNote("silent", message, fix, ranks[0], host))
    return notes


def _note_for_rank(rank_state: RankState, now: float) -> RunNote | None:
    who, pid = f"rank {rank_state.rank} on {rank_state.host}", rank_state.pid
    if _seconds_in_state(rank_state, "Tt") >= STOPPED_SECONDS - 0.5:
        tracer, state = rank_state.tracer, rank_state.beats[-1].state
        by = f"{tracer} traces it, and holds it" if tracer else "a signal or a debugger holds it"
        fix = "end that tracer, or let it detach: kill -CONT has no effect" if tracer else f"kill -CONT {pid}"
        message = f"{who} is stopped (state {state}, pid {pid}){_place_suffix(rank_state)}: {by}"
        return RunNote("stopped", message, fix, rank_state.rank, rank_state.host)
    if _seconds_in_state(rank_state, "F") >= 1:
        message = f"{who} is frozen by its control group (pid {pid}){_place_suffix(rank_state)}"
        return RunNote(
            "frozen", message, "thaw the group: a suspended job or container", rank_state.rank, rank_state.host
        )
    if _seconds_in_state(rank_state, "D") >= KERNEL_SECONDS - 0.5:
        return _kernel_note(rank_state)
    if (restarts := _restarts_note(rank_state)) is not None:
        return restarts
    late = rank_state.beats[-1].late if rank_state.beats and rank_state.script_ended is None else None
    if late is not None and late >= GIL_SECONDS and now - rank_state.beats[-1].at < 3:
        return _gil_note(rank_state, late)
    return None


def _place_suffix(rank_state: RankState) -> str:
    place = describe_place(rank_state).text
    return f" in {place}" if place else ""


def _kernel_note(rank_state: RankState) -> RunNote:
    waits = next((name for name in rank_state.kernel_waits if name), "")
    seconds = _seconds_in_state(rank_state, "D")
    message = (
        f"rank {rank_state.rank} on {rank_state.host} has been in uninterruptible sleep for {seconds:.0f} s "
        f"(state D, pid {rank_state.pid}{', in ' + waits if waits else ''}){_place_suffix(rank_state)}"
    )
    fix = f"look at its disk or device: dmesg, cat /proc/{rank_state.pid}/stack"
    return RunNote("kernel", message, fix, rank_state.rank, rank_state.host, sure=False)


def _restarts_note(rank_state: RankState) -> RunNote | None:
    """A pool starts a worker anew for each that dies, for ever; who only replaces workers that have done their work has none that failed."""
    born, failed = (rank_state.beats[-1].born, rank_state.beats[-1].failed) if rank_state.beats else (0, 0)
    told = sum(line.startswith("Process ") and line.endswith(":") for line in rank_state.tail)  # by multiprocessing
    if born < MANY_CHILDREN or max(failed, told) < FAILED_CHILDREN:
        return None
    message = (
        f"rank {rank_state.rank} on {rank_state.host} starts child processes again and again that fail: {born:.0f}, "
        f"while it stays{_place_suffix(rank_state) or ' where it is'}"
    )
    last = last_error_line(rank_state.tail)
    message += f"; its log ends with {cut_middle(last, 200)}" if last else ""
    fix = "do the work of one such process in the rank itself, without the pool: then its error is seen"
    return RunNote("restarts", message, fix, rank_state.rank, rank_state.host)


def _gil_note(rank_state: RankState, late: float) -> RunNote | None:
    share, beat = _processor_share(rank_state), rank_state.beats[-1]
    if share is None or (share < IDLE_SHARE and beat.state == "R"):
        return None  # it is ready to run and gets no processor: the machine is overloaded
    how = "spins" if share > 0.5 or beat.state == "R" else "waits"
    message = f"rank {rank_state.rank} on {rank_state.host} holds the GIL and {how} (pid {rank_state.pid}){_place_suffix(rank_state)}: no Python has run in it for {late:.0f} s"
    fix = "its stack names the call that does not release the GIL"
    return RunNote("gil", message, fix, rank_state.rank, rank_state.host)


def _seconds_in_state(rank_state: RankState, states: str) -> float:
    """Return for how many seconds the last beats have all shown one of these states."""
    duration = 0.0
    newest = rank_state.beats[-1].at if rank_state.beats else 0.0
    for beat in reversed(rank_state.beats):
        if beat.state not in states or not beat.state:
            break
        duration = newest - beat.at + 1.0
    return duration


def _processor_share(rank_state: RankState) -> float | None:
    """Return the share of one processor used in the last ten beats; None if not known yet."""
    beats = list(rank_state.beats)[-11:]
    if len(beats) < 2 or beats[-1].at - beats[0].at < GIL_SECONDS - 1:
        return None
    return float((beats[-1].seconds - beats[0].seconds) / (beats[-1].at - beats[0].at))


def _computes(rank_state: RankState) -> bool:
    """Whether it had a processor, or was ready for one, most of the time."""
    beats = list(rank_state.beats)[-int(SLOW_SECONDS) :]
    running = sum(beat.state == "R" for beat in beats) / len(beats) if len(beats) >= GIL_SECONDS else 0.0
    return max(_processor_share(rank_state) or 0.0, running) > 0.5


def _slow_rank_notes(alive: list[RankState], ledger: RankLedger) -> list[RunNote]:
    """Note a rank for which the others mostly wait, step after step: all of them move."""
    if len(alive) < 2 or len(alive) < len(ledger.ranks) or any(len(state.beats) < SLOW_SECONDS for state in alive):
        return []
    recent = {state.rank: list(state.beats)[-int(SLOW_SECONDS) :] for state in alive}
    still = [beat for beats in recent.values() for beat in beats if beat.stuck >= standstill.STILL_SECONDS / 4]
    if any(beat.state != "R" for beat in still):  # who is ready to run and gets no processor does not stand still
        return []
    waiting = {rank: sum(beat.in_collective for beat in beats) / len(beats) for rank, beats in recent.items()}
    rank = min(waiting, key=lambda r: waiting[r])
    others = [share for r, share in waiting.items() if r != rank]
    if waiting[rank] > RARE_SHARE or min(others) < OFTEN_SHARE:
        return []
    host = next(state.host for state in alive if state.rank == rank)
    does = "computes" if _computes(ledger.ranks[rank]) else "reads, writes or sleeps"
    message = f"rank {rank} on {host} {does} while the others mostly wait for it ({1 - waiting[rank]:.0%} of its time outside of collectives, the others {1 - min(others):.0%})"
    fix = f"it is the slowest rank, in {describe_place(ledger.ranks[rank]).text or 'an unknown place'}: compare its node and its data with the others'"
    return [RunNote("slow", message, fix, rank, host, sure=False)]
