"""Interpret the beats of living ranks: stopped, blocking the GIL, waiting in the kernel, all idle.

Pure: beats in, notes out. Nothing here ends a rank; an uncertain note is only a hint.
"""

from __future__ import annotations

from gpuready.model.run import RunNote

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.launcher.rank_ledger import RankLedger, RankState

STOPPED_SECONDS, GIL_SECONDS, KERNEL_SECONDS, STILL_SECONDS, SLOW_SECONDS = 3.0, 10.0, 15.0, 10.0, 10.0
"""Seconds after which each is reported."""
IDLE_SHARE = 0.05
"""Share of one processor below which a process is idle."""

CODES = {"stopped": "RUN024", "gil": "RUN024", "kernel": "RUN024", "still": "RUN016", "slow": "RUN026"}

_INTERNAL_PATHS = (
    "/torch/distributed/",
    "/threading.py",
    "/selectors.py",
    "/socket.py",
    "/contextlib.py",
    "c10d_logger.py",
)


def find_liveness_notes(ledger: RankLedger, now: float) -> list[RunNote]:
    """Return the current notes on each rank and on all together."""
    alive = ledger.living_ranks()
    notes = [note for rank_state in alive for note in [_note_for_rank(rank_state, now)] if note]
    if not notes and len(alive) == len([v for v in ledger.ranks.values() if v.end is None]):
        notes += _notes_for_all(alive, ledger, now)
    return [note.replace(seconds=round(now - ledger.started, 1), code=CODES[note.kind]) for note in notes]


def _note_for_rank(rank_state: RankState, now: float) -> RunNote | None:
    stopped = _seconds_in_state(rank_state, "Tt")
    if stopped >= STOPPED_SECONDS - 0.5:
        return RunNote("stopped", f"rank {rank_state.rank} on {rank_state.host} is stopped (state T, pid {rank_state.pid}): a signal or a debugger holds it",
                    f"kill -CONT {rank_state.pid}", rank=rank_state.rank, host=rank_state.host)  # fmt: skip
    if _seconds_in_state(rank_state, "D") >= KERNEL_SECONDS - 0.5:
        return RunNote("kernel", f"rank {rank_state.rank} on {rank_state.host} has been waiting in the kernel for {_seconds_in_state(rank_state, 'D'):.0f} s (state D, pid {rank_state.pid})",
                    "look at its disk or device: dmesg, cat /proc/PID/stack", sure=False, rank=rank_state.rank, host=rank_state.host)  # fmt: skip
    late = rank_state.beats[-1][3] if rank_state.beats else None
    if late is not None and late >= GIL_SECONDS and now - rank_state.beats[-1][0] < 3:
        return _gil_note(rank_state, late)
    return None


def _gil_note(rank_state: RankState, late: float) -> RunNote | None:
    share = _processor_share(rank_state)
    if share is None or (share < IDLE_SHARE and rank_state.beats[-1][1] == "R"):
        return None  # it is ready to run and gets no processor: the machine is overloaded
    how = "spins" if share > 0.5 or rank_state.beats[-1][1] == "R" else "waits"
    message = f"rank {rank_state.rank} on {rank_state.host} holds the GIL and {how} (pid {rank_state.pid}): no Python has run in it for {late:.0f} s"
    fix = "its stack names the call that does not release the GIL"
    return RunNote("gil", message, fix, rank_state.rank, rank_state.host)


def _seconds_in_state(rank_state: RankState, states: str) -> float:
    """Return for how many seconds the last beats have all shown one of these states."""
    duration = 0.0
    newest = rank_state.beats[-1][0] if rank_state.beats else 0.0
    for at, state, _, _ in reversed(rank_state.beats):
        if state not in states or not state:
            break
        duration = newest - at + 1.0
    return duration


def _processor_share(rank_state: RankState, least: float = STILL_SECONDS - 1) -> float | None:
    """Return the share of one processor used lately; None if not known yet."""
    if len(rank_state.beats) < 2 or rank_state.beats[-1][0] - rank_state.beats[0][0] < least:
        return None
    return (rank_state.beats[-1][2] - rank_state.beats[0][2]) / (rank_state.beats[-1][0] - rank_state.beats[0][0])


def _notes_for_all(alive: list[RankState], ledger: RankLedger, now: float) -> list[RunNote]:
    shares = {rank_state.rank: _processor_share(rank_state) for rank_state in alive}
    if not alive or any(share is None for share in shares.values()):
        return []
    known = {rank: share for rank, share in shares.items() if share is not None}
    quiet = now - ledger.last_output_time()
    if max(known.values()) < IDLE_SHARE and quiet >= STILL_SECONDS:
        return [_still_note(alive, quiet)]
    return _slow_rank_note(known, alive) if len(alive) > 1 else []


def _still_note(alive: list[RankState], quiet: float) -> RunNote:
    places: dict[str, list[int]] = {}
    for rank_state in alive:
        places.setdefault(locate_stack(rank_state.stack), []).append(rank_state.rank)
    rows = sorted(places.items(), key=lambda row: len(row[1]))
    located = [f"{_list_ranks(ranks)} in {place}" for place, ranks in rows if place]
    message = "; ".join([f"nothing has moved for {quiet:.0f} s: no rank writes or computes", *located])
    odd = min(places.values(), key=len) if len(places) > 1 else []
    rank = odd[0] if len(odd) == 1 else None
    host = next((rank_state.host for rank_state in alive if rank_state.rank == rank), "")
    fix = "a rank that is elsewhere than the others keeps them waiting"
    return RunNote("still", message, fix, rank, host, sure=False)


def _slow_rank_note(shares: dict[int, float], alive: list[RankState]) -> list[RunNote]:
    """Note a rank that computes while the others mostly wait for it."""
    rank = max(shares, key=lambda r: shares[r])
    others = sorted(share for r, share in shares.items() if r != rank)
    median = others[len(others) // 2]
    starved = any(rank_state.rank != rank and rank_state.beats[-1][1] == "R" for rank_state in alive)
    if shares[rank] < 0.5 or median * 2 > shares[rank] or starved:
        return []
    host = next(rank_state.host for rank_state in alive if rank_state.rank == rank)
    message = f"rank {rank} on {host} computes ({shares[rank]:.0%} of a processor) while the others mostly wait ({median:.0%} in the median)"
    return [RunNote("slow", message, "it may be the slowest rank: see its stack", rank, host, sure=False)]


def locate_stack(stack: list[str]) -> str:
    """Return the innermost frame of the main thread in the user's code, and the call at the top."""
    frames = _main_thread_frames(stack)
    own = next((f for f in frames if not any(part in f for part in _INTERNAL_PATHS) and "site-packages" not in f), "")
    top = frames[0] if frames else ""
    if not top or own == top:
        return _format_frame(top)
    names = [_function_name(frame) for frame in frames if "/torch/distributed/" in frame]
    name = next((name for name in names if name != "wrapper"), _function_name(top))
    return f"{name} at {_format_frame(own)}" if own else _format_frame(top)


def _main_thread_frames(stack: list[str]) -> list[str]:
    """Return the frames of the last thread of the last dump: faulthandler prints the main thread last."""
    frames: list[str] = []
    for line in stack:
        if line.startswith(("Thread 0x", "Current thread 0x")):
            frames = []
        elif line.startswith("  File "):
            frames.append(line.strip())
    return frames


def _function_name(frame: str) -> str:
    return frame.rpartition(" in ")[2]


def _format_frame(frame: str) -> str:
    """Format ``File "/x/train.py", line 12 in step`` as ``train.py:12 (step)``."""
    path = frame.partition('"')[2].partition('"')[0]
    line = frame.partition(", line ")[2].partition(" in ")[0]
    return f"{path.rsplit('/', 1)[-1]}:{line} ({_function_name(frame)})" if path else ""


def _list_ranks(ranks: list[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else "ranks " + ", ".join(map(str, sorted(ranks)[:16]))
