"""Read the result file of a proof's process as a verdict. The file is untrusted: nothing is accepted that the exit
status or its own numbers contradict.
"""

import json
from typing import Any

from gpuready.catalog.proofs import ProofSpec
from gpuready.model.proof import PASSED, ProofResult
from gpuready.system import AccessError, LiveHost
from gpuready.system.process.runner import BackgroundProcess

MAX_RESULT_BYTES = 1 << 20
"""Maximum size of a result file, in bytes."""

MAX_ENTRIES = 200
"""Maximum number of steps, numbers and versions that are kept."""


class RankResult:
    """The process of one rank and its result."""

    def __init__(self, process: BackgroundProcess, record: dict[str, Any], trouble: str):
        self.process, self.record, self.problem = process, record, trouble

    @property
    def verdict(self) -> tuple[str, str]:
        """The verdict of this rank, and why."""
        process, record = self.process, self.record
        if process.end.startswith(("deadline", "unkillable")):
            return "hung", _locate_failure(f"no end after {process.seconds:.0f} s", record) + (
                f"; {process.end}" if process.end.startswith("unkillable") else ""
            )
        if process.end.startswith("signal"):
            return "crashed", _locate_failure(f"ended by {process.end.replace('signal ', 'SIG')}", record)
        if process.end:
            return "failed", process.end
        if self.problem:
            return "failed", f"exit {process.exit} and {self.problem}"
        verdict = record["verdict"]
        if not verdict:
            return "failed", _locate_failure(f"it ended with exit {process.exit} before it had a result", record)
        if verdict == PASSED and process.exit != 0:
            return "failed", f"it passed, and then ended with exit {process.exit}"
        wrong = _find_bad_number(record["numbers"]) if verdict == PASSED else ""
        return ("failed", wrong) if wrong else (verdict, record["why"])


def _locate_failure(what: str, record: dict[str, Any]) -> str:
    steps = record.get("steps") or ()
    where = f"in the step: {steps[-1]}" if steps else "before the script began"
    after = " (after it had passed)" if record.get("verdict") == PASSED else ""
    return f"{what}, {where}{after}"


def _find_bad_number(numbers: dict[str, dict[str, Any]]) -> str:
    """Return why the numbers do not support ``passed``; empty if they do."""
    bounded = {name: row for name, row in numbers.items() if row.get("bound")}
    if not bounded:
        return "it says that it passed, and held no number against a bound"
    for name, row in bounded.items():
        if not _is_within_bound(row["value"], row["bound"], row["limit"]):
            return f"it says that it passed, and {name} is {row['value']}, where {row['bound']} {row['limit']} holds"
    return ""


def _is_within_bound(value: Any, bound: str, limit: Any) -> bool:
    if isinstance(value, str) or isinstance(limit, str):  # nan and inf
        return False
    return bool({"most": value <= limit, "least": value >= limit, "equal": value == limit}[bound])


def read_rank_result(path: str, process: BackgroundProcess) -> RankResult:
    """Read the result of one process, with the problem if it is unusable."""
    try:
        text = LiveHost().read_text(path, MAX_RESULT_BYTES + 1)
    except AccessError as error:
        return RankResult(process, {}, f"its result cannot be read: {error}")
    if text is None:
        return RankResult(process, {}, "no result was written")
    if len(text) > MAX_RESULT_BYTES:
        return RankResult(process, {}, f"its result is larger than {MAX_RESULT_BYTES >> 10} KiB")
    try:
        return RankResult(process, _check_result_record(json.loads(text, parse_constant=_refuse_constant)), "")
    except (ValueError, RecursionError, TypeError, KeyError, AttributeError) as error_found:
        return RankResult(process, {}, f"its result is not one: {str(error_found)[:120] or type(error_found).__name__}")


def _refuse_constant(word: str) -> float:
    raise ValueError(f"{word} is not a number")


def _check_result_record(data: Any) -> dict[str, Any]:
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
        "lacks": str(data.get("lacks", ""))[:80],
        "device": str(data.get("device", ""))[:40],
        "steps": tuple(str(step)[:80] for step in data.get("steps", [])[-MAX_ENTRIES:]),
        "numbers": {str(name)[:80]: _check_number_row(row) for name, row in list(numbers.items())[:MAX_ENTRIES]},
        "versions": _check_text_table(data.get("versions", {})),
        "hardware": _check_text_table(data.get("hardware", {})),
    }


def _check_number_row(row: Any) -> dict[str, Any]:
    kept: dict[str, Any] = {"value": _check_float(row["value"])}
    if row.get("bound"):
        if row["bound"] not in ("most", "least", "equal"):
            raise ValueError(f"a number has the bound {str(row['bound'])[:40]!r}")
        kept |= {"bound": row["bound"], "limit": _check_float(row["limit"])}
    if row.get("unit"):
        kept["unit"] = str(row["unit"])[:20]
    return kept


def _check_float(value: Any) -> float | int | str:
    if isinstance(value, str) and value in ("nan", "inf", "-inf"):
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float)) or abs(value) > 1e300:
        raise ValueError(f"{str(value)[:40]!r} is not a number")
    return value


def _check_text_table(data: Any) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise ValueError("its versions or its hardware are of the wrong kind")
    plain = (int, float, bool)
    return {str(k)[:60]: v if isinstance(v, plain) else str(v)[:300] for k, v in list(data.items())[:MAX_ENTRIES]}


def combine_ranks(row: ProofSpec, device: str, rank_results: list[RankResult], deadline: float) -> ProofResult:
    """Combine the ranks of one proof into one Proof: the first failure decides."""
    verdicts = [one.verdict for one in rank_results]
    worst = min(
        range(len(rank_results)), key=lambda i: (_verdict_priority(verdicts[i][0]), rank_results[i].process.seconds)
    )
    verdict, why = verdicts[worst]
    first = rank_results[worst]
    if len(rank_results) > 1 and verdict != PASSED:
        why = f"rank {worst} of {len(rank_results)}: {why}"
    record = first.record or next((t.record for t in rank_results if t.record), {})
    numbers = {n: dict(v) for t in rank_results[::-1] for n, v in t.record.get("numbers", {}).items()}
    return ProofResult(
        name=row.name,
        verdict=verdict,
        why=why,
        device=record.get("device") or device,
        numbers=numbers if verdict == PASSED else record.get("numbers", {}),
        versions=record.get("versions", {}),
        hardware=record.get("hardware", {}) | ({"ranks": len(rank_results)} if len(rank_results) > 1 else {}),
        steps=first.record.get("steps", ()),
        seconds=round(max(one.process.seconds for one in rank_results), 3),
        output=_join_outputs(rank_results, worst),
        exit=first.process.exit,
        source=row.source,
        capability=row.capability,
        executed=row.executed,
        lacks=record.get("lacks", ""),
    )


def _verdict_priority(verdict: str) -> int:
    """Return the priority of a verdict among ranks: a crash explains why others hang, not vice versa."""
    order = ("crashed", "failed", "hung", "unsupported", "absent", "skipped", PASSED)
    return order.index(verdict)


def _join_outputs(rank_results: list[RankResult], worst: int) -> str:
    if len(rank_results) == 1:
        return rank_results[0].process.output_text()
    parts = [worst, *(i for i in range(len(rank_results)) if i != worst)]
    return "\n".join(
        f"-- rank {i} --\n{rank_results[i].process.output_text()}" for i in parts if rank_results[i].process.size
    )
