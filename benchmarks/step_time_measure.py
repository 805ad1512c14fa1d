"""Measure the cases of step_time_cases.py on a GPU, after their predictions have been written down.

    python benchmarks/step_time_measure.py --bench RECORD.json --out FOLDER [--only REGEX] [--rounds 3] [--budget SECONDS] [--peft FOLDER]

It runs in an interpreter with torch and transformers, the package on PYTHONPATH. With ``--dev REGEX`` those cases are measured before anything
is predicted, and tell how much longer real models take the host than the bench's. Then the predictions by that bench record go to
FOLDER/predictions.json, and their SHA-256 is printed; then the cases are run, several in a process: 3 steps to warm up, then at least 6 and
0.8 seconds of them (3 of long ones), or two answers, timed by CUDA events. Every case begins on cores drawn anew, as in a process of its own. Each runs once; then those that wait
for the host, by the prediction, in ``--rounds`` processes; then the others again. Its time is the median of its processes, and ``rounds`` has all of them. What waits for the host
is timed once more with its threads moved to other cores before every step, or every few tokens: ``moved_s``, the mean over the cores.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import random
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Empty
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src/gpuready/prove/scripts")]
WARM_STEPS, TIMED_STEPS, MOST_STEPS, ANSWERS = 3, 6, 60, 2
MOVED_STEPS, MOVED_LONG = 8, 4  # steps on other cores, and of long ones
TOKENS_EACH = 4  # tokens of an answer between two moves to other cores
LONG, LONG_STEPS = 0.25, (2, 3)  # a step of so many seconds waits for no host: fewer of them, to warm up and timed
SHORTEST = 0.8  # seconds of steps
CASES_EACH, CASE_SECONDS = 11, 40  # of a process


def take_shares(pace: str) -> dict[str, Any]:
    """Take what experts and adapters cost the host from a record of eager_pace.py, made on this machine before the cases."""
    from benchmarks.eager_pace import learn_shares

    from gpuready.fit.time import device_speed

    found = learn_shares(pace)
    device_speed.EXPERT_LAYERS.update(found["experts"])
    device_speed.ADAPTER_LAYERS.update(found["adapters"])
    device_speed.CHECKPOINT_LAYERS.update(found["checkpoints"])
    return found


def write_predictions(cases: list[dict[str, Any]], bench: str, path: Path, shares: Any = None) -> set[str]:
    """Write the predictions, print their hash, and return which cases wait for the host."""
    from benchmarks.step_time import make_job, make_speed, read_record

    from gpuready.fit import H200
    from gpuready.fit.time.prediction import predict_time

    measures = read_record(bench)
    speed = make_speed(measures)
    rows = [{"id": c["id"], "predicted": predict_time(make_job(c), H200, speed).to_json()} for c in cases]
    path.write_text(json.dumps({"bench": measures, "shares": shares, "cases": rows}, indent=1) + "\n")
    print("predictions", hashlib.sha256(path.read_bytes()).hexdigest(), len(rows), flush=True)
    return {row["id"] for row in rows if row["predicted"]["bound_by"] == "launches"}


def run_cases(cases: list[dict[str, Any]], queue: Any) -> None:
    """Run cases one after the other in this process: the GPU's context and kernels are loaded once."""
    import gc

    import torch
    from bench_eager import move_threads

    for case in cases:
        move_threads()
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
    timed = _time_answers(torch, model, tokens, case) if case["kind"] == "generate" else None
    return {**found, **(timed or _time_steps(torch, model, tokens, case))}


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
    first = _time_answer(torch, model, tokens, case)  # every length is new
    still = [_time_answer(torch, model, tokens, case) for _ in range(ANSWERS)]
    found = {name: statistics.median(one[name] for one in still) for name in first}
    if case.get("waits"):
        moved = [_time_answer(torch, model, tokens, case, moves=True) for _ in range(ANSWERS)]
        found["moved_s"] = statistics.fmean(one["decode_s"] for one in moved)
    return {**found, "first_s": first["decode_s"]}


def _time_answer(torch: Any, model: Any, tokens: Any, case: dict[str, Any], moves: bool = False) -> dict[str, float]:
    """Time the tokens of an answer: an event before each call of the model, and one after the last."""
    from bench_eager import move_threads

    marks: list[Any] = []

    def mark(*_: Any) -> None:
        if moves and len(marks) % TOKENS_EACH == 1:
            move_threads()
        marks.append(torch.cuda.Event(enable_timing=True))
        marks[-1].record()

    hook = model.register_forward_pre_hook(mark)
    with torch.no_grad():
        options = {"do_sample": False, "pad_token_id": 0, "eos_token_id": None}
        model.generate(tokens, max_new_tokens=case["new"], min_new_tokens=case["new"], **options)
    hook.remove()
    mark()
    torch.cuda.synchronize()
    decode = marks[1].elapsed_time(marks[-1]) / 1e3 / (len(marks) - 2)
    return {"prefill_s": marks[0].elapsed_time(marks[1]) / 1e3, "decode_s": decode}


def _time_steps(torch: Any, model: Any, tokens: Any, case: dict[str, Any]) -> dict[str, Any]:
    model.train()
    model.config.use_cache = False
    if case.get("gc"):
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    if case.get("lora"):
        import peft

        if case.get("gc"):
            model.enable_input_require_grads()
        settings = peft.LoraConfig(
            r=case["lora"], lora_alpha=case["lora"], target_modules="all-linear", task_type="CAUSAL_LM"
        )
        model = peft.get_peft_model(model, settings)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizers = {
        "adamw": lambda: torch.optim.AdamW(trained, lr=1e-5),
        "fused": lambda: torch.optim.AdamW(trained, lr=1e-5, fused=True),
        "sgd": lambda: torch.optim.SGD(trained, lr=1e-5),
    }
    optimizer = optimizers[case["opt"]]()
    steps = [_run_step(torch, model, optimizer, tokens, case) for _ in range(2)]
    warm, timed = LONG_STEPS if steps[-1]["step"] > LONG else (WARM_STEPS, TIMED_STEPS)
    begun = time.perf_counter()
    while len(steps) < warm + timed or (time.perf_counter() - begun < SHORTEST and len(steps) < MOST_STEPS):
        steps.append(_run_step(torch, model, optimizer, tokens, case))
    steps = steps[warm:]
    middle = {f"{part}_s": statistics.median(step[part] for step in steps) for part in steps[0]}
    whole = [step["step"] for step in steps]
    if case.get("waits"):
        count = MOVED_LONG if middle["step_s"] > LONG else MOVED_STEPS
        middle["moved_s"] = _time_moved_steps(count, lambda: _run_step(torch, model, optimizer, tokens, case))
    return {**middle, "steps": len(whole), "least_s": min(whole), "most_s": max(whole)}


def _time_moved_steps(count: int, run: Callable[[], dict[str, float]]) -> float:
    """Return the mean of steps that begin on other cores each."""
    from bench_eager import move_threads

    spent = []
    for _ in range(count):
        move_threads()
        spent.append(run()["step"])
    return statistics.fmean(spent)


def _run_step(torch: Any, model: Any, optimizer: Any, tokens: Any, case: dict[str, Any]) -> dict[str, float]:
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(4)]
    marks[0].record()
    for _ in range(case.get("accum", 1)):
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
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dev", help="cases that are measured first, and from which REAL_SHARES is taken")
    parser.add_argument("--peft")
    parser.add_argument("--pace", help="a record of eager_pace.py of this machine")
    requested = parser.parse_args()
    from benchmarks.step_time_cases import list_cases

    cases = [case for case in list_cases() if re.search(requested.only, case["id"])]
    known = [case for case in list_cases() if requested.dev and re.search(requested.dev, case["id"])]
    shares = take_shares(requested.pace) if requested.pace and Path(requested.pace).exists() else {}
    sys.path += [requested.peft] if requested.peft else []
    until = time.time() + requested.budget
    import torch  # noqa: F401  imported once; the children fork before CUDA is touched

    if known:
        rows = measure_rounds([shuffle(known, turn) for turn in range(2)], until, Path(requested.out) / "dev.jsonl")
        shares |= {"real": take_real_shares(rows, requested.bench)}
    waiting = write_predictions(cases, requested.bench, Path(requested.out) / "predictions.json", shares)
    measure_rounds(plan_rounds(cases, waiting, requested.rounds), until, Path(requested.out) / "measured.jsonl")


def plan_rounds(cases: list[dict[str, Any]], waiting: set[str], rounds: int) -> list[list[dict[str, Any]]]:
    """Return the cases of every round: all, then those that wait for the host, then the others."""
    marked = [{**case, "waits": case["id"] in waiting} for case in cases]
    waits, others = ([case for case in marked if case["waits"] is answer] for answer in (True, False))
    return [shuffle(one, turn) for turn, one in enumerate([marked, *[waits] * (rounds - 1), others])]


def take_real_shares(rows: list[dict[str, Any]], bench: str) -> dict[str, Any]:
    """Take how much longer real models take the host from cases that were measured before."""
    from benchmarks.step_time import learn_real_shares, read_record

    from gpuready.fit.time import device_speed

    found = learn_real_shares([row for row in rows if row["status"] == "ok"], read_record(bench))
    for name in ("forward", "backward", "decode"):
        if found[name]:
            device_speed.REAL_SHARES[name] = round(statistics.median(found[name]), 3)
    device_speed.REAL_SHARES["token"] = device_speed.REAL_SHARES["decode"]
    print("real shares", device_speed.REAL_SHARES, found, flush=True)
    return {"taken": dict(device_speed.REAL_SHARES), "found": found}


def measure_rounds(rounds: list[list[dict[str, Any]]], until: float, path: Path) -> list[dict[str, Any]]:
    """Measure every case of these rounds; what is known so far is written after each."""
    import transformers

    found_by: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {}
    lines: list[dict[str, Any]] = []
    for turn, cases in enumerate(rounds):
        for case, found in _measure_all(cases, until):
            found_by.setdefault(case["id"], (case, []))[1].append(found)
            short = found.get("step_s") or found.get("decode_s") or found.get("error") or found["status"]
            print(turn, case["id"], case["model"], short, round(until - time.time()), flush=True)
            lines = [{**one, **merge_rounds(several)} for one, several in found_by.values()]
            text = "".join(json.dumps({**line, "transformers": transformers.__version__}) + "\n" for line in lines)
            path.write_text(text)
    return lines


def shuffle(cases: list[dict[str, Any]], turn: int) -> list[dict[str, Any]]:
    """Return the cases in another order for each round, so that none has the same neighbours twice."""
    return random.Random(turn).sample(cases, len(cases))


def merge_rounds(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the median of every time over the processes that measured a case."""
    good = [one for one in rounds if one["status"] == "ok"]
    if not good:
        return rounds[-1]
    times = [name for name in good[0] if name.endswith("_s")]
    merged = {name: statistics.median(one[name] for one in good) for name in times}
    main = "step_s" if "step_s" in merged else "decode_s"
    return {**good[0], **merged, "rounds": [one[main] for one in good]}


def _measure_all(cases: list[dict[str, Any]], until: float) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Measure in one process after another: a new one after some cases, and after one that does not answer."""
    context = multiprocessing.get_context("fork")
    left = list(cases)
    while left and time.time() < until:
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
