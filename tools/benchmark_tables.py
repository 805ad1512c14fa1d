"""The tables of docs/reference/benchmarks.md, each from one record in benchmarks/results: no figure stands here that is not in a JSON file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent.parent / "benchmarks" / "results"
Record = dict[str, Any]
Rows = list[list[Any]]


def read(name: str) -> Record:
    found: Record = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return found


def here(name: str) -> bool:
    return (RESULTS / f"{name}.json").exists()


def sections(pictures: set[str]) -> str:
    """Every table whose record is there, with what the record says of itself and its plot."""
    parts = []
    for title, names, rows in TABLES:
        found = [name for name in names if here(name)]
        parts += [f"### {title}\n"] if found else []
        for name in found:
            record = read(name)
            picture = f"![{name}](../images/benchmarks/{name}.svg)\n\n" if name in pictures else ""
            parts.append(f"{origin(name, record)}\n\n{picture}{table(rows(record))}")
    return "\n".join(parts)


def origin(name: str, record: Record) -> str:
    """Command, date, hardware and load, so far as the record has them."""
    said = record.get("about", record)
    place = said.get("hardware") or said.get("machine") or ""
    if isinstance(place, dict):
        place = ", ".join(str(place[key]) for key in ("gpu", "driver.version", "torch") if key in place)
    if said.get("measured_on"):
        place = "; ".join(filter(None, [place, f"measured on {said['measured_on']}"]))
    load = said.get("load", said.get("load_before", said.get("load_average", "")))
    load = load[0] if isinstance(load, list) else load
    load = round(load, 1) if isinstance(load, float) else load
    result = [f"`{said['command']}`" if said.get("command") else "", str(said.get("date", "")), str(place)]
    result += [f"load {load}" if load != "" else "", f"`{name}.json`"]
    return "; ".join(one for one in result if one)


def table(rows: Rows) -> str:
    head, *rest = [[cell(one) for one in row] for row in rows]
    lines = [head, ["---"] * len(head), *rest]
    return "\n".join(f"| {' | '.join(row)} |" for row in lines) + "\n"


def cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    if isinstance(value, (list, tuple)):
        return ", ".join(cell(one) for one in value) or "none"
    return str(value).replace("|", "\\|")


def listed(record: Record, key: str = "rows") -> Rows:
    """A list of flat rows as it stands; a field that a row has not is empty."""
    rows = [{k: v for k, v in row.items() if not isinstance(v, dict)} for row in record[key]]
    names = list(dict.fromkeys(name for row in rows for name in row))
    return [[name.replace("_", " ") for name in names], *([row.get(name, "") for name in names] for row in rows)]


def _checked(record: Record) -> Rows:
    rows = record["results"]
    bare, ours = rows["python -c pass"]["median_s"], rows["gpuready check transformers"]["median_s"]
    found = [
        [f"`{name}`", row["median_s"] * 1e3, row["median_s"] / bare, row["median_s"] / ours, row["peak_bytes"] / 1e6, row["runs"]]
        for name, row in rows.items()
    ]  # fmt: skip
    return [["command", "median, ms", "x Python", "x gpuready", "peak, MB", "runs"], *found]


def _commands(record: Record) -> Rows:
    head = ["command", "median, ms", "x Python", "x Python, processor", "modules", "peak, MB"]
    return [head, *(
        [f"`{name}`", row["median_s"] * 1e3, row["x_python"], row["x_python_processor"], row.get("modules", ""), row["peak_bytes"] / 1e6]
        for name, row in record["results"].items()
    )]  # fmt: skip


def _imports(record: Record) -> Rows:
    return [["import", "whole process, ms"], *([f"`{k}`", v] for k, v in record["milliseconds"].items())]


def _planned(record: Record) -> Rows:
    rows: Rows = [[name, seconds, record["spread"][name]] for name, seconds in record["seconds"].items()]
    return [
        ["", "median, s", "least and most"],
        *rows,
        *([name, ratio, ""] for name, ratio in record["ratios"].items()),
    ]


def _agreed(record: Record) -> Rows:
    head = ["cases", "of", *record["verdicts"], "disagreements"]
    return [head, [record["cases"], record["of"], *record["verdicts"].values(), len(record["disagreements"])]]


def _read(record: Record) -> Rows:
    head = ["reader", "seconds", "of the processor", "MB/s", "peak, MB"]
    return [head, *(
        [name, row["seconds"], row["cpu_seconds"], row.get("mb_per_s", ""), row["peak_mb"]] for name, row in record["rows"].items()
    )]  # fmt: skip


def _fitted(record: Record) -> Rows:
    head = ["command", "median, s", "least, s", "of the processor, s", "peak, MB"]
    return [head, *(
        [name, row["median_s"], row["least_s"], row["processor_s"], row["peak_bytes"] / 1e6] for name, row in record["rows"].items()
    )]  # fmt: skip


def _exams(record: Record) -> Rows:
    head = ["exam", "predicted", "cases", "allocated: median, worst %", "reserved: median, worst %", "false fits"]
    found = []
    for name, exam in record["exams"].items():
        for when in ("blind", "now"):
            row = exam[when]
            errors = [[row[kind]["median"], row[kind]["worst"]] for kind in ("allocated", "reserved")]
            said = exam["predicted"] if when == "blind" else "with the code as it stands"
            found.append([f"{name}, {when}", said, row["cases"], *errors, row["false_fits"]])
    return [head, *found]


def _rivals(record: Record) -> Rows:
    head = ["predictor", "cases", "median error, %", "worst, %", "promises too little"]
    return [head, *([name, *row.values()] for name, row in record["error_percent"].items())]


def _launched(record: Record) -> Rows:
    head = ["ranks", "pairs", "bare, s", "launch, s", "ratio", "95 %"]
    rows = [(row, row["whole"]) for row in record["start_to_first_all_reduce"]]
    return [head, *([row["ranks"], row["pairs"], w["bare"], w["launch"], w["ratio"], w["interval"]] for row, w in rows)]


def _served(record: Record) -> Rows:
    rate, many, new = record["at_a_rate"], record["many"], record["new_questions"]
    return [
        ["", "requests", "a second", "errors", "median, ms", "99 %, ms", "memory, last to first"],
        ["at a rate", rate["requests"], rate["answered_per_second"], rate["errors"], rate["p50_ms"], rate["p99_ms"], ""],
        ["as fast as it goes", many["requests"], many["per_second"], many["errors"], "", "", many["last_to_first"]],
        ["new questions", new["questions"], "", "", new["answer"]["p50_ms"], new["answer"]["p99_ms"], ""],
    ]  # fmt: skip


def _secrets(record: Record) -> Rows:
    passed = sum(record["passed_by_form"].values())
    head = ["secrets", "kinds", "ways to write them", "that passed", "harmless values", "hidden", "ms for 1 MiB"]
    return [head, [record["secrets"], record["kinds"], len(record["passed_by_form"]) - 1 + record["further_places"], passed, record["harmless"], record["hidden"], record["ms_for_1_mib_of_lines"]]]  # fmt: skip


def _shuffled(record: Record) -> Rows:
    return [
        ["runs", "first failing rank right", "cause right"],
        [record["runs"], record["first failing rank right"], record["cause right"]],
    ]


def _grid(record: Record) -> Rows:
    found = record["against_grid"]["first"]
    head = ["precision", "bench, TFLOP/s", "best of the grid", "ratio", "search, s", "grid, s"]
    return [head, *(
        [name, row["bench_rate"] / 1e12, row["grid_rate"] / 1e12, row["of_grid"], row["bench_s"], row["grid_s"]]
        for name, row in found.items()
    )]  # fmt: skip


def _beside(record: Record) -> Rows:
    head = ["framework", "version", "packages", "changed by gpuready", "added", "extras that conflict"]
    return [head, *(
        [row["framework"], row.get("version", ""), row.get("packages", ""), list(row.get("changed", {})), row.get("added", []), list(row.get("extras_that_conflict", {}))]
        for row in record["frameworks"]
    )]  # fmt: skip


def _audited(record: Record) -> Rows:
    head = ["lock", "packages", "answered", "with a known weakness", "not answered"]
    return [head, *([f"`{name}`", *row.values()] for name, row in record["locks"].items())]


def _installed(record: Record) -> Rows:
    """From bare to a training step: each framework with what was planned, installed, imported, trained, proved and checked."""
    head = ["framework", "machine", "plan", "install", "import", "step", "prove", "check", "times uv", "note"]
    return [head, *([row["framework"], row["machine"], *_install_cells(row)] for row in record["rows"])]


def _install_cells(row: Record) -> list[str]:
    names = ["plan here, after", "plan here", *(name for name in row if name.startswith("plan "))]
    locked = next((row[name] for name in names if row.get(name, {}).get("packages")), {})
    install = next((step for name, step in row.items() if name.startswith("install")), {})
    prove, imported = row.get("prove", {}), install.get("import", "")
    planned = f"torch {locked['torch']}, {locked['packages']} packages" if locked else ""
    imports = "yes" if imported.startswith("import ") or prove.get("passed") else imported
    steps = ", ".join(prove.get("step", [name for name in prove.get("passed", ()) if name == "training-step"]))
    verdicts = [install.get("verdict", "not installed"), imports, steps, prove.get("verdict", ""), row.get("check", "")]
    return [planned, *verdicts, row.get("warm install", {}).get("ratio", ""), row.get("note", "")]


def _rows(key: str = "rows") -> Callable[[Record], Rows]:
    return lambda record: listed(record, key)


TABLES: tuple[tuple[str, tuple[str, ...], Callable[[Record], Rows]], ...] = (
    ("`gpuready check` beside other tools", ("check-speed-2core", "check-speed-h200"), _checked),
    ("Every command beside the start of Python", ("command-speed-2core",), _commands),
    ("What an import costs", ("import-cost-2core",), _imports),
    ("How long a plan takes", ("plan-speed-2core",), _planned),
    ("Does the planner agree with the rules", ("plan-agreement", "plan-agreement-short"), _agreed),
    ("How fast `gpuready diagnose` reads", ("log-speed-2core",), _read),
    ("Who failed first", ("shuffled-ranks", "shuffled-ranks-induced"), _shuffled),
    ("How fast `gpuready fit` is", ("fit-speed-2core",), _fitted),
    ("How exact `gpuready fit` is: the exams", ("fit-again",), _exams),
    ("`gpuready fit` beside other predictors", ("fit-rivals",), _rivals),
    ("`gpuready.launch()` beside a bare `init_process_group`", ("launch-overhead-2core", "launch-overhead-2core-short"), _launched),
    ("`gpuready run` beside torchrun, seconds", ("run-speed-2core",), _rows()),
    ("What watching a run costs", ("watch-overhead-2core",), _rows()),
    ("From bare to a training step, without a GPU", ("framework-table-cpu",), _installed),
    ("Installs that were killed", ("kill-install-2core", "kill-install-2core-short"), _rows("results")),
    ("A fleet's controller", ("fleet-scale-2core",), _rows()),
    ("The search for bad nodes and links", ("fleet-search",), _rows()),
    ("The search for slow nodes", ("fleet-outliers",), _rows()),
    ("`gpuready serve` in a crowd", ("serve-load",), _served),
    ("Secrets", ("secrets",), _secrets),
    ("`gpuready bench` on the H200", ("bench-h200",), _grid),
    ("Beside each framework", ("beside-frameworks",), _beside),
    ("Known weaknesses of the locked packages", ("pip-audit",), _audited),
)  # fmt: skip
