"""Score predictions against measurements of real runs.

    python benchmarks/score_fit.py MEASUREMENTS.jsonl [...]

Each line of a file is one case: the model's config, the set-up, and what torch and NVML saw (``peak_alloc``,
``peak_reserved``, ``nvml_peak`` in bytes; ``status`` ok or oom; ``caps`` where a case was run under caps). Printed are
the errors of every case, their median and worst, and every "fits" that did not fit.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

from gpuready.fit import H200, FitJob, predict_memory

OPTIMIZERS = {
    "fused": "adamw_fused", "forloop": "adamw_forloop", "sgdm": "sgd_momentum", "adafactor_t": "adafactor_torch",
}  # fmt: skip
PRECISIONS = {"amp": "amp-bf16", "fp16amp": "amp-fp16"}
CHECKPOINTING = {0: "none", 1: "nonreentrant", 2: "reentrant"}
GIB = 2**30


def cases(paths: list[str]) -> list[dict[str, Any]]:
    """Every measured case, with the config of its model."""
    rows = [json.loads(line) for path in paths for line in Path(path).read_text(encoding="utf-8").splitlines()]
    configs = {row["model"]: row["config"] for row in rows if row.get("config")}
    found = [row for row in rows if row.get("kind") in ("train", "peft", "infer", "cap") and row.get("peak_alloc")]
    return [dict(row, config=row.get("config") or configs[row["model"]]) for row in found]


def job_of(row: dict[str, Any]) -> FitJob:
    """The job that a measured case is."""
    job = FitJob(model=row["config"], micro_batch=row["mb"], seq=row["seq"])
    precision = row.get("prec") or row.get("wdtype") or "bf16"
    job = job.replace(precision=PRECISIONS.get(precision, precision))
    if row["kind"] == "infer":
        return job.replace(task="generate", new_tokens=row["new"], cache=row.get("cache") or "dynamic")
    job = job.replace(
        optimizer=OPTIMIZERS.get(row["opt"], row["opt"]),
        checkpointing=CHECKPOINTING[row.get("gc") or 0],
        attention=row.get("attn") or "sdpa",
        accumulation=row.get("accum") or 1,
        keep_outputs=bool(row.get("hold")),
        padded=bool(row.get("mask")),
        dpo=bool(row.get("dpo")),
        alloc_conf=row.get("alloc") or "",
    )
    return of_peft(job, row) if row["kind"] == "peft" else of_loop(job, row)


def of_loop(job: FitJob, row: dict[str, Any]) -> FitJob:
    if row.get("loss") == "liger":
        job = job.replace(loss="fused")
    if row.get("autocast"):
        job = job.replace(autocast="bf16")
    lora = row.get("lora")
    if lora:
        job = job.replace(
            method="qlora" if row.get("q4") else "lora", lora_r=lora["r"], lora_targets=lora["targets"],
            lora_dtype=lora["dtype"], lora_dropout=lora["dropout"],
        )  # fmt: skip
    return job


def of_peft(job: FitJob, row: dict[str, Any]) -> FitJob:
    """A case with the real peft, bitsandbytes, Liger or Trainer."""
    job = job.replace(autocast="bf16" if row["amp"] else "", loop="trainer" if row["via"] == "trainer" else "plain")
    if row.get("liger"):
        job = job.replace(loss="liger")
    quant, lora = row.get("quant"), row.get("lora")
    if quant:
        double = bool(quant.get("double"))
        job = job.replace(quant=quant["kind"], double_quant=double, kbit=row["prep"] == "kbit")
    if lora:
        targets = "all" if lora["targets"] == "all-linear" else tuple(lora["targets"])
        job = job.replace(
            method="qlora" if quant else "lora", lora_r=lora["r"], lora_targets=targets, lora_dropout=lora["dropout"],
            lora_dtype="fp32" if lora["autocast_adapter_dtype"] else "bf16",
        )  # fmt: skip
    return job


def died(row: dict[str, Any]) -> bool:
    return row.get("status") == "oom"


def false_fits(row: dict[str, Any], minimum: int, verdict: str) -> list[str]:
    """Where the prediction said that it fits and it did not."""
    found = [f"{row['id']}: died on the card"] if died(row) and verdict == "fits" else []
    for cap in row.get("caps") or ():
        if not cap["fits"] and minimum <= cap["cap"]:
            found.append(f"{row['id']}: died under {cap['cap'] / GIB:.2f} GiB")
    return found


def shown(row: dict[str, Any]) -> int:
    """What NVML showed at most while the job ran.

    A script that quantises a whole model on the GPU shows more while it builds it. That is given back before the first step,
    and what the steps reserve is not, so their most is what was in use at the end.
    """
    building = (row.get("phases") or {}).get("build", [0, 0])[1] > row["peak_reserved"]
    return int(row.get("nvml_end" if building else "nvml_peak") or 0)


def main() -> None:
    errors: dict[str, list[float]] = {"allocated": [], "reserved": [], "device": []}
    wrong: list[str] = []
    missed = 0
    print(f"{'case':6}{'model':13}{'allocated':>11}{'error':>9}{'reserved':>11}{'error':>9}{'device':>9}{'s':>7}")
    for row in cases(sys.argv[1:]):
        start = time.process_time()
        fit = predict_memory(job_of(row), H200)
        seconds = time.process_time() - start
        verdict = fit.verdict_on(H200)
        wrong += false_fits(row, fit.minimum, verdict)
        if died(row):
            missed += verdict != "does not fit"
            print(f"{row['id']:6}{row['model']:13} died; predicted: {verdict} ({fit.minimum / GIB:.1f} GiB at least)")
            continue
        allocated = fit.peak_allocated / row["peak_alloc"] - 1
        reserved = fit.peak_reserved / row["peak_reserved"] - 1
        seen = shown(row)
        device = (fit.peak_reserved + fit.overhead[0]) / seen - 1 if seen else 0.0
        for name, value in zip(errors, (allocated, reserved, device), strict=True):
            errors[name].append(abs(value))
        print(
            f"{row['id']:6}{row['model']:13}{fit.peak_allocated / GIB:11.3f}{allocated:+9.3%}"
            f"{fit.peak_reserved / GIB:11.3f}{reserved:+9.3%}{device:+9.2%}{seconds:7.2f}"
        )
    for name, values in errors.items():
        print(f"{name}: median {statistics.median(values):.4%}, worst {max(values):.3%} of {len(values)} cases")
    print(f"false fits: {len(wrong)}; deaths not called: {missed}")
    for sentence in wrong:
        print(f"  {sentence}")


if __name__ == "__main__":
    main()
