"""What a fleet costs its controller: simulated nodes, real code from their facts to the rendered report.

Each size runs in a process of its own. Every node's answer is made by the code that runs on a node (areas, hashes, one
line of JSON) from the facts of the recorded H200 machine; 1 % of the nodes are dead, 1 % never answer, 0.5 % have another
driver and a few differ otherwise. So the time and the memory include the nodes' own work, one after the other: the
controller alone takes less. Writes JSON and a plot.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
SRC = HERE.parent / "src"
SIZES = (100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)
LIMITS = {1_000: 30, 10_000: 60, 100_000: 180}


def one(count: int) -> dict[str, object]:
    """One fleet, from asking to the text of the report."""
    from simulated_fleet import SimulatedTransport

    from gpuready.fleet import drift, verdict
    from gpuready.fleet.answer_collector import AnswerCollector
    from gpuready.fleet.peers import assign_peers
    from gpuready.model import Fact, Facts
    from gpuready.render import fleet as render
    from gpuready.render.layout import Screen
    from gpuready.workflow.fleet import judge_fleet

    recorded = json.loads((HERE.parent / "tests" / "machines" / "h200.json").read_text())
    facts = Facts([Fact.from_json(row) for row in recorded["facts"]], "h200").with_facts(Fact("gpu.count", 8))
    names = [f"n{at:06d}" for at in range(1, count + 1)]
    odd: dict[str, dict[str, object]] = {name: {"driver.version": "550.54.15"} for name in names[5::200]}
    odd[names[7]] = {"gpu.count": 7}
    odd[names[11]] = {"system.shm": 64 << 20}
    transport = SimulatedTransport(names, facts, odd, dead=names[::100], hung=names[50::100])
    own, make = [0.0], transport._answer_body

    def timed(name: str, request: dict[str, object]) -> str:
        at = time.thread_time()
        body = make(name, request)
        own[0] += time.thread_time() - at
        return body

    transport._answer_body = timed  # type: ignore[method-assign]
    begun, cpu = time.perf_counter(), time.process_time()
    gather = AnswerCollector(transport.list_nodes(), "bench")
    transport.ask_nodes(gather.list_unanswered(), {"do": "check", "token": "bench"}, 10, gather.add_answer)
    heard = time.perf_counter()
    peers_of = assign_peers(gather.nodes, gather.records)
    differ = drift.find_area_differences(gather.records, peers_of)
    for node, keys in drift.plan_detail_requests(differ, gather.details).items():
        request = {"do": "details", "token": "bench", "keys": keys}
        transport.ask_nodes([gather.nodes[node]], request, 10, gather.add_answer)
    pieces = verdict.FleetEvidence(gather, peers_of, differ, drift.explain_differences(differ, gather.details))
    report = verdict.build_fleet_report(
        pieces, lambda known: judge_fleet(known, False), did="check", transport="simulated"
    )
    text = render.render_fleet_screen(report, Screen(80))
    ended = time.perf_counter()
    assert "550.54.15" in text and report.verdict == "not-ready"
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "nodes": count,
        "seconds": round(ended - begun, 2),
        "judging_seconds": round(ended - heard, 2),
        "cpu_seconds": round(time.process_time() - cpu, 2),
        "cpu_seconds_of_the_nodes": round(own[0], 2),
        "peak_mib": round(peak, 1),
        "bytes_a_node": len(make(names[1], {"do": "check", "token": "bench"})),
        "asked_for_details": transport.asked_count - count,
        "codes": [finding.code for finding in report.findings],
    }


def plot(rows: list[dict[str, object]]) -> str:
    """Seconds and memory over the number of nodes, both axes logarithmic."""
    from math import log10

    wide, high, left, low = 640, 400, 60, 350

    def x(nodes: float) -> float:
        return left + (log10(nodes) - 2) / 3 * 520

    def y(value: float) -> float:
        return low - (log10(max(value, 0.01)) + 2) / 5 * 310

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" font-family="sans-serif" font-size="12">',
        f'<rect width="{wide}" height="{high}" fill="#fff"/>',
        '<text x="60" y="24" font-size="14">gpuready fleet check, simulated nodes: whole run in one process</text>',
    ]
    for power in range(2, 6):
        at = x(10**power)
        parts.append(f'<path d="M{at:.0f} 40V{low}" stroke="#ddd"/>')
        parts.append(f'<text x="{at:.0f}" y="{low + 18}" text-anchor="middle">{10**power:,}</text>')
    for power in range(-2, 4):
        at = y(10.0**power)
        parts.append(f'<path d="M{left} {at:.0f}H580" stroke="#ddd"/>')
        parts.append(f'<text x="{left - 6}" y="{at + 4:.0f}" text-anchor="end">{10.0**power:g}</text>')
    for key, colour, label in (("seconds", "#1565c0", "seconds"), ("peak_mib", "#c62828", "peak memory, MiB")):
        points = [(x(row["nodes"]), y(row[key])) for row in rows]  # type: ignore[arg-type]
        parts.append(
            f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{" ".join(f"{a:.1f},{b:.1f}" for a, b in points)}"/>'
        )
        parts += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" fill="{colour}"/>' for a, b in points]
        parts.append(
            f'<text x="{points[-1][0] - 8:.0f}" y="{points[-1][1] - 10:.0f}" fill="{colour}" text-anchor="end">{label}</text>'
        )
    for nodes, seconds in LIMITS.items():
        parts.append(f'<path d="M{x(nodes) - 14:.0f} {y(seconds):.0f}h28" stroke="#1565c0" stroke-dasharray="4 3"/>')
    parts.append(
        f'<text x="320" y="{low + 38}" text-anchor="middle">nodes (dashes: the most seconds allowed)</text></svg>'
    )
    return "\n".join(parts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--one", type=int, help="one size, as JSON on stdout")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--note", default="")
    parser.add_argument("--to", default=str(HERE / "results" / "fleet-scale-2core"))
    args = parser.parse_args()
    if args.one:
        print(json.dumps(one(args.one)))
        return
    rows = []
    for size in map(int, args.sizes.split(",")):
        env = {**os.environ, "PYTHONPATH": f"{SRC}:{HERE.parent}"}
        ran = subprocess.run(
            [sys.executable, __file__, "--one", str(size)], env=env, capture_output=True, text=True, check=True
        )
        rows.append(json.loads(ran.stdout))
        print(rows[-1], flush=True)
    first = next((row for row in rows if row["nodes"] >= 1000), rows[0])
    growth = rows[-1]["cpu_seconds"] / first["cpu_seconds"] / (rows[-1]["nodes"] / first["nodes"])
    result = {
        "command": "python benchmarks/fleet_scale.py",
        "date": time.strftime("%Y-%m-%d"),
        "hardware": f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}",
        "note": args.note,
        "load_average": [round(one, 1) for one in os.getloadavg()],
        "limits_seconds": LIMITS,
        "growth": round(growth, 3),
        "growth_says": "CPU seconds a node at the largest size over those at 1,000 nodes: 1 is linear",
        "rows": rows,
    }
    Path(f"{args.to}.json").write_text(json.dumps(result, indent=1) + "\n")
    Path(f"{args.to}.svg").write_text(plot(rows))


if __name__ == "__main__":
    main()
