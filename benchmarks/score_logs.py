"""How many labelled logs does ``gpuready diagnose`` get right? One JSON object a line: log, root_cause, first_failed_rank.

(Or cause and rank, as the corpus of tests/induce calls them.)
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tools")]

from compile_catalog import compile_pattern_table  # noqa: E402

from gpuready.logs.pattern_index import PatternIndex  # noqa: E402
from gpuready.workflow import diagnose  # noqa: E402
from gpuready.workflow.diagnose import diagnose_logs  # noqa: E402

NEGATIVE = ("healthy", "not-environment")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("file", nargs="+", help="files of labelled logs, JSON lines")
    parser.add_argument("-v", action="store_true", help="show every log that is wrong")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    texts = [Path(name).read_text(encoding="utf-8") for name in args.file]
    rows = [json.loads(line) for text in texts for line in text.splitlines() if line.strip()]
    index = PatternIndex(compile_pattern_table())  # the patterns as they are written now
    diagnose.load_pattern_table = lambda: index
    right = rank_right = ranked = negative = false = 0
    started = time.perf_counter()
    for row in rows:
        found = diagnose_logs([[row["log"].encode()]])
        wanted, got = row.get("root_cause") or row["cause"], found.cause or found.verdict
        right += wanted == got
        if wanted in NEGATIVE:
            negative += 1
            false += got not in (*NEGATIVE, "unknown")
        rank = row.get("first_failed_rank", row.get("rank"))
        if rank is not None:
            ranked += 1
            rank_right += rank == found.rank
        if args.v and (wanted != got or (rank is not None and rank != found.rank)):
            also = ", ".join(a.cause for a in found.alternatives)
            line = found.evidence[0].text[:90] if found.evidence else ""
            print(f"{row.get('id', '?'):40} {wanted} rank {rank}: got {got} rank {found.rank} ({also}) {line}")
    seconds = time.perf_counter() - started
    score = {
        "logs": len(rows), "cause": round(right / len(rows), 4), "ranks": f"{rank_right}/{ranked}",
        "false causes on negatives": f"{false}/{negative}", "seconds per log": round(seconds / len(rows), 4),
    }  # fmt: skip
    print(json.dumps(score) if args.json else "\n".join(f"{k:28} {v}" for k, v in score.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
