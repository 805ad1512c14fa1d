"""The roll-call over an existing key-value store, such as that of torchrun's agent.

The agent has MASTER_PORT, so rank 0 cannot listen there, and a second port would have to be opened in
firewalls. torch uses the store next anyway, so its keys carry the hellos and the answer.
"""

import os
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Protocol

from gpuready.cluster import Rendezvous
from gpuready.rollcall import hello as hellos
from gpuready.rollcall import job_secret, trial_connections, wire
from gpuready.rollcall.client import RankRejected
from gpuready.rollcall.hello import Hello
from gpuready.rollcall.rank_register import (
    RankRegister,
    RollcallFault,
    RollcallOptions,
    format_rank_ranges,
    replace_own_fault,
)
from gpuready.rollcall.wire import parse_server_message, quote_server_faults

CallRunner = Callable[[Sequence[Sequence[object]]], list[object]]


class KeyValueStore(Protocol):
    """The common methods of torch's stores."""

    def set(self, key: str, value: str) -> None: ...
    def get(self, key: str) -> bytes: ...
    def add(self, key: str, amount: int) -> int: ...
    def check(self, keys: list[str]) -> bool: ...


SLACK_SECONDS = 4.0


def has_store_keys(store: Any, keys: list[str]) -> bool:
    """Whether a store of torch has all these keys. ``check`` came to Python with torch 2.3; before, a short wait tells."""
    check = getattr(store, "check", None)
    if check is not None:
        return bool(check(keys))
    try:
        store.wait(keys, timedelta(milliseconds=20))
    except RuntimeError:
        return False
    return True


class SealedStore:
    """A store of JSON values, each with a seal made of the job's token and its key; without a token, of plain ones."""

    def __init__(self, store: KeyValueStore, token: str) -> None:
        self.store, self.token = store, token

    def put(self, key: str, data: object) -> None:
        self.store.set(key, wire.encode_message(data, self.token, key).decode())

    def has(self, key: str) -> bool:
        """Whether there is a value, by whomever."""
        return has_store_keys(self.store, [key])

    def find(self, key: str) -> object:
        """Return the value; None if there is none, or none with the seal of the job."""
        if not self.has(key):
            return None
        try:
            return wire.decode_message(self.store.get(key), self.token, key)
        except (PermissionError, ValueError):
            return None


def exchange_over_store(
    store: SealedStore, rendezvous: Rendezvous, own_hello: Hello, options: RollcallOptions, run_calls: CallRunner
) -> dict[str, object]:
    """Return rank 0's answer; RankRejected if it is negative or does not come."""
    prefix = f"gpuready/{rendezvous.run_id}/{rendezvous.restart}"
    claim = store.store.add(f"{prefix}/claim/{own_hello.rank}", 1)
    store.put(f"{prefix}/hello/{own_hello.rank}/{claim}", own_hello.to_json())
    _check_earlier_hello(store, prefix, claim - 1, own_hello, options.window)
    if own_hello.rank == 0 and claim == 1:
        answer = _gather_hellos(store, prefix, rendezvous, own_hello, options, run_calls)
        store.put(f"{prefix}/answer", answer)
    else:
        answer = _wait_for_answer(store, prefix, own_hello, options.window, run_calls)
    message = parse_server_message(answer)
    if message.refused:
        is_proven = bool(store.token) or own_hello.rank == 0
        faults = message.refused if is_proven else quote_server_faults(message.refused, "rank 0")
        raise RankRejected(*replace_own_fault(faults, own_hello))
    return message.go.to_json() if message.go else {}


def _check_earlier_hello(store: SealedStore, prefix: str, claim: int, own_hello: Hello, window: float) -> None:
    """Reject this run if the store already has this rank's hello.

    A store that outlives its jobs may have hellos of an earlier job of the same name. If the other process is
    alive and has its answer, this process is a duplicate.
    """
    earlier = store.find(f"{prefix}/hello/{own_hello.rank}/{claim}")
    if earlier is None:
        if claim > 0 and store.has(f"{prefix}/hello/{own_hello.rank}/{claim}"):
            raise RankRejected(_earlier_start_fault(own_hello, f"it has rank {own_hello.rank} of another start"))
        return
    other = hellos.parse_hello(earlier)
    gone = other.machine == own_hello.machine and not os.path.exists(f"/proc/{other.pid}")
    if gone or (other.machine != own_hello.machine and own_hello.clock - other.clock > 2 * window):
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(other.clock))
        raise RankRejected(_earlier_start_fault(own_hello, f"{other.rank_label} came at {at}, and is gone"))
    if (other.machine, other.pid) != (own_hello.machine, own_hello.pid) and store.find(f"{prefix}/answer"):
        message = f"{own_hello.rank_label} is too many: rank {own_hello.rank} of this job is {other.rank_label}, and has begun"
        raise RankRejected(RollcallFault("NET006", message, "give each process its own RANK", (own_hello.rank,)))


def _earlier_start_fault(own_hello: Hello, seen: str) -> RollcallFault:
    message = f"the run {own_hello.run_id} is not the first of this name in its store: {seen}"
    fix = (
        f"give each run a name of its own, such as --rdzv-id {own_hello.run_id}-2, or end the store that was left over"
    )
    return RollcallFault("RUN023", message, fix, (own_hello.rank,))


def _wait_for_answer(
    store: SealedStore, prefix: str, own_hello: Hello, window: float, run_calls: CallRunner
) -> dict[str, object]:
    end, calls_done = (
        time.monotonic() + window + SLACK_SECONDS + trial_connections.ALL_CALLS_SECONDS,
        not own_hello.data[1],
    )
    pause = 0.001
    while True:
        answer = store.find(f"{prefix}/answer")
        if isinstance(answer, dict):
            return answer
        plan = None if calls_done else store.find(f"{prefix}/dial")
        if isinstance(plan, dict):
            calls = parse_server_message({"dial": plan.get(str(own_hello.rank), [])}).dial or ()
            store.put(f"{prefix}/dialled/{own_hello.rank}", run_calls(calls))
            calls_done = True
        if time.monotonic() >= end:
            break
        time.sleep(pause)
        pause = min(pause * 1.5, 0.05)
    message = f"{own_hello.rank_label} heard nothing from rank 0 within {window:g} s"
    raise RankRejected(RollcallFault("NET016", message, "look at the output of rank 0", (0,)))


def _gather_hellos(
    store: SealedStore,
    prefix: str,
    rendezvous: Rendezvous,
    own_hello: Hello,
    options: RollcallOptions,
    run_calls: CallRunner,
) -> dict[str, object]:
    register = RankRegister(rendezvous, options.allow_skew)
    register.add_own_hello(own_hello)
    if not store.token:
        register.remarks.append(job_secret.OPEN_NOTE)
    started, pause, next_progress = time.monotonic(), 0.001, 5.0
    while not register.is_complete and not register.broken and time.monotonic() - started < options.window:
        before = len(register.present)
        for rank in register.missing_ranks():
            _enter_hello(store, prefix, register, rank)
        if len(register.present) == before:
            time.sleep(pause)
            pause = min(pause * 1.5, 0.05)
        if options.on_progress is not None and time.monotonic() - started > next_progress:
            options.on_progress(
                f"waiting for ranks {format_rank_ranges(register.missing_ranks())} of {rendezvous.world_size}"
            )
            next_progress += 5.0
    for rank in range(rendezvous.world_size):
        _enter_hello(store, prefix, register, rank, 2)
    faults = (
        register.list_faults()
        or register.window_fault(options.window)
        or _test_links(store, prefix, register, own_hello, run_calls)
    )
    if faults:
        return {"refused": [fault.to_json() for fault in faults]}
    return {"go": {"nodes": register.list_machines(), "notes": register.list_notes()[:20]}}


def _test_links(
    store: SealedStore, prefix: str, register: RankRegister, own_hello: Hello, run_calls: CallRunner
) -> list[RollcallFault]:
    """Test the links between the first ranks of several machines, as over rank 0's port."""
    leaders = register.node_leaders()
    if len(leaders) < 2:
        return []
    plan = trial_connections.plan_ring_calls([(rank, register.present[rank].data) for rank in leaders])
    store.put(f"{prefix}/dial", plan)
    outcomes = {own_hello.rank: run_calls(plan[own_hello.rank])} if own_hello.rank in plan else {}
    end = time.monotonic() + trial_connections.ALL_CALLS_SECONDS
    while len(outcomes) < len(plan) and time.monotonic() < end:
        for rank in plan:
            dialled = None if rank in outcomes else store.find(f"{prefix}/dialled/{rank}")
            if isinstance(dialled, list):
                outcomes[rank] = dialled
        time.sleep(0.01)
    names = {rank: register.present[rank].rank_label for rank in leaders}
    register.remarks += trial_connections.find_slow_links(outcomes, names)
    return trial_connections.find_link_faults(plan, outcomes, names)


def _enter_hello(store: SealedStore, prefix: str, register: RankRegister, rank: int, claim: int = 1) -> None:
    data = store.find(f"{prefix}/hello/{rank}/{claim}")
    if data is None:
        return
    try:
        hello = hellos.parse_hello(data)
    except (ValueError, TypeError):  # no rank wrote it
        return
    register.add_hello(hello)  # the time of arrival is unknown, so clocks cannot be compared
