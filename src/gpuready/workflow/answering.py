"""The node's side of a fleet run: probe, check, prove or measure here, and answer in one line."""

from __future__ import annotations

import time

from gpuready import system
from gpuready.fleet import facets, node, parcel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from gpuready.benched import Benched
    from gpuready.model import Facts, Report

    Request = Mapping[str, Any]

JOINED = 3.0
"""Seconds of a pair's deadline reserved for starting Python and writing the answer."""
NOTHING = ("failed", "crashed", "hung")
SIZE = {"gloo": 4 << 20, "nccl": 64 << 20}
"""Bytes that a pair reduces to measure its link."""


def _options(request: Request) -> Mapping[str, Any]:
    options = request.get("options")
    return options if isinstance(options, dict) else {}


def _told(request: Request, name: str, facts: Facts, verdict: str = "", codes: Any = (), **more: Any) -> str:
    from gpuready.catalog import kernels

    return facets.line(
        name,
        facts,
        verdict,
        codes,
        run=str(request.get("token", "")),
        do=str(request["do"]),
        attempt=int(request.get("try", 1)),
        at=time.time(),
        compiled=kernels.names(),
        **more,
    )


def _facts(options: Mapping[str, Any]) -> Facts:
    from gpuready import workflow

    return _whole(workflow.probe(python=options.get("python")))


def _whole(facts: Facts) -> Facts:
    """Add facts that only a fleet compares: firmware, mounts, governor, clock."""
    from gpuready.probe import station

    return facts.also(*station.look(system.Live()))


def fingerprint(request: Request, name: str) -> str:
    """Return this node's facts, without a verdict."""
    return _told(request, name, _facts(_options(request)))


def details(request: Request, name: str) -> str:
    """Return the facts behind the requested facets."""
    from gpuready.catalog import kernels

    asked = [str(key) for key in request.get("keys") or facets.FACETS]
    facts = _facts(_options(request))
    return facets.details(name, facts, asked, run=str(request.get("token", "")), compiled=kernels.names())


def check(request: Request, name: str) -> str:
    """Return this node's facts, and whether it is ready for the frameworks."""
    from gpuready import workflow
    from gpuready.model import worst

    options = _options(request)
    given: dict[str, Any] = {key: options.get(key) for key in ("python", "wants", "model")}
    reports = workflow.check(
        [str(one) for one in request.get("framework") or ()], strict=bool(options.get("strict")), **given
    )
    verdict = worst(report.verdict for report in reports)
    facts = _whole(reports[0].facts) if reports else _facts(options)
    return _told(request, name, facts, verdict, codes(reports, verdict))


def codes(reports: list[Report], verdict: str) -> list[str]:
    """Return the codes behind a verdict: errors; where it is undecided, what could not be seen."""
    if verdict == "undecided":
        return [
            u.code for report in reports for u in report.undecided if report.strict or u.severity == "error"
        ]
    grave = {True: ("error", "warning"), False: ("error",)}
    return [f.code for report in reports for f in report.findings if f.severity in grave[report.strict]]


def prove(request: Request, name: str) -> str:
    """Return the verdict of the proofs executed on this node."""
    from gpuready.model import worst
    from gpuready.workflow import proving

    options = _options(request)
    words = [str(one) for one in request.get("framework") or ()]
    strict = bool(options.get("strict"))
    reports = proving.prove(
        words, python=options.get("python"), wants=options.get("wants"), strict=strict
    ).reports
    verdict = worst(report.verdict for report in reports)
    facts = _whole(reports[0].facts) if reports else _facts(options)
    return _told(request, name, facts, verdict, codes(list(reports), verdict))


def bench(request: Request, name: str) -> str:
    """Return how fast this node is: one value per measure, or one per GPU."""
    from gpuready.workflow import benching

    options = _options(request)
    only = options.get("only")
    found = benching.bench(python=options.get("python"), quick=not only, only=only, repeat=1)
    verdict = found.report.verdict
    return _told(
        request,
        name,
        _whole(found.report.facts),
        verdict,
        codes([found.report], verdict),
        figures=figures(found),
    )


def figures(found: Benched) -> dict[str, list[float]]:
    """Return the measured values, four digits each, GPU by GPU; the suffix ``_latency`` marks those where less is better.

    A GPU that failed where another did not counts as 0, so that each value stays at the index of its GPU.
    """
    from gpuready.catalog import bands

    rows: dict[str, list[float]] = {}
    for one in found.measures:
        kind = bands.named(one.name)
        less = kind is not None and kind.better == "less"
        value = one.value if one.value is not None else 0.0 if one.verdict in NOTHING and not less else None
        if kind is not None and value is not None:
            rows.setdefault(f"{one.name}_latency" if less else one.name, []).append(float(f"{value:.4g}"))
    return {name: row for name, row in rows.items() if any(row)}


def pair(request: Request, name: str) -> str:
    """Run one rank per GPU in the target's Python, each paired with a rank of the other node, and check the reduced numbers."""
    import json
    from concurrent.futures import ThreadPoolExecutor

    from gpuready.probe.patient import patient

    door = system.Live()
    part = node.pair_of(request, name)
    limit = float(part.get("seconds", 30.0))
    python = patient(door, _options(request).get("python")).path
    count = min(max(int(part.get("gpus", 1)), 1), 64)
    with ThreadPoolExecutor(count) as pool:
        ran = pool.map(lambda at: _rank(door, part, python, limit, at), range(count))
        ranks = [_pair(one) for one in ran]
    found = _together(ranks)
    found |= {"peer": str(part.get("peer", "")), "round": int(part.get("round", 0)), "rank": part["rank"]}
    head = {"schema": facets.SCHEMA, "node": name, "run": str(request.get("token", "")), "do": "pair"}
    return json.dumps({**head, "pair": found}, separators=(",", ":"))


def _rank(door: system.Live, part: Mapping[str, Any], python: str, limit: float, at: int) -> system.Ran:
    """Run the rank of one GPU in its own process, so that a GPU that fails or hangs affects no other."""
    backend = part["backend"]
    words = [
        python,
        f"{parcel.SCRIPTS}/pair.py",
        part["rank"],
        part["address"],
        int(part["port"]) + at,
        backend,
    ]
    words += [max(limit - JOINED, 2.0), SIZE[backend], _device(part, at)]
    return door.run([str(word) for word in words], limit, env={"OMP_NUM_THREADS": "1"})


def _device(part: Mapping[str, Any], at: int) -> str:
    return f"cuda:{at}" if part["backend"] == "nccl" else "cpu"


def _together(ranks: list[dict[str, Any]]) -> dict[str, Any]:
    """Combine the ranks of one node: the first failure, the slowest rate, and the outcome of each."""
    if len(ranks) == 1:
        return ranks[0]
    outcomes = [str(one.get("outcome")) for one in ranks]
    rates = [float(one.get("rate") or 0.0) for one in ranks]
    for grave in ("unclear", "absent", "failed", "slow"):
        if grave in outcomes:
            at = outcomes.index(grave)
            why = (
                f"GPU {at}: {ranks[at].get('why', '')}"
                if grave in ("failed", "slow")
                else ranks[at].get("why")
            )
            return {"outcome": grave, "why": why, "gpus": outcomes}
    seconds = max(float(one.get("seconds") or 0.0) for one in ranks)
    return {"outcome": "passed", "rate": min(rates), "rates": rates, "gpus": outcomes, "seconds": seconds}


def _pair(ran: system.Ran) -> dict[str, Any]:
    import json

    for line in ran.out.splitlines():
        if line.startswith("@pair "):
            told: dict[str, Any] = json.loads(line[6:])
            return told
    if ran.end == "deadline":
        return {"outcome": "slow", "why": f"the pair was not done within {ran.seconds:.0f} s"}
    said = [line for line in ran.err.strip().splitlines() if line.strip()][-1:]
    return {"outcome": "failed", "why": (said or [ran.end or f"exit {ran.rc}"])[0][:200]}


ACTS: dict[str, Callable[[Request, str], str]] = {
    "fingerprint": fingerprint,
    "details": details,
    "check": check,
    "prove": prove,
    "bench": bench,
    "pair": pair,
}


def line(request: object, name: str) -> str:
    """Answer a request; called by fleet/scripts/boot.py in a process of its own."""
    return node.line(request, name, ACTS)
