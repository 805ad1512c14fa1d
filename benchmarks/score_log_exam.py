"""How many logs of a frozen exam does ``gpuready diagnose`` get right at first sight?

The exam (benchmarks/exams) has the address, the hash and the truth of each log; its texts stay in their threads and are read
from a file of JSON lines (id, log), each compared with its hash. Right is the confirmed cause or one that the exam accepts as
well ("confirmed cause alone" counts without those); of a run that did not fail, any answer that names no cause; of a cause that has no name here, also *no cause found*.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src")]

from gpuready.workflow.diagnose import diagnose_logs  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("exam", type=Path, help="the frozen exam, JSON")
    parser.add_argument("texts", type=Path, help="the logs, JSON lines of id and log")
    parser.add_argument("-o", "--output", type=Path, help="write the score and the misses")
    asked = parser.parse_args()
    exam = json.loads(asked.exam.read_text())
    rows = [json.loads(line) for line in asked.texts.read_text().splitlines()]
    texts = {row["id"]: row["log"].encode() for row in rows}
    answers = [score_case(case, texts[case["id"]], exam.get("names", {})) for case in exam["cases"]]
    failures = [answer for answer in answers if answer["failure"]]
    ranked = [answer for answer in answers if answer["first_failed_rank"] is not None]
    score = {
        "exam": asked.exam.name,
        "logs": len(answers),
        "right": sum(answer["right"] for answer in answers),
        "percent": round(100 * sum(answer["right"] for answer in answers) / len(answers), 1),
        "confirmed cause alone": sum(answer["strict"] for answer in answers),
        "first ranks": f"{sum(answer['rank'] == answer['first_failed_rank'] for answer in ranked)}/{len(ranked)}",
        "failures called healthy": sum(answer["got"] == "healthy" for answer in failures),
        "misses": {answer["id"]: f"{answer['truth']}: {answer['got']}" for answer in answers if not answer["right"]},
    }
    text = json.dumps(score, indent=1) + "\n"
    print(text, end="")
    if asked.output:
        asked.output.write_text(text)
    return 0


def score_case(case: dict[str, Any], log: bytes, names: dict[str, list[str]]) -> dict[str, Any]:
    """Diagnose one log and compare the answer with the truth."""
    if hashlib.sha256(log).hexdigest() != case["sha256"]:
        raise SystemExit(f"the text of {case['id']} is not the one that was frozen: {case['address']}")
    found = diagnose_logs([[log]])
    got = found.cause or found.verdict
    confirmed = {case["truth"], *names.get(case["truth"], ())}
    if not case["failure"]:
        confirmed |= {"healthy", "unknown"}
    elif case["truth"].startswith("new:"):
        confirmed.add("unknown")
    accepted = confirmed | {name for slug in case["also_right"] for name in (slug, *names.get(slug, ()))}
    return {**case, "got": got, "rank": found.rank, "right": got in accepted, "strict": got in confirmed}


if __name__ == "__main__":
    sys.exit(main())
