"""Does `gpuready bench` find the best shape, does it repeat itself, and how long does it take? Run it on a machine with a GPU.

    PYTHONPATH=src python benchmarks/bench_h200.py --python PATIENT [--out FILE] [--once]

Two whole runs of `gpuready bench` and a quick one, as a user starts them; between them every shape of benchmarks/bench_grid.json in every
precision, by the same clock. The best of the grid and the shapes that bench has found are then measured again in turns, so that clocks
and heat meet them alike. At last the same grid in bfloat16 as mamf-finder goes through it (50 turns to warm up, 100 that count, the
fastest taken), for the time that this takes. What there is of a GPU is named in the result; nothing is judged here.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from datetime import date
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = ROOT / "src" / "gpuready" / "prove" / "scripts"
GRID = ROOT / "benchmarks" / "bench_grid.json"
TURNS = {"warm": 50, "counted": 100}
EACH, PAIRED, ROUNDS = 0.01, 0.03, 5


def bench(python: str, *flags: str) -> dict[str, Any]:
    """One run of the command, by the clock of the one who waits for it."""
    words = [sys.executable, "-m", "gpuready", "bench", "--python", python, "--json", *flags]
    begun = time.monotonic()
    done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT / "src")})
    seconds = time.monotonic() - begun
    if done.returncode not in (0, 1, 3):
        raise SystemExit(f"{' '.join(words)}: exit {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    document = json.loads(done.stdout)
    report = document.pop("report")
    kept = {key: report[key] for key in ("verdict", "findings", "undecided")}
    samples = [fact["value"] for fact in report["facts"] if fact["key"] == "bench.samples"]
    return document | {"wall_s": round(seconds, 2), "report": kept, "samples": samples[0] if samples else []}


def shapes_of(*runs: dict[str, Any]) -> dict[str, list[list[int]]]:
    """The shapes that bench took, by precision."""
    found: dict[str, list[list[int]]] = {}
    for run in runs:
        for row in run["measures"]:
            if row["name"].startswith("matmul-") and " x " in row["at"]:
                shape = [int(side) for side in row["at"].split(" x ")]
                found.setdefault(row["name"].partition("-")[2], []).append(shape)
    return found


# -- in the patient -----------------------------------------------------------------------------------------------


def work(asked: dict[str, Any]) -> None:
    """Measure the grid; writes what is known after every precision."""
    sys.path.append(str(SCRIPTS))
    import torch
    from bench_matmul import CannotHere, Multiply

    device = torch.device(asked["device"])
    settings: dict[str, Any] = {"torch": torch.__version__, "gpu": _name(torch, device), "grid": {}}
    for precision in asked["precisions"]:
        try:
            multiply = Multiply(torch, device, precision)
        except CannotHere as cannot:
            settings["grid"][precision] = {"cannot": str(cannot)}
            continue
        settings["grid"][precision] = _grid(multiply, asked["shapes"], asked["found"].get(precision, []))
        multiply.pool = None
        Path(asked["out"]).write_text(json.dumps(settings))
    settings["mamf"] = _mamf(Multiply(torch, device, "bf16"), asked["shapes"])
    Path(asked["out"]).write_text(json.dumps(settings))


def _name(torch: Any, device: Any) -> str:
    return str(torch.cuda.get_device_name(device)) if device.type == "cuda" else "no GPU"


def _grid(multiply: Any, shapes: list[list[int]], found: list[list[int]]) -> dict[str, Any]:
    begun = time.perf_counter()
    multiply.rate(tuple(shapes[0]), EACH, 0.1)
    rates = {tuple(shape): multiply.rate(tuple(shape), EACH) for shape in shapes}
    seconds = time.perf_counter() - begun
    known = {shape: rate[0] for shape, rate in rates.items() if rate}
    top = sorted(known, key=lambda shape: -known[shape])[:3]
    rivals = list(dict.fromkeys([*top, *(tuple(shape) for shape in found)]))
    again: dict[tuple[int, ...], list[float]] = {shape: [] for shape in rivals}
    for _ in range(ROUNDS):
        for shape in rivals:
            rate = multiply.rate(shape, PAIRED, 0.01)
            again[shape] += [rate[0]] if rate else []
    return {
        "seconds": round(seconds, 2),
        "shapes": len(known),
        "best": {"shape": list(top[0]), "rate": known[top[0]]},
        "rates": [[*shape, rate] for shape, rate in known.items()],
        "again": [{"shape": list(shape), "rates": values} for shape, values in again.items()],
    }


def _mamf(multiply: Any, shapes: list[list[int]]) -> dict[str, Any]:
    """The grid as mamf-finder goes through it: every shape, 50 turns to warm up and 100 that count."""
    begun, best = time.perf_counter(), (0.0, [0, 0, 0])
    for shape in shapes:
        if shape[2] * (shape[0] + shape[1]) > multiply.pool.numel():
            continue
        turn = multiply._work(tuple(shape))
        multiply.clock.times(turn, TURNS["warm"])
        fastest = min(multiply.clock.times(turn, TURNS["counted"]))
        best = max(best, (2.0 * shape[0] * shape[1] * shape[2] / fastest, shape))
    seconds = time.perf_counter() - begun
    return {"seconds": round(seconds, 2), "shapes": len(shapes), "fastest_turn": best[0], "shape": best[1], **TURNS}


# -- the answer -----------------------------------------------------------------------------------------------------


def middle(values: list[float]) -> float:
    ordered = sorted(values)
    return ordered[len(ordered) // 2] if ordered else 0.0


def against(run: dict[str, Any], grid: dict[str, Any]) -> dict[str, Any]:
    """What one run of bench found, beside the best of the grid: as told, and measured again in turns."""
    rows = {}
    for row in run["measures"]:
        precision = row["name"].partition("-")[2]
        outcome = grid.get(precision, {})
        if not row["name"].startswith("matmul-") or "best" not in outcome or not row["value"]:
            continue
        again = {tuple(one["shape"]): middle(one["rates"]) for one in outcome["again"]}
        mine = again.get(tuple(int(side) for side in row["at"].split(" x ")), 0.0)
        listed = [again[tuple(one["shape"])] for one in outcome["again"][:3]]
        rows[precision] = {
            "bench_rate": row["value"],
            "bench_shape": row["at"],
            "tried": row["tried"],
            "bench_s": row["seconds"],
            "grid_rate": outcome["best"]["rate"],
            "grid_shape": " x ".join(map(str, outcome["best"]["shape"])),
            "grid_s": outcome["seconds"],
            "of_grid": round(row["value"] / outcome["best"]["rate"], 4),
            "of_grid_in_turns": round(mine / max(listed), 4) if mine and max(listed) else None,
        }
    return rows


def differences(first: dict[str, Any], second: dict[str, Any]) -> dict[str, dict[str, float]]:
    """How far two runs lie apart, and the passes inside each."""
    other = {(row["name"], row["device"], row["at"] if "rank" in row["at"] else ""): row for row in second["measures"]}
    found = {}
    for row in first["measures"]:
        twin = other.get((row["name"], row["device"], row["at"] if "rank" in row["at"] else ""))
        if twin and row["value"] and twin["value"]:
            apart = abs(row["value"] - twin["value"]) / max(row["value"], twin["value"])
            found[row["name"]] = {
                "first": row["value"],
                "second": twin["value"],
                "apart": round(apart, 4),
                "within": [row["spread"], twin["spread"]],
            }
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--python", default=sys.executable, help="the patient: a Python with torch")
    parser.add_argument("--out", default="", help="where the result goes; stdout without it")
    parser.add_argument("--device", default="cuda:0", help="where the grid is measured; cpu only to try the script")
    parser.add_argument("--grid", default=str(GRID), help="another grid, to try the script")
    parser.add_argument("--once", action="store_true", help="one whole run of bench as a record, and no grid")
    parser.add_argument("--work", default="", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.work:
        work(json.loads(Path(args.work).read_text()))
        return 0
    begun = time.monotonic()
    first = bench(args.python)
    if args.once:
        return _once(first, args)
    grid = json.loads(Path(args.grid).read_text())
    outcome = _worked(args.python, grid | {"device": args.device}, shapes_of(first))
    second, quick = bench(args.python), bench(args.python, "--quick")
    result = {
        "what": "gpuready bench against every shape of a grid, against itself, and against the clock",
        "date": date.today().isoformat(),
        "hardware": first["hardware"] | {"gpu": outcome["gpu"], "torch": outcome["torch"]},
        "command": f"python benchmarks/bench_h200.py --python {args.python}",
        "against_grid": {"first": against(first, outcome["grid"]), "second_as_told": against(second, outcome["grid"])},
        "repeatability": differences(first, second),
        "seconds": {
            "whole": [first["wall_s"], second["wall_s"]],
            "quick": quick["wall_s"],
            "mamf_like_bf16": outcome["mamf"]["seconds"],
            "all": round(time.monotonic() - begun, 1),
        },
        "mamf_like": outcome["mamf"],
        "runs": [first, second],
        "quick": quick,
        "grid": outcome["grid"],
    }
    text = json.dumps(result, indent=1) + "\n"
    if args.out:
        Path(args.out).write_text(text)
    print(
        text
        if not args.out
        else json.dumps({k: result[k] for k in ("against_grid", "repeatability", "seconds")}, indent=1)
    )
    return 0


def _once(run: dict[str, Any], args: argparse.Namespace) -> int:
    """A record of one run alone: another witness for the bands."""
    whole = {
        "what": "one whole run of gpuready bench",
        "date": date.today().isoformat(),
        "hardware": run["hardware"],
        "command": f"python benchmarks/bench_h200.py --once --python {args.python}",
        "runs": [run],
    }
    text = json.dumps(whole, indent=1) + "\n"
    if args.out:
        Path(args.out).write_text(text)
    short = [{k: row[k] for k in ("name", "value", "passes", "verdict", "at")} for row in run["measures"]]
    print(text if not args.out else json.dumps(short, indent=1))
    return 0


def _worked(python: str, grid: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        task, out = Path(folder) / "task.json", Path(folder) / "told.json"
        task.write_text(json.dumps(grid | {"found": found, "out": str(out)}))
        done = subprocess.run([python, __file__, "--work", str(task)], capture_output=True, text=True)
        if done.returncode or not out.exists():
            raise SystemExit(f"the grid: exit {done.returncode}\n{done.stderr[-3000:]}")
        document: dict[str, Any] = json.loads(out.read_text())
        return document


if __name__ == "__main__":
    sys.exit(main())
