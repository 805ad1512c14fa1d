"""The register of a roll-call: which ranks came, and what is wrong. Pure: no clock, no socket."""

from __future__ import annotations

from gpuready.noun import Noun
from gpuready.rollcall.endpoint import shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpuready.cluster import Rendezvous
    from gpuready.rollcall.hello import Hello

EQUAL = ("torch", "cuda", "nccl", "python")
"""Versions that must be equal on all ranks; other differences are only noted."""

SKEW_S = 5.0
MOST = 8  # faults reported one by one; the rest are counted
ALIKE = "RUN020"
ALLOW = "or allow it: allow_skew=True, GPUREADY_ALLOW_SKEW=1"


class Fault(Noun):
    """Why a job may not start: one sentence, the fix, and the ranks concerned."""

    code: str
    says: str
    fix: str = ""
    ranks: tuple[int, ...] = ()

    def __str__(self) -> str:
        said = self.says + (f" [{self.code}]" if self.code else "")
        return f"{said}; fix: {self.fix}" if self.fix else said


class Register:
    """The hellos so far. ``broken`` is true as soon as one of them rules out a start."""

    def __init__(self, rendezvous: Rendezvous, allow_skew: bool = False) -> None:
        self.rendezvous, self.allow_skew = rendezvous, allow_skew
        self.there: dict[int, Hello] = {}
        self.twins: list[tuple[Hello, Hello]] = []
        self.odd: list[Hello] = []  # another world size, or a rank outside it
        self.troubled: list[Hello] = []
        self.seats: dict[tuple[str, int], list[Hello]] = {}
        self.gpus: dict[str, list[Hello]] = {}
        self.values: dict[tuple[str, str], dict[str, list[int]]] = {}
        self.skews: list[str] = []
        self.remarks: list[str] = []  # others' findings: slow links
        self.gone: list[tuple[Hello, str]] = []
        self.broken = False

    # -- adding and removing ranks ------------------------------------------------------------------

    def enter(self, hello: Hello, received: float | None = None) -> None:
        """Add one rank. ``received`` is rank 0's clock at that moment."""
        size = self.rendezvous.world_size
        if hello.trouble:
            self.troubled.append(hello)
            self.broken = True
        elif hello.world_size != size or not 0 <= hello.rank < size:
            self.odd.append(hello)
            self.broken = True
        elif hello.rank in self.there:
            self.twins.append((self.there[hello.rank], hello))
            self.broken = True
        else:
            self._seat(hello)
        if received is not None and abs(hello.clock - received) > SKEW_S:
            self.skews.append(
                f"the clock of {hello.who} is {hello.clock - received:+.0f} s off that of rank 0"
            )

    def leave(self, hello: Hello, why: str) -> None:
        """Record a rank that left before the answer."""
        self.gone.append((hello, why))
        self.broken = True

    def _seat(self, hello: Hello) -> None:
        self.there[hello.rank] = hello
        if hello.local_rank is not None:
            seat = self.seats.setdefault((hello.machine, hello.local_rank), [])
            seat.append(hello)
            self.broken |= len(seat) > 1 and hello.device != "cpu"
        if hello.gpu:
            users = self.gpus.setdefault(hello.gpu, [])
            users.append(hello)
            self.broken |= len(users) > 1
        for key, value in _compared(hello):
            heard = self.values.setdefault(key, {})
            heard.setdefault(value, []).append(hello.rank)
        self._unequal(hello)

    def _unequal(self, hello: Hello) -> None:
        first = next(iter(self.there.values()))
        if first is hello:
            return
        mine, theirs = dict(_compared(hello)), dict(_compared(first))
        differ = [key for key in mine.keys() | theirs.keys() if mine.get(key) != theirs.get(key)]
        self.broken |= any(
            _counts(key) and (key[0] in ("device", "backend") or not self.allow_skew) for key in differ
        )

    # -- results ------------------------------------------------------------------------------------

    @property
    def complete(self) -> bool:
        return len(self.there) == self.rendezvous.world_size

    def missing(self) -> list[int]:
        return [rank for rank in range(self.rendezvous.world_size) if rank not in self.there]

    def faults(self) -> list[Fault]:
        """Return everything that rules out a start, except ranks that may still come."""
        found = [_trouble(hello) for hello in self.troubled]
        found += [_left(hello, why) for hello, why in self.gone]
        found += self._sizes() + self._doubles() + self._skewed()
        if len(found) <= MOST:
            return found
        others = sorted({rank for fault in found[MOST:] for rank in fault.ranks})
        return [
            *found[:MOST],
            Fault("", f"{len(found) - MOST} faults more, of ranks {spans(others)}", "", tuple(others[:64])),
        ]

    def late(self, window: float, turned_away: Iterable[str] = ()) -> list[Fault]:
        """Return the fault of a passed window: the missing ranks, and where the launcher put them."""
        absent = self.missing()
        if not absent:
            return []
        names = "; ".join(self.rendezvous.expected(rank) for rank in absent[:8])
        more = f"; and {len(absent) - 8} more: {spans(absent[8:])}" if len(absent) > 8 else ""
        here = f"{len(self.there)} of {self.rendezvous.world_size} ranks came within {window:g} s"
        said = f"{here}; missing: {names}{more}{self._listening()}{_others(turned_away)}"
        fix = "look at the output of the missing ranks, and whether they have this MASTER_ADDR, MASTER_PORT and WORLD_SIZE; a slow start needs GPUREADY_START_WINDOW"  # fmt: skip
        return [Fault("NET016", said, fix, tuple(absent))]

    def _listening(self) -> str:
        """Name rank 0's port and what its address resolved to, for comparison with the others."""
        first = self.there.get(0)
        if first is None or not first.resolved or first.resolved == (self.rendezvous.address,):
            return ""
        return f"; rank 0 listens on port {self.rendezvous.port}, and takes {self.rendezvous.address} for {', '.join(dict.fromkeys(first.resolved))}"

    def notes(self) -> list[str]:
        """Return what is worth a line but no reason to stop."""
        found = self.skews + self.remarks
        for (kind, name), heard in self._heard():
            if len(heard) > 1 and (
                not _counts((kind, name)) or (self.allow_skew and kind not in ("device", "backend"))
            ):
                found.append(f"{_subject(kind, name)} differs: {_table(heard)}")
        for _, many in self._namesakes().items():
            found.append(
                f"{len(many)} machines call themselves {shown(many[0].host)}: {', '.join(h.who for h in many)}"
            )
        return found

    def nodes(self) -> list[tuple[str, str, int]]:
        """List the machines by their first rank: identity, name, number of ranks."""
        found: dict[str, list[Hello]] = {}
        for rank in sorted(self.there):
            found.setdefault(self.there[rank].machine, []).append(self.there[rank])
        twice = self._namesakes()
        return [(m, _distinct(hs[0], hs[0].host in twice), len(hs)) for m, hs in found.items()]

    def leaders(self) -> list[int]:
        """The first rank of each machine that accepts trial connections."""
        found: dict[str, int] = {}
        for rank in sorted(self.there):
            if self.there[rank].data[1]:
                found.setdefault(self.there[rank].machine, rank)
        return list(found.values())

    def _namesakes(self) -> dict[str, list[Hello]]:
        names: dict[str, dict[str, Hello]] = {}
        for hello in self.there.values():
            names.setdefault(hello.host, {}).setdefault(hello.machine, hello)
        return {name: list(machines.values()) for name, machines in names.items() if len(machines) > 1}

    def _heard(self) -> list[tuple[tuple[str, str], dict[str, list[int]]]]:
        """Return the reported values of each compared item, including ranks without one."""
        found = []
        for key, heard in self.values.items():
            silent = set(self.there) - {rank for ranks in heard.values() for rank in ranks}
            found.append((key, heard | {"": sorted([*heard.get("", []), *silent])} if silent else heard))
        return found

    def _sizes(self) -> list[Fault]:
        size, found = self.rendezvous.world_size, []
        host = self.there.get(0)
        for hello in self.odd:
            if hello.world_size != size:
                said = f"{hello.who} believes that there are {hello.world_size} ranks, {host.who if host else 'rank 0'} {size}"
                fix = "start all ranks with the same WORLD_SIZE"
            else:
                said = f"{hello.who} is outside the world of {size} ranks"
                fix = f"ranks count from 0 to {size - 1}: correct RANK"
            found.append(Fault("NET006", said, fix, (hello.rank,)))
        return found

    def _doubles(self) -> list[Fault]:
        found = []
        for one, other in self.twins:
            said = f"two processes claim to be rank {one.rank}: {_place(one)} and {_place(other)}"
            found.append(
                Fault(
                    "NET006", said, "give each process its own RANK, and end the one left over", (one.rank,)
                )
            )
        for users in self.gpus.values():
            if len(users) > 1:
                said = f"{_ranks(users)} are on one device, {users[0].device} of {shown(users[0].host)} ({shown(users[0].gpu)})"
                fix = "one rank for each device: correct LOCAL_RANK or the visibility variables, or start fewer ranks"
                found.append(Fault("NET012", said, fix, tuple(h.rank for h in users)))
        taken = {h.rank for fault in found for h in self.there.values() if h.rank in fault.ranks}
        for (_, seat), users in self.seats.items():
            if len(users) > 1 and users[0].device != "cpu" and not taken & {h.rank for h in users}:
                said = f"{_ranks(users)} on {shown(users[0].host)} all have LOCAL_RANK {seat}"
                fix = "give each process of a host its own LOCAL_RANK"
                found.append(Fault("NET006", said, fix, tuple(h.rank for h in users)))
        return found

    def _skewed(self) -> list[Fault]:
        found = []
        for (kind, name), heard in self._heard():
            strict = kind in ("device", "backend")
            if len(heard) < 2 or not _counts((kind, name)) or (self.allow_skew and not strict):
                continue
            said = f"{_subject(kind, name)} differs between ranks: {_table(heard)}"
            fix = _remedy(kind) + ("" if strict else f", {ALLOW}")
            fewest = min(heard.values(), key=len)
            found.append(Fault(ALIKE, said, fix, tuple(fewest)))
        return found


def _compared(hello: Hello) -> list[tuple[tuple[str, str], str]]:
    rows: list[tuple[tuple[str, str], str]] = [
        (("device", ""), hello.device),
        (("backend", ""), hello.backend),
    ]
    rows += [(("version", name), value) for name, value in sorted(hello.versions.items())]
    rows += [(("variable", name), value) for name, value in sorted(hello.variables.items())]
    return rows + [(("code", name), value) for name, value in sorted(hello.code.items())]


def _counts(key: tuple[str, str]) -> bool:
    """Whether a difference rules out a start if skew is not allowed."""
    return key[0] != "version" or key[1] in EQUAL


def _subject(kind: str, name: str) -> str:
    words = {"device": "the type of device", "backend": "the backend", "version": f"the version of {name}"}
    words |= {"variable": f"the variable {shown(name)}", "code": f"the {name}"}
    return words[kind]


def _remedy(kind: str) -> str:
    if kind == "version":
        return "give all hosts one environment"
    if kind == "variable":
        return "set it alike for all ranks"
    return "start the same code everywhere" if kind == "code" else "start all ranks alike"


def _table(heard: Mapping[str, list[int]]) -> str:
    rows = sorted(heard.items(), key=lambda row: min(row[1]))
    return ", ".join(f"{shown(value)[:60] or '(not set)'} on {_numbered(ranks)}" for value, ranks in rows[:6])


def _numbered(ranks: list[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {spans(ranks)}"


def spans(ranks: Iterable[int]) -> str:
    """Format ranks in short: ``0-3, 7``."""
    parts: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if parts and rank == parts[-1][1] + 1:
            parts[-1][1] = rank
        else:
            parts.append([rank, rank])
    shown_ = [f"{a}" if a == b else f"{a}-{b}" for a, b in parts]
    return ", ".join(shown_[:20]) + (" …" if len(shown_) > 20 else "")


def _ranks(hellos: list[Hello]) -> str:
    return " and ".join(hello.who for hello in hellos[:4])


def _place(hello: Hello) -> str:
    return f"{shown(hello.host)}:{hello.pid}"


def _trouble(hello: Hello) -> Fault:
    return Fault(
        shown(hello.trouble_code)[:8],
        f"{hello.who} cannot start: {shown(hello.trouble)[:1000]}",
        shown(hello.fix)[:500],
        (hello.rank,),
    )


def _left(hello: Hello, why: str) -> Fault:
    said = f"{hello.who} went away during the roll-call ({why})"
    return Fault("RUN019", said, "look at the last lines of its output", (hello.rank,))


def _others(turned_away: Iterable[str]) -> str:
    told = list(turned_away)
    return f"; turned away: {'; '.join(told[:4])}" if told else ""


def _distinct(hello: Hello, twice: bool) -> str:
    name = shown(hello.host)[:80]
    return f"{name} ({hello.data[0] or 'pid ' + str(hello.pid)})" if twice else name
