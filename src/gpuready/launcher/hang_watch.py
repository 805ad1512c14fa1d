"""Report what stands still, each thing once, and end the run where that was asked for."""

from __future__ import annotations

from typing import Protocol

from gpuready.launcher import liveness, standstill
from gpuready.launcher.agent_hub import AgentHub
from gpuready.launcher.peer_nodes import PeerNodes
from gpuready.launcher.rank_ledger import RankLedger
from gpuready.model.run import EXIT_HUNG, LaunchJob, RunNote


class WatchedRun(Protocol):
    """What the watch uses of a Supervisor."""

    job: LaunchJob
    ledger: RankLedger
    hub: AgentHub
    peers: PeerNodes | None
    notes: list[RunNote]

    def add_note(self, note: RunNote) -> None: ...
    def stop_with_reason(self, why: str, message_text: str, *, code: int, rank: int | None) -> None: ...


KILL_SECONDS = 300.0
"""How long a run must stand still before --on-hang ends it, where --hang-timeout names no time."""


class HangWatch:
    """Looks at the ledger once a second."""

    def __init__(self, supervisor: WatchedRun):
        self.supervisor = supervisor
        self.pending: dict[tuple[str, int | None], float] = {}
        self.asked = False

    def check(self, now: float) -> None:
        supervisor = self.supervisor
        job, ledger = supervisor.job, supervisor.ledger
        least = min(job.hang or standstill.STILL_SECONDS, standstill.STILL_SECONDS)
        notes = liveness.find_liveness_notes(ledger, now, least)
        if job.on_hang == "off":
            notes = [note for note in notes if note.kind not in ("still", "slow")]
        if supervisor.peers is not None and any(note.kind == "still" for note in notes):
            silent = supervisor.peers.describe_silent_nodes(now)
            notes = [
                note.replace(says=f"{silent}; {note.says}") if silent and note.kind == "still" else note
                for note in notes
            ]
        self._report_notes(notes, now)
        if job.on_hang in ("kill", "restart") and not ledger.missing_ranks():
            self._end_hung_run(notes, now)

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
            elif self.pending.get(key, now) < now or key not in self.pending:
                state = supervisor.ledger.ranks.get(note.rank if note.rank is not None else -1)
                supervisor.add_note(note.replace(stack=tuple(state.stack[-60:]) if state else ()))
        self.pending = {key: at for key, at in self.pending.items() if key[0] in {kind for kind, _ in new}}

    def _end_hung_run(self, notes: list[RunNote], now: float) -> None:
        """End it when it has stood still, or nobody has written, for as long as --hang-timeout allows."""
        supervisor, limit = self.supervisor, self.supervisor.job.hang or KILL_SECONDS
        found = next((note for note in notes if note.kind != "slow"), None)
        stuck = [state.beats[-1].stuck for state in supervisor.ledger.living_ranks() if state.beats]
        still = max(stuck, default=0.0) if found is not None else 0.0
        quiet = now - supervisor.ledger.last_output_time()
        if max(still, quiet) <= limit:
            return
        if not self.asked:  # first where every rank stands
            self.asked = True
            supervisor.hub.broadcast_order(t="stacks")
            return
        what = "no rank has written anything" if quiet > limit else "the run has stood still"
        places = standstill.describe_all_places(supervisor.ledger)
        message = f"{what} for {max(still, quiet):.0f} s, longer than --hang-timeout allows" + (
            f"; {places}" if places else ""
        )
        rank = found.rank if found is not None else None
        supervisor.stop_with_reason("hung", message, code=EXIT_HUNG, rank=rank)
