"""How well does ``gpuready fleet bisect`` find the bad node or link? Simulated fleets, the real schedule and inference.

Faults spoil a pair with a given probability each time; links likewise. A link can only be found
when its two nodes meet, so links are drawn among the pairs of the first round; in a fleet of eight everybody meets
everybody. On a busy fleet pairs end by their time limit, whoever is in them. Writes the recall, the false accusations in a run and the rounds that were needed.
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

from gpuready.fleet.pair_search import PairSearch  # noqa: E402
from gpuready.model.fleet import FAILED, PASSED, SLOW, NodePair  # noqa: E402

CASES = {
    "hard, 1 bad, after 3 rounds": (100, {"bad": 1, "after": 3}),
    "hard, 5 bad, after 3 rounds": (100, {"bad": 5, "after": 3}),
    "hard, 50 bad, after 3 rounds": (60, {"bad": 50, "after": 3}),
    "hard, 250 bad, after 3 rounds": (20, {"bad": 250, "after": 3}),
    "hard, 5 bad, to the end": (60, {"bad": 5}),
    "none bad": (100, {"bad": 0}),
    "none bad, 1 in 10,000 pairs fails by chance": (60, {"bad": 0, "chance": 1e-4}),
    "70 %, 1 bad": (200, {"bad": 1, "shows": 0.7}),
    "70 %, 5 bad": (100, {"bad": 5, "shows": 0.7}),
    "70 %, 50 bad": (20, {"bad": 50, "shows": 0.7}),
    "40 %, 5 bad": (60, {"bad": 5, "shows": 0.4}),
    "40 %, 50 bad": (20, {"bad": 50, "shows": 0.4}),
    "3 links and 2 bad": (60, {"bad": 2, "links": 3}),
    "3 links that show 70 %": (60, {"bad": 0, "links": 3, "link_shows": 0.7}),
    "8 nodes, 1 bad": (200, {"nodes": 8, "bad": 1}),
    "8 nodes, 1 bad, 70 %": (200, {"nodes": 8, "bad": 1, "shows": 0.7}),
    "8 nodes, 1 link": (200, {"nodes": 8, "bad": 0, "links": 1}),
    "8 nodes, 1 link and 1 bad": (200, {"nodes": 8, "bad": 1, "links": 1}),
    "busy, none bad, 1 in 50 pairs fails by chance": (20, {"bad": 0, "chance": 0.02}),
    "busy, none bad, 1 in 5 pairs is not done in time": (20, {"bad": 0, "late": 0.2}),
    "busy, 5 bad, 1 in 5 pairs is not done in time": (20, {"bad": 5, "late": 0.2}),
    "busy, 16 nodes, 1 bad, 2 in 5 pairs are not done in time": (100, {"nodes": 16, "bad": 1, "late": 0.4}),
    "busy, 8 nodes, none bad, 2 in 5 pairs are not done in time": (100, {"nodes": 8, "bad": 0, "late": 0.4}),
}


class World:
    """A fleet with faults that are known to us and not to the search."""

    def __init__(
        self, start: object, nodes: int, bad: int, shows: float, link_shows: float, chance: float, late: float
    ):
        self.dice = random.Random(f"the world of {start}")
        self.names = [f"n{at:05d}" for at in range(nodes)]
        self.bad = set(self.dice.sample(self.names, bad))
        self.links: set[tuple[str, str]] = set()
        self.shows, self.link_shows, self.chance, self.late = shows, link_shows, chance, late

    def outcome(self, one: str, other: str) -> str:
        dice = self.dice.random
        if self.late and dice() < self.late:
            return SLOW
        failed = any(name in self.bad and dice() < self.shows for name in (one, other))
        failed |= tuple(sorted((one, other))) in self.links and dice() < self.link_shows
        return FAILED if failed or (self.chance and dice() < self.chance) else PASSED


def run(
    start: object,
    nodes: int = 1000,
    bad: int = 0,
    shows: float = 1.0,
    links: int = 0,
    link_shows: float = 1.0,
    after: int = 0,
    chance: float = 0.0,
    late: float = 0.0,
) -> dict[str, int]:
    """One search. How many of each were found, and how many were accused that are not bad."""
    world = World(start, nodes, bad, shows, link_shows, chance, late)
    search = PairSearch(world.names, start=random.Random(f"the search of {start}").getrandbits(32))
    while pairs := search.next_round():
        if links and not world.links:
            sound = [tuple(sorted(pair)) for pair in pairs if not world.bad.intersection(pair)]
            world.links = {(a, b) for a, b in sound[:links]}
        for one, other in pairs:
            search.add_outcome(NodePair(one, other, search.round_number, world.outcome(one, other)))
        if search.round_number == after:
            break
    found = [one for one in search.list_suspects() if one.confirmed]
    accused = {one.names[0] for one in found if one.kind == "node"}
    linked = {one.names for one in found if one.kind == "link"}
    return {
        "bad": bad, "found": len(accused & world.bad), "false_nodes": len(accused - world.bad),
        "links": len(world.links), "found_links": len(linked & world.links), "false_links": len(linked - world.links),
        "rounds": search.round_number,
    }  # fmt: skip


def case(name: str, runs: int, options: dict[str, object], draw: str) -> dict[str, object]:
    begun = time.process_time()
    rows = [run(f"{draw} {name} {at}", **options) for at in range(runs)]  # type: ignore[arg-type]
    total = {key: sum(row[key] for row in rows) for key in rows[0]}
    settings: dict[str, object] = {"case": name, "runs": runs}
    for what, found in (("bad", "found"), ("links", "found_links")):
        if total[what]:
            settings[f"recall_{what}"] = round(total[found] / total[what], 4)
    for key in ("false_nodes", "false_links"):
        settings[f"{key}_a_run"] = round(total[key] / runs, 4)
    settings |= {"rounds": round(total["rounds"] / runs, 2), "most_rounds": max(row["rounds"] for row in rows)}
    return settings | {"cpu_seconds_a_run": round((time.process_time() - begun) / runs, 3)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", type=float, default=1.0, help="this share of the runs of each case")
    parser.add_argument("--draw", default="afterwards", help="another word draws other fleets and other faults")
    parser.add_argument("--cases", default="", help="only the cases whose names contain this")
    parser.add_argument("--note", default="")
    parser.add_argument("--to", default=str(HERE / "results" / "fleet-search.json"))
    args = parser.parse_args()
    rows = []
    for name, (runs, options) in CASES.items():
        if args.cases not in name:
            continue
        rows.append(case(name, max(int(runs * args.share), 1), options, args.draw))
        print(rows[-1], flush=True)
    result = {
        "command": "python benchmarks/fleet_search.py",
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
