"""Flight-recorder dumps of torch: which rank waits for which.

Each rank records its last collectives: enqueued on the GPU, and completed. A rank waits for another that has not enqueued
what it has itself enqueued in a group of both. The run is stuck at a rank that others wait for and that waits
for no one. A rank that has enqueued what its peers have already completed has a stuck GPU, whatever it waits for.
"""

from __future__ import annotations

from gpuready.noun import Noun

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any


class Group(Noun):
    """State of one rank in one process group."""

    name: str
    says: str
    ranks: tuple[int, ...]
    enqueued: int
    completed: int
    op: str = ""  # the pending collective


class Dump(Noun):
    """The flight-recorder dump of one rank."""

    rank: int
    groups: dict[str, Group] = {}
    entries: int = 0


class Standstill(Noun):
    """A rank at which the run is stuck, and why."""

    rank: int
    why: str  # waited-for, gpu-stands
    group: str
    behind: int
    waiting: tuple[int, ...] = ()
    op: str = ""


def is_dump(head: bytes) -> bool:
    """Whether a file begins like a dump: a pickle or JSON that names process groups."""
    if head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return b"pg_config" in head or b"pg_status" in head or b"entries" in head
    return head.lstrip()[:1] == b"{" and b'"pg_config"' in head


def dump(data: bytes, rank: int | None = None) -> Dump:
    """Parse one dump, pickled or JSON. ValueError says why it is refused."""
    if data[:1] == b"\x80":
        from gpuready.logs.unpickled import unpickled

        found = unpickled(data)
    else:
        import json

        try:
            found = json.loads(data.decode("utf-8", "replace"))
        except RecursionError:
            raise ValueError("it is nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError("it is no dump of a flight recorder")
    return _dump(found, rank)


def _dump(found: Mapping[str, Any], rank: int | None) -> Dump:
    rows = found.get("entries")
    entries = [e for e in rows if isinstance(e, dict)] if isinstance(rows, (list, tuple)) else []
    config = _dict(found.get("pg_config"))
    status = _dict(found.get("pg_status"))
    names = _names(config, status, entries)
    p2p = {_name(e) for e in entries if e.get("is_p2p")}
    groups = {}
    for pg_id, name in names.items():
        row = _dict(status.get(pg_id))
        if name in p2p or not _counts(row.get("last_enqueued_collective")):
            continue
        groups[name] = Group(
            name, _said(_dict(config.get(name)).get("desc"))[:80], _ranks(_dict(config.get(name)).get("ranks")),
            row["last_enqueued_collective"], _counted(row.get("last_completed_collective")), _oldest(entries, name),
        )  # fmt: skip
    own = rank if rank is not None else _own(config)
    if own is None:
        raise ValueError("it does not say of which rank it is")
    return Dump(own, groups, len(entries))


def _names(
    config: Mapping[str, Any], status: Mapping[str, Any], entries: Sequence[Mapping[str, Any]]
) -> dict[str, str]:
    """Group name of each number in the status: from entries, or because both list groups in creation order."""
    said = {_said(e.get("pg_id")): _name(e) for e in entries if e.get("process_group")}
    if len(config) == len(status):
        in_order = dict(
            zip(sorted(map(_said, status), key=_number), sorted(map(_said, config), key=_number), strict=True)
        )
        if all(in_order.get(number) == name for number, name in said.items()):
            return in_order
    return said


def _name(entry: Mapping[str, Any]) -> str:
    group = entry.get("process_group")
    return _said(group[0]) if isinstance(group, (list, tuple)) and group else ""


def _oldest(entries: Sequence[Mapping[str, Any]], name: str) -> str:
    for entry in entries:
        if _name(entry) == name and entry.get("state") != "completed":
            return _said(entry.get("profiling_name"))[:60]
    return ""


def _number(text: str) -> tuple[int, str]:
    return (int(text), "") if text.isdecimal() and len(text) < 18 else (1 << 60, text)


def _said(value: Any) -> str:
    """A name in a dump. Containers are not converted: they may contain themselves a billion times over."""
    return str(value)[:200] if isinstance(value, (str, float)) or _counts(value) else ""


def _counts(value: Any) -> bool:
    return isinstance(value, int) and -1 <= value < 1 << 62


def _counted(value: Any) -> int:
    return int(value) if _counts(value) else 0


def _dict(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _ranks(value: Any) -> tuple[int, ...]:
    if isinstance(value, str):
        value = value.strip("[] ").replace(" ", "").split(",")
    ranks = [_said(one) for one in value[:100_000]] if isinstance(value, (list, tuple)) else []
    return tuple(int(one) for one in ranks if one.isdecimal() and len(one) < 10)


def _own(config: Mapping[str, Any]) -> int | None:
    """The rank, where only one is in all groups."""
    shared: set[int] | None = None
    for row in config.values():
        ranks = set(_ranks(_dict(row).get("ranks")))
        shared = ranks if shared is None else shared & ranks
    return shared.pop() if shared and len(shared) == 1 else None


# -- which rank waits for which -------------------------------------------------------------------------------------


def standstill(dumps: Sequence[Dump]) -> list[Standstill]:
    """The ranks at which a run is stuck, the farthest behind first."""
    by_rank = {one.rank: one for one in dumps}
    waits: dict[int, dict[int, tuple[Group, int]]] = {}
    lags: dict[int, tuple[Group, int]] = {}
    for one in dumps:
        for group in one.groups.values():
            for peer in group.ranks:
                if peer != one.rank:
                    _pair(one, group, peer, by_rank.get(peer), waits, lags)
    waited: dict[int, list[int]] = {}
    for rank, peers in waits.items():
        for peer in peers:
            waited.setdefault(peer, []).append(rank)
    found = [
        Standstill(rank, "waited-for", *_most(rank, waits), tuple(sorted(by)), _op(rank, waits))
        for rank, by in waited.items()
        if rank not in waits and rank not in lags
    ]
    found += [
        Standstill(
            rank,
            "gpu-stands",
            group.says or group.name,
            behind,
            tuple(sorted(waited.get(rank, ()))),
            group.op,
        )
        for rank, (group, behind) in lags.items()
    ]
    return sorted(found, key=lambda s: (-len(s.waiting), s.rank))


def _pair(
    one: Dump,
    group: Group,
    peer: int,
    other: Dump | None,
    waits: dict[int, dict[int, tuple[Group, int]]],
    lags: dict[int, tuple[Group, int]],
) -> None:
    theirs = other.groups.get(group.name) if other else None
    if other is None:  # a rank without a dump is dead, or could not write one
        if group.enqueued > group.completed:
            waits.setdefault(one.rank, {})[peer] = (group, group.enqueued - group.completed)
        return
    if theirs is None:
        return
    if group.enqueued > group.completed and theirs.enqueued < group.enqueued:
        waits.setdefault(one.rank, {})[peer] = (group, group.enqueued - theirs.enqueued)
    if group.completed < theirs.completed and group.enqueued > group.completed:
        behind = theirs.completed - group.completed
        if one.rank not in lags or lags[one.rank][1] < behind:
            lags[one.rank] = (group, behind)


def _most(rank: int, waits: Mapping[int, Mapping[int, tuple[Group, int]]]) -> tuple[str, int]:
    group, behind = max((peers[rank] for peers in waits.values() if rank in peers), key=lambda pair: pair[1])
    return group.says or group.name, behind


def _op(rank: int, waits: Mapping[int, Mapping[int, tuple[Group, int]]]) -> str:
    return next((peers[rank][0].op for peers in waits.values() if rank in peers and peers[rank][0].op), "")
