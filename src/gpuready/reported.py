"""The document of ``gpuready report``, and how it is parsed from JSON.

A document may come from a file, so its parts are validated before they are rendered.
"""

from __future__ import annotations

from gpuready.benched import Benched, Measure
from gpuready.fitted import Fitted
from gpuready.fleeted import FleetReport
from gpuready.held import of
from gpuready.model import (
    EXIT,
    NOT_STATED,
    Contract,
    Fact,
    Facts,
    Finding,
    Ignored,
    Judged,
    Noun,
    Report,
    Undecided,
    worst,
)
from gpuready.planned import Conflict, Plan
from gpuready.proven import Evidence

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, TypeVar

    One = TypeVar("One", bound=Noun)

KIND = "report"


class Reported(Noun):
    """Everything one report shows about a machine or a fleet; each part comes from its own command."""

    reports: tuple[Report, ...] = ()
    proofs: Evidence | None = None
    bench: Benched | None = None
    fit: Fitted | None = None
    plans: tuple[Plan, ...] = ()
    environments: tuple[tuple[str, ...], ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    fleet: FleetReport | None = None
    made: str = ""  # UTC
    notes: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        """The worst verdict of the frameworks and the fleet; the other parts do not judge the machine."""
        found = [one.verdict for one in self.reports] + ([self.fleet.verdict] if self.fleet else [])
        return worst(found)

    @property
    def exit(self) -> int:
        return EXIT[self.verdict]


def read(document: object) -> Reported:
    """Parse a report document. ValueError names the invalid part."""
    if not isinstance(document, dict) or document.get("kind", KIND) != KIND:
        raise ValueError("this is no document of gpuready report")
    plan = _part(document, "plan")
    plans = (plan.get("plans") or [plan]) if plan else []
    bench = _part(document, "bench")
    return Reported(
        tuple(report(one) for one in _listed(document, "reports")),
        _one(Evidence, document, "proofs"),
        benched(bench) if bench else None,
        _one(Fitted, document, "fit"),
        tuple(of(Plan, one) for one in plans),
        tuple(tuple(map(str, names)) for names in _listed(plan or {}, "environments")),
        _many(Conflict, plan or {}, "conflicts") if len(plans) > 1 else (),
        _one(FleetReport, document, "fleet"),
        str(document.get("made", "")),
        tuple(str(note) for note in _listed(document, "notes")),
    )


def report(data: object) -> Report:
    if not isinstance(data, dict):
        raise ValueError("a report must be an object")
    facts = _many(Fact, data, "facts")
    stated = any(fact.how == "stated" and fact.key.startswith("gpu.") for fact in facts)
    return Report(
        of(Contract, data.get("contract")),
        Facts(facts, str(data.get("host", "")), NOT_STATED if stated else "nothing looked for it"),
        _many(Finding, data, "findings"),
        _many(Undecided, data, "undecided"),
        _many(Undecided, data, "unstated"),
        _many(Judged, data, "judged"),
        _many(Ignored, data, "ignored"),
        data.get("strict") is True,
        str(data.get("catalog", "")),
    )


def benched(data: Mapping[str, Any]) -> Benched:
    """Parse the JSON of ``gpuready bench``."""
    rows = _many(Measure, data, "measures")
    bare = {**data, "report": None, "measures": []}
    return of(Benched, bare).but(report=report(data.get("report")), measures=rows)


def _part(document: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    found = document.get(name)
    if found is not None and not isinstance(found, dict):
        raise ValueError(f"{name!r} must be an object")
    return found or None


def _listed(document: Mapping[str, Any], name: str) -> list[Any]:
    found = document.get(name) or []
    if not isinstance(found, list):
        raise ValueError(f"{name!r} must be a list")
    return found


def _one(noun: type[One], document: Mapping[str, Any], name: str) -> One | None:
    found = _part(document, name)
    return of(noun, found) if found else None


def _many(noun: type[One], document: Mapping[str, Any], name: str) -> tuple[One, ...]:
    return tuple(of(noun, one) for one in _listed(document, name))
