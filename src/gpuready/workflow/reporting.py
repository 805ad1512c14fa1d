"""``gpuready report``: gather the results of other commands, run now or saved in files, for one page."""

from __future__ import annotations

from gpuready import held, reported, system, workflow
from gpuready.model import SCHEMA
from gpuready.reported import Reported
from gpuready.workflow.refusal import Refused, text_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from gpuready.fitted import Fitted
    from gpuready.fleeted import FleetReport
    from gpuready.model import Facts, Report
    from gpuready.proven import Evidence

GENERATOR = '<meta name="generator" content="gpuready report'
"""The tag that identifies our pages: only a file with it is overwritten."""
HEAD = 1024


def gather(
    frameworks: Sequence[str] = (),
    *,
    on: str | None = None,
    python: str | None = None,
    what_if: Mapping[str, str] | None = None,
    proofs: str | None = None,
    bench: str | None = None,
    fit: Sequence[str] = (),
    plan: bool = False,
    fleet: str | None = None,
) -> Reported:
    """Check this machine, and read saved results. With only a fleet file nothing is checked here: this may be no node of it."""
    told = None if fleet is None else fleet_of(fleet)
    benched = None if bench is None else _kept(bench, "gpuready bench -o FILE", reported.benched)
    looks = not (told and not (frameworks or on or python or what_if))
    reports = workflow.check(frameworks, on=on, python=python, what_if=what_if) if looks else []
    found = Reported(tuple(reports), bench=benched, fleet=told, made=_now())
    if proofs is not None:
        found = _proved(found, proofs)
    if fit:
        found = found.but(fit=_fitted(fit, on))
    return _planned(found, on, python, what_if) if plan else found


def _now() -> str:
    import time

    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


# -- saved results --------------------------------------------------------------------------------------


def decoded(path: str, make: str) -> dict[str, Any]:
    """Read a JSON object of this schema from a file."""
    import json

    try:
        data = json.loads(text_of(path))
    except (ValueError, RecursionError) as bad:
        raise Refused(f"{path} is not JSON: {bad}; make it with {make}") from None
    if not isinstance(data, dict):
        raise Refused(f"{path} is no JSON object; make it with {make}")
    schema = data.get("schema", 1)
    if not isinstance(schema, int) or schema > SCHEMA:
        raise Refused(f"{path} has schema {schema!r} and this gpuready reads {SCHEMA}: upgrade gpuready")
    return data


def _kept(path: str, make: str, reader: Any) -> Any:
    data = decoded(path, make)
    try:
        return reader(data)
    except (ValueError, TypeError, AttributeError) as bad:
        raise Refused(f"{path} is not what {make} writes: {bad}") from None


def fleet_of(path: str) -> FleetReport:
    """Read a fleet report from a file."""
    from gpuready.fleeted import FleetReport

    found: FleetReport = _kept(
        path, "gpuready fleet check -o FILE.json", lambda data: held.of(FleetReport, data)
    )
    return found


def _fitted(words: Sequence[str], on: str | None) -> Fitted:
    """Return a saved result of ``gpuready fit --json``, or fit the given model and job files."""
    from gpuready.fitted import Fitted
    from gpuready.workflow import fitting

    if len(words) == 1 and words[0].endswith(".json"):
        data = decoded(words[0], "gpuready fit --json")
        if "peak_allocated" in data and "job" in data:
            kept: Fitted = _kept(words[0], "gpuready fit --json", lambda d: held.of(Fitted, d))
            return kept
    return fitting.fit(list(words), on=on)


# -- proofs and the plan ----------------------------------------------------------------------------------------


def _proved(found: Reported, path: str) -> Reported:
    """Add the proofs; where they are of this machine, judge the Reports with them: only then can one be *ready*."""
    from gpuready.workflow import proving

    evidence = proving.evidence_of(path)
    found = found.but(proofs=evidence)
    if not found.reports:
        return found
    differs = _differs(evidence, found.reports[0].facts)
    if differs:
        note = f"the proofs are not counted: they are of another machine or environment ({differs})"
        return found.but(notes=(*found.notes, note))
    return found.but(reports=tuple(_with(one, evidence) for one in found.reports))


def _differs(evidence: Evidence, facts: Facts) -> str:
    """Return the first difference between the evidence's machine and this one; empty where they match."""
    for key, value in evidence.machine.items():
        here = facts.known(key)
        if _plain(here) != _plain(value):
            return f"{key} is {_short(here)} here and {_short(value)} there"
    if not evidence.machine:
        return "the evidence does not say what it was made on"
    return ""


def _plain(value: Any) -> Any:
    return [_plain(one) for one in value] if isinstance(value, (list, tuple)) else value


def _short(value: Any) -> str:
    return "not known" if value is None else str(value)[:60]


def _with(report: Report, evidence: Evidence) -> Report:
    from gpuready.prove import choose
    from gpuready.workflow import proving

    needed = choose.in_force(report.contract, report.facts)
    seen = proving.seen(report.facts, evidence.proofs, needed, choose.rows(needed))
    return workflow._judge(seen, needed, {}, report.strict)


def _planned(
    found: Reported, on: str | None, python: str | None, what_if: Mapping[str, str] | None
) -> Reported:
    """Add the plan for the judged frameworks, chosen without asking an index."""
    from gpuready.workflow import planning

    names = [_spec(report) for report in found.reports]
    if not names:
        raise Refused("--plan plans for a framework: name one, as in gpuready report transformers --plan")
    made = planning.plan(names, on=on, python=python, what_if=what_if, resolve=False)
    return found.but(plans=made.plans, environments=made.environments, conflicts=made.conflicts)


def _spec(report: Report) -> str:
    contract = report.contract
    return contract.framework + (f":{contract.variant}" if contract.variant else "")


# -- the file ---------------------------------------------------------------------------------------------------


def writable(path: str) -> None:
    """Refuse to overwrite a file that is not a gpuready report."""
    try:
        text = system.Live().read(path, HEAD)
    except system.Blind as blind:
        raise Refused(f"{path} cannot be written over: {blind}; name another file with -o") from None
    if text and GENERATOR not in text[:HEAD]:
        raise Refused(
            f"{path} is there and is no report of gpuready: remove it, or name another file with -o"
        )
