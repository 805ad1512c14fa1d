"""Read the result file of a proof's process as a verdict. The file is untrusted: nothing is accepted that the exit
status or its own numbers contradict.
"""

from __future__ import annotations

from gpuready.proven import PASSED, Proof
from gpuready.system import Blind, Live

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuready.catalog.proofs import Row
    from gpuready.system.processes import Process

BIGGEST = 1 << 20
"""Maximum size of a result file, in bytes."""

MANY = 200
"""Maximum number of steps, numbers and versions that are kept."""


class Told:
    """The process of one rank and its result."""

    def __init__(self, process: Process, record: dict[str, Any], trouble: str):
        self.process, self.record, self.trouble = process, record, trouble

    @property
    def verdict(self) -> tuple[str, str]:
        """The verdict of this rank, and why."""
        process, record = self.process, self.record
        if process.end.startswith(("deadline", "unkillable")):
            return "hung", _at(f"no end after {process.seconds:.0f} s", record) + _unkillable(process.end)
        if process.end.startswith("signal"):
            return "crashed", _at(f"ended by {process.end.replace('signal ', 'SIG')}", record)
        if process.end:
            return "failed", process.end
        if self.trouble:
            return "failed", f"exit {process.exit} and {self.trouble}"
        verdict = record["verdict"]
        if not verdict:
            return "failed", _at(f"it ended with exit {process.exit} before it had a result", record)
        if verdict == PASSED and process.exit != 0:
            return "failed", f"it passed, and then ended with exit {process.exit}"
        wrong = _outside(record["numbers"]) if verdict == PASSED else ""
        return ("failed", wrong) if wrong else (verdict, record["why"])


def _at(said: str, record: dict[str, Any]) -> str:
    steps = record.get("steps") or ()
    where = f"in the step: {steps[-1]}" if steps else "before the script began"
    after = " (after it had passed)" if record.get("verdict") == PASSED else ""
    return f"{said}, {where}{after}"


def _unkillable(end: str) -> str:
    return f"; {end}" if end.startswith("unkillable") else ""


def _outside(numbers: dict[str, dict[str, Any]]) -> str:
    """Return why the numbers do not support ``passed``; empty if they do."""
    held = {name: row for name, row in numbers.items() if row.get("bound")}
    if not held:
        return "it says that it passed, and held no number against a bound"
    for name, row in held.items():
        if not _inside(row["value"], row["bound"], row["limit"]):
            return f"it says that it passed, and {name} is {row['value']}, where {row['bound']} {row['limit']} holds"
    return ""


def _inside(value: Any, bound: str, limit: Any) -> bool:
    if isinstance(value, str) or isinstance(limit, str):  # nan and inf
        return False
    return bool({"most": value <= limit, "least": value >= limit, "equal": value == limit}[bound])


def read(path: str, process: Process) -> Told:
    """Read the result of one process, with the problem if it is unusable."""
    import json

    try:
        text = Live().read(path, BIGGEST + 1)
    except Blind as blind:
        return Told(process, {}, f"its result cannot be read: {blind}")
    if text is None:
        return Told(process, {}, "no result was written")
    if len(text) > BIGGEST:
        return Told(process, {}, f"its result is larger than {BIGGEST >> 10} KiB")
    try:
        return Told(process, _checked(json.loads(text, parse_constant=_refuse)), "")
    except (ValueError, RecursionError, TypeError, KeyError, AttributeError) as bad:
        return Told(process, {}, f"its result is not one: {str(bad)[:120] or type(bad).__name__}")


def _refuse(word: str) -> float:
    raise ValueError(f"{word} is no number")


def _checked(data: Any) -> dict[str, Any]:
    """Return the record reduced to the protocol's fields; ValueError if it does not follow it."""
    if not isinstance(data, dict) or data.get("schema") != 1:
        raise ValueError("it is not a record of schema 1")
    if data.get("verdict", "") not in ("", PASSED, "failed", "absent", "unsupported"):
        raise ValueError(f"it has no such verdict: {str(data['verdict'])[:40]!r}")
    numbers = data.get("numbers", {})
    if not isinstance(numbers, dict) or not isinstance(data.get("steps", []), list):
        raise ValueError("its numbers or its steps are of the wrong kind")
    return {
        "verdict": data.get("verdict", ""),
        "why": str(data.get("why", ""))[:2000],
        "device": str(data.get("device", ""))[:40],
        "steps": tuple(str(step)[:80] for step in data.get("steps", [])[-MANY:]),
        "numbers": {str(name)[:80]: _number(row) for name, row in list(numbers.items())[:MANY]},
        "versions": _texts(data.get("versions", {})),
        "hardware": _texts(data.get("hardware", {})),
    }


def _number(row: Any) -> dict[str, Any]:
    kept: dict[str, Any] = {"value": _float(row["value"])}
    if row.get("bound"):
        if row["bound"] not in ("most", "least", "equal"):
            raise ValueError(f"a number has the bound {str(row['bound'])[:40]!r}")
        kept |= {"bound": row["bound"], "limit": _float(row["limit"])}
    if row.get("unit"):
        kept["unit"] = str(row["unit"])[:20]
    return kept


def _float(value: Any) -> float | int | str:
    if isinstance(value, str) and value in ("nan", "inf", "-inf"):
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float)) or abs(value) > 1e300:
        raise ValueError(f"{str(value)[:40]!r} is not a number")
    return value


def _texts(data: Any) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise ValueError("its versions or its hardware are of the wrong kind")
    plain = (int, float, bool)
    return {str(k)[:60]: v if isinstance(v, plain) else str(v)[:300] for k, v in list(data.items())[:MANY]}


def fold(row: Row, device: str, told: list[Told], deadline: float) -> Proof:
    """Combine the ranks of one proof into one Proof: the first failure decides."""
    verdicts = [one.verdict for one in told]
    worst = min(range(len(told)), key=lambda i: (_rank(verdicts[i][0]), told[i].process.seconds))
    verdict, why = verdicts[worst]
    first = told[worst]
    if len(told) > 1 and verdict != PASSED:
        why = f"rank {worst} of {len(told)}: {why}"
    record = first.record or next((t.record for t in told if t.record), {})
    numbers = {n: dict(v) for t in told[::-1] for n, v in t.record.get("numbers", {}).items()}
    return Proof(
        name=row.name,
        verdict=verdict,
        why=why,
        device=record.get("device") or device,
        numbers=numbers if verdict == PASSED else record.get("numbers", {}),
        versions=record.get("versions", {}),
        hardware=record.get("hardware", {}) | ({"ranks": len(told)} if len(told) > 1 else {}),
        steps=first.record.get("steps", ()),
        seconds=round(max(one.process.seconds for one in told), 3),
        output=_output(told, worst),
        exit=first.process.exit,
        source=row.source,
        capability=row.capability,
        executed=row.executed,
    )


def _rank(verdict: str) -> int:
    """Return the priority of a verdict among ranks: a crash explains why others hang, not vice versa."""
    order = ("crashed", "failed", "hung", "unsupported", "absent", "skipped", PASSED)
    return order.index(verdict)


def _output(told: list[Told], worst: int) -> str:
    if len(told) == 1:
        return told[0].process.text()
    parts = [worst, *(i for i in range(len(told)) if i != worst)]
    return "\n".join(f"-- rank {i} --\n{told[i].process.text()}" for i in parts if told[i].process.size)
