"""The error of ``tarmac fit`` beside what people use today, on the same measured cases.

    python benchmarks/fit_rivals.py CASES.jsonl ... --python PYTHON [--path FOLDER] [-o FILE]

CASES are lines of JSON as the measuring script writes them: the model's ``config``, the set-up, ``peak_alloc`` and
``peak_reserved`` of real runs. PYTHON has torch, transformers and accelerate; DeepSpeed may lie in FOLDER. The rivals are
``accelerate estimate-memory`` (its own functions, since the command asks the hub for a config) and DeepSpeed's estimators of
the memory of model states; neither takes a batch, a length or a method, so that each case gets the number they would print.
Error is against the allocator's peak, signed: below zero the rival promises too little.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from datetime import date
from pathlib import Path

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
    begun = time.monotonic()
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
    print(json.dumps(told | {"seconds": time.monotonic() - begun, "imported": imported}), flush=True)
"""
OPTIMIZERS = {
    "fused": "adamw_fused",
    "forloop": "adamw_forloop",
    "sgdm": "sgd_momentum",
    "adafactor_t": "adafactor_torch",
}
PRECISIONS = {"amp": "amp-bf16", "fp16amp": "amp-fp16"}


def job(case: dict) -> dict | None:
    """The fields of a Job that a measured case amounts to; None for what is no run of a model."""
    if case["kind"] not in ("train", "infer", "peft") or "config" not in case:
        return None
    fields = {"micro_batch": case["mb"], "seq": case["seq"], "attention": case.get("attn", "sdpa")}
    fields |= {
        "checkpointing": ("none", "nonreentrant", "reentrant")[case.get("gc", 0)],
        "alloc_conf": case.get("alloc", ""),
    }
    if case["kind"] == "infer":
        return fields | {
            "task": "generate",
            "new_tokens": case["new"],
            "cache": case.get("cache", "dynamic"),
            "precision": case["prec"],
        }
    fields |= {"optimizer": OPTIMIZERS.get(case["opt"], case["opt"]), "accumulation": case.get("accum", 1)}
    fields |= {
        "keep_outputs": bool(case.get("hold")),
        "padded": bool(case.get("mask")),
        "dpo": bool(case.get("dpo")),
    }
    fields |= {
        "experts": case.get("experts", "grouped_mm"),
        "loss": "fused" if case.get("loss") == "liger" else "plain",
    }
    if case["kind"] == "peft":
        fields |= _peft(case)
    else:
        fields["precision"] = PRECISIONS.get(case["prec"], case["prec"])
        if case.get("q4"):
            fields |= {"quant": "nf4", "kbit": False}
    return fields | _lora(case.get("lora"))


def _peft(case: dict) -> dict:
    quant = case.get("quant") or {}
    return {
        "precision": case["wdtype"], "autocast": "bf16" if case["amp"] else "", "loss": "liger" if case["liger"] else "plain",
        "loop": "trainer" if case["via"] == "trainer" else "plain", "quant": quant.get("kind", ""),
        "double_quant": bool(quant.get("double")), "kbit": case["prep"] == "kbit",
    }  # fmt: skip


def _lora(lora: dict | None) -> dict:
    if not lora:
        return {}
    wide = lora.get("dtype") or ("fp32" if lora.get("autocast_adapter_dtype", True) else "bf16")
    targets = "qv" if lora["targets"] in ("qv", ["q_proj", "v_proj"]) else "all"
    return {
        "method": "lora",
        "lora_r": lora["r"],
        "lora_targets": targets,
        "lora_dtype": wide,
        "lora_dropout": lora.get("dropout", 0.0),
    }


def predicted(case: dict, fields: dict) -> dict:
    from tarmac.fit import Job, predict

    begun = time.process_time()
    fit = predict(Job(case["config"], **fields))
    return {
        "allocated": fit.peak_allocated,
        "reserved": fit.peak_reserved,
        "seconds": time.process_time() - begun,
    }


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


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("cases", nargs="+")
    parser.add_argument("--python", required=True)
    parser.add_argument("--path", default="")
    parser.add_argument("-o", default="")
    told = parser.parse_args()
    sys.path[:0] = [str(ROOT / "src")]
    lines = [
        json.loads(line)
        for name in told.cases
        for line in Path(name).read_text().splitlines()
        if line.strip()
    ]
    cases = [
        (case, fields) for case in lines if case.get("status") == "ok" and (fields := job(case)) is not None
    ]
    others = rivals(cases, told.python, told.path)
    errors: dict[str, list[float]] = {}
    seconds: dict[str, list[float]] = {}
    rows = []
    for (case, fields), other in zip(cases, others, strict=True):
        ours = predicted(case, fields)
        found = {
            "tarmac fit, allocated": (ours["allocated"], "peak_alloc"),
            "tarmac fit, reserved": (ours["reserved"], "peak_reserved"),
        }
        names = {
            "accelerate": "accelerate estimate-memory",
            "deepspeed_zero2": "DeepSpeed's estimate, ZeRO-2",
            "deepspeed_zero3": "DeepSpeed's estimate, ZeRO-3",
        }
        found |= {names[key]: (value, "peak_alloc") for key, value in other.items() if key in names}
        row = {"id": case["id"], "model": case["model"]}
        for name, (value, truth) in found.items():
            error = 100 * (value / case[truth] - 1)
            errors.setdefault(name, []).append(error)
            row[name] = round(error, 2)
        seconds.setdefault("tarmac fit", []).append(ours["seconds"])
        seconds.setdefault("rivals, one model on the meta device", []).append(other["seconds"])
        rows.append(row)
    whole = {
        "date": date.today().isoformat(), "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "measured_on": "one NVIDIA H200, torch 2.11.0+cu130", "error_percent": {name: summary(found) for name, found in errors.items()},
        "seconds_median": {name: round(statistics.median(found), 3) for name, found in seconds.items()},
        "rivals_import_s": round(others[0]["imported"], 2), "cases": rows,
    }  # fmt: skip
    text = json.dumps(whole, indent=1) + "\n"
    if told.o:
        Path(told.o).write_text(text)
    print(json.dumps({k: v for k, v in whole.items() if k != "cases"}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
