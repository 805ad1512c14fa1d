"""The roll-call over a key-value store that is there already, such as that of torchrun's agent.

The agent holds MASTER_PORT, so that rank 0 cannot listen there; a second port would be one more to open in
firewalls. The store is what torch uses next in any case, so its keys carry the hellos and the answer.
"""

from __future__ import annotations

import time

from tarmac.rollcall import hello as hellos
from tarmac.rollcall.guest import Away
from tarmac.rollcall.register import Fault, Register, spans

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from tarmac.cluster import Rendezvous
    from tarmac.rollcall.hello import Hello

    class Store(Protocol):
        """What torch's stores have in common."""

        def set(self, key: str, value: str) -> None: ...
        def get(self, key: str) -> bytes: ...
        def add(self, key: str, amount: int) -> int: ...
        def check(self, keys: list[str]) -> bool: ...


SLACK_S = 4.0


def attend(
    store: Store,
    rendezvous: Rendezvous,
    mine: Hello,
    window: float,
    allow_skew: bool,
    say: Callable[[str], None] | None,
) -> dict[str, object]:
    """The answer that rank 0 puts on the board; Away where it is no, or does not come."""
    import json

    prefix = f"tarmac/{rendezvous.run_id}/{rendezvous.restart}"
    claim = store.add(f"{prefix}/claim/{mine.rank}", 1)
    store.set(f"{prefix}/hello/{mine.rank}/{claim}", json.dumps(mine.to_json()))
    if mine.rank == 0 and claim == 1:
        said = _gather(store, prefix, rendezvous, mine, window, allow_skew, say)
        store.set(f"{prefix}/answer", json.dumps(said))
    else:
        said = _answer(store, prefix, mine, window)
    if "refused" in said:
        raise Away(*[Fault.from_json(one) for one in said["refused"]])  # type: ignore[attr-defined]
    return said["go"]  # type: ignore[return-value]


def _answer(store: Store, prefix: str, mine: Hello, window: float) -> dict[str, object]:
    import json

    if not _there(store, f"{prefix}/answer", window + SLACK_S):
        said = f"{mine.who} heard nothing from rank 0 within {window:g} s"
        raise Away(Fault("NET016", said, "look at the output of rank 0", (0,)))
    found: dict[str, object] = json.loads(store.get(f"{prefix}/answer"))
    return found


def _there(store: Store, key: str, seconds: float) -> bool:
    end, pause = time.monotonic() + seconds, 0.001
    while not store.check([key]):
        if time.monotonic() >= end:
            return False
        time.sleep(pause)
        pause = min(pause * 1.5, 0.05)
    return True


def _gather(
    store: Store,
    prefix: str,
    rendezvous: Rendezvous,
    mine: Hello,
    window: float,
    allow_skew: bool,
    say: Callable[[str], None] | None,
) -> dict[str, object]:
    register = Register(rendezvous, allow_skew)
    register.enter(mine)
    begun, pause, told = time.monotonic(), 0.001, 5.0
    while not register.complete and not register.broken and time.monotonic() - begun < window:
        before = len(register.there)
        for rank in register.missing():
            _entered(store, prefix, register, rank)
        if len(register.there) == before:
            time.sleep(pause)
            pause = min(pause * 1.5, 0.05)
        if say is not None and time.monotonic() - begun > told:
            say(f"waiting for ranks {spans(register.missing())} of {rendezvous.world_size}")
            told += 5.0
    for rank in range(rendezvous.world_size):
        _entered(store, prefix, register, rank, 2)
    faults = register.faults() or register.late(window)
    if faults:
        return {"refused": [fault.to_json() for fault in faults]}
    return {"go": {"nodes": register.nodes(), "notes": register.notes()[:20]}}


def _entered(store: Store, prefix: str, register: Register, rank: int, claim: int = 1) -> None:
    import json

    key = f"{prefix}/hello/{rank}/{claim}"
    if store.check([key]):
        # Nobody knows when it was put there, so that clocks cannot be compared.
        register.enter(hellos.read(json.loads(store.get(key))))
