"""Parse a node's line as untrusted input: bounded, finite, shallow, of the right types, or rejected with a reason."""

from __future__ import annotations

import json
from sys import intern
from typing import Any, NoReturn

from gpuready.fleet.areas import AREAS, MAX_DETAIL_BYTES, SCHEMA
from gpuready.model import validation
from gpuready.model.record import Record

MAX_REPORT_LENGTH = 64 << 10
MAX_NAME = 255


class NodeRefusal(ValueError):
    """A node understood the request and says why it does not answer."""


VERDICTS = ("ready", "clear", "not-ready", "undecided")
MAX_ITEMS = {"codes": 64, "figures": 64, "gpus": 1024}


class NodeReport(Record):
    """One report of one node. Kept small: a fleet has up to a hundred thousand of them."""

    node: str
    schema: int = 0
    run: str = ""
    attempt: int = 1
    at: float = 0.0
    kind: str = ""
    judged: str = ""
    gpus: int = 0
    mem: int = 0
    shm: int = -1
    prints: str = ""
    ids: str = ""
    verdict: str = ""
    codes: tuple[str, ...] = ()
    figures: dict[str, Any] | None = None
    details: dict[str, dict[str, Any]] | None = None

    def fingerprint_of(self, area: str) -> str:
        """Return the fingerprint of one area; empty if an older node does not report it."""
        at = _PRINT_OFFSETS[area]
        return self.prints[at : at + 8].strip()

    @property
    def sort_precedence(self) -> tuple[int, int, float, str]:
        """Of two reports of one node the greater is kept, so that their order does not matter."""
        return self.schema, self.attempt, self.at, f"{self.prints}{self.verdict}{self.codes}{self.figures}"


_PRINT_OFFSETS = {area: 8 * at for at, area in enumerate(AREAS)}
_LONGEST = {"node": MAX_NAME, "run": 64, "kind": 64, "judged": 200, "ids": 16 * MAX_ITEMS["gpus"], "verdict": 16}


def parse_node_report(body: str) -> NodeReport:
    """Parse a node's line; ValueError with the reason if it is invalid."""
    if len(body) > MAX_DETAIL_BYTES or (len(body) > MAX_REPORT_LENGTH and '"details"' not in body[:400]):
        raise ValueError(f"the answer has {len(body):,} characters, more than any answer needs")
    try:
        fields = _load_json(body)
        if not isinstance(fields, dict):
            raise ValueError("the answer is not an object")
        if "error" in fields:
            raise NodeRefusal(str(fields["error"])[:300])
        return _parse_fields(fields)
    except RecursionError:
        raise ValueError("the answer is nested too deeply") from None


def _load_json(body: str) -> Any:
    try:
        return json.loads(body, parse_constant=_reject_constant)
    except ValueError as error:
        raise ValueError(f"the answer is no JSON: {str(error)[:100]}") from None


def _reject_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a number")


# -- fields ----------------------------------------------------------------------------------------------


def _parse_fields(fields: dict[str, Any]) -> NodeReport:
    """Check what the types do not say: sizes, ranges, known words; texts that nodes share are kept once."""
    renamed = {"attempt": fields.get("try", 1), "prints": _read_fingerprints(fields.get("print", ""))}
    report = validation.parse_record(NodeReport, {**fields, **renamed})
    if any(len(getattr(report, key)) > longest for key, longest in _LONGEST.items()) or not report.node:
        raise ValueError("a text is missing, or longer than any node needs")
    if not all(-1 <= getattr(report, key) < 1 << 48 for key in ("schema", "attempt", "gpus", "mem", "shm")):
        raise ValueError("a number is out of range")
    if report.verdict and report.verdict not in VERDICTS:
        raise ValueError("'verdict' is not one of " + ", ".join(VERDICTS))
    is_code = all(0 < len(code) <= 8 and code.isalnum() for code in report.codes)
    if len(report.codes) > MAX_ITEMS["codes"] or not is_code or len(report.figures or ()) > MAX_ITEMS["figures"]:
        raise ValueError("'codes' or 'figures' have what no check and no bench tells")
    details = None if report.details is None else {name: row for name, row in report.details.items() if name in AREAS}
    return report.replace(
        at=_finite_number(report.at, "at"),
        run=intern(report.run),
        kind=intern(report.kind),
        judged=intern(report.judged),
        verdict=intern(report.verdict),
        codes=tuple(intern(code) for code in sorted(set(report.codes))),
        figures=None if report.figures is None else dict(map(_read_figure, report.figures.items())),
        details=details,
    )


def _finite_number(value: object, key: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not -1e18 < value < 1e18:
        raise ValueError(f"{key!r} is not a finite number")
    return float(value)


def _read_fingerprints(value: object) -> str:
    """Eight digits an area in the order of AREAS; newer nodes' extran areas are dropped, older nodes'
    missing ones blank.
    """
    if isinstance(value, dict):
        value = "".join(str(value.get(area, "")).ljust(8)[:8] for area in AREAS)
    if not isinstance(value, str) or len(value) % 8 or any(c not in "0123456789abcdef " for c in value):
        raise ValueError("'print' is not a list of fingerprints")
    return intern(value[: 8 * len(AREAS)])


def _read_figure(figure: tuple[str, Any]) -> tuple[str, tuple[float, ...]]:
    name, value = figure
    row = value if isinstance(value, (list, tuple)) else (value,)
    if not 0 < len(row) <= MAX_ITEMS["gpus"] or len(name) > 64:
        raise ValueError("a figure is neither a number nor one number for each GPU")
    return intern(name), tuple(_finite_number(one, name) for one in row)


def is_newer_schema(record: NodeReport) -> bool:
    """Whether the node uses a later schema; the known fields are still read."""
    return record.schema > SCHEMA
