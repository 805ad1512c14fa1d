"""Prove a process group: one sum over all ranks on the real device, whose exact result is known.

Each rank has places of its own in the summed tensor, with numbers that fill a float's mantissa, and all share a few
places with small ones: a flipped bit, a NaN or a link that changes data shows in the result. A rank that sees an error
tells the others through the store, which takes no part in the sum. Then every rank is tested alone and with each
neighbour, and the one that is wrong again is named.
"""

import json
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from gpuready.model.visible_text import escape_unprintable
from gpuready.rollcall import RollcallFault
from gpuready.rollcall.rank_register import format_rank_ranges

PROOF_S, RETEST_S = 30.0, 10.0
FULL_MANTISSAS = (11184811, 14502571, 16777213, 8388611)
"""Odd 24-bit numbers: they use every mantissa bit of a float, so any change shows."""
SHARED_PLACES = 8
RETEST_FIX = "take that host out, and test its device and its memory: gpuready prove, dcgmi diag -r 3"

SumError = dict[str, object]
"""Errors of a sum: ``owners`` (members whose own places are wrong), ``nan``, ``says``; empty if it is right."""


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


class CollectiveStalled(Exception):
    """A collective of the proof did not end."""


class GroupProof:
    """The test sums of one rank."""

    def __init__(self, torch: Any, store: Any, rank: int, size: int) -> None:
        self.torch, self.store, self.rank, self.size = torch, store, rank, size

    def find_fault(self, device: str) -> RollcallFault | None:
        """Return the fault of the sum on this device, the same on every rank, or None."""
        kind = device.partition(":")[0]
        wrong = self.check_sum(device, range(self.size), None, PROOF_S)
        if self.size == 1:
            return _single_rank_fault(self.rank, wrong) if wrong else None
        if not self._any_rank_wrong(f"sum/{kind}", bool(wrong)):
            return None
        results = self._gather_results(f"retest/{kind}", {"first": wrong, **self._retest_subgroups(device)})
        return diagnose_ranks(self.size, results, self._rank_names())

    # -- one sum ------------------------------------------------------------------------------------

    def check_sum(self, device: str, members: Sequence[int], group: Any, seconds: float) -> SumError:
        """Sum over these ranks and compare every place."""
        x = self.torch.tensor(values_to_send(members, self.rank), dtype=self.torch.float32, device=device)
        options = {} if group is None else {"group": group}
        self._wait_until_done(self.torch.distributed.all_reduce(x, async_op=True, **options), seconds)
        return compare_sum(x.tolist(), members)

    def _wait_until_done(self, work: Any, seconds: float) -> None:
        """Poll until it is done: a blocking wait could not be interrupted."""
        end, pause = time.monotonic() + seconds, 0.00005
        while not work.is_completed():
            if time.monotonic() > end:
                raise CollectiveStalled
            time.sleep(pause)
            pause = min(pause * 1.5, 0.01)
        work.wait()

    # -- all together -------------------------------------------------------------------------------

    def _any_rank_wrong(self, name: str, wrong: bool) -> bool:
        """Whether any rank saw an error; all ranks wait for the last one."""
        key = f"gpuready/{name}"
        if wrong:
            self.store.add(f"{key}/wrong", 1)
        if self.store.add(f"{key}/count", 1) == self.size:
            self.store.set(f"{key}/done", str(self.store.add(f"{key}/wrong", 0)))
        self.store.wait([f"{key}/done"], timedelta(seconds=PROOF_S))
        return int(self.store.get(f"{key}/done")) > 0

    def _gather_results(self, name: str, mine: Mapping[str, object]) -> dict[int, dict[str, Any]]:
        """Return the results of all ranks that reported in time."""
        self.store.set(f"gpuready/{name}/{self.rank}", json.dumps(mine))
        results: dict[int, dict[str, Any]] = {}
        end = time.monotonic() + RETEST_S + 2
        while len(results) < self.size and time.monotonic() < end:
            for rank in range(self.size):
                if rank not in results and has_store_keys(self.store, [f"gpuready/{name}/{rank}"]):
                    results[rank] = json.loads(self.store.get(f"gpuready/{name}/{rank}"))
            time.sleep(0.01)
        return results

    def _rank_names(self) -> dict[int, str]:
        keys = {rank: f"gpuready/proof/{rank}" for rank in range(self.size)}
        there = {rank: key for rank, key in keys.items() if has_store_keys(self.store, [key])}
        addresses = {
            rank: self.store.get(key).decode("utf-8", "replace").rpartition(":") for rank, key in there.items()
        }
        return {
            rank: f"rank {rank} ({escape_unprintable(host)}, pid {pid})" for rank, (host, _, pid) in addresses.items()
        }

    # -- retest in small groups ---------------------------------------------------------------------

    def _retest_subgroups(self, device: str) -> dict[str, object]:
        """Test every rank alone, then every pair of neighbours. torch needs all ranks to create all groups alike."""
        results: dict[str, object] = {"alone": {}, "pairs": {}}
        pairs: dict[str, SumError] = {}
        for members in [[rank] for rank in range(self.size)] + neighbour_pairs(self.size):
            group, broke = self._make_subgroup(members)
            if self.rank not in members:
                continue
            wrong = broke or self._try_sum(device, members, group)
            if len(members) == 1:
                results["alone"] = wrong
            else:
                pairs[str(sum(members) - self.rank)] = wrong
        return results | {"pairs": pairs}

    def _make_subgroup(self, members: list[int]) -> tuple[Any, SumError]:
        try:
            limit = timedelta(seconds=RETEST_S / 4)
            return self.torch.distributed.new_group(members, timeout=limit), {}
        except (RuntimeError, ValueError) as wrong:
            return None, _no_answer(wrong)

    def _try_sum(self, device: str, members: list[int], group: Any) -> SumError:
        try:
            return self.check_sum(device, members, group, RETEST_S / 4)
        except (RuntimeError, CollectiveStalled) as wrong:
            return _no_answer(wrong)


# -- pure ---------------------------------------------------------------------------------------------------


def values_to_send(members: Sequence[int], rank: int) -> list[float]:
    """Return what a rank contributes: small numbers in shared places, then its own places; zeros elsewhere."""
    own = list(members).index(rank)
    shared = [float(i + own % 1000 + 1) for i in range(SHARED_PLACES)]
    return shared + [float(value) if at == own else 0.0 for at in range(len(members)) for value in FULL_MANTISSAS]


def expected_sum(members: Sequence[int]) -> list[float]:
    weights = sum(own % 1000 + 1 for own in range(len(members)))
    shared = [float(len(members) * i + weights) for i in range(SHARED_PLACES)]
    return shared + [float(value) for _ in members for value in FULL_MANTISSAS]


def compare_sum(received: Sequence[float], members: Sequence[int]) -> SumError:
    """Return where a sum differs from the expected one, and whose places those are."""
    expected = expected_sum(members)
    bad = [i for i, value in enumerate(received) if value != expected[i]]
    if not bad:
        return {}
    owners = sorted({members[(i - SHARED_PLACES) // len(FULL_MANTISSAS)] for i in bad if i >= SHARED_PLACES})
    nan = any(received[i] != received[i] for i in bad)
    places = f"{len(bad)} of {len(expected)} numbers"
    return {
        "says": f"{places}, such as {received[bad[0]]:.9g} in place of {expected[bad[0]]:.9g}",
        "owners": owners,
        "nan": nan,
    }


def neighbour_pairs(size: int) -> list[list[int]]:
    """Return the pairs of neighbours, first those that can be tested at the same time."""
    found = [[a, a + 1] for a in range(0, size - 1, 2)] + [[a, a + 1] for a in range(1, size - 1, 2)]
    return found + ([[0, size - 1]] if size > 2 else [])


def _no_answer(error: Exception) -> SumError:
    first = (str(error).splitlines() or [""])[0]
    return {"says": f"no answer ({escape_unprintable(first)[:120]})", "owners": [], "nan": False}


def diagnose_ranks(size: int, results: Mapping[int, Mapping[str, Any]], names: Mapping[int, str]) -> RollcallFault:
    """Summarise the results of all ranks as one fault: a rank, a link between two, or neither."""
    head = f"the first sum over {size} ranks is wrong: "
    absent = [rank for rank in range(size) if rank not in results]
    if absent:
        which = "rank" if len(absent) == 1 else "ranks"
        return RollcallFault(
            "RUN022",
            f"{head}{which} {format_rank_ranges(absent)} did not come through the retest",
            RETEST_FIX,
            tuple(absent),
        )
    culprits, how = _find_culprits(results)
    if culprits:
        who = " and ".join(names.get(rank, f"rank {rank}") for rank in culprits[:4])
        message = f"{head}{who} {'sends NaN' if _has_nan(results, culprits) else 'changes data'}, {how} ({_example_error(results, culprits)})"
        return RollcallFault("RUN022", message, RETEST_FIX, tuple(culprits))
    links = sorted(
        {tuple(sorted((rank, int(other)))) for rank, row in results.items() for other, w in row["pairs"].items() if w}
    )
    if links:
        between = "; ".join(f"{names.get(a, f'rank {a}')} and {names.get(b, f'rank {b}')}" for a, b in links[:3])
        ranks = tuple(sorted({rank for link in links for rank in link}))
        return RollcallFault(
            "RUN022",
            f"{head}data changes between {between}",
            "look at the link between them, and keep one of the hosts out",
            ranks,
        )
    ranks = tuple(rank for rank, row in results.items() if row["first"])
    message = f"{head}{_example_error(results, list(ranks))}; alone and in pairs every rank was right, so that it comes and goes"
    return RollcallFault(
        "RUN022", message, "run gpuready prove on every host; a device, a memory or a link corrupts data", ranks
    )


def _find_culprits(results: Mapping[int, Mapping[str, Any]]) -> tuple[list[int], str]:
    """Return the ranks that are wrong alone; else in all their pairs while other pairs are right; else the only one
    whose places are wrong.
    """
    alone = sorted(rank for rank, row in results.items() if row["alone"])
    if alone:
        return alone, "and does so alone too"
    bad = {
        frozenset((rank, int(other))) for rank, row in results.items() for other, wrong in row["pairs"].items() if wrong
    }
    met = {rank: {frozenset((rank, int(other))) for other in row["pairs"]} for rank, row in results.items()}
    sure = sorted(rank for rank, mine in met.items() if len(mine) > 1 and mine <= bad)
    if sure and all(pair & set(sure) for pair in bad):
        return sure, "in each of its pairs, while the other pairs are right"
    owners = {owner for row in results.values() for owner in row["first"].get("owners", ())}
    if len(owners) == 1 and not bad:
        return sorted(owners), "as what it sent arrives wrong"
    if len(results) == 2 and len(owners) == 1:
        return sorted(owners), "as what it sent arrives wrong again"
    return [], ""


def _has_nan(results: Mapping[int, Mapping[str, Any]], ranks: Sequence[int]) -> bool:
    return any(row["first"].get("nan") for row in results.values()) and bool(ranks)


def _example_error(results: Mapping[int, Mapping[str, Any]], ranks: Sequence[int]) -> str:
    rows = [results[rank]["first"] or results[rank]["alone"] for rank in ranks] + [
        row["first"] for row in results.values()
    ]
    return str(next((row["says"] for row in rows if row), "nothing is known of it"))


def _single_rank_fault(rank: int, wrong: SumError) -> RollcallFault:
    return RollcallFault(
        "RUN022",
        f"the first sum over 1 ranks is wrong: rank {rank} changes data ({wrong['says']})",
        RETEST_FIX,
        (rank,),
    )
