"""A node's side of a fleet: look, judge, prove or measure here, and say it in one line."""

from __future__ import annotations

import time

from tarmac import system
from tarmac.fleet import facets, node, parcel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from tarmac.benched import Benched
    from tarmac.model import Facts, Report

    Request = Mapping[str, Any]

JOINED = 3.0
"""What is left of a pair's deadline for the rest: to start Python, to write the answer."""
SIZE = {"gloo": 4 << 20, "nccl": 64 << 20}
"""The bytes that a pair reduces to measure its link."""


def _options(request: Request) -> Mapping[str, Any]:
    options = request.get("options")
    return options if isinstance(options, dict) else {}


def _told(request: Request, name: str, facts: Facts, verdict: str = "", codes: Any = (), **more: Any) -> str:
    from tarmac.catalog import kernels

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
    from tarmac import workflow

    return workflow.probe(python=options.get("python"))


def fingerprint(request: Request, name: str) -> str:
    """What this node is, without a verdict."""
    return _told(request, name, _facts(_options(request)))


def details(request: Request, name: str) -> str:
    """The facts behind the facets that are asked for."""
    from tarmac.catalog import kernels

    asked = [str(key) for key in request.get("keys") or facets.FACETS]
    facts = _facts(_options(request))
    return facets.details(name, facts, asked, run=str(request.get("token", "")), compiled=kernels.names())


def check(request: Request, name: str) -> str:
    """What this node is, and whether it is clear for the frameworks."""
    from tarmac import workflow
    from tarmac.model import worst

    options = _options(request)
    given = {key: options.get(key) for key in ("python", "wants", "model")}
    reports = workflow.check(
        [str(one) for one in request.get("framework") or ()], strict=bool(options.get("strict")), **given
    )
    verdict = worst(report.verdict for report in reports)
    facts = reports[0].facts if reports else _facts(options)
    return _told(request, name, facts, verdict, codes(reports, verdict))


def codes(reports: list[Report], verdict: str) -> list[str]:
    """The codes that stand behind a verdict: errors; where it is undecided, what could not be seen."""
    if verdict == "undecided":
        return [
            u.code for report in reports for u in report.undecided if report.strict or u.severity == "error"
        ]
    grave = {True: ("error", "warning"), False: ("error",)}
    return [f.code for report in reports for f in report.findings if f.severity in grave[report.strict]]


def prove(request: Request, name: str) -> str:
    """What this node can do, by doing it."""
    from tarmac.model import worst
    from tarmac.workflow import proving

    options = _options(request)
    words = [str(one) for one in request.get("framework") or ()]
    strict = bool(options.get("strict"))
    reports = proving.prove(
        words, python=options.get("python"), wants=options.get("wants"), strict=strict
    ).reports
    verdict = worst(report.verdict for report in reports)
    facts = reports[0].facts if reports else _facts(options)
    return _told(request, name, facts, verdict, codes(list(reports), verdict))


def bench(request: Request, name: str) -> str:
    """How fast this node is: one value for each measure, or one for each GPU."""
    from tarmac.workflow import benching

    options = _options(request)
    only = options.get("only")
    found = benching.bench(python=options.get("python"), quick=not only, only=only, repeat=1)
    verdict = found.report.verdict
    return _told(
        request, name, found.report.facts, verdict, codes([found.report], verdict), figures=figures(found)
    )


def figures(found: Benched) -> dict[str, list[float]]:
    """What was measured, four digits of each; the name tells where less is better."""
    from tarmac.catalog import bands

    rows: dict[str, list[float]] = {}
    for one in found.measures:
        kind = bands.named(one.name)
        if one.value is not None and kind is not None:
            name = f"{one.name}_latency" if kind.better == "less" else one.name
            rows.setdefault(name, []).append(float(f"{one.value:.4g}"))
    return rows


def pair(request: Request, name: str) -> str:
    """One rank of two, in the patient's Python: reduced numbers that are looked at, and the rate."""
    import json

    from tarmac.probe.patient import patient

    door = system.Live()
    part = node.pair_of(request, name)
    limit = float(part.get("seconds", 30.0))
    python = patient(door, _options(request).get("python")).path
    count = min(max(int(part.get("gpus", 1)), 1), 64)
    device = ",".join(f"cuda:{n}" for n in range(count)) if part["backend"] == "nccl" else "cpu"
    words = [
        python,
        f"{parcel.SCRIPTS}/pair.py",
        part["rank"],
        part["address"],
        part["port"],
        part["backend"],
        max(limit - JOINED, 2.0),
        SIZE[part["backend"]],
        device,
    ]
    ran = door.run([str(word) for word in words], limit, env={"OMP_NUM_THREADS": "1"})
    found = _pair(ran)
    found |= {"peer": str(part.get("peer", "")), "round": int(part.get("round", 0)), "rank": part["rank"]}
    head = {"schema": facets.SCHEMA, "node": name, "run": str(request.get("token", "")), "do": "pair"}
    return json.dumps({**head, "pair": found}, separators=(",", ":"))


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
    """What this node answers: called by the boot program, in a process of its own."""
    return node.line(request, name, ACTS)
