"""How well does ``gpuready fleet bench`` name slow nodes, and whom does it accuse wrongly? Simulated figures, the real weighing.

A figure scatters from try to try, and nodes differ for good by a little; one node may be slower by some percent. Only
nodes that the weighing asks for are measured again, as in a run. Writes how many of the slow were named, how many
others were accused in a run, and what the run cost in measurements.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "src"))

from gpuready.fleet import outliers  # noqa: E402

CASES: dict[str, tuple[int, dict[str, object]]] = {
    "3 % scatter, none slow": (200, {"scatter": 0.03}),
    "3 % scatter, one 8 % slower": (200, {"scatter": 0.03, "slow": 0.08}),
    "2 % scatter, one 8 % slower": (100, {"scatter": 0.02, "slow": 0.08}),
    "1 % scatter, one 8 % slower": (100, {"scatter": 0.01, "slow": 0.08}),
    "2 % scatter and 2 % lasting, none slow": (300, {"scatter": 0.02, "lasting": 0.02}),
    "2 % scatter and 2 % lasting, one 15 % slower": (100, {"scatter": 0.02, "lasting": 0.02, "slow": 0.15}),
    "1 % scatter and 3 % lasting, none slow": (200, {"scatter": 0.01, "lasting": 0.03}),
    "3 % scatter and 1 % lasting, none slow": (200, {"scatter": 0.03, "lasting": 0.01}),
    "3 % lasting, none slow": (200, {"scatter": 0.001, "lasting": 0.03}),
    "scatter with heavy tails, none slow": (200, {"scatter": 0.02, "tails": True}),
    "1 % scatter, eight GPUs each, one GPU 8 % slower": (20, {"scatter": 0.01, "gpus": 8, "slow": 0.08}),
    "64 nodes, 3 % scatter, one 8 % slower": (300, {"nodes": 64, "scatter": 0.03, "slow": 0.08}),
    "64 nodes, 3 % scatter and 1 % lasting, none slow": (1000, {"nodes": 64, "scatter": 0.03, "lasting": 0.01}),
    "300 nodes, 3 % scatter, one 8 % slower": (200, {"nodes": 300, "scatter": 0.03, "slow": 0.08}),
    "64 nodes, 2 % scatter and 2 % lasting, none slow": (1000, {"nodes": 64, "scatter": 0.02, "lasting": 0.02}),
    "16 nodes, 2 % scatter and 2 % lasting, none slow": (2000, {"nodes": 16, "scatter": 0.02, "lasting": 0.02}),
}


def run(
    draw: str,
    nodes: int = 1000,
    gpus: int = 1,
    scatter: float = 0.03,
    lasting: float = 0.0,
    slow: float = 0.0,
    tails: bool = False,
) -> dict[str, int]:
    """One bench of a fleet. Whether the slow one was named, and how many others were."""
    dice = random.Random(f"figures of {draw}")
    entities = [(f"n{at:05d}", gpu if gpus > 1 else None) for at in range(nodes) for gpu in range(gpus)]
    own = {entity: 700.0 * (1 + dice.gauss(0, lasting)) for entity in entities}
    bad = dice.choice(entities)
    own[bad] *= 1 - slow
    peers = dict.fromkeys((name for name, _ in entities), "all")

    def noise() -> float:
        wide = scatter * (3 if tails and dice.random() < 0.1 else 1)
        return dice.gauss(1, wide)

    tries = {"gemm": {entity: {1: own[entity] * noise()} for entity in entities}}
    measured = nodes
    for attempt in range(2, outliers.MAX_TRIES + 1):
        weighed = outliers.find_outliers(tries, peers)
        for entity in entities if weighed.measure_again else ():
            if entity[0] in weighed.measure_again:
                tries["gemm"][entity][attempt] = own[entity] * noise()
        measured += len(weighed.measure_again)
    accused = {(one.node, one.gpu) for one in outliers.find_outliers(tries, peers).outliers}
    found = bool(slow) and bad in accused
    return {
        "slow": int(slow > 0),
        "found": int(found),
        "false": len(accused - ({bad} if slow else set())),
        "measured": measured,
    }


def case(name: str, runs: int, options: dict[str, object], draw: str) -> dict[str, object]:
    begun = time.process_time()
    rows = [run(f"{draw} {name} {at}", **options) for at in range(runs)]  # type: ignore[arg-type]
    total = {key: sum(row[key] for row in rows) for key in rows[0]}
    nodes = int(str(options.get("nodes", 1000)))
    settings: dict[str, object] = {"case": name, "runs": runs}
    if total["slow"]:
        settings["recall"] = round(total["found"] / total["slow"], 4)
    settings["false_a_run"] = round(total["false"] / runs, 4)
    settings["false_per_1000_nodes"] = round(total["false"] / runs / nodes * 1000, 4)
    settings["measurements_a_node"] = round(total["measured"] / runs / nodes, 2)
    return settings | {"cpu_seconds_a_run": round((time.process_time() - begun) / runs, 3)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", type=float, default=1.0, help="this share of the runs of each case")
    parser.add_argument("--draw", default="held out", help="another word draws other figures")
    parser.add_argument("--cases", default="", help="only the cases whose names contain this")
    parser.add_argument("--note", default="")
    parser.add_argument("--to", default=str(HERE / "results" / "fleet-outliers.json"))
    args = parser.parse_args()
    rows = []
    for name, (runs, options) in CASES.items():
        if args.cases in name:
            rows.append(case(name, max(int(runs * args.share), 1), options, args.draw))
            print(rows[-1], flush=True)
    result = {
        "command": "python benchmarks/fleet_outliers.py",
        "date": time.strftime("%Y-%m-%d"),
        "hardware": f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}",
        "note": args.note,
        "draw": args.draw,
        "nodes": "1,000 unless the case says otherwise",
        "rows": rows,
    }
    Path(args.to).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
