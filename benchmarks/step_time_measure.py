"""Measure the cases of step_time_cases.py on a GPU, after their predictions have been written down.

    python benchmarks/step_time_measure.py --bench RECORD.json --out FOLDER [--only REGEX] [--budget SECONDS] [--peft FOLDER]

It runs in an interpreter with torch and transformers, the package on PYTHONPATH. First the predictions by that bench record go to
FOLDER/predictions.json, and their SHA-256 is printed; then the cases are run, several in a process: 3 steps to warm up, then at least 8 and
2.5 seconds of them timed by CUDA events, or three answers by the wall clock. Beside each case that waits for the host stands the pace of eager mode in that
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
from collections.abc import Iterator
from pathlib import Path
from queue import Empty
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src/gpuready/prove/scripts")]
WARM_STEPS, TIMED_STEPS, MOST_STEPS, ANSWERS = 3, 8, 60, 3
SHORTEST = (
    2.5  # seconds of steps: other work disturbs a host for a second or two, and the median is to be of what is usual
)
CASES_EACH, CASE_SECONDS = 7, 45  # of a process
HOST_TOKENS = 1100  # steps of fewer tokens wait for the host


def take_shares(pace: str) -> dict[str, Any]:
    """Take what experts and adapters cost the host from a record of eager_pace.py, made on this machine before the cases."""
    from benchmarks.eager_pace import learn_shares

    from gpuready.fit.time import host_pace

    found = learn_shares(pace)
    host_pace.EXPERT_LAYERS.update(found["experts"])
    host_pace.ADAPTER_LAYERS.update(found["adapters"])
    host_pace.CHECKPOINT_LAYERS.update(found["checkpoints"])
    return found


def write_predictions(cases: list[dict[str, Any]], bench: str, path: Path, shares: Any = None) -> None:
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
    path.write_text(json.dumps({"bench": measures, "shares": shares, "cases": rows}, indent=1) + "\n")
    print("predictions", hashlib.sha256(path.read_bytes()).hexdigest(), len(rows), flush=True)


def run_cases(cases: list[dict[str, Any]], queue: Any) -> None:
    """Run cases one after the other in this process: the GPU's context and kernels are loaded once."""
    import gc

    import torch

    for case in cases:
        try:
            queue.put(_measure(case))
        except Exception as error:
            queue.put({"status": "error", "error": f"{type(error).__name__}: {error}"[:300]})
        gc.collect()
        torch.cuda.empty_cache()


def _measure(case: dict[str, Any]) -> dict[str, Any]:
    import torch

    model = _build(torch, case)
    found: dict[str, Any] = {"status": "ok", "params": sum(p.numel() for p in model.parameters())}
    shape = (case["mb"], case["seq"])
    tokens = torch.randint(5, model.config.vocab_size - 5, shape, device="cuda")
    waits = case["kind"] == "generate" or case["mb"] * case["seq"] <= HOST_TOKENS
    passes = ("decode",) if case["kind"] == "generate" else ("forward", "backward")
    if waits:
        found["pace"] = _measure_pace(torch, passes)
    found |= _time_answers(torch, model, tokens, case) if case["kind"] == "generate" else {}
    found |= _time_steps(torch, model, tokens, case) if case["kind"] == "train" else {}
    return found


def _measure_pace(torch: Any, passes: tuple[str, ...]) -> dict[str, Any]:
    from bench_eager import EagerBench

    bench = EagerBench(torch, torch.device("cuda"))
    return {what: bench.measure(what, 0.05)["median"] for what in passes}


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
    steps: list[dict[str, float]] = []
    begun = time.perf_counter()
    while len(steps) < WARM_STEPS + TIMED_STEPS or (time.perf_counter() - begun < SHORTEST and len(steps) < MOST_STEPS):
        steps.append(_run_step(torch, model, optimizer, tokens, case))
    steps = steps[WARM_STEPS:]
    middle = {f"{part}_s": statistics.median(step[part] for step in steps) for part in steps[0]}
    whole = [step["step"] for step in steps]
    return {**middle, "steps": len(whole), "least_s": min(whole), "most_s": max(whole)}


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
    parser.add_argument("--pace", help="a record of eager_pace.py of this machine")
    given = parser.parse_args()
    from benchmarks.step_time_cases import list_cases

    cases = [case for case in list_cases() if re.search(given.only, case["id"])]
    shares = take_shares(given.pace) if given.pace and Path(given.pace).exists() else None
    write_predictions(cases, given.bench, Path(given.out) / "predictions.json", shares)
    sys.path += [given.peft] if given.peft else []
    begun = time.time()
    import torch  # noqa: F401  imported once; the children fork before CUDA is touched
    import transformers

    with (Path(given.out) / "measured.jsonl").open("w") as lines:
        for case, found in _measure_all(cases, begun + given.budget):
            lines.write(json.dumps({**case, **found, "transformers": transformers.__version__}) + "\n")
            lines.flush()
            short = found.get("step_s") or found.get("decode_s") or found.get("error") or found["status"]
            print(case["id"], case["model"], short, round(time.time() - begun), flush=True)


def _measure_all(cases: list[dict[str, Any]], until: float) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Measure in one process after another: a new one after some cases, and after one that does not answer."""
    context = multiprocessing.get_context("fork")
    left = list(cases)
    while left:
        queue = context.Queue()
        child = context.Process(target=run_cases, args=(left[:CASES_EACH], queue))
        child.start()
        for case in left[:CASES_EACH]:
            left.remove(case)
            if time.time() > until:
                child.terminate()
                return
            try:
                found = queue.get(timeout=CASE_SECONDS)
            except Empty:
                found = {"status": "timeout"}
            yield case, found
            if found["status"] == "timeout":
                break
        child.terminate()
        child.join(10)


if __name__ == "__main__":
    main()
