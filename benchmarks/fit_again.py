"""The kept exams of ``gpuready fit`` scored again: what was said blind before the GPU was asked, and what the code says now.

    python benchmarks/fit_again.py [-o FILE]

The records are benchmarks/results/fit-exam (real runs on one H200). ``now`` has seen them and is no evidence of anything but that
the predictions have not drifted since.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
from datetime import date
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import fit_exam

EXAMS = Path(__file__).resolve().parent / "results" / "fit-exam"


def scored(said: dict[str, Any], rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Errors in percent of every case that ran to its end, and every "fits" that did not fit."""
    plain = [
        row for row in rows if not row.get("cap") and row["status"] == "ok" and "allocated" in said.get(row["id"], {})
    ]
    found: dict[str, Any] = {"cases": len(plain)}
    for kind in ("allocated", "reserved"):
        sizes = [abs(said[row["id"]][kind] / row[kind] - 1) * 100 for row in plain]
        found[kind] = {"median": round(statistics.median(sizes), 4), "worst": round(max(sizes), 3)}
    dead = [row for row in rows if row["status"] != "ok" and row["id"] in said]
    found["false_fits"] = sum(_promised(said[row["id"]], row) for row in dead)
    return found


def _promised(said: dict[str, Any], row: dict[str, Any]) -> bool:
    """Whether a run that died was said to fit."""
    if row.get("cap"):
        return bool(row["says"] == "fits" if "says" in row else row["cap"] >= said.get("minimum", row["cap"] + 1))
    return bool(row["status"] == "oom" and said.get("verdict") == "fits")


def exams() -> dict[str, dict[str, Any]]:
    found = {}
    for path in sorted(EXAMS.glob("*.jsonl")):
        rows = fit_exam.measured_in([str(path)])
        frozen = json.loads((EXAMS / f"{path.stem}-predictions.json").read_text(encoding="utf-8"))
        now = fit_exam.predictions({row["id"] for row in rows})
        found[path.stem] = {
            "predicted": frozen["made"],
            "blind": scored(frozen["cases"], rows),
            "now": scored(now, rows),
        }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("-o", default="")
    args = parser.parse_args()
    result = {
        "date": date.today().isoformat(), "command": "python benchmarks/fit_again.py",
        "hardware": f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}",
        "measured_on": "one NVIDIA H200", "exams": exams(),
    }  # fmt: skip
    text = json.dumps(result, indent=1) + "\n"
    if args.o:
        Path(args.o).write_text(text, encoding="utf-8")
    print(text, end="")


if __name__ == "__main__":
    main()
