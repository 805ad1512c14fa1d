"""The templates of ``fit`` against its trace: every family that is known without torch, in the jobs that people run.

    python benchmarks/fit_templates.py --python PYTHON [--only RE] [--replies DIR] [-o FILE]

PYTHON has torch, transformers 5.17 and peft. The models are the small ones of tests/fit, so that an error of a percent here
is that of activations and gradients: the workspaces of cuBLAS are left out. ``--replies`` keeps the traces, and takes
those that are there.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

from gpuready.fit import H200, FitJob, predict_memory
from gpuready.fit.search.prediction import fit_from_tape
from gpuready.fit.search.traced_prediction import build_trace_request, tape_from_trace

ROOT = Path(__file__).resolve().parent.parent
QLORA = {"method": "qlora", "quant": "nf4", "kbit": True, "autocast": "bf16"}
JOBS: dict[str, dict[str, Any]] = {
    "ac": {"autocast": "bf16"},
    "amp": {"precision": "amp-bf16"},
    "fp16": {"precision": "amp-fp16"},
    "loraac": {"method": "lora", "autocast": "bf16"},
    "dora": {"method": "lora", "dora": True, "lora_dropout": 0.1, "autocast": "bf16"},
    "q2": QLORA,
    "qlora": {**QLORA, "checkpointing": "nonreentrant"},
    "reent": {"checkpointing": "reentrant", "autocast": "bf16"},
    "pad": {"padded": True, "autocast": "bf16"},
    "eac": {"attention": "eager", "autocast": "bf16"},
    "gen": {"task": "generate", "new_tokens": 8},
}
WORKSPACE = 32 << 20


def list_cases() -> dict[str, FitJob]:
    """Return the jobs by family and name."""
    configs: dict[str, dict[str, Any]] = {}
    for name in ("family_traces.json", "traces.json"):
        for row in json.loads((ROOT / "tests" / "fit" / name).read_text(encoding="utf-8")):
            configs.setdefault(row["config"]["model_type"], row["config"])
    made = {}
    for family, config in configs.items():
        config = {**config, "vocab_size": max(config.get("vocab_size", 0), 1000)}
        for name, fields in JOBS.items():
            job = {"micro_batch": 16, "seq": 192, "steps": 2, "clip": False, **fields}
            made[f"{family}.{name}"] = FitJob(model=config, **job)
    return made


def trace_cases(python: str, folder: Path, jobs: dict[str, FitJob]) -> None:
    """Write the trace of every job that has none yet."""
    missing = {name: build_trace_request(job, H200) for name, job in jobs.items() if not read_reply(folder, name)}
    if missing:
        (folder / "sw").write_text(json.dumps(missing), encoding="utf-8")
        words = [python, ROOT / "tests/fit/play_traces.py", ROOT / "src/gpuready/fit/scripts", folder / "sw"]
        subprocess.run(list(map(str, words)), check=True, stderr=subprocess.DEVNULL)


def read_reply(folder: Path, name: str) -> dict[str, Any]:
    path = folder / f"sw.{name}"
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() and path.stat().st_size else {}


def compare_case(job: FitJob, trace: dict[str, Any]) -> dict[str, Any]:
    """Return the errors of the template in percent, or who refused the job."""
    if "ended" in trace:
        return {"trace": trace["ended"][:160]}
    traced = fit_from_tape(job, H200, tape_from_trace(job, H200, trace), search=False)
    try:
        found = predict_memory(job, H200, search=False)
    except ValueError as refusal:
        return {"template": str(refusal)[:160]}
    beside = WORKSPACE * (1 if job.task == "generate" else 2)
    allocated = (found.peak_allocated - beside) / (traced.peak_allocated - beside) - 1
    return {
        "allocated": round(100 * allocated, 2),
        "reserved": round(100 * (found.peak_reserved / traced.peak_reserved - 1), 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--only", default="")
    parser.add_argument("--replies", default="")
    parser.add_argument("-o", default="")
    args = parser.parse_args()
    jobs = {name: job for name, job in list_cases().items() if re.search(args.only, name)}
    with tempfile.TemporaryDirectory() as made:
        folder = Path(args.replies or made)
        trace_cases(args.python, folder, jobs)
        found = {name: compare_case(job, read_reply(folder, name)) for name, job in jobs.items()}
    errors = [abs(one["allocated"]) for one in found.values() if "allocated" in one]
    summary = {
        "compared": len(errors), "refused by the template": sum("template" in one for one in found.values()),
        "refused by the trace": sum("trace" in one for one in found.values()), "median": statistics.median(errors),
        "within 1.5 %": sum(one <= 1.5 for one in errors), "within 3 %": sum(one <= 3 for one in errors), "worst": max(errors),
    }  # fmt: skip
    rows = ",\n".join(f"  {json.dumps(name)}: {json.dumps(one)}" for name, one in found.items())
    text = f'{{\n "summary": {json.dumps(summary)},\n "cases": {{\n{rows}\n }}\n}}\n'
    if args.o:
        Path(args.o).write_text(text, encoding="utf-8")
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
