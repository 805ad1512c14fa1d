"""Do check, plan, fix and the Dockerfile of a plan agree? Seeded draws of machines and of broken environments.

    python benchmarks/agreement_draws.py [--draws 20000] [--seed 7] [--unusual] [-o FILE]

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
    parser.add_argument(
        "--unusual", action="store_true", help="other vendors, Jetson, MIG, mixed GPUs, musl, Windows, macOS"
    )
    parser.add_argument("-o", metavar="FILE")
    args = parser.parse_args()
    counts: dict[str, int] = {}
    against: list[str] = []
    began, dice = time.process_time(), random.Random(args.seed)
    machines = agreement.draws(args.draws, args.seed, args.unusual)
    for number in range(1, args.draws + 1):
        if number % 4:
            draw = next(machines)
            kind, (verdict, found), words = "machine", agreement.contradictions(draw), str(draw)
        else:
            kind, (verdict, found), words = "environment", agreement.fix_contradictions(dice), f"environment {number}"
        counts[f"{kind}: {verdict}"] = counts.get(f"{kind}: {verdict}", 0) + 1
        against.extend(f"{words}: {one}" for one in found)
        if args.o and (number % 500 == 0 or number == args.draws):  # whoever stops it early has what was drawn so far
            Path(args.o).write_text(json.dumps(summary(args, number, counts, against, began), indent=2) + "\n")
    print(json.dumps(summary(args, args.draws, counts, against, began), indent=2))
    return 1 if against else 0


def summary(reported, number: int, counts: dict[str, int], against: list[str], began: float) -> dict[str, object]:
    return {
        "date": time.strftime("%Y-%m-%d"), "hardware": f"{platform.machine()}, {platform.system()}",
        "command": f"python benchmarks/agreement_draws.py --draws {reported.draws} --seed {reported.seed}{' --unusual' * reported.unusual}",
        "draws": number, "verdicts": counts, "disagreements": against,
        "cpu_seconds": round(time.process_time() - began, 1),
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
