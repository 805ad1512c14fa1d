"""How many labelled logs does ``tarmac diagnose`` get right? One JSON object a line: log, root_cause, first_failed_rank."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent.parent / "src")]

from tarmac.workflow.diagnosing import diagnose  # noqa: E402

NEGATIVE = ("healthy", "not-environment")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("file", help="a file of labelled logs, JSON lines")
    parser.add_argument("-v", action="store_true", help="show every log that is wrong")
    parser.add_argument("--json", action="store_true")
    told = parser.parse_args()
    rows = [
        json.loads(line) for line in Path(told.file).read_text(encoding="utf-8").splitlines() if line.strip()
    ]
    right = rank_right = ranked = negative = false = 0
    started = time.perf_counter()
    for row in rows:
        found = diagnose([[row["log"].encode()]])
        wanted, got = row["root_cause"], found.cause or found.verdict
        right += wanted == got
        if wanted in NEGATIVE:
            negative += 1
            false += got not in (*NEGATIVE, "unknown")
        rank = row.get("first_failed_rank")
        if rank is not None:
            ranked += 1
            rank_right += rank == found.rank
        if told.v and (wanted != got or (rank is not None and rank != found.rank)):
            also = ", ".join(a.cause for a in found.alternatives)
            line = found.evidence[0].text[:90] if found.evidence else ""
            print(
                f"{row.get('id', '?'):40} {wanted} rank {rank}: got {got} rank {found.rank} ({also}) {line}"
            )
    seconds = time.perf_counter() - started
    score = {
        "logs": len(rows), "cause": round(right / len(rows), 4), "ranks": f"{rank_right}/{ranked}",
        "false causes on negatives": f"{false}/{negative}", "seconds per log": round(seconds / len(rows), 4),
    }  # fmt: skip
    print(json.dumps(score) if told.json else "\n".join(f"{k:28} {v}" for k, v in score.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
