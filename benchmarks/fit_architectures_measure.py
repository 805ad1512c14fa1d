"""Measure what model types hold on a GPU: the cases of fit_architecture_cases.json, each in a process of its own.

    python benchmarks/fit_architectures_measure.py --predictions FILE [--out DIR] [--only RE] [--deadline 400] [--beside 8]

It runs in the interpreter that is measured (torch, transformers, peft, bitsandbytes where it is there) and needs nothing of
the package. Written are ``exam.jsonl`` and ``exam-tapes.jsonl.gz``, as fit_measure.py writes them. Cases of ``caps`` run again
just over and clearly under the smallest reserve that is said to survive. ``--dry`` plays on the CPU, to try the script.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import inspect
import json
import os
import re
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from fit_architecture_inputs import RealBatch
from fit_measure import DEFAULTS, OVER, UNDER, Meter, Turns, Waiting, held, keep_tape, used, versions
from fit_play import finish, generate, optimizer, preference, quantised, quickly

HERE = Path(__file__).resolve().parent
STEPS = 3
MOST_STEPS = 15  # of fp16: a step whose gradients overflow is skipped, and has no optimizer state yet
WIDTHS = {"bf16": "bfloat16", "fp16": "float16"}


def build_model(job: Any, config: dict[str, Any], device: str) -> Any:
    """The class that the config names, else the causal one, with random weights."""
    import torch
    import transformers

    fields = dict(config)
    made = transformers.AutoConfig.for_model(fields.pop("model_type"), **fields)
    for one in {id(c): c for c in (made, made.get_text_config())}.values():
        for name in ("decoder_start_token_id", "pad_token_id", "bos_token_id"):
            if getattr(one, name, None) is None:
                setattr(one, name, 0)
    named = (config.get("architectures") or [""])[0]
    found = getattr(transformers, named) if named else transformers.AutoModelForCausalLM
    width = getattr(torch, WIDTHS.get(job.precision, "float32"))
    build = getattr(found, "_from_config", None) or found.from_config
    with (
        torch.device("cpu" if job.quant else device),
        quickly(torch) if job.quant or device == "cpu" else contextlib.nullcontext(),
    ):
        model = build(made, dtype=width)
    if not job.quant:
        model.to(device)  # torch.Tensor(n) does not follow the default device
    model.tie_weights()
    widen_kept(model, width)
    return model


def widen_kept(model: Any, width: Any) -> None:
    """Parameters that transformers loads in fp32 whatever is asked for, by its own plan."""
    import torch
    from transformers.core_model_loading import build_glob_alternation

    if plan := model._get_dtype_plan(width):
        pattern = build_glob_alternation(list(plan))[0]
        loaded = set(model.state_dict())
        for name, one in (*model.named_parameters(), *model.named_buffers()):
            if name in loaded and one.is_floating_point() and pattern.search(name):
                one.data = one.data.to(torch.float32)


def add_adapters(model: Any, job: Any, device: str) -> Any:
    from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training

    if job.quant:
        quantised(model, job, device)
    if job.kbit:
        model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
    targets = {"all": "all-linear", "qv": ["q_proj", "v_proj"]}.get(str(job.lora_targets), job.lora_targets)
    kind = "CAUSAL_LM" if type(model).__name__.endswith(("ForCausalLM", "LMHeadModel")) else None
    settings = LoraConfig(
        r=job.lora_r, lora_alpha=2 * job.lora_r, target_modules=targets, lora_dropout=job.lora_dropout, use_dora=job.dora, task_type=kind
    )  # fmt: skip
    return get_peft_model(model, settings, autocast_adapter_dtype=job.lora_dtype == "fp32")


def train(job: Any, model: Any, inner: Any, other: Any, device: str, meter: Meter) -> None:
    """Steps of a plain loop until the optimizer ran a few times; ``other`` is the reference of DPO."""
    import torch

    amp = job.precision if job.precision.startswith("amp") else job.autocast
    half = torch.float16 if amp.endswith("fp16") else torch.bfloat16
    scaler = torch.amp.GradScaler(device, init_scale=128.0) if amp.endswith("fp16") else None
    parameters = [p for p in model.parameters() if p.requires_grad]
    stepping = optimizer(job, parameters)
    batch = RealBatch(job, inner, inner.config, device).make()
    if "use_cache" in inspect.signature(inner.forward).parameters:
        batch["use_cache"] = False
    taken = 0
    for step in range(MOST_STEPS):
        for micro in range(job.accumulation):
            tag = f"{step}" if job.accumulation == 1 else f"{step}.{micro}"
            with torch.autocast(device, dtype=half) if amp else contextlib.nullcontext():
                loss = find_loss(model, other, batch, lambda tag=tag: meter.mark(f"ref{tag}"))
                if job.accumulation > 1:
                    loss = loss / job.accumulation
            meter.mark(f"fwd{tag}")
            (scaler.scale(loss) if scaler else loss).backward()
            del loss
            meter.mark(f"bwd{tag}")
        scale = scaler.get_scale() if scaler else 0.0
        finish(job, parameters, stepping, scaler, meter, step)
        taken += not scaler or scaler.get_scale() >= scale
        if taken == STEPS:
            return


def find_loss(model: Any, other: Any, batch: dict[str, Any], done: Any) -> Any:
    if other is None:
        return model(**batch).loss
    beside = {name: value for name, value in batch.items() if name not in ("input_ids", "labels")}
    return preference(model, other, batch["input_ids"], beside, done)


def play(case: dict[str, Any], device: str, out: str) -> dict[str, Any]:
    """One case from the bare process on."""
    import torch

    job = argparse.Namespace(**(DEFAULTS | case["job"]))
    cuda, meter = device == "cuda", Meter(torch, device)
    if cuda and case.get("cap"):
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, case["cap"] / total))
    elif cuda:
        torch.cuda.memory._record_memory_history(enabled="all", context=None, max_entries=400_000)
    torch.manual_seed(0)
    found = {**case, "status": "ok"}
    try:
        run_case(job, case["config"], device, meter, found)
    except torch.OutOfMemoryError:
        found["status"] = "oom"
    except Exception as wrong:
        found |= {"status": "error", "said": f"{type(wrong).__name__}: {wrong}"[:600]}
    found |= {"allocated": meter.allocated, "reserved": meter.reserved, "phases": meter.phases, "versions": versions()}
    if cuda and not case.get("cap") and found["status"] == "ok":
        keep_tape(torch, case["id"], meter, out)
        found["device"], own = used(), held()
        found |= {"outside": own - torch.cuda.memory_reserved()} if own else {}
    return found


def run_case(job: Any, config: dict[str, Any], device: str, meter: Meter, found: dict[str, Any]) -> None:
    import torch

    inner = model = build_model(job, config, device)
    found |= {"class": type(model).__name__, "parameters": sum(p.numel() for p in model.parameters())}
    if job.method != "full":
        model = add_adapters(model, job, device)
    other = build_model(job, config, device).eval().requires_grad_(False) if job.dpo else None
    if job.task == "train":
        model.train()
    if job.checkpointing != "none":
        kinds = {"use_reentrant": job.checkpointing == "reentrant"}
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=kinds)
        if job.method != "full" or kinds["use_reentrant"]:
            model.enable_input_require_grads()
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()
    meter.mark("build", counts=False)
    if job.task == "generate":
        words = (8, model.config.get_text_config().vocab_size - 2)
        generate(job, model.eval(), words, device, meter, not model.config.is_encoder_decoder)
    else:
        train(job, model, inner, other, device, meter)


def shorten(case: dict[str, Any]) -> dict[str, Any]:
    """A case that a CPU plays in seconds."""
    config = {k: 1 if re.search(r"(layers|n_layer)$", k) else v for k, v in case["config"].items()}
    return {**case, "config": config, "job": {**case["job"], "seq": min(case["job"]["seq"], 32), "micro_batch": 1}}


class CaseProcess(Waiting):
    """A process that imports what a case needs while another is measured."""

    def __init__(self) -> None:
        words = [sys.executable, __file__, "--one"]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def run_one() -> None:
    import torch  # noqa: F401
    from transformers import AutoModelForCausalLM  # noqa: F401

    document = json.loads(sys.stdin.read())
    print("\n" + json.dumps(play(document["case"], document["device"], document["out"])), flush=True)
    os._exit(0)


def list_runs(args: argparse.Namespace) -> tuple[list[dict[str, Any]], list[float]]:
    """The cases, those under caps, and what each is said to hold in GiB."""
    frozen = json.loads(Path(args.predictions).read_text())["cases"] if args.predictions else {}
    cases = json.loads(Path(args.cases).read_text())["cases"]
    cases = [case for case in cases if re.search(args.only, case["id"])]
    for case in [c for c in cases if c.get("caps") and "minimum" in frozen.get(c["id"], {})]:
        for share in (OVER, UNDER):
            cap = int(frozen[case["id"]]["minimum"] * share)
            cases.append({**case, "cap": cap, "says": "fits" if share > 1 else "does not fit"})
    return cases, [frozen.get(c["id"], {}).get("reserved", 8 << 30) / 2**30 + 1 for c in cases]


def work(args: argparse.Namespace, turns: Turns, lock: threading.Lock) -> None:
    """Run one case after the other, the next process importing already."""
    waiting = CaseProcess()
    while turn := turns.take():
        size, case = turn
        left, start = args.deadline - (time.monotonic() - args.begun), time.monotonic()
        if left > 5:
            now, waiting = waiting, CaseProcess()
            case = shorten(case) if args.dry else case
            line = json.dumps({"case": case, "device": "cpu" if args.dry else "cuda", "out": args.out})
            found = now.reported(line, min(args.each, left)) or {
                **case,
                "status": "killed",
                "allocated": 0,
                "reserved": 0,
            }
            found["seconds"] = round(time.monotonic() - start, 1)
            with lock, Path(args.out, "exam.jsonl").open("a") as file:
                file.write(json.dumps(found) + "\n")
            print(
                case["id"], case.get("says", ""), found["status"], found.get("said", ""), found["seconds"], flush=True
            )
        else:
            print(case["id"], "not run: the deadline", flush=True)
        turns.give(size)
    waiting.process.kill()
    waiting.process.communicate()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--predictions", default="")
    parser.add_argument("--cases", default=str(HERE / "fit_architecture_cases.json"))
    parser.add_argument("--out", default=os.environ.get("OUT") or ".")
    parser.add_argument("--only", default="")
    parser.add_argument("--deadline", type=float, default=400.0)
    parser.add_argument("--each", type=float, default=90.0)
    parser.add_argument("--beside", type=int, default=8)
    parser.add_argument("--room", type=float, default=120.0)
    parser.add_argument("--dry", action="store_true")
    parser.add_argument("--one", action="store_true")
    args = parser.parse_args()
    os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    if args.one:
        run_one()
    args.begun = time.monotonic()
    turns, lock = Turns(*list_runs(args), args.room), threading.Lock()
    with ThreadPoolExecutor(args.beside) as pool:
        for done in [pool.submit(work, args, turns, lock) for _ in range(args.beside)]:
            done.result()
    return 0


if __name__ == "__main__":
    sys.exit(main())
