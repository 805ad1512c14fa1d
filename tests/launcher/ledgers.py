"""A ledger of ranks, and what is heard of them, for the tests of who failed and of who stands still."""

from __future__ import annotations

from gpuready.launcher.rank_ledger import RankLedger

LOST = "Traceback (most recent call last):\nRuntimeError: Connection closed by peer\n"


def ledger(ranks: int = 3) -> RankLedger:
    made = RankLedger(range(ranks), 0.0)
    for rank in range(ranks):
        made.record_message({"t": "born", "r": rank, "pid": 100 + rank, "host": "gpu-1"}, 0.1)
    return made


def out(made: RankLedger, rank: int, text: str, at: float) -> tuple[int, list[str]]:
    return made.record_message({"t": "out", "r": rank, "d": text}, at)


def end(made: RankLedger, rank: int, at: float, code: int = 1, signal: int = 0, **more: object) -> None:
    made.record_message({"t": "end", "r": rank, "code": code, "signal": signal, **more}, at)


def beat(made: RankLedger, at: float, **ranks: tuple[object, ...]) -> None:
    made.record_message({"t": "beat", "d": [[int(r[1:]), *reported] for r, reported in ranks.items()]}, at)


def row(
    state: str = "S", cpu: float = 0.0, late: float | None = 0.4, still: float = 0.0, ran: float = 0.0,
    roamed: float = 0.0, waits: int = 0, polls: int = 0,
) -> tuple[object, ...]:  # fmt: skip
    return (state, cpu, late, still, ran, roamed, waits, 0, 0, polls)
