"""Flight-recorder dumps of torch: which rank waits for which.

Each rank records its last collectives: enqueued on the GPU, and completed. A rank waits for another that has not enqueued
what it has itself enqueued in a group of both. The run is stuck at a rank that others wait for and that waits
for no one. A rank that has enqueued what its peers have already completed has a stuck GPU, whatever it waits for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from gpuready.logs.safe_pickle import safe_unpickle
from gpuready.model.record import Record, field


class CollectiveGroup(Record):
    """State of one rank in one process group."""

    name: str
    says: str
    ranks: tuple[int, ...]
    enqueued: int
    completed: int
    op: str = ""  # the pending collective


class RecorderDump(Record):
    """The flight-recorder dump of one rank."""

    rank: int
    groups: dict[str, CollectiveGroup] = field(default_factory=dict)
    entries: int = 0


class Standstill(Record):
    """A rank at which the run is stuck, and why."""

    rank: int
    why: str  # waited-for, gpu-stands
    group: str
    behind: int
    waiting: tuple[int, ...] = ()
    op: str = ""


def is_recorder_dump(head: bytes) -> bool:
    """Whether a file begins like a dump: a pickle or JSON that names process groups."""
    if head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return b"pg_config" in head or b"pg_status" in head or b"entries" in head
    return head.lstrip()[:1] == b"{" and b'"pg_config"' in head


def parse_recorder_dump(data: bytes, rank: int | None = None) -> RecorderDump:
    """Parse one dump, pickled or JSON. ValueError says why it is refused."""
    if data[:1] == b"\x80":
        found = safe_unpickle(data)
    else:
        try:
            found = json.loads(data.decode("utf-8", "replace"))
        except RecursionError:
            raise ValueError("it is nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError("it is not a flight recorder dump")
    return _build_dump(found, rank)


def _build_dump(found: Mapping[str, Any], rank: int | None) -> RecorderDump:
    rows = found.get("entries")
    entries = [e for e in rows if isinstance(e, dict)] if isinstance(rows, (list, tuple)) else []
    config = _dict_or_empty(found.get("pg_config"))
    status = _dict_or_empty(found.get("pg_status"))
    names = _group_names(config, status, entries)
    p2p = {_entry_group_name(e) for e in entries if e.get("is_p2p")}
    groups = {}
    for pg_id, name in names.items():
        row = _dict_or_empty(status.get(pg_id))
        if name in p2p or not _is_count(row.get("last_enqueued_collective")):
            continue
        groups[name] = CollectiveGroup(
            name, _short_text(_dict_or_empty(config.get(name)).get("desc"))[:80], _parse_ranks(_dict_or_empty(config.get(name)).get("ranks")),
            row["last_enqueued_collective"], row.get("last_completed_collective", 0) if _is_count(row.get("last_completed_collective")) else 0, _oldest_pending_op(entries, name),
        )  # fmt: skip
    own = rank if rank is not None else _find_own_rank(config)
    if own is None:
        raise ValueError("it does not say of which rank it is")
    return RecorderDump(own, groups, len(entries))


def _group_names(
    config: Mapping[str, Any], status: Mapping[str, Any], entries: Sequence[Mapping[str, Any]]
) -> dict[str, str]:
    """Group name of each number in the status: from entries, or because both list groups in creation order."""
    named = {_short_text(e.get("pg_id")): _entry_group_name(e) for e in entries if e.get("process_group")}
    if len(config) == len(status):
        in_order = dict(
            zip(
                sorted(map(_short_text, status), key=_numeric_order),
                sorted(map(_short_text, config), key=_numeric_order),
                strict=True,
            )
        )
        if all(in_order.get(number) == name for number, name in named.items()):
            return in_order
    return named


def _entry_group_name(entry: Mapping[str, Any]) -> str:
    group = entry.get("process_group")
    return _short_text(group[0]) if isinstance(group, (list, tuple)) and group else ""


def _oldest_pending_op(entries: Sequence[Mapping[str, Any]], name: str) -> str:
    for entry in entries:
        if _entry_group_name(entry) == name and entry.get("state") != "completed":
            return _short_text(entry.get("profiling_name"))[:60]
    return ""


def _numeric_order(text: str) -> tuple[int, str]:
    return (int(text), "") if text.isdecimal() and len(text) < 18 else (1 << 60, text)


def _short_text(value: Any) -> str:
    """A name in a dump. Containers are not converted: they may contain themselves a billion times over."""
    return str(value)[:200] if isinstance(value, (str, float)) or _is_count(value) else ""


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and -1 <= value < 1 << 62


def _dict_or_empty(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _parse_ranks(value: Any) -> tuple[int, ...]:
    if isinstance(value, str):
        value = value.strip("[] ").replace(" ", "").split(",")
    ranks = [_short_text(item) for item in value[:100_000]] if isinstance(value, (list, tuple)) else []
    return tuple(int(item) for item in ranks if item.isdecimal() and len(item) < 10)


def _find_own_rank(config: Mapping[str, Any]) -> int | None:
    """The rank, where only one is in all groups."""
    shared: set[int] | None = None
    for row in config.values():
        ranks = set(_parse_ranks(_dict_or_empty(row).get("ranks")))
        shared = ranks if shared is None else shared & ranks
    return shared.pop() if shared and len(shared) == 1 else None


# -- which rank waits for which -------------------------------------------------------------------------------------


def find_standstills(dumps: Sequence[RecorderDump]) -> list[Standstill]:
    """The ranks at which a run is stuck, the farthest behind first."""
    by_rank = {dump.rank: dump for dump in dumps}
    waits: dict[int, dict[int, tuple[CollectiveGroup, int]]] = {}
    lags: dict[int, tuple[CollectiveGroup, int]] = {}
    for dump in dumps:
        for group in dump.groups.values():
            for peer in group.ranks:
                if peer != dump.rank:
                    _compare_pair(dump, group, peer, by_rank.get(peer), waits, lags)
    waited: dict[int, list[int]] = {}
    for rank, peers in waits.items():
        for peer in peers:
            waited.setdefault(peer, []).append(rank)
    found = [
        Standstill(rank, "waited-for", *_farthest_behind(rank, waits), tuple(sorted(by)), _pending_op(rank, waits))
        for rank, by in waited.items()
        if rank not in waits and rank not in lags
    ]
    found += [
        Standstill(rank, "gpu-stands", group.says or group.name, behind, tuple(sorted(waited.get(rank, ()))), group.op)
        for rank, (group, behind) in lags.items()
    ]
    return sorted(found, key=lambda s: (-len(s.waiting), s.rank))


def _compare_pair(
    dump: RecorderDump,
    group: CollectiveGroup,
    peer: int,
    other: RecorderDump | None,
    waits: dict[int, dict[int, tuple[CollectiveGroup, int]]],
    lags: dict[int, tuple[CollectiveGroup, int]],
) -> None:
    theirs = other.groups.get(group.name) if other else None
    if other is None:  # a rank without a dump is dead, or could not write one
        if group.enqueued > group.completed:
            waits.setdefault(dump.rank, {})[peer] = (group, group.enqueued - group.completed)
        return
    if theirs is None:
        return
    if group.enqueued > group.completed and theirs.enqueued < group.enqueued:
        waits.setdefault(dump.rank, {})[peer] = (group, group.enqueued - theirs.enqueued)
    if group.completed < theirs.completed and group.enqueued > group.completed:
        behind = theirs.completed - group.completed
        if dump.rank not in lags or lags[dump.rank][1] < behind:
            lags[dump.rank] = (group, behind)


def _farthest_behind(rank: int, waits: Mapping[int, Mapping[int, tuple[CollectiveGroup, int]]]) -> tuple[str, int]:
    group, behind = max((peers[rank] for peers in waits.values() if rank in peers), key=lambda pair: pair[1])
    return group.says or group.name, behind


def _pending_op(rank: int, waits: Mapping[int, Mapping[int, tuple[CollectiveGroup, int]]]) -> str:
    return next((peers[rank][0].op for peers in waits.values() if rank in peers and peers[rank][0].op), "")
