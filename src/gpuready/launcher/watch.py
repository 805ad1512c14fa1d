"""Interpret the beats of living ranks: stopped, blocking the GIL, waiting in the kernel, all idle.

Pure: beats in, notes out. Nothing here ends a rank; an uncertain note is only a hint.
"""

from __future__ import annotations

from gpuready.launcher.job import Note

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.launcher.ledger import Ledger, Life

STOPPED, GIL, KERNEL, STILL, SLOW = 3.0, 10.0, 15.0, 10.0, 10.0
"""Seconds after which each is reported."""
IDLE = 0.05
"""Share of one processor below which a process is idle."""

CODES = {"stopped": "RUN024", "gil": "RUN024", "kernel": "RUN024", "still": "RUN016", "slow": "RUN026"}

_INTERNAL = (
    "/torch/distributed/",
    "/threading.py",
    "/selectors.py",
    "/socket.py",
    "/contextlib.py",
    "c10d_logger.py",
)


def seen(ledger: Ledger, now: float) -> list[Note]:
    """Return the current notes on each rank and on all together."""
    alive = ledger.alive()
    notes = [note for life in alive for note in [_one(life, now)] if note]
    if not notes and len(alive) == len([v for v in ledger.lives.values() if v.end is None]):
        notes += _together(alive, ledger, now)
    return [note.but(seconds=round(now - ledger.started, 1), code=CODES[note.kind]) for note in notes]


def _one(life: Life, now: float) -> Note | None:
    stopped = _for(life, "Tt")
    if stopped >= STOPPED - 0.5:
        return Note("stopped", f"rank {life.rank} on {life.host} is stopped (state T, pid {life.pid}): a signal or a debugger holds it",
                    f"kill -CONT {life.pid}", rank=life.rank, host=life.host)  # fmt: skip
    if _for(life, "D") >= KERNEL - 0.5:
        return Note("kernel", f"rank {life.rank} on {life.host} has been waiting in the kernel for {_for(life, 'D'):.0f} s (state D, pid {life.pid})",
                    "look at its disk or device: dmesg, cat /proc/PID/stack", sure=False, rank=life.rank, host=life.host)  # fmt: skip
    late = life.beats[-1][3] if life.beats else None
    if late is not None and late >= GIL and now - life.beats[-1][0] < 3:
        return _gil(life, late)
    return None


def _gil(life: Life, late: float) -> Note | None:
    share = _share(life)
    if share is None or (share < IDLE and life.beats[-1][1] == "R"):
        return None  # it is ready to run and gets no processor: the machine is overloaded
    how = "spins" if share > 0.5 or life.beats[-1][1] == "R" else "waits"
    says = f"rank {life.rank} on {life.host} holds the GIL and {how} (pid {life.pid}): no Python has run in it for {late:.0f} s"
    return Note("gil", says, "its stack names the call that does not release the GIL", life.rank, life.host)


def _for(life: Life, states: str) -> float:
    """Return for how many seconds the last beats have all shown one of these states."""
    last = 0.0
    newest = life.beats[-1][0] if life.beats else 0.0
    for at, state, _, _ in reversed(life.beats):
        if state not in states or not state:
            break
        last = newest - at + 1.0
    return last


def _share(life: Life, least: float = STILL - 1) -> float | None:
    """Return the share of one processor used lately; None if not known yet."""
    if len(life.beats) < 2 or life.beats[-1][0] - life.beats[0][0] < least:
        return None
    return (life.beats[-1][2] - life.beats[0][2]) / (life.beats[-1][0] - life.beats[0][0])


def _together(alive: list[Life], ledger: Ledger, now: float) -> list[Note]:
    shares = {life.rank: _share(life) for life in alive}
    if not alive or any(share is None for share in shares.values()):
        return []
    known = {rank: share for rank, share in shares.items() if share is not None}
    quiet = now - ledger.silent_since()
    if max(known.values()) < IDLE and quiet >= STILL:
        return [_still(alive, quiet)]
    return _slow(known, alive) if len(alive) > 1 else []


def _still(alive: list[Life], quiet: float) -> Note:
    places: dict[str, list[int]] = {}
    for life in alive:
        places.setdefault(where(life.stack), []).append(life.rank)
    told = "; ".join(
        f"{_ranks(ranks)} in {place}"
        for place, ranks in sorted(places.items(), key=lambda p: len(p[1]))
        if place
    )
    says = f"nothing has moved for {quiet:.0f} s: no rank writes or computes" + (f"; {told}" if told else "")
    odd = min(places.values(), key=len) if len(places) > 1 else []
    rank = odd[0] if len(odd) == 1 else None
    host = next((life.host for life in alive if life.rank == rank), "")
    return Note(
        "still", says, "a rank that is elsewhere than the others keeps them waiting", rank, host, sure=False
    )


def _slow(shares: dict[int, float], alive: list[Life]) -> list[Note]:
    """Note a rank that computes while the others mostly wait for it."""
    rank = max(shares, key=lambda r: shares[r])
    others = sorted(share for r, share in shares.items() if r != rank)
    median = others[len(others) // 2]
    starved = any(life.rank != rank and life.beats[-1][1] == "R" for life in alive)
    if shares[rank] < 0.5 or median * 2 > shares[rank] or starved:
        return []
    host = next(life.host for life in alive if life.rank == rank)
    says = f"rank {rank} on {host} computes ({shares[rank]:.0%} of a processor) while the others mostly wait ({median:.0%} in the median)"
    return [Note("slow", says, "it may be the slowest rank: see its stack", rank, host, sure=False)]


def where(stack: list[str]) -> str:
    """Return the innermost frame of the main thread in the user's code, and the call at the top."""
    frames = _main_thread(stack)
    own = next(
        (f for f in frames if not any(part in f for part in _INTERNAL) and "site-packages" not in f), ""
    )
    top = frames[0] if frames else ""
    if not top or own == top:
        return _short(top)
    name = next(
        (_called(f) for f in frames if "/torch/distributed/" in f and _called(f) != "wrapper"), _called(top)
    )
    return f"{name} at {_short(own)}" if own else _short(top)


def _main_thread(stack: list[str]) -> list[str]:
    """Return the frames of the last thread of the last dump: faulthandler prints the main thread last."""
    found: list[str] = []
    for line in stack:
        if line.startswith(("Thread 0x", "Current thread 0x")):
            found = []
        elif line.startswith("  File "):
            found.append(line.strip())
    return found


def _called(frame: str) -> str:
    return frame.rpartition(" in ")[2]


def _short(frame: str) -> str:
    """Format ``File "/x/train.py", line 12 in step`` as ``train.py:12 (step)``."""
    path = frame.partition('"')[2].partition('"')[0]
    line = frame.partition(", line ")[2].partition(" in ")[0]
    return f"{path.rsplit('/', 1)[-1]}:{line} ({_called(frame)})" if path else ""


def _ranks(ranks: list[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else "ranks " + ", ".join(map(str, sorted(ranks)[:16]))
