"""Do check, plan, fix and the Dockerfile of a plan agree? Seeded draws of machines and of broken environments.

    python benchmarks/agreement_draws.py [--draws 20000] [--seed 7] [-o FILE]

Three quarters are machines, a quarter are environments that are broken and fixed. Exit 1 where anything disagrees.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import sys
import time
from pathlib import Path

HOME = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(HOME), str(HOME / "src")]

from tests.plan import agreement  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--draws", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("-o", metavar="FILE")
    told = parser.parse_args()
    counts: dict[str, int] = {}
    against: list[str] = []
    began, dice = time.process_time(), random.Random(told.seed)

    def count(kind: str, verdict: str, found: list[str], words: str) -> None:
        counts[f"{kind}: {verdict}"] = counts.get(f"{kind}: {verdict}", 0) + 1
        against.extend(f"{words}: {one}" for one in found)

    for draw in agreement.draws(told.draws * 3 // 4, told.seed):
        count("machine", *agreement.contradictions(draw), str(draw))
    for number in range(told.draws - told.draws * 3 // 4):
        count("environment", *agreement.fix_contradictions(dice), f"environment {number}")
    result = {
        "date": time.strftime("%Y-%m-%d"), "hardware": f"{platform.machine()}, {platform.system()}",
        "command": f"python benchmarks/agreement_draws.py --draws {told.draws} --seed {told.seed}",
        "draws": told.draws, "verdicts": counts, "disagreements": against,
        "cpu_seconds": round(time.process_time() - began, 1),
    }  # fmt: skip
    print(json.dumps(result, indent=2))
    if told.o:
        Path(told.o).write_text(json.dumps(result, indent=2) + "\n")
    return 1 if against else 0


if __name__ == "__main__":
    sys.exit(main())
