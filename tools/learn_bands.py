"""Write the bands of ``catalog/bands.toml`` from the records in ``benchmarks/results/bench-*.json``.

The rule, for each GPU and measure: the margin is 5 %, or twice the largest spread between two passes of one run or between two runs,
whichever is more, and at most 15 %. The band is from the least pass of all records less the margin to the greatest plus it. Measures
that depend on the host more than on the GPU (launches, disks, the CPU) have no band. ``--check`` writes nothing and exits with 1 where
the file is not what the records give. Run ``tools/compile_catalog.py`` afterwards.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BANDS = ROOT / "src" / "gpuready" / "catalog" / "bands.toml"
RECORDS = ROOT / "benchmarks" / "results"
MARK = "# bands: written by tools/learn_bands.py\n"
LEAST, MOST = 0.05, 0.15
GROUPS = ("compute", "memory", "held", "transfer", "peers", "collective")


def passes(records: Path = RECORDS) -> dict[tuple[str, str], list[tuple[str, list[float]]]]:
    """By GPU and measure: the file and the passes of every run."""
    found: dict[tuple[str, str], list[tuple[str, list[float]]]] = {}
    for path in sorted(records.glob("bench-*.json")):
        data = json.loads(path.read_text(encoding="utf-8"))
        for run in data.get("runs", []):
            for row in run["measures"]:
                if (
                    row["verdict"] in ("as-expected", "undecided", "noisy", "measured")
                    and row["passes"]
                    and row["device"].startswith("GPU")
                ):
                    found.setdefault((_gpu(run, row["device"]), row["name"]), []).append((path.name, row["passes"]))
    return found


def _gpu(run: dict[str, Any], device: str) -> str:
    """The name of the GPU that a row is of."""
    names = run["hardware"]["gpu.name"]
    index = device.removeprefix("GPU").strip("s ")
    return str(names[int(index)] if index else names[0])


def bands(records: Path = RECORDS) -> list[dict[str, Any]]:
    groups = {kind["name"]: kind["group"] for kind in _measures()}
    rows = []
    for (gpu, measure), runs in sorted(passes(records).items()):
        if groups.get(measure) in GROUPS:
            rows.append({"gpu": gpu, "measure": measure, **band([values for _, values in runs])} | _cited(runs))
    return rows


def band(runs: list[list[float]]) -> dict[str, float]:
    """The rule."""
    every = [value for run in runs for value in run]
    apart = (max(every) - min(every)) / max(every)
    margin = min(MOST, max(LEAST, 2 * apart))
    return {"low": _three(min(every) * (1 - margin)), "high": _three(max(every) * (1 + margin))}


def _cited(runs: list[tuple[str, list[float]]]) -> dict[str, Any]:
    files = sorted({name for name, _ in runs})
    return {"records": len(runs), "source": ", ".join(f"benchmarks/results/{name}" for name in files)}


def _three(value: float) -> float:
    return float(f"{value:.3g}")


def _measures() -> list[dict[str, Any]]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    found: list[dict[str, Any]] = tomllib.loads(BANDS.read_text(encoding="utf-8"))["measure"]
    return found


def text(rows: list[dict[str, Any]], before: str, records: Path = RECORDS) -> str:
    """The whole file: what people wrote, with the places where a measure was executed, and the bands."""
    head = before.partition(MARK)[0]
    lines = [
        f"\n[[band]]\n{''.join(f'{key} = {_toml(value)}' + chr(10) for key, value in row.items())}" for row in rows
    ]
    return _executed(head, records) + MARK + "".join(lines)


def _executed(head: str, records: Path) -> str:
    """``executed = "h200"`` in the block of each measure of which bench-h200.json has a number."""
    where = {measure: runs[0][0] for (_, measure), runs in passes(records).items()}
    blocks = head.split("[[measure]]\n")
    for i, block in enumerate(blocks[1:], 1):
        name = block.partition('name = "')[2].partition('"')[0]
        if name in where and "\nexecuted = " not in block:
            machine = where[name].removeprefix("bench-").removesuffix(".json").partition("-")[0]
            blocks[i] = block.replace("\nsource = ", f'\nexecuted = "{machine}"\nsource = ', 1)
    return "[[measure]]\n".join(blocks)


def _toml(value: Any) -> str:
    return json.dumps(value) if isinstance(value, str) else f"{value:g}" if isinstance(value, float) else str(value)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 where stale")
    before = BANDS.read_text(encoding="utf-8")
    wanted = text(bands(), before)
    if parser.parse_args().check:
        print("fresh" if wanted == before else "stale: src/gpuready/catalog/bands.toml")
        return 0 if wanted == before else 1
    if wanted != before:
        BANDS.write_text(wanted, encoding="utf-8")
    print(f"{wanted.count('[[band]]')} bands" + ("" if wanted != before else ", as before"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
