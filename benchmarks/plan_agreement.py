"""Do the planner and the rules agree on every kind of machine? A plan must pass the rules, and what is impossible must
stay so when every torch build and every Python is tried one by one.

    python benchmarks/plan_agreement.py [-o FILE]        the whole product (about half an hour)
    python benchmarks/plan_agreement.py --sample 5000    as many of it, at random
"""

from __future__ import annotations

import argparse
import itertools
import json
import platform
import random
import sys
import time
from pathlib import Path

HOME = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(HOME), str(HOME / "src")]

from tests.plan import test_properties as tried  # noqa: E402

PYTHONS = (None, "3.9", "3.10", "3.11", "3.12", "3.13", "3.14")


def cases():
    """Every contract on one GPU of each capability and host, with every driver, system and Python."""
    cards = {}
    for card in tried.cards():
        row = tried.gpus.find_gpu(card)
        cards.setdefault((row["compute_capability"], row.get("host", "x86_64")), card)
    return list(itertools.product(tried.CONTRACTS, cards.values(), tried.DRIVERS, tried.SYSTEMS, PYTHONS))


def disagreement(case) -> tuple[str, str]:
    """The verdict, and what the rules hold against it."""
    contract, card, driver, system, python = case
    facts = tried.machine(card, driver, system, python)
    found = tried.choose_plan(facts, [contract], tried.PlanRequest(python=python or ""))
    if found.verdict == "plan":
        version, _, variant = found.torch.partition("+")
        build = tried.torch.find_torch_build(version, variant, facts.value_if_known("os.arch"))
        return "plan", " ".join(tried.errors(tried.environment(facts, build, found.python, contract), contract))
    if any("which no version is" in c.says or "catalogue has no torch" in c.says for c in found.conflicts):
        return "impossible by its own pins", ""
    return "impossible", tried.possible(facts, contract, (python,) if python else tried.PYTHONS) or ""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sample", type=int, default=0)
    parser.add_argument("-o", metavar="FILE")
    args = parser.parse_args()
    every = cases()
    chosen = random.Random(1).sample(every, min(args.sample, len(every))) if args.sample else every
    counts: dict[str, int] = {}
    against = []
    began = time.perf_counter()
    for case in chosen:
        verdict, why = disagreement(case)
        counts[verdict] = counts.get(verdict, 0) + 1
        if why:
            against.append(f"{tried.ident(case)}: {verdict}, but {why}")
            print(against[-1])
    result = {
        "date": time.strftime("%Y-%m-%d"), "hardware": f"{platform.machine()}, {platform.system()}",
        "command": "python benchmarks/plan_agreement.py" + (f" --sample {args.sample}" if args.sample else ""),
        "cases": len(chosen), "of": len(every), "verdicts": counts, "disagreements": against,
        "seconds": round(time.perf_counter() - began, 1),
    }  # fmt: skip
    print(json.dumps(result, indent=2))
    if args.o:
        Path(args.o).write_text(json.dumps(result, indent=2) + "\n")
    return 1 if against else 0


if __name__ == "__main__":
    sys.exit(main())
