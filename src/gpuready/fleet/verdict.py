"""Judge a fleet: build the facts for the FLT rules and the FleetReport from the nodes' answers."""

from __future__ import annotations

from gpuready.fleet.nodeset import expand, fold
from gpuready.fleet.outliers import Weighed, median
from gpuready.fleeted import ANSWERED, KINDS, FleetReport
from gpuready.model import Fact, Facts, worst

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

    from gpuready.fleet.drift import Differing
    from gpuready.fleet.gather import Gather
    from gpuready.fleeted import Drift, Pair, Suspect
    from gpuready.model import Report

    Row = dict[str, Any]

WIDE, MANY, ALMOST_ALL = 0.2, 10, 0.95
"""A check that fails on this share of the nodes, and on at least this many, is doubted; on almost all it is
believed."""
ALIKE = 0.8
"""Two sets of nodes with this overlap count as one: then a difference explains the failures."""
LESS = {"memory": 0.97, "/dev/shm": 0.9}
OFF = 2.0
"""Seconds by which a clock may differ from the fleet's."""
RAY = "ray.io/node-id"
PART = 0.25
HALF = 0.5
"""An exclusion list with more than this share of the fleet is useless."""


class Pieces:
    """Everything known about a fleet before it is judged."""

    def __init__(
        self,
        gathered: Gather,
        stratum_of: Mapping[str, str],
        differ: Sequence[Differing] = (),
        drift: Sequence[Drift] = (),
        weighed: Weighed | None = None,
        suspects: Sequence[Suspect] = (),
        pairs: Sequence[Pair] = (),
    ):
        self.gathered, self.stratum_of, self.differ, self.drift = gathered, stratum_of, differ, drift
        self.weighed, self.suspects, self.pairs = weighed or Weighed(), suspects, pairs
        self.records = gathered.records
        self.codes = self._codes()
        self.widespread = self._widespread()

    def _codes(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for name, record in self.records.items():
            for code in record.codes:
                found.setdefault(code, []).append(name)
        return found

    def _widespread(self) -> dict[str, list[str]]:
        """Codes that fail too widely to be faults of single nodes and that no difference explains."""
        of = len(self.records)
        wide = {
            c: n for c, n in self.codes.items() if len(n) >= max(MANY, WIDE * of) and len(n) < ALMOST_ALL * of
        }
        return {code: names for code, names in wide.items() if not self._explained(set(names))}

    def _explained(self, failing: set[str]) -> bool:
        """Whether the failing nodes are those of one stratum or those with one value of a facet."""
        groups = [set(nodes) for one in self.differ for nodes in one.members.values()]
        strata: dict[str, set[str]] = {}
        for name, stratum in self.stratum_of.items():
            strata.setdefault(stratum, set()).add(name)
        return any(_alike(failing, group) for group in (*groups, *strata.values()))

    def believed(self) -> dict[str, list[str]]:
        """Group the nodes by their own verdicts; undecided if only doubted checks failed."""
        flaps = self.gathered.flaps()
        found: dict[str, list[str]] = {}
        for name, record in self.records.items():
            verdict = worst(flaps[name]) if name in flaps else record.verdict
            if verdict == "not-ready" and record.codes and self.widespread.keys() >= set(record.codes):
                verdict = "undecided"
            if verdict:
                found.setdefault(verdict, []).append(name)
        return found


def _alike(one: set[str], other: set[str]) -> bool:
    return len(one & other) >= ALIKE * len(one | other)


# -- the facts of a fleet ------------------------------------------------------------------------------------


def facts(pieces: Pieces) -> Facts:
    """Build the facts that the FLT rules read. Lists of nodes are folded."""
    gathered, of = pieces.gathered, len(pieces.records)
    flaps = _by(gathered.flaps().items(), lambda row: " and ".join(row[1]))
    told: dict[str, Any] = {
        "fleet.nodes": len(gathered.nodes),
        "fleet.unreachable": _unreachable(gathered),
        "fleet.drift": tuple(drift.to_json() for drift in pieces.drift),
        "fleet.gpus": _missing_gpus(pieces),
        "fleet.memory": _smaller(pieces),
        "fleet.clocks": _skewed(gathered),
        "fleet.outliers": tuple(one.to_json() for one in pieces.weighed.outliers),
        "fleet.conflicts": tuple(
            {"what": what, "nodes": fold(nodes)} for what, nodes in gathered.collisions()
        ),
        "fleet.codes": _counted(pieces.codes, of),
        "fleet.widespread": _counted(pieces.widespread, of),
        "fleet.flaps": tuple(
            {"said": said, "nodes": fold(n for n, _ in rows), "count": len(rows)}
            for said, rows in flaps.items()
        ),
        "fleet.suspects": tuple(one.to_json() for one in pieces.suspects),
    }
    source = f"the answers of {of:,} nodes"
    return Facts([Fact(key, value, source, "run") for key, value in told.items()], "fleet")


def _counted(names: Mapping[str, list[str]], of: int) -> tuple[Row, ...]:
    ordered = sorted(names.items(), key=lambda row: (-len(row[1]), row[0]))
    return tuple({"code": code, "nodes": fold(some), "count": len(some), "of": of} for code, some in ordered)


def _by(rows: Iterable[Any], key: Callable[[Any], Any]) -> dict[Any, list[Any]]:
    found: dict[Any, list[Any]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return found


def _silent(gathered: Gather) -> dict[tuple[str, str], list[str]]:
    """Group nodes by how and why they did not answer, with their own names removed from the reasons."""
    found: dict[tuple[str, str], list[str]] = {}
    for name in gathered.nodes:
        kind, why = gathered.state(name)
        if kind != ANSWERED:
            found.setdefault((kind, why.replace(name, "it")), []).append(name)
    return found


def _unreachable(gathered: Gather) -> tuple[Row, ...]:
    rows = [(kind, why, names) for (kind, why), names in _silent(gathered).items() if kind in KINDS]
    rows.sort(key=lambda row: (KINDS.index(row[0]), -len(row[2]), row[1]))
    return tuple({"kind": k, "why": why, "nodes": fold(n), "count": len(n)} for k, why, n in rows)


def _missing_gpus(pieces: Pieces) -> tuple[Row, ...]:
    """Nodes with fewer GPUs than most of their stratum, or than the scheduler expects."""
    found: list[Row] = []
    for stratum, names in _by(pieces.stratum_of, pieces.stratum_of.__getitem__).items():
        counts = _by(names, lambda name: pieces.records[name].gpus)
        usual = max(counts, key=lambda count: (count > 0, len(counts[count]), count))
        for count, some in sorted(counts.items()):
            few = [
                n
                for n in some
                if count < max(pieces.gathered.nodes[n].gpus, usual if _rare(some, names) else 0)
            ]
            if few:
                want = max(usual, *(pieces.gathered.nodes[n].gpus for n in few))
                row = {
                    "nodes": fold(few),
                    "count": len(few),
                    "gpus": count,
                    "usual": want,
                    "stratum": stratum,
                }
                found.append(row)
    return tuple(found)


def _rare(some: list[str], of: list[str]) -> bool:
    return len(some) < PART * len(of) or len(some) == 1


def _smaller(pieces: Pieces) -> tuple[Row, ...]:
    found: list[Row] = []
    for stratum, names in _by(pieces.stratum_of, pieces.stratum_of.__getitem__).items():
        records = pieces.records
        found += _less("memory", {n: records[n].mem for n in names if records[n].mem > 0}, stratum)
        found += _less("/dev/shm", {n: records[n].shm for n in names if records[n].shm >= 0}, stratum)
    return tuple(found)


def _less(what: str, sizes: dict[str, int], stratum: str) -> list[Row]:
    if len(sizes) < 2:
        return []
    ordered = sorted(sizes.values())
    usual = ordered[len(ordered) // 2]
    small = _by(
        (n for n, size in sizes.items() if size < LESS[what] * usual), lambda n: f"{sizes[n] / 1024:.1f}"
    )
    return [
        {"what": what, "nodes": fold(some), "count": len(some), "size": max(sizes[n] for n in some) << 20,
         "usual": usual << 20, "stratum": stratum}
        for _, some in sorted(small.items(), key=lambda row: -len(row[1]))
    ]  # fmt: skip


def _skewed(gathered: Gather) -> tuple[Row, ...]:
    """Nodes whose clock differs from the fleet's median; the controller's own clock may be the wrong one."""
    if not gathered.skews:
        return ()
    middle = median(gathered.skews.values())
    off = {name: skew - middle for name, skew in gathered.skews.items() if abs(skew - middle) > OFF}
    groups = _by(off, lambda name: round(off[name]))
    rows = sorted(groups.items(), key=lambda row: -abs(row[0]))
    return tuple({"nodes": fold(names), "count": len(names), "seconds": seconds} for seconds, names in rows)


# -- the report ----------------------------------------------------------------------------------------------


def report(
    pieces: Pieces,
    judge: Callable[[Facts], Report],
    *,
    did: str,
    transport: str,
    seconds: float = 0.0,
    rounds: int = 0,
    notes: Sequence[str] = (),
) -> FleetReport:
    """Build the report. ``judge`` applies the FLT rules to the facts."""
    known = facts(pieces)
    judged = judge(known)
    blames = _blames(
        pieces, known, {finding.code for finding in judged.findings if finding.severity == "error"}
    )
    gathered = pieces.gathered
    return FleetReport(
        did=did,
        transport=transport,
        nodes=len(gathered.nodes),
        findings=judged.findings,
        undecided=judged.undecided,
        verdicts=_verdicts(pieces),
        states=_states(gathered),
        reasons={f"{kind}: {why}": fold(names) for (kind, why), names in _silent(gathered).items() if why},
        codes={code: fold(names) for code, names in sorted(pieces.codes.items())},
        strata={s: fold(n) for s, n in _by(pieces.stratum_of, pieces.stratum_of.__getitem__).items()},
        drift=tuple(pieces.drift),
        outliers=(*pieces.weighed.outliers, *pieces.weighed.unclear),
        suspects=tuple(pieces.suspects),
        exclude=fold(sorted({name for names in blames.values() for name in names})),
        selector=_selector(gathered, {name for names in blames.values() for name in names}),
        blames={code: fold(sorted(names)) for code, names in blames.items()},
        figures=_figures(gathered),
        pairs=tuple(pieces.pairs),
        rounds=rounds,
        seconds=round(seconds, 3),
        run=gathered.run,
        strict=judged.strict,
        notes=(*notes, *_notes(pieces)),
    )


def _verdicts(pieces: Pieces) -> dict[str, str]:
    """Fold the nodes' verdicts; without any verdict an answer counts as clear."""
    believed = {verdict: fold(names) for verdict, names in pieces.believed().items()}
    return believed or ({"clear": fold(pieces.records)} if pieces.records else {})


def _states(gathered: Gather) -> dict[str, str]:
    return {kind: fold(names) for kind, names in _by(gathered.nodes, lambda n: gathered.state(n)[0]).items()}


def _figures(gathered: Gather) -> dict[str, dict[str, tuple[float, ...]]]:
    """Median of the figures of each node or GPU."""
    found: dict[str, dict[str, tuple[float, ...]]] = {}
    for figure, table in gathered.tries.items():
        rows = found.setdefault(figure, {})
        for (node, _), values in sorted(table.items(), key=lambda row: (row[0][0], row[0][1] or 0)):
            rows[node] = (*rows.get(node, ()), round(median(values.values()), 6))
    return found


def _notes(pieces: Pieces) -> list[str]:
    gathered, found = pieces.gathered, []
    if gathered.newer:
        found.append(
            f"{len(gathered.newer):,} nodes have a newer gpuready than this one; what it knows of them was read"
        )
    told = {name: len(record.prints) for name, record in pieces.records.items()}
    if len(set(told.values())) > 1:
        older = [name for name, size in told.items() if size < max(told.values())]
        found.append(
            f"{len(older):,} nodes have an older gpuready and tell less of themselves: {fold(older)[:120]}"
        )
    if gathered.skews and abs(middle := median(gathered.skews.values())) > OFF:
        found.append(f"the clock of this machine is off from that of the fleet by {abs(middle):.0f} seconds")
    return found


def _blames(pieces: Pieces, known: Facts, errors: set[str]) -> dict[str, set[str]]:
    """Return the nodes to exclude for each finding of severity error."""
    faults = {"driver", "torch", "cuda", "kernels", "gpus"}
    odd = [row for row in known.value("fleet.drift") if not row["split"] and row["facet"] in faults]
    suspects = [
        name for one in pieces.suspects if one.confirmed and one.kind in ("node", "gpu") for name in one.names
    ]
    named: dict[str, Iterable[str]] = {
        "FLT001": _all(known, "fleet.unreachable"),
        "FLT002": _of(group for row in odd if row["facet"] == "driver" for group in row["groups"]),
        "FLT003": _of(
            group for row in odd if row["facet"] in ("torch", "cuda", "kernels") for group in row["groups"]
        ),
        "FLT007": _all(known, "fleet.gpus"),
        "FLT008": _of(group for row in odd if row["facet"] == "gpus" for group in row["groups"]),
        "FLT010": _all(known, "fleet.memory"),
        "FLT011": [one.node for one in pieces.weighed.outliers],
        "FLT012": _all(known, "fleet.conflicts"),
        "FLT015": pieces.believed().get("not-ready", ()),
        "FLT016": suspects,
    }
    found = {code: set(names) for code, names in named.items() if code in errors}
    most = max(HALF * len(pieces.gathered.nodes), 1)
    return {code: names for code, names in found.items() if 0 < len(names) <= most}


def _selector(gathered: Gather, avoid: set[str]) -> dict[str, str]:
    """Return the excluded nodes as a Ray label selector."""
    ids = sorted(gathered.nodes[name].labels.get(RAY, "") for name in avoid if name in gathered.nodes)
    return {RAY: f"!in({','.join(ids)})"} if ids and all(ids) else {}


def _all(known: Facts, key: str) -> list[str]:
    return _of(known.value(key))


def _of(rows: Iterable[Row]) -> list[str]:
    return [name for row in rows for name in expand(row["nodes"])]
