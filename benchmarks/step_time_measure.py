"""Measure the cases of step_time_cases.py on a GPU, after their predictions have been written down.

    python benchmarks/step_time_measure.py --bench RECORD.json --out FOLDER [--only REGEX] [--budget SECONDS] [--peft FOLDER]

It runs in an interpreter with torch and transformers, the package on PYTHONPATH. First the predictions by that bench record go to
FOLDER/predictions.json, and their SHA-256 is printed; then each case is run in a process of its own: 3 steps to warm up and 8 timed
by CUDA events, or three answers by the wall clock. Beside each case that waits for the host stands the pace of eager mode in that
same process.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import re
import statistics
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src/gpuready/prove/scripts")]
WARM_STEPS, TIMED_STEPS, ANSWERS = 3, 8, 3
HOST_TOKENS = 1100  # steps of fewer tokens wait for the host


def write_predictions(cases: list[dict[str, Any]], bench: str, path: Path) -> None:
    from benchmarks.step_time import make_job, read_record

    from gpuready.catalog.gpus import find_gpu
    from gpuready.fit import H200
    from gpuready.fit.time.device_speed import calibrate_speed, speed_from_row
    from gpuready.fit.time.prediction import predict_time

    row = find_gpu("h200")
    sheet = None if row is None else speed_from_row(row)
    assert sheet is not None
    measures = read_record(bench)
    speed = calibrate_speed(sheet, measures)
    rows = [{"id": c["id"], "predicted": predict_time(make_job(c), H200, speed).to_json()} for c in cases]
    path.write_text(json.dumps({"bench": measures, "cases": rows}, indent=1) + "\n")
    print("predictions", hashlib.sha256(path.read_bytes()).hexdigest(), len(rows), flush=True)


def run_case(case: dict[str, Any], queue: Any) -> None:
    try:
        queue.put(_measure(case))
    except Exception as error:
        queue.put({"status": "error", "error": f"{type(error).__name__}: {error}"[:300]})


def _measure(case: dict[str, Any]) -> dict[str, Any]:
    import torch

    model = _build(torch, case)
    found = {"status": "ok", "params": sum(p.numel() for p in model.parameters())}
    shape = (case["mb"], case["seq"])
    tokens = torch.randint(5, model.config.vocab_size - 5, shape, device="cuda")
    waits = case["kind"] == "generate" or case["mb"] * case["seq"] <= HOST_TOKENS
    before = _measure_pace(torch) if waits else {}
    found |= _time_answers(torch, model, tokens, case) if case["kind"] == "generate" else {}
    found |= _time_steps(torch, model, tokens, case) if case["kind"] == "train" else {}
    return found | ({"pace": [before, _measure_pace(torch)]} if waits else {})


def _measure_pace(torch: Any) -> dict[str, Any]:
    from bench_eager import EagerBench

    bench = EagerBench(torch, torch.device("cuda"))
    return {what: bench.measure(what, 0.05)["median"] for what in ("forward", "backward", "decode")}


def _build(torch: Any, case: dict[str, Any]) -> Any:
    import transformers

    kind, values = case["config"]
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(kind, **values)
    torch.set_default_dtype(torch.float32 if case["prec"] in ("fp32", "amp") else torch.bfloat16)
    with torch.device("cuda"):
        model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
    torch.set_default_dtype(torch.float32)
    return model


def _time_answers(torch: Any, model: Any, tokens: Any, case: dict[str, Any]) -> dict[str, Any]:
    model.eval()
    spent: dict[int, list[float]] = {1: [], case["new"]: []}
    for turn in range(ANSWERS + 1):
        for count, times in spent.items():
            torch.cuda.synchronize()
            begun = time.perf_counter()
            with torch.no_grad():
                options = {"do_sample": False, "pad_token_id": 0, "eos_token_id": None}
                model.generate(tokens, max_new_tokens=count, min_new_tokens=count, **options)
            torch.cuda.synchronize()
            if turn:  # the first one warms up
                times.append(time.perf_counter() - begun)
    first, whole = (statistics.median(times) for times in spent.values())
    answers = [round(each, 6) for each in spent[case["new"]]]
    return {"prefill_s": first, "decode_s": (whole - first) / (case["new"] - 1), "answers_s": answers}


def _time_steps(torch: Any, model: Any, tokens: Any, case: dict[str, Any]) -> dict[str, Any]:
    model.train()
    model.config.use_cache = False
    if case.get("gc"):
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    if case.get("lora"):
        import peft

        if case.get("gc"):
            model.enable_input_require_grads()
        told = peft.LoraConfig(
            r=case["lora"], lora_alpha=case["lora"], target_modules="all-linear", task_type="CAUSAL_LM"
        )
        model = peft.get_peft_model(model, told)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizers = {
        "adamw": lambda: torch.optim.AdamW(trained, lr=1e-5),
        "fused": lambda: torch.optim.AdamW(trained, lr=1e-5, fused=True),
        "sgd": lambda: torch.optim.SGD(trained, lr=1e-5),
    }
    optimizer = optimizers[case["opt"]]()
    steps = [_run_step(torch, model, optimizer, tokens, case) for _ in range(WARM_STEPS + TIMED_STEPS)][WARM_STEPS:]
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        _run_step(torch, model, optimizer, tokens, case)
    kernels = [e for e in seen.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    middle = {f"{part}_s": statistics.median(step[part] for step in steps) for part in steps[0]}
    whole = [step["step"] for step in steps]
    counted = {"kernel_s": sum(e.device_time for e in kernels) / 1e6, "kernels": len(kernels)}
    return {**middle, **counted, "least_s": min(whole), "most_s": max(whole)}


def _run_step(torch: Any, model: Any, optimizer: Any, tokens: Any, case: dict[str, Any]) -> dict[str, float]:
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(4)]
    marks[0].record()
    with torch.autocast("cuda", torch.bfloat16, enabled=case["prec"] == "amp"):
        loss = model(input_ids=tokens, labels=tokens).loss
    marks[1].record()
    loss.backward()
    marks[2].record()
    optimizer.step()
    optimizer.zero_grad()
    marks[3].record()
    torch.cuda.synchronize()
    parts = [marks[i].elapsed_time(marks[i + 1]) / 1e3 for i in range(3)]
    return {"step": marks[0].elapsed_time(marks[3]) / 1e3, "fwd": parts[0], "bwd": parts[1], "opt": parts[2]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--only", default=".")
    parser.add_argument("--budget", type=float, default=330)
    parser.add_argument("--peft")
    given = parser.parse_args()
    from benchmarks.step_time_cases import list_cases

    cases = [case for case in list_cases() if re.search(given.only, case["id"])]
    write_predictions(cases, given.bench, Path(given.out) / "predictions.json")
    sys.path += [given.peft] if given.peft else []
    begun = time.time()
    import torch  # noqa: F401  imported once; the children fork before CUDA is touched
    import transformers

    context = multiprocessing.get_context("fork")
    with (Path(given.out) / "measured.jsonl").open("w") as lines:
        for case in cases:
            if time.time() - begun > given.budget:
                print("budget spent before", case["id"], flush=True)
                break
            queue = context.Queue()
            child = context.Process(target=run_case, args=(case, queue))
            child.start()
            try:
                found = queue.get(timeout=60)
            except Exception:
                found = {"status": "timeout"}
                child.terminate()
            child.join(15)
            lines.write(json.dumps({**case, **found, "transformers": transformers.__version__}) + "\n")
            lines.flush()
            short = found.get("step_s") or found.get("decode_s") or found.get("error") or found["status"]
            print(case["id"], case["model"], short, round(time.time() - begun), flush=True)


if __name__ == "__main__":
    main()
