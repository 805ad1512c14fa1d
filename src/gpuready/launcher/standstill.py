"""Judge whether a run stands still, and who keeps the others waiting. Pure: the ledger in, notes out.

A rank is stuck if its main thread has neither moved nor run any Python. Output proves nothing: a thread may chatter while the
main thread is stuck. How long is too long is learned from the pauses after which this run went on.
"""

from gpuready.launcher.rank_ledger import RankLedger, RankState
from gpuready.launcher.stack_places import COLLECTIVE, MESSAGE, OTHER, Place, describe_place, list_ranks
from gpuready.model.last_error import last_error_line
from gpuready.model.run import RunNote
from gpuready.model.visible_text import cut_middle

STILL_SECONDS, ALONE_SECONDS, ROAMING_SECONDS, OUTSIDE_SECONDS = 20.0, 60.0, 300.0, 30.0
"""Seconds after which it is reported: all stand still; others wait for one that stays in the same functions; for one that
does not; one stands still outside of any collective while others spin."""
TAIL = 12
"""Lines of a rank's output before its end in which an error may explain why it stands still."""
POLL_BEATS = 15
"""Beats in which a rank that looks again for a file has woken up at least once."""
PAUSE_FACTOR = 3.0
"""How many times longer than any pause so far a standstill must last."""


def seconds_allowed(ledger: RankLedger, least: float) -> float:
    """Return how long a run may pause. The first pause, its setup, tells nothing of those after it."""
    return max(least, PAUSE_FACTOR * max(ledger.pauses[1:], default=0.0))


def find_standstill(ledger: RankLedger, least: float = STILL_SECONDS) -> RunNote | None:
    """Return the note on a run that stands still; None as long as it moves."""
    alive = [state for state in ledger.living_ranks() if state.beats]
    if not alive or len(alive) < len(ledger.living_ranks()) or ledger.missing_ranks():
        return None
    stuck = {state.rank: state.beats[-1].stuck for state in alive}
    limit = seconds_allowed(ledger, least)
    halted = [state for state in alive if stuck[state.rank] >= limit]
    free = [state for state in alive if stuck[state.rank] < limit]
    if not free:
        return _describe_standstill(alive, ledger, min(stuck.values()))
    if not halted or len(alive) < 2:
        return None
    return _describe_lone_rank(halted, free, ledger, least)


def _describe_standstill(alive: list[RankState], ledger: RankLedger, seconds: float) -> RunNote:
    places = {state.rank: describe_place(state) for state in alive}
    if all(state.script_ended is not None for state in alive):
        return _describe_late_exit(places, ledger, seconds)
    accused = _find_accused(alive, places, ledger)
    message = (
        f"nothing has moved for {seconds:.0f} s: {_describe_places(places, accused)}{_describe_gone(ledger, accused)}"
    )
    return _make_note(message, accused, ledger, places)


def _describe_late_exit(places: dict[int, Place], ledger: RankLedger, seconds: float) -> RunNote:
    """Scripts have ended and Python does not exit: a thread that is no daemon, a queue that is not empty."""
    ranks = sorted(places)
    message = f"{list_ranks(ranks)} finished the script and has not exited for {seconds:.0f} s: {_describe_places(places, ranks)}"
    fix = "end its threads and close its queues and pools before the script ends, or make the threads daemons"
    return RunNote("still", message, fix, ranks[0], ledger.ranks[ranks[0]].host, sure=False)


def _describe_lone_rank(
    halted: list[RankState], free: list[RankState], ledger: RankLedger, least: float
) -> RunNote | None:
    """Some ranks stand still while others do not: those who wait in a collective wait for the others."""
    places = {state.rank: describe_place(state) for state in [*halted, *free]}
    outside = [
        state
        for state in halted
        if places[state.rank].kind == OTHER and state.beats[-1].still >= least and not _looks_again(state)
    ]
    waiting = [state for state in halted if state not in outside]
    roaming = any(state.beats[-1].roamed < least for state in free)
    seconds = min(state.beats[-1].stuck for state in halted)
    if outside and seconds >= seconds_allowed(ledger, ROAMING_SECONDS if roaming and not waiting else OUTSIDE_SECONDS):
        accused = [state.rank for state in outside]
        message = f"{_describe_places({r: places[r] for r in accused}, accused)} has not moved for {seconds:.0f} s while the others compute or wait"
        return _make_note(message, accused, ledger, places)
    if outside or seconds < seconds_allowed(ledger, ROAMING_SECONDS if roaming else ALONE_SECONDS):
        return None
    accused = [state.rank for state in free]
    others = _describe_places({state.rank: places[state.rank] for state in waiting}, [])
    message = f"{_describe_places({r: places[r] for r in accused}, accused)} keeps the others waiting for {seconds:.0f} s: {others}"
    return _make_note(message, accused, ledger, places)


def _looks_again(state: RankState) -> bool:
    """Whether it wakes up now and then to look for a file or a lock: as long as another rank works, it waits for that one."""
    return any(beat.polls for beat in list(state.beats)[-POLL_BEATS:])


def _find_accused(alive: list[RankState], places: dict[int, Place], ledger: RankLedger) -> list[int]:
    """Return the ranks that the others wait for; empty if all wait alike."""
    left = [state.rank for state in ledger.ranks.values() if state.end is not None]
    if left and all(place.kind != OTHER for place in places.values()):
        return left
    spinning = [state.rank for state in alive if state.beats[-1].still < state.beats[-1].ran]
    kinds = {rank: COLLECTIVE if rank in spinning else place.kind for rank, place in places.items()}
    for kind in (OTHER, MESSAGE):
        found = [rank for rank in kinds if kinds[rank] == kind]
        if found and len(found) < len(kinds):
            return found
    groups: dict[str, list[int]] = {}
    for rank, place in places.items():
        groups.setdefault(place.text, []).append(rank)
    *others, most = sorted(groups.values(), key=len)
    return others[0] if others and 2 * len(most) > len(places) else []


def _describe_places(places: dict[int, Place], accused: list[int]) -> str:
    """Name each place with its ranks, the accused first."""
    groups: dict[str, list[int]] = {}
    for rank in sorted(places, key=lambda rank: rank not in accused):
        groups.setdefault(places[rank].text or "an unknown place", []).append(rank)
    return "; ".join(
        f"{list_ranks(ranks)} {'' if text.startswith('waiting ') else 'in '}{text}" for text, ranks in groups.items()
    )


def describe_all_places(ledger: RankLedger, accused: list[int]) -> str:
    """Where every living rank stands, the accused first; empty if no stack is known."""
    places = {state.rank: describe_place(state) for state in ledger.living_ranks()}
    return _describe_places({rank: place for rank, place in places.items() if place.text}, accused)


def _describe_gone(ledger: RankLedger, accused: list[int]) -> str:
    gone = [state.end for state in ledger.ranks.values() if state.end is not None]
    ended = ", ".join(f"rank {end.rank} ended with {end.code} after {end.seconds:.0f} s" for end in gone[:4])
    waited_for = ", and the others wait for it" if gone and gone[0].rank in accused else ""
    return f"; {ended}{waited_for}" if ended else ""


def _make_note(message: str, accused: list[int], ledger: RankLedger, places: dict[int, Place]) -> RunNote:
    rank = accused[0] if len(accused) == 1 or (accused and len(accused) < len(places)) else None
    host = ledger.ranks[rank].host if rank is not None else ""
    error = (
        last_error_line(tuple(ledger.ranks[rank].tail)[-TAIL:]) if rank is not None else ""
    )  # of a thread, or survived
    message += f"; the log of rank {rank} ends with {cut_middle(error, 200)}" if error else ""
    if rank is not None:
        fix = f"look at {list_ranks(accused)} first: the others wait for it"
    elif len(places) > 1:
        fix = "all ranks wait alike: --check-collectives compares their collectives; else look at the network between them"
    else:
        fix = "its stack names the call"
    return RunNote("still", message, fix, rank, host, sure=False)
