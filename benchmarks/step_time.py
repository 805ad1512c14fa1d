"""Predicted time of a step against measurements, and beside the rule of thumb 6 x parameters x tokens at 40 %.

    python benchmarks/step_time.py benchmarks/results/step-time-h200.json [--frozen PREDICTIONS] [--pace MEASURED] [-o TABLE.md]
    python benchmarks/step_time.py benchmarks/results/step-time-dev-h200.json --shares

MEASURED is a JSON document with ``cases`` and ``bench``, or lines of JSON beside a bench record (--bench FILE). With --frozen the
predictions that were made before the measurement are scored too, also against the mean over cores (``moved_s``) of what waits for the host. --pace takes the
host's pace from another document: those of sets 2 and 3 are of one core each. --shares prints how much longer the passes of real models take the host than
the bench's small one: REAL_SHARES of fit/time/device_speed.py.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

from gpuready.catalog.gpus import find_gpu
from gpuready.fit import H200, FitJob
from gpuready.fit.job.model_shape import MODEL_FAMILIES
from gpuready.fit.time import device_speed
from gpuready.fit.time.device_speed import DeviceSpeed, calibrate_speed, speed_from_row
from gpuready.fit.time.prediction import predict_time
from gpuready.model.fit import TimePrediction
from gpuready.workflow.fit_time import read_bench_record

PRECISIONS = {"bf16": "bf16", "amp": "amp-bf16", "fp32": "fp32"}
OPTIMIZERS = {"adamw": "adamw", "fused": "adamw_fused", "sgd": "sgd"}
PEAK, EFFICIENCY = 989.4e12, 0.4


def make_job(case: dict[str, Any]) -> FitJob:
    kind, config = case["config"]
    model = {"model_type": kind, **config}
    common = {"model": model, "micro_batch": case["mb"], "seq": case["seq"], "precision": PRECISIONS[case["prec"]]}
    if case["kind"] == "generate":
        return FitJob(**common, task="generate", new_tokens=case["new"])
    return FitJob(
        **common,
        optimizer=OPTIMIZERS[case["opt"]],
        method="lora" if case.get("lora") else "full",
        lora_r=case.get("lora") or 16,
        checkpointing="nonreentrant" if case.get("gc") else "none",
        accumulation=case.get("accum", 1),
        clip=False,
    )


def read_measured(path: str, bench: str | None) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Return the cases of families whose layers are written down (others are traced), and the record's rates."""
    text = Path(path).read_text()
    if path.endswith(".jsonl"):
        cases = [json.loads(line) for line in text.splitlines()]
        measures = read_record(bench) if bench else {}
    else:
        whole = json.loads(text)
        cases, measures = whole["cases"], whole["bench"]
    return [case for case in cases if case.get("status") == "ok" and case["config"][0] in MODEL_FAMILIES], measures


def read_record(path: str) -> dict[str, float]:
    """Return the measures of a record of `gpuready bench`."""
    return read_bench_record(path)[0]


def read_pace(path: str) -> dict[str, float]:
    """Return the host's pace of another document: of many cores of such a machine, where that of a set is of one core."""
    return {name: value for name, value in read_measured(path, None)[1].items() if name.startswith("eager-")}


def thumb_seconds(case: dict[str, Any]) -> float:
    """6 x parameters x tokens at 40 % of the peak, as calculators do it."""
    return float(6 * case["params"] * case["mb"] * case["seq"] * case.get("accum", 1) / (PEAK * EFFICIENCY))


def seconds_of(prediction: TimePrediction | dict[str, Any]) -> float:
    plain = prediction if isinstance(prediction, dict) else prediction.to_json()
    return float(plain["step_seconds"] or plain["decode_seconds"])


def learn_real_shares(cases: list[dict[str, Any]], measures: dict[str, float]) -> dict[str, list[float]]:
    """Return measured over predicted of each pass that waits for the host, predicted by the bench's pace as it is."""
    before = dict(device_speed.REAL_SHARES)
    device_speed.REAL_SHARES.update(dict.fromkeys(before, 1.0))
    try:
        speed = make_speed(measures)
        found: dict[str, list[float]] = {"forward": [], "backward": [], "checkpointed": [], "decode": []}
        for case in cases:
            time = predict_time(make_job(case), H200, speed)
            if time.bound_by != "launches":
                continue
            if case["kind"] == "generate":
                found["decode"].append(case["decode_s"] / seconds_of(time))
            elif case.get("gc"):
                both = time.parts["forward"] + time.parts["backward"]
                found["checkpointed"].append((case["fwd_s"] + case["bwd_s"]) / both)
            else:
                found["forward"].append(case["fwd_s"] / time.parts["forward"])
                found["backward"].append(case["bwd_s"] / time.parts["backward"])
        return {name: sorted(round(one, 3) for one in ones) for name, ones in found.items()}
    finally:
        device_speed.REAL_SHARES.update(before)


def make_speed(measures: dict[str, float]) -> DeviceSpeed:
    row = find_gpu("h200")
    sheet = None if row is None else speed_from_row(row)
    assert sheet is not None
    return calibrate_speed(sheet, measures) if measures else sheet


def describe_errors(errors: list[float]) -> str:
    sizes = sorted(map(abs, errors))
    return f"median {statistics.median(sizes):.1%}, worst {sizes[-1]:.1%}" if sizes else "none"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measured")
    parser.add_argument("--bench")
    parser.add_argument("--frozen")
    parser.add_argument("--pace")
    parser.add_argument("--shares", action="store_true")
    parser.add_argument("-o", "--output")
    args = parser.parse_args()
    cases, measures = read_measured(args.measured, args.bench)
    if args.pace:
        measures |= read_pace(args.pace)
    frozen = (
        {one["id"]: one["predicted"] for one in json.loads(Path(args.frozen).read_text())["cases"]}
        if args.frozen
        else {}
    )
    if args.shares:
        for name, ones in learn_real_shares(cases, measures).items():
            print(name, f"median {statistics.median(ones):.3f}" if ones else "", ones)
        return
    speed = make_speed(measures)
    lines = [
        "| case | model | what | measured | predicted | error | before | over cores | 6ND at 40 % | bound by | in range |",
        "|---" * 11 + "|",
    ]
    errors: dict[str, list[float]] = defaultdict(list)
    for case in cases:
        measured = case.get("step_s") or case["decode_s"]
        found = predict_time(make_job(case), H200, speed)
        error = seconds_of(found) / measured - 1
        kind = "decoding" if case["kind"] == "generate" else "step"
        errors[kind].append(error)
        before = thumb = over = ""
        if case["id"] in frozen:
            said = seconds_of(frozen[case["id"]])
            errors[f"frozen {kind}"].append(said / measured - 1)
            errors[f"frozen {kind} over cores"].append(said / case.get("moved_s", measured) - 1)
            before = f"{said / measured - 1:+.1%}"
            over = f"{said / case['moved_s'] - 1:+.1%}" if "moved_s" in case else ""
        if kind == "step":
            errors["thumb"].append(thumb_seconds(case) / measured - 1)
            thumb = f"{errors['thumb'][-1]:+.0%}"
        words = [case["prec"], case.get("opt", ""), f"{case['mb']} x {case['seq']}"]
        words += [f"lora {case['lora']}"] if case.get("lora") else []
        words += ["checkpointing"] * bool(case.get("gc"))
        inside = "yes" if found.range[0] <= measured <= found.range[1] else "no"
        lines.append(
            f"| {case['id']} | {case['model']} | {' '.join(words)} | {measured * 1e3:.1f} ms | {seconds_of(found) * 1e3:.1f} ms "
            f"| {error:+.1%} | {before} | {over} | {thumb} | {found.bound_by} | {inside} |"
        )
    lines += ["", *(f"- {name}: {describe_errors(ones)}" for name, ones in errors.items())]
    text = "\n".join(lines) + "\n"
    print(text)
    if args.output:
        pace = f", the host's pace by `{args.pace}`" if args.pace else ""
        Path(args.output).write_text(f"# Time of a step\n\n`{args.measured}`{pace}\n\n{text}")


if __name__ == "__main__":
    main()
