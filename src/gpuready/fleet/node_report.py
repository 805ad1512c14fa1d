"""Parse a node's line as untrusted input: bounded, finite, shallow, of the right types, or rejected with a reason."""

from __future__ import annotations

import json
from sys import intern
from typing import Any, NoReturn

from gpuready.fleet.facets import FACETS, MAX_DETAIL_BYTES, SCHEMA

Figures = dict[str, tuple[float, ...]]


MAX_REPORT_LENGTH = 64 << 10
MAX_NAME = 255
MAX_DEPTH = 24


class NodeRefusal(ValueError):
    """A node understood the request and says why it does not answer."""


VERDICTS = ("ready", "clear", "not-ready", "undecided")
MAX_ITEMS = {"codes": 64, "figures": 64, "gpus": 1024}


class NodeReport:
    """One report of one node. Kept small: a fleet has up to a hundred thousand of them."""

    __slots__ = (
        "at", "attempt", "codes", "details", "figures", "gpus", "ids", "kind", "mem", "node", "prints", "run",
        "schema", "shm", "verdict",
    )  # fmt: skip

    def __init__(self, fields: dict[str, Any]):
        self.schema: int = _whole_number_field(fields, "schema", 0)
        self.node: str = _text_field(fields, "node", MAX_NAME)
        self.run: str = intern(_text_field(fields, "run", 64, ""))
        self.attempt: int = _whole_number_field(fields, "try", 1)
        self.at: float = _finite_number(fields.get("at", 0.0), "at")
        self.kind: str = intern(_text_field(fields, "kind", 64, ""))
        self.gpus: int = _whole_number_field(fields, "gpus", 0)
        self.mem: int = _whole_number_field(fields, "mem", 0)
        self.shm: int = _whole_number_field(fields, "shm", -1)
        self.prints: str = _fingerprints_field(fields.get("print", ""))
        self.ids: str = _text_field(fields, "ids", 16 * MAX_ITEMS["gpus"], "")
        self.verdict: str = _verdict_field(fields)
        self.codes: tuple[str, ...] = _codes_field(fields)
        self.figures: Figures | None = _figures_field(fields)
        self.details: dict[str, dict[str, Any]] | None = _details_field(fields)

    def fingerprint_of(self, facet: str) -> str:
        """Return the fingerprint of one facet; empty if an older node does not report it."""
        at = _PRINT_OFFSETS[facet]
        return self.prints[at : at + 8].strip()

    @property
    def sort_precedence(self) -> tuple[int, int, float, str]:
        """Of two reports of one node the greater is kept, so that their order does not matter."""
        return self.schema, self.attempt, self.at, f"{self.prints}{self.verdict}{self.codes}{self.figures}"


_PRINT_OFFSETS = {facet: 8 * at for at, facet in enumerate(FACETS)}


def parse_node_report(body: str) -> NodeReport:
    """Parse a node's line; ValueError with the reason if it is invalid."""
    if len(body) > MAX_DETAIL_BYTES or (len(body) > MAX_REPORT_LENGTH and '"details"' not in body[:400]):
        raise ValueError(f"the answer has {len(body):,} characters, more than any answer needs")
    fields = _load_json(body)
    if not isinstance(fields, dict):
        raise ValueError("the answer is not an object")
    if "error" in fields:
        raise NodeRefusal(_text_field(fields, "error", MAX_REPORT_LENGTH)[:300])
    return NodeReport(fields)


def _load_json(body: str) -> Any:
    if body.count("[") + body.count("{") > 100 * MAX_DEPTH and _is_too_deep(body):
        raise ValueError("the answer is nested too deeply")
    try:
        return json.loads(body, parse_constant=_reject_constant)
    except RecursionError:
        raise ValueError("the answer is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"the answer is no JSON: {str(error)[:100]}") from None


def _is_too_deep(body: str) -> bool:
    """Whether brackets nest too deeply. Brackets inside strings count too, which errs on the safe side."""
    depth = 0
    for char in body:
        depth += (char in "[{") - (char in "]}")
        if depth > MAX_DEPTH:
            return True
    return False


def _reject_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a number")


# -- fields ----------------------------------------------------------------------------------------------


def _text_field(fields: dict[str, Any], key: str, longest: int, default: str | None = None) -> str:
    value = fields.get(key, default)
    if not isinstance(value, str) or (value == "" and default is None):
        raise ValueError(f"{key!r} is not text")
    if len(value) > longest:
        raise ValueError(f"{key!r} is longer than {longest} characters")
    return value


def _whole_number_field(fields: dict[str, Any], key: str, default: int) -> int:
    value = fields.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or not -1 <= value < 1 << 48:
        raise ValueError(f"{key!r} is not a whole number")
    return value


def _finite_number(value: object, key: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not -1e18 < value < 1e18:
        raise ValueError(f"{key!r} is not a finite number")
    return float(value)


def _fingerprints_field(value: object) -> str:
    """Eight digits a facet in the order of FACETS; newer nodes' extra facets are dropped, older nodes'
    missing ones blank.
    """
    if isinstance(value, dict):
        value = "".join(str(value.get(facet, "")).ljust(8)[:8] for facet in FACETS)
    if not isinstance(value, str) or len(value) % 8 or any(c not in "0123456789abcdef " for c in value):
        raise ValueError("'print' is not a list of fingerprints")
    return intern(value[: 8 * len(FACETS)])


def _verdict_field(fields: dict[str, Any]) -> str:
    value = _text_field(fields, "verdict", 16, "")
    if value and value not in VERDICTS:
        raise ValueError("'verdict' is not one of " + ", ".join(VERDICTS))
    return intern(value)


def _codes_field(fields: dict[str, Any]) -> tuple[str, ...]:
    value = fields.get("codes", [])
    if not isinstance(value, list) or len(value) > MAX_ITEMS["codes"]:
        raise ValueError("'codes' is not a list of codes")
    if not all(isinstance(code, str) and 0 < len(code) <= 8 and code.isalnum() for code in value):
        raise ValueError("'codes' is not a list of codes")
    return tuple(intern(code) for code in sorted(set(value)))


def _figures_field(fields: dict[str, Any]) -> Figures | None:
    table = _table_field(fields, "figures")
    if table is None:
        return None
    if len(table) > MAX_ITEMS["figures"]:
        raise ValueError("'figures' has more figures than a bench")
    figures: Figures = {}
    for name, value in table.items():
        row = value if isinstance(value, list) else [value]
        if not 0 < len(row) <= MAX_ITEMS["gpus"] or len(name) > 64:
            raise ValueError("a figure is neither a number nor one number for each GPU")
        figures[intern(name)] = tuple(_finite_number(one, name) for one in row)
    return figures


def _details_field(fields: dict[str, Any]) -> dict[str, dict[str, Any]] | None:
    table = _table_field(fields, "details")
    if table is not None and not all(isinstance(row, dict) for row in table.values()):
        raise ValueError("'details' is not a table of facets")
    return {name: row for name, row in table.items() if name in FACETS} if table is not None else None


def _table_field(fields: dict[str, Any], key: str) -> dict[str, Any] | None:
    value = fields.get(key)
    if value is not None and not isinstance(value, dict):
        raise ValueError(f"{key!r} is not an object")
    return value


def is_newer_schema(record: NodeReport) -> bool:
    """Whether the node uses a later schema; the known fields are still read."""
    return record.schema > SCHEMA
