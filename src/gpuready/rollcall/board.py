"""The roll-call over an existing key-value store, such as that of torchrun's agent.

The agent has MASTER_PORT, so rank 0 cannot listen there, and a second port would have to be opened in
firewalls. torch uses the store next anyway, so its keys carry the hellos and the answer.
"""

from __future__ import annotations

import time

from gpuready.rollcall import dial
from gpuready.rollcall import hello as hellos
from gpuready.rollcall.guest import Away
from gpuready.rollcall.register import Fault, Register, spans

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Protocol

    from gpuready.cluster import Rendezvous
    from gpuready.rollcall.hello import Hello

    Dialled = Callable[[Sequence[Sequence[object]]], list[object]]

    class Store(Protocol):
        """The common methods of torch's stores."""

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
    dialled: Dialled,
) -> dict[str, object]:
    """Return rank 0's answer; RankRejected if it is negative or does not come."""
    import json

    prefix = f"gpuready/{rendezvous.run_id}/{rendezvous.restart}"
    claim = store.add(f"{prefix}/claim/{mine.rank}", 1)
    store.set(f"{prefix}/hello/{mine.rank}/{claim}", json.dumps(mine.to_json()))
    _not_used_before(store, prefix, claim - 1, mine, window)
    if mine.rank == 0 and claim == 1:
        said = _gather(store, prefix, rendezvous, mine, window, allow_skew, say, dialled)
        store.set(f"{prefix}/answer", json.dumps(said))
    else:
        said = _answer(store, prefix, mine, window, dialled)
    if "refused" in said:
        raise Away(*[Fault.from_json(one) for one in said["refused"]])  # type: ignore[attr-defined]
    return said["go"]  # type: ignore[return-value]


def _not_used_before(store: Store, prefix: str, claim: int, mine: Hello, window: float) -> None:
    """Reject this run if the store already has this rank's hello.

    A store that outlives its jobs may have hellos of an earlier job of the same name. If the other process is
    alive and has its answer, this process is a duplicate.
    """
    import json
    import os

    key = f"{prefix}/hello/{mine.rank}/{claim}"
    if not store.check([key]):
        return
    other = hellos.read(json.loads(store.get(key)))
    gone = other.machine == mine.machine and not os.path.exists(f"/proc/{other.pid}")
    if gone or (other.machine != mine.machine and mine.clock - other.clock > 2 * window):
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(other.clock))
        said = f"the run {mine.run_id} is not the first of this name in its store: {other.who} came at {at}, and is gone"
        fix = f"give each run a name of its own, such as --rdzv-id {mine.run_id}-2, or end the store that was left over"
        raise Away(Fault("RUN023", said, fix, (mine.rank,)))
    if (other.machine, other.pid) != (mine.machine, mine.pid) and store.check([f"{prefix}/answer"]):
        said = f"{mine.who} is too many: rank {mine.rank} of this job is {other.who}, and has begun"
        raise Away(Fault("NET006", said, "give each process its own RANK", (mine.rank,)))


def _answer(store: Store, prefix: str, mine: Hello, window: float, dialled: Dialled) -> dict[str, object]:
    import json

    end, asked = time.monotonic() + window + SLACK_S + dial.WHOLE_S, not mine.data[1]
    for pause in _pauses():
        if store.check([f"{prefix}/answer"]):
            found: dict[str, object] = json.loads(store.get(f"{prefix}/answer"))
            return found
        if not asked and store.check([f"{prefix}/dial"]):
            calls = json.loads(store.get(f"{prefix}/dial")).get(str(mine.rank), [])
            store.set(f"{prefix}/dialled/{mine.rank}", json.dumps(dialled(calls)))
            asked = True
        if time.monotonic() >= end:
            break
        time.sleep(pause)
    said = f"{mine.who} heard nothing from rank 0 within {window:g} s"
    raise Away(Fault("NET016", said, "look at the output of rank 0", (0,)))


def _pauses() -> Iterator[float]:
    pause = 0.001
    while True:
        yield pause
        pause = min(pause * 1.5, 0.05)


def _gather(
    store: Store,
    prefix: str,
    rendezvous: Rendezvous,
    mine: Hello,
    window: float,
    allow_skew: bool,
    say: Callable[[str], None] | None,
    dialled: Dialled,
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
    faults = register.faults() or register.late(window) or _links(store, prefix, register, mine, dialled)
    if faults:
        return {"refused": [fault.to_json() for fault in faults]}
    return {"go": {"nodes": register.nodes(), "notes": register.notes()[:20]}}


def _links(store: Store, prefix: str, register: Register, mine: Hello, dialled: Dialled) -> list[Fault]:
    """Test the links between the first ranks of several machines, as over rank 0's port."""
    import json

    leaders = register.leaders()
    if len(leaders) < 2:
        return []
    plan = dial.plan([(rank, register.there[rank].data) for rank in leaders])
    store.set(f"{prefix}/dial", json.dumps(plan))
    heard = {mine.rank: dialled(plan[mine.rank])} if mine.rank in plan else {}
    end = time.monotonic() + dial.WHOLE_S
    while len(heard) < len(plan) and time.monotonic() < end:
        for rank in plan:
            if rank not in heard and store.check([f"{prefix}/dialled/{rank}"]):
                heard[rank] = json.loads(store.get(f"{prefix}/dialled/{rank}"))
        time.sleep(0.01)
    names = {rank: register.there[rank].who for rank in leaders}
    register.remarks += dial.slow(heard, names)
    return dial.faults(plan, heard, names)


def _entered(store: Store, prefix: str, register: Register, rank: int, claim: int = 1) -> None:
    import json

    key = f"{prefix}/hello/{rank}/{claim}"
    if store.check([key]):
        # The time of arrival is unknown, so clocks cannot be compared.
        register.enter(hellos.read(json.loads(store.get(key))))
