"""The register of a roll-call: which ranks came, and what is wrong. Pure: no clock, no socket."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from gpuready.cluster import Rendezvous
from gpuready.model.record import Record
from gpuready.rollcall.endpoint import quote_peer
from gpuready.rollcall.hello import Hello

EQUAL_VERSIONS = ("torch", "cuda", "nccl", "python")
"""Versions that must be equal on all ranks; other differences are only noted."""

MAX_SKEW_SECONDS = 5.0
MAX_FAULTS = 8  # faults reported one by one; the rest are counted
SKEW_CODE = "RUN020"
OWN_WORDS = ("set of packages", "imported modules")
NOTED_CODE = (("code", "arguments"), ("code", "imported modules"))
"""What ranks may differ in for a reason: worth a note, no refusal."""
"""Names with a blank that ranks compare."""
FIXES = {
    "version": "give all hosts one environment", "variable": "set it alike for all ranks", "code": "start the same code everywhere",
}  # fmt: skip
ALLOW_SKEW_HINT = "or allow it: allow_skew=True, GPUREADY_ALLOW_SKEW=1"


class RollcallFault(Record):
    """Why a job may not start: one sentence, the fix, and the ranks concerned."""

    code: str
    says: str
    fix: str = ""
    ranks: tuple[int, ...] = ()

    def __str__(self) -> str:
        message = self.says + (f" [{self.code}]" if self.code else "")
        return f"{message}; fix: {self.fix}" if self.fix else message


WINDOW_SECONDS = 60.0


class RollcallOptions(Record):
    """How long a roll-call waits, the job's token, whether ranks may differ, and where its progress is told."""

    window: float = WINDOW_SECONDS
    token: str = ""
    allow_skew: bool = False
    on_progress: Callable[[str], None] | None = None


class RankRegister:
    """The hellos so far. ``broken`` is true as soon as one of them rules out a start."""

    def __init__(self, rendezvous: Rendezvous, allow_skew: bool = False) -> None:
        self.rendezvous, self.allow_skew = rendezvous, allow_skew
        self.present: dict[int, Hello] = {}
        self.duplicates: list[tuple[Hello, Hello]] = []
        self.misplaced: list[Hello] = []  # another world size, or a rank outside it
        self.troubled: list[Hello] = []
        self.by_local_rank: dict[tuple[str, int], list[Hello]] = {}
        self.gpus: dict[str, list[Hello]] = {}
        self.values: dict[tuple[str, str], dict[str, list[int]]] = {}
        self.skews: list[str] = []
        self.remarks: list[str] = []  # others' findings: slow links
        self.departed: list[tuple[Hello, str]] = []
        self.broken = False
        self.own: Hello | None = None

    # -- adding and removing ranks ------------------------------------------------------------------

    def add_own_hello(self, hello: Hello) -> None:
        """Add rank 0 itself: what it says of itself is no peer's word."""
        self.own = hello
        self.add_hello(hello)

    def add_hello(self, hello: Hello, received: float | None = None) -> None:
        """Add one rank. ``received`` is rank 0's clock at that moment."""
        size = self.rendezvous.world_size
        if hello.trouble:
            self.troubled.append(hello)
            self.broken = True
        elif hello.world_size != size or not 0 <= hello.rank < size:
            self.misplaced.append(hello)
            self.broken = True
        elif hello.rank in self.present:
            self.duplicates.append((self.present[hello.rank], hello))
            self.broken = True
        else:
            self._place_hello(hello)
        if received is not None and abs(hello.clock - received) > MAX_SKEW_SECONDS:
            self.skews.append(f"the clock of {hello.rank_label} is {hello.clock - received:+.0f} s off that of rank 0")

    def mark_departed(self, hello: Hello, why: str) -> None:
        """Record a rank that left before the answer."""
        self.departed.append((hello, why))
        self.broken = True

    def _place_hello(self, hello: Hello) -> None:
        self.present[hello.rank] = hello
        if hello.local_rank is not None:
            same_local_rank = self.by_local_rank.setdefault((hello.machine, hello.local_rank), [])
            same_local_rank.append(hello)
            self.broken |= len(same_local_rank) > 1 and hello.device != "cpu"
        if hello.gpu:
            users = self.gpus.setdefault(hello.gpu, [])
            users.append(hello)
            self.broken |= len(users) > 1
        for key, value in _compared_values(hello):
            ranks_by_value = self.values.setdefault(key, {})
            ranks_by_value.setdefault(value, []).append(hello.rank)
        self._check_skew(hello)

    def _check_skew(self, hello: Hello) -> None:
        first = next(iter(self.present.values()))
        if first is hello:
            return
        mine, theirs = dict(_compared_values(hello)), dict(_compared_values(first))
        differ = [key for key in mine.keys() | theirs.keys() if mine.get(key) != theirs.get(key)]
        self.broken |= any(
            _is_decisive(key) and (key[0] in ("device", "backend") or not self.allow_skew) for key in differ
        )

    # -- results ------------------------------------------------------------------------------------

    @property
    def is_complete(self) -> bool:
        return len(self.present) == self.rendezvous.world_size

    def missing_ranks(self) -> list[int]:
        return [rank for rank in range(self.rendezvous.world_size) if rank not in self.present]

    def list_faults(self) -> list[RollcallFault]:
        """Return everything that rules out a start, except ranks that may still come."""
        collected = [
            own_trouble_fault(hello) if hello is self.own else _peer_trouble_fault(hello) for hello in self.troubled
        ]
        for hello, why in self.departed:
            message = f"{hello.rank_label} went away during the roll-call ({why})"
            fix = "look at the last lines of its output"
            collected.append(RollcallFault("RUN019", message, fix, (hello.rank,)))
        collected += self._world_size_faults() + self._duplicate_faults() + self._skew_faults()
        if len(collected) <= MAX_FAULTS:
            return collected
        others = sorted({rank for fault in collected[MAX_FAULTS:] for rank in fault.ranks})
        message = f"{len(collected) - MAX_FAULTS} faults more, of ranks {format_rank_ranges(others)}"
        return [*collected[:MAX_FAULTS], RollcallFault("", message, "", tuple(others[:64]))]

    def window_fault(self, window: float, turned_away: Iterable[str] = ()) -> list[RollcallFault]:
        """Return the fault of a passed window: the missing ranks, and where the launcher put them."""
        absent_ranks = self.missing_ranks()
        if not absent_ranks:
            return []
        names = "; ".join(self.rendezvous.describe_expected_rank(rank) for rank in absent_ranks[:8])
        rest = absent_ranks[8:]
        more = f"; and {len(rest)} more: {format_rank_ranges(rest)}" if rest else ""
        here = f"{len(self.present)} of {self.rendezvous.world_size} ranks came within {window:g} s"
        away = "; ".join(list(turned_away)[:4])
        message = f"{here}; missing: {names}{more}{self._listening_note()}" + (f"; turned away: {away}" if away else "")
        fix = "look at the output of the missing ranks, and whether they have this MASTER_ADDR, MASTER_PORT and WORLD_SIZE; a slow start needs GPUREADY_START_WINDOW"  # fmt: skip
        return [RollcallFault("NET016", message, fix, tuple(absent_ranks))]

    def _listening_note(self) -> str:
        """Name rank 0's port and what its address resolved to, for comparison with the others."""
        first = self.present.get(0)
        if first is None or not first.resolved or first.resolved == (self.rendezvous.address,):
            return ""
        return f"; rank 0 listens on port {self.rendezvous.port}, and takes {self.rendezvous.address} for {', '.join(dict.fromkeys(first.resolved))}"

    def list_notes(self) -> list[str]:
        """Return what is worth a line but no reason to stop."""
        collected = self.skews + self.remarks
        for (kind, name), ranks_by_value in self._values_with_silent():
            if len(ranks_by_value) > 1 and (
                not _is_decisive((kind, name)) or (self.allow_skew and kind not in ("device", "backend"))
            ):
                collected.append(f"{_describe_subject(kind, name)} differs: {_format_values(ranks_by_value)}")
        for _, many in self._hosts_with_same_name().items():
            collected.append(
                f"{len(many)} machines call themselves {quote_peer(many[0].host)}: {', '.join(h.rank_label for h in many)}"
            )
        return collected

    def list_machines(self) -> list[tuple[str, str, int]]:
        """List the machines by their first rank: identity, name, number of ranks."""
        collected: dict[str, list[Hello]] = {}
        for rank in sorted(self.present):
            collected.setdefault(self.present[rank].machine, []).append(self.present[rank])
        twice = self._hosts_with_same_name()
        return [(m, _distinct_host_name(hs[0], hs[0].host in twice), len(hs)) for m, hs in collected.items()]

    def node_leaders(self) -> list[int]:
        """The first rank of each machine that accepts trial connections."""
        collected: dict[str, int] = {}
        for rank in sorted(self.present):
            if self.present[rank].data[1]:
                collected.setdefault(self.present[rank].machine, rank)
        return list(collected.values())

    def _hosts_with_same_name(self) -> dict[str, list[Hello]]:
        names: dict[str, dict[str, Hello]] = {}
        for hello in self.present.values():
            names.setdefault(hello.host, {}).setdefault(hello.machine, hello)
        return {name: list(machines.values()) for name, machines in names.items() if len(machines) > 1}

    def _values_with_silent(self) -> list[tuple[tuple[str, str], dict[str, list[int]]]]:
        """Return the reported values of each compared item, including ranks without one."""
        collected = []
        for key, ranks_by_value in self.values.items():
            silent = set(self.present) - {rank for ranks in ranks_by_value.values() for rank in ranks}
            with_silent = {"": sorted([*ranks_by_value.get("", []), *silent])} if silent else {}
            collected.append((key, ranks_by_value | with_silent))
        return collected

    def _world_size_faults(self) -> list[RollcallFault]:
        size, collected = self.rendezvous.world_size, []
        host = self.present.get(0)
        for hello in self.misplaced:
            if hello.world_size != size:
                message = f"{hello.rank_label} believes that there are {hello.world_size} ranks, {host.rank_label if host else 'rank 0'} {size}"
                fix = "start all ranks with the same WORLD_SIZE"
            else:
                message = f"{hello.rank_label} is outside the world of {size} ranks"
                fix = f"ranks count from 0 to {size - 1}: correct RANK"
            collected.append(RollcallFault("NET006", message, fix, (hello.rank,)))
        return collected

    def _duplicate_faults(self) -> list[RollcallFault]:
        collected = []
        for one, other in self.duplicates:
            here, there = (f"{quote_peer(hello.host)}:{hello.pid}" for hello in (one, other))
            message = f"two processes claim to be rank {one.rank}: {here} and {there}"
            fix = "give each process its own RANK, and end the one left over"
            collected.append(RollcallFault("NET006", message, fix, (one.rank,)))
        for users in self.gpus.values():
            names = " and ".join(hello.rank_label for hello in users[:4])
            if len(users) > 1:
                message = f"{names} are on one device, {quote_peer(users[0].device)} of {quote_peer(users[0].host)} ({quote_peer(users[0].gpu)})"
                fix = "one rank for each device: correct LOCAL_RANK or the visibility variables, or start fewer ranks"
                collected.append(RollcallFault("NET012", message, fix, tuple(h.rank for h in users)))
        taken = {h.rank for fault in collected for h in self.present.values() if h.rank in fault.ranks}
        for (_, local_rank), users in self.by_local_rank.items():
            names = " and ".join(hello.rank_label for hello in users[:4])
            if len(users) > 1 and users[0].device != "cpu" and not taken & {h.rank for h in users}:
                message = f"{names} on {quote_peer(users[0].host)} all have LOCAL_RANK {local_rank}"
                fix = "give each process of a host its own LOCAL_RANK"
                collected.append(RollcallFault("NET006", message, fix, tuple(h.rank for h in users)))
        return collected

    def _skew_faults(self) -> list[RollcallFault]:
        collected = []
        for (kind, name), ranks_by_value in self._values_with_silent():
            strict = kind in ("device", "backend")
            if len(ranks_by_value) < 2 or not _is_decisive((kind, name)) or (self.allow_skew and not strict):
                continue
            message = f"{_describe_subject(kind, name)} differs between ranks: {_format_values(ranks_by_value)}"
            fix = FIXES.get(kind, "start all ranks alike") + ("" if strict else f", {ALLOW_SKEW_HINT}")
            fewest = min(ranks_by_value.values(), key=len)
            collected.append(RollcallFault(SKEW_CODE, message, fix, tuple(fewest)))
        return collected


def _compared_values(hello: Hello) -> list[tuple[tuple[str, str], str]]:
    rows: list[tuple[tuple[str, str], str]] = [(("device", ""), hello.device), (("backend", ""), hello.backend)]
    rows += [(("version", name), value) for name, value in sorted(hello.versions.items())]
    rows += [(("variable", name), value) for name, value in sorted(hello.variables.items())]
    return rows + [(("code", name), value) for name, value in sorted(hello.code.items())]


def _is_decisive(key: tuple[str, str]) -> bool:
    """Whether a difference rules out a start if skew is not allowed."""
    return key[1] in EQUAL_VERSIONS if key[0] == "version" else key not in NOTED_CODE


def _describe_subject(kind: str, name: str) -> str:
    word = name if name in OWN_WORDS else quote_peer(name)
    words = {"device": "the type of device", "backend": "the backend", "version": f"the version of {word}"}
    words |= {"variable": f"the variable {word}", "code": f"the {word}"}
    return words[kind]


def _format_values(ranks_by_value: Mapping[str, list[int]]) -> str:
    rows = sorted(ranks_by_value.items(), key=lambda row: min(row[1]))
    return ", ".join(
        f"{quote_peer(value, 60) or '(not set)'} on {format_rank_list(ranks)}" for value, ranks in rows[:6]
    )


def format_rank_list(ranks: list[int]) -> str:
    """Format ranks with the word before them: ``rank 7``, ``ranks 0-3, 7``."""
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {format_rank_ranges(ranks)}"


def format_rank_ranges(ranks: Iterable[int]) -> str:
    """Format ranks in short: ``0-3, 7``."""
    parts: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if parts and rank == parts[-1][1] + 1:
            parts[-1][1] = rank
        else:
            parts.append([rank, rank])
    range_texts = [f"{a}" if a == b else f"{a}-{b}" for a, b in parts]
    return ", ".join(range_texts[:20]) + (" …" if len(range_texts) > 20 else "")


def own_trouble_fault(hello: Hello) -> RollcallFault:
    """Report this process's own trouble."""
    return RollcallFault(
        hello.trouble_code, f"{hello.rank_label} cannot start: {hello.trouble}", hello.fix, (hello.rank,)
    )


def replace_own_fault(faults: Iterable[RollcallFault], own_hello: Hello) -> list[RollcallFault]:
    """Return rank 0's faults, with this rank's own trouble in its own words: here they are no peer's."""
    if not own_hello.trouble:
        return list(faults)
    others = [fault for fault in faults if fault.ranks != (own_hello.rank,)]
    return [own_trouble_fault(own_hello), *others]


def _peer_trouble_fault(hello: Hello) -> RollcallFault:
    """Report a peer's trouble in its own words, in quotes; its advice is no fix of ours."""
    advice = f", and advises {hello.fix[:500]!r}" if hello.fix else ""
    message = f"{hello.rank_label} cannot start: it says {hello.trouble[:1000]!r}{advice}"
    code = hello.trouble_code if re.fullmatch("[A-Z]{3}[0-9]{3}", hello.trouble_code) else ""
    return RollcallFault(code, message, f"look at the output of rank {hello.rank}", (hello.rank,))


def _distinct_host_name(hello: Hello, twice: bool) -> str:
    name = quote_peer(hello.host)
    return f"{name} ({quote_peer(hello.data[0]) or f'pid {hello.pid}'})" if twice else name
