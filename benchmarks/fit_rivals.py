"""The error of ``gpuready fit`` beside what people use today, on the same measured cases.

    python benchmarks/fit_rivals.py CASES.jsonl ... --python PYTHON [--path FOLDER] [--budget 600] [-o FILE]

CASES are lines of JSON as the measuring scripts write them: the model's ``config``, the set-up, and the peaks of real runs.
PYTHON has torch, transformers and accelerate; DeepSpeed and peft may lie in FOLDER. The rivals are ``accelerate
estimate-memory`` (its own functions, since the command asks the hub for a config) and DeepSpeed's estimators of the memory of
model states; neither takes a batch, a length or a method, so that each case gets the number they would print. Two more run
torch itself without data: its MemTracker under FakeTensorMode (fit_memtracker.py), and ``gpuready fit --trace``, the meta
device with what a GPU does otherwise; each takes cases in turn for as many seconds as ``--budget`` gives it. Error is against
the allocator's peak, signed: below zero the rival promises too little. Seconds are of the processor.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from datetime import date
from pathlib import Path

from score_fit import job_of

ROOT = Path(__file__).resolve().parent.parent
RIVALS = r"""
import json, sys, time
begun = time.monotonic()
import torch
from accelerate.commands.estimate import estimate_training_usage
from accelerate.utils import calculate_maximum_sizes
from transformers import AutoConfig, AutoModelForCausalLM
try:
    from deepspeed.runtime.zero.stage3 import estimate_zero3_model_states_mem_needs as third
    from deepspeed.runtime.zero.stage_1_and_2 import estimate_zero2_model_states_mem_needs as second
except ImportError:
    second = third = None
imported = time.monotonic() - begun
for line in sys.stdin:
    case = json.loads(line)
    begun = time.process_time()
    config = dict(case["config"])
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(config.pop("model_type"), **config))
    model.tie_weights()
    whole, (largest, _) = calculate_maximum_sizes(model)
    half = case["half"]
    told = {}
    if case["task"] == "generate":
        told["accelerate"] = whole // 2 if half else whole
    else:
        told["accelerate"] = max(estimate_training_usage(whole, "bfloat16" if half else "float32").values())
        count = sum(p.numel() for p in model.parameters())
        if second is not None:
            told["deepspeed_zero2"] = second(count, 1, 1, False)[1]
            told["deepspeed_zero3"] = third(count, largest // 4, 1, 1, False, False, True)[1]
    print(json.dumps(told | {"seconds": time.process_time() - begun, "imported": imported}), flush=True)
"""


def job(case: dict) -> dict | None:
    """The fields of a Job that a measured case amounts to; None for what is no run of a model."""
    if "job" in case:  # fit_measure.py writes the words of a Job
        return None if case.get("cap") else {"precision": "bf16"} | case["job"]
    if case["kind"] not in ("train", "infer", "peft") or "config" not in case:
        return None
    made = job_of(case).validate_fields()
    settings = {name: getattr(made, name) for name in made._fields if name != "model"}
    return {name: value for name, value in settings.items() if name == "precision" or value != made._defaults[name]}


def predicted(case: dict, fields: dict) -> dict:
    from gpuready.fit import FitJob, predict_memory

    begun = time.process_time()
    fit = predict_memory(FitJob(case["config"], **fields))
    return {"allocated": fit.peak_allocated, "reserved": fit.peak_reserved, "seconds": time.process_time() - begun}


def rivals(cases: list[tuple[dict, dict]], python: str, path: str) -> list[dict]:
    asked = [
        {"config": case["config"], "task": fields.get("task", "train"), "half": fields["precision"] != "fp32"}
        for case, fields in cases
    ]
    ran = subprocess.run(
        [python, "-c", RIVALS],
        input="\n".join(map(json.dumps, asked)),
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": path, "HF_HUB_OFFLINE": "1"},
    )
    if ran.returncode:
        raise SystemExit(ran.stderr[-2000:])
    return [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]


def summary(errors: list[float]) -> dict[str, float]:
    sizes = [abs(e) for e in errors]
    return {"cases": len(errors), "median": round(statistics.median(sizes), 2), "worst": round(max(errors, key=abs), 2),
            "too_little": sum(e < -1 for e in errors)}  # fmt: skip


def truth(case: dict) -> tuple[int, int]:
    """What was allocated and reserved at the most."""
    return case.get("allocated", case.get("peak_alloc", 0)), case.get("reserved", case.get("peak_reserved", 0))


def traced(cases: list[tuple[dict, dict]], python: str, path: str, budget: float) -> dict[str, dict]:
    """``gpuready fit --trace``: by the case's name what it says, or why not."""
    from gpuready.fit import H200, FitJob
    from gpuready.workflow import fit_trace

    fit_trace.TRACE_ENVIRONMENT["PYTHONPATH"] = path or None  # peft may lie there
    found: dict[str, dict] = {}
    end = time.monotonic() + budget
    for case, fields in cases:
        if time.monotonic() > end:
            break
        begun = resource.getrusage(resource.RUSAGE_CHILDREN)
        try:
            fit = fit_trace.Tracer(python)(FitJob(case["config"], **_plain(fields)), H200, False)
        except ValueError as wrong:
            found[case["id"]] = {"wrong": str(wrong)[:200]}
            continue
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = ended.ru_utime + ended.ru_stime - begun.ru_utime - begun.ru_stime
        found[case["id"]] = {"peak": fit.peak_allocated, "reserved": fit.peak_reserved, "seconds": seconds}
    return found


def tracked(cases: list[tuple[dict, dict]], python: str, path: str, budget: float) -> dict[str, dict]:
    """torch's MemTracker, in one process, for as long as there is time."""
    here = str(ROOT / "benchmarks")
    child = subprocess.Popen(
        [python, f"{here}/fit_memtracker.py"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(p for p in (here, path) if p), "HF_HUB_OFFLINE": "1"},
    )  # fmt: skip
    assert child.stdin and child.stdout
    found: dict[str, dict] = {}
    end = time.monotonic() + budget
    for case, fields in cases:
        if time.monotonic() > end:
            break
        if fields.get("task") == "generate" or fields.get("quant") or fields.get("loop") == "trainer":
            continue
        child.stdin.write(json.dumps({"config": case["config"], "job": fields}) + "\n")
        child.stdin.flush()
        found[case["id"]] = json.loads(child.stdout.readline() or '{"wrong": "it ended"}')
    child.kill()
    child.wait()
    return found


def _plain(fields: dict) -> dict:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}


NAMES = {
    "accelerate": "accelerate estimate-memory",
    "deepspeed_zero2": "DeepSpeed's estimate, ZeRO-2",
    "deepspeed_zero3": "DeepSpeed's estimate, ZeRO-3",
}


class Table:
    """Errors and seconds, by who said it."""

    def __init__(self) -> None:
        self.errors: dict[str, list[float]] = {}
        self.seconds: dict[str, list[float]] = {}

    def add(self, row: dict, name: str, said: float, real: int) -> None:
        error = 100 * (said / real - 1)
        self.errors.setdefault(name, []).append(error)
        row[name] = round(error, 2)

    def spent(self, name: str, seconds: float) -> None:
        self.seconds.setdefault(name, []).append(seconds)


def row(table: Table, case: dict, fields: dict, other: dict, tracked: dict, traced: dict) -> dict:
    """One case: what everybody says of it."""
    made = {"id": case["id"], "model": case["model"]}
    allocated, reserved = truth(case)
    ours = predicted(case, _plain(fields))
    table.add(made, "gpuready fit, allocated", ours["allocated"], allocated)
    table.add(made, "gpuready fit, reserved", ours["reserved"], reserved)
    table.spent("gpuready fit", ours["seconds"])
    for key, name in NAMES.items():
        if key in other:
            table.add(made, name, other[key], allocated)
    table.spent("accelerate and DeepSpeed, one model on the meta device", other["seconds"])
    for name, found in (("torch MemTracker", tracked), ("gpuready fit --trace", traced)):
        if "peak" in found:
            table.add(made, f"{name}, allocated", found["peak"], allocated)
            table.spent(name, found["seconds"])
        elif "wrong" in found:
            made[name] = found["wrong"]
    if "reserved" in traced:
        table.add(made, "gpuready fit --trace, reserved", traced["reserved"], reserved)
    return made


def read(names: list[str]) -> list[tuple[dict, dict]]:
    """The measured cases that ran, each with the fields of its Job."""
    lines = [json.loads(line) for name in names for line in Path(name).read_text().splitlines() if line.strip()]
    return [(case, fields) for case in lines if case.get("status") == "ok" and (fields := job(case)) is not None]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("cases", nargs="+")
    parser.add_argument("--python", required=True)
    parser.add_argument("--path", default="")
    parser.add_argument("--budget", type=float, default=600.0)
    parser.add_argument("-o", default="")
    args = parser.parse_args()
    sys.path[:0] = [str(ROOT / "src")]
    cases = read(args.cases)
    others = rivals(cases, args.python, args.path)
    by_torch = tracked(cases, args.python, args.path, args.budget)
    by_trace = traced(cases, args.python, args.path, args.budget)
    table = Table()
    rows = [
        row(table, case, fields, other, by_torch.get(case["id"], {}), by_trace.get(case["id"], {}))
        for (case, fields), other in zip(cases, others, strict=True)
    ]
    whole = {
        "date": date.today().isoformat(), "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "measured_on": "one NVIDIA H200, torch 2.11.0+cu130", "error_percent": {name: summary(found) for name, found in table.errors.items()},
        "processor_s_median": {name: round(statistics.median(found), 3) for name, found in table.seconds.items()},
        "rivals_import_s": round(others[0]["imported"], 2), "load": os.getloadavg()[0], "cases": rows,
    }  # fmt: skip
    text = json.dumps(whole, indent=1) + "\n"
    if args.o:
        Path(args.o).write_text(text)
    print(json.dumps({k: v for k, v in whole.items() if k != "cases"}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
