"""Parse a node's line as untrusted input: bounded, finite, shallow, of the right types, or rejected with a reason."""

from __future__ import annotations

from sys import intern

from gpuready.fleet.facets import DETAILS, FACETS, SCHEMA

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

    Figures = dict[str, tuple[float, ...]]

LONGEST = 64 << 10
NAME = 255
DEPTH = 24


class Refusal(ValueError):
    """A node understood the request and says why it does not answer."""


VERDICTS = ("ready", "clear", "not-ready", "undecided")
MOST = {"codes": 64, "figures": 64, "gpus": 1024}


class Record:
    """One report of one node. Kept small: a fleet has up to a hundred thousand of them."""

    __slots__ = (
        "at", "attempt", "codes", "details", "figures", "gpus", "ids", "kind", "mem", "node", "pair", "prints", "run",
        "schema", "shm", "verdict",
    )  # fmt: skip

    def __init__(self, told: dict[str, Any]):
        self.schema: int = _whole(told, "schema", 0)
        self.node: str = _text(told, "node", NAME)
        self.run: str = intern(_text(told, "run", 64, ""))
        self.attempt: int = _whole(told, "try", 1)
        self.at: float = _number(told.get("at", 0.0), "at")
        self.kind: str = intern(_text(told, "kind", 64, ""))
        self.gpus: int = _whole(told, "gpus", 0)
        self.mem: int = _whole(told, "mem", 0)
        self.shm: int = _whole(told, "shm", -1)
        self.prints: str = _prints(told.get("print", ""))
        self.ids: str = _text(told, "ids", 16 * MOST["gpus"], "")
        self.verdict: str = _verdict(told)
        self.codes: tuple[str, ...] = _codes(told)
        self.figures: Figures | None = _figures(told)
        self.details: dict[str, dict[str, Any]] | None = _details(told)
        self.pair: dict[str, Any] | None = _table(told, "pair")

    def print(self, facet: str) -> str:
        """Return the fingerprint of one facet; empty if an older node does not report it."""
        at = _AT[facet]
        return self.prints[at : at + 8].strip()

    @property
    def rank(self) -> tuple[int, int, float, str]:
        """Of two reports of one node the greater is kept, so that their order does not matter."""
        return self.schema, self.attempt, self.at, f"{self.prints}{self.verdict}{self.codes}{self.figures}"


_AT = {facet: 8 * at for at, facet in enumerate(FACETS)}


def read(body: str) -> Record:
    """Parse a node's line; ValueError with the reason if it is invalid."""
    if len(body) > DETAILS or (len(body) > LONGEST and '"details"' not in body[:400]):
        raise ValueError(f"the answer has {len(body):,} characters, more than any answer needs")
    told = _json(body)
    if not isinstance(told, dict):
        raise ValueError("the answer is no object")
    if "error" in told:
        raise Refusal(_text(told, "error", LONGEST)[:300])
    return Record(told)


def _json(body: str) -> Any:
    import json

    if body.count("[") + body.count("{") > 100 * DEPTH and _deep(body):
        raise ValueError("the answer is nested too deeply")
    try:
        return json.loads(body, parse_constant=_constant)
    except RecursionError:
        raise ValueError("the answer is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"the answer is no JSON: {str(error)[:100]}") from None


def _deep(body: str) -> bool:
    """Whether brackets nest too deeply. Brackets inside strings count too, which errs on the safe side."""
    depth = 0
    for char in body:
        depth += (char in "[{") - (char in "]}")
        if depth > DEPTH:
            return True
    return False


def _constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number")


# -- fields ----------------------------------------------------------------------------------------------


def _text(told: dict[str, Any], key: str, longest: int, otherwise: str | None = None) -> str:
    value = told.get(key, otherwise)
    if not isinstance(value, str) or (value == "" and otherwise is None):
        raise ValueError(f"{key!r} is no text")
    if len(value) > longest:
        raise ValueError(f"{key!r} is longer than {longest} characters")
    return value


def _whole(told: dict[str, Any], key: str, otherwise: int) -> int:
    value = told.get(key, otherwise)
    if isinstance(value, bool) or not isinstance(value, int) or not -1 <= value < 1 << 48:
        raise ValueError(f"{key!r} is no whole number")
    return value


def _number(value: object, key: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not -1e18 < value < 1e18:
        raise ValueError(f"{key!r} is no finite number")
    return float(value)


def _prints(value: object) -> str:
    """Eight digits a facet in the order of FACETS; newer nodes' extra facets are dropped, older nodes'
    missing ones blank.
    """
    if isinstance(value, dict):
        value = "".join(str(value.get(facet, "")).ljust(8)[:8] for facet in FACETS)
    if not isinstance(value, str) or len(value) % 8 or any(c not in "0123456789abcdef " for c in value):
        raise ValueError("'print' is no row of fingerprints")
    return intern(value[: 8 * len(FACETS)])


def _verdict(told: dict[str, Any]) -> str:
    value = _text(told, "verdict", 16, "")
    if value and value not in VERDICTS:
        raise ValueError("'verdict' is none of " + ", ".join(VERDICTS))
    return intern(value)


def _codes(told: dict[str, Any]) -> tuple[str, ...]:
    value = told.get("codes", [])
    if not isinstance(value, list) or len(value) > MOST["codes"]:
        raise ValueError("'codes' is no list of codes")
    if not all(isinstance(code, str) and 0 < len(code) <= 8 and code.isalnum() for code in value):
        raise ValueError("'codes' is no list of codes")
    return tuple(intern(code) for code in sorted(set(value)))


def _figures(told: dict[str, Any]) -> Figures | None:
    table = _table(told, "figures")
    if table is None:
        return None
    if len(table) > MOST["figures"]:
        raise ValueError("'figures' has more figures than a bench")
    found: Figures = {}
    for name, value in table.items():
        row = value if isinstance(value, list) else [value]
        if not 0 < len(row) <= MOST["gpus"] or len(name) > 64:
            raise ValueError("a figure is no number, nor one a GPU")
        found[intern(name)] = tuple(_number(one, name) for one in row)
    return found


def _details(told: dict[str, Any]) -> dict[str, dict[str, Any]] | None:
    table = _table(told, "details")
    if table is not None and not all(isinstance(row, dict) for row in table.values()):
        raise ValueError("'details' is no table of facets")
    return {name: row for name, row in table.items() if name in FACETS} if table is not None else None


def _table(told: dict[str, Any], key: str) -> dict[str, Any] | None:
    value = told.get(key)
    if value is not None and not isinstance(value, dict):
        raise ValueError(f"{key!r} is no object")
    return value


def newer(record: Record) -> bool:
    """Whether the node uses a later schema; the known fields are still read."""
    return record.schema > SCHEMA
