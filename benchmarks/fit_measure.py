"""Measure what jobs really hold on a GPU, case by case, each in a process of its own.

    python benchmarks/fit_measure.py [--out DIR] [--predictions FILE] [--only RE] [--skip RE] [--deadline 440] [--dry]

It runs in the interpreter that is measured: torch, transformers and peft, and bitsandbytes where it is there; the package
itself is not needed. The cases are those of fit_cases.json, in the words of ``tarmac.fit.Job``. The parent imports the libraries
once and owns no CUDA context; every case is a fork of it. Written are ``exam.jsonl``, one line a case (bytes: ``allocated``,
``reserved``, ``device``, ``phases``), and ``exam-tapes.jsonl.gz``, what the allocator was asked (a number is an allocation,
its complement frees the n-th one, text ends a phase).

With the frozen predictions (``fit_exam.py freeze``) the cases marked ``caps`` run again under two caps: just over the
smallest reserve that is said to survive, and clearly under it. ``--dry`` plays tiny models on the CPU.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import gzip
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
STEPS = 3
OVER, UNDER = 1.004, 0.975  # caps, as shares of the smallest reserve that is said to survive
LARGEST_TAPE = 300_000  # events
TINY = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "vocab_size": 128, "n_embd": 64, "n_layer": 2, "n_head": 4, "moe_intermediate_size": 32, "num_experts": 4,
    "num_experts_per_tok": 2, "num_local_experts": 4, "head_dim": 16, "sliding_window": 8, "shared_expert_intermediate_size": 32,
}  # fmt: skip
DEFAULTS: dict[str, Any] = {
    "method": "full", "precision": "bf16", "optimizer": "adamw", "checkpointing": "none", "attention": "sdpa",
    "accumulation": 1, "loss": "plain", "lora_r": 16, "lora_targets": "all", "lora_dtype": "fp32", "lora_dropout": 0.0,
    "dora": False, "autocast": "", "quant": "", "double_quant": False, "kbit": False, "keep_outputs": False,
    "padded": False, "dpo": False, "clip": True, "loop": "plain", "alloc_conf": "", "task": "train", "new_tokens": 32,
    "cache": "dynamic", "experts": "grouped_mm",
}  # fmt: skip
IMPLEMENTATIONS = {"sdpa": "sdpa", "eager": "eager", "flash": "flash_attention_2"}
TRAINER_OPTIMIZERS = {"adamw": "adamw_torch", "adamw_fused": "adamw_torch_fused", "sgd": "sgd"}


class Meter:
    """The allocator's own peaks, phase by phase."""

    def __init__(self, torch: Any, device: str) -> None:
        self.cuda = torch.cuda if device == "cuda" else None
        self.phases: dict[str, list[int]] = {}
        self.times: list[tuple[int, str]] = []
        self.allocated = self.reserved = 0

    def mark(self, phase: str, counts: bool = True) -> None:
        """A phase ends: its peaks are kept and start anew."""
        self.times.append((time.time_ns() // 1000, phase))
        if self.cuda is None:
            return
        said = self.cuda.memory_stats()
        peaks = said["allocated_bytes.all.peak"], said["reserved_bytes.all.peak"]
        self.phases[phase] = [*peaks, said["allocated_bytes.all.current"]]
        if counts:
            self.allocated, self.reserved = max(self.allocated, peaks[0]), max(self.reserved, peaks[1])
        self.cuda.reset_peak_memory_stats()


# ------------------------------------------------------------------------------------------------- models
def built(job: Any, config: dict[str, Any], device: str) -> Any:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    fields = dict(config)
    made = AutoConfig.for_model(fields.pop("model_type"), **fields)
    made.bos_token_id = made.eos_token_id = None
    made.pad_token_id = 0
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(job.precision, torch.float32)
    told = {"attn_implementation": IMPLEMENTATIONS[job.attention], "dtype": dtype}
    if "num_experts_per_tok" in config:
        told["experts_implementation"] = job.experts
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(made, **told)
    model.tie_weights()
    return model


def quantised(model: Any, job: Any, device: str) -> None:
    """Linear layers in four bits or eight, as bitsandbytes has them.

    The model lies on the host; weight by weight it comes to the device, as a loader does it. Quantising what already lies
    on the device leaves a hole in its memory for every weight.
    """
    import bitsandbytes as bnb
    import torch

    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is not torch.nn.Linear or name in ("lm_head", "embed_out"):
                continue
            bias = child.bias is not None
            if job.quant == "int8":
                made = bnb.nn.Linear8bitLt(
                    child.in_features,
                    child.out_features,
                    bias,
                    has_fp16_weights=False,
                    threshold=6.0,
                    device="meta",
                )
                made.weight = bnb.nn.Int8Params(
                    child.weight.data, requires_grad=False, has_fp16_weights=False
                ).to(device)
            else:
                made = bnb.nn.Linear4bit(
                    child.in_features, child.out_features, bias, compute_dtype=torch.bfloat16, device="meta"
                )
                kinds = {"compress_statistics": job.double_quant, "quant_type": job.quant}
                made.weight = bnb.nn.Params4bit(child.weight.data, requires_grad=False, **kinds).to(device)
            if bias:
                made.bias = child.bias
            setattr(parent, name, made)
    model.to(device)
    setattr(model, "is_loaded_in_8bit" if job.quant == "int8" else "is_loaded_in_4bit", True)


def adapted(model: Any, job: Any, config: dict[str, Any], device: str) -> Any:
    from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training

    if job.quant:
        quantised(model, job, device)
        if job.kbit:
            model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
    targets: Any = "all-linear" if job.lora_targets == "all" else job.lora_targets
    if targets == "qv":
        targets = {"gpt_neox": ["query_key_value"], "gpt2": ["c_attn"], "phi3": ["qkv_proj"]}.get(
            config["model_type"], ["q_proj", "v_proj"]
        )
    told = LoraConfig(
        r=job.lora_r, lora_alpha=2 * job.lora_r, target_modules=targets, lora_dropout=job.lora_dropout,
        use_dora=job.dora, task_type="CAUSAL_LM", fan_in_fan_out=config["model_type"] == "gpt2",
    )  # fmt: skip
    return get_peft_model(model, told, autocast_adapter_dtype=job.lora_dtype == "fp32")


def optimizer(job: Any, parameters: list[Any]) -> Any:
    import torch

    name = job.optimizer
    if name.startswith("adamw") and not name.endswith("8bit"):
        return torch.optim.AdamW(parameters, lr=1e-5, foreach=name == "adamw", fused=name == "adamw_fused")
    if name.startswith("sgd"):
        return torch.optim.SGD(parameters, lr=1e-5, momentum=0.9 if name == "sgd_momentum" else 0.0)
    if name == "adafactor_torch":
        return torch.optim.Adafactor(parameters, lr=1e-5)
    if name == "adafactor":
        from transformers.optimization import Adafactor

        return Adafactor(parameters, lr=1e-5, scale_parameter=False, relative_step=False)
    import bitsandbytes as bnb

    return bnb.optim.AdamW(
        parameters, lr=1e-5, optim_bits=8 if name.endswith("8bit") else 32, is_paged=name.startswith("paged")
    )


# ------------------------------------------------------------------------------------------------ training
def ready(job: Any, config: dict[str, Any], device: str) -> tuple[Any, Any]:
    """The model as the job trains it, and the reference beside it."""
    model = built(job, config, "cpu" if job.quant else device)
    if job.method != "full":
        model = adapted(model, job, config, device)
    other = None
    if job.dpo:
        other = built(job, config, device).eval().requires_grad_(False)
    model.train()
    if job.checkpointing != "none":
        model.gradient_checkpointing_enable(
            gradient_checkpointing_kwargs={"use_reentrant": job.checkpointing == "reentrant"}
        )
        if job.method != "full" or job.checkpointing == "reentrant":
            model.enable_input_require_grads()
    return model, other


def log_probabilities(model: Any, ids: Any, beside: dict[str, Any]) -> Any:
    """Row by row, as trl does it for 16-bit logits."""
    import torch

    logits = model(input_ids=ids, **beside).logits[:, :-1]
    rows = []
    for row, label in zip(logits, ids[:, 1:], strict=True):
        rows.append(torch.nn.functional.log_softmax(row, dim=-1).gather(-1, label.unsqueeze(-1)).squeeze(-1))
    return torch.stack(rows).sum(-1)


def preference(model: Any, other: Any, ids: Any, beside: dict[str, Any], done: Any) -> Any:
    import torch

    with torch.no_grad():
        theirs = log_probabilities(other, ids, beside)
    done()
    mine = log_probabilities(model, ids, beside)
    chosen, rejected = (mine - theirs).chunk(2)
    return -torch.nn.functional.logsigmoid(0.1 * (chosen - rejected)).mean()


def train(job: Any, model: Any, other: Any, vocabulary: int, device: str, meter: Meter) -> None:
    import torch

    amp = job.precision if job.precision.startswith("amp") else job.autocast
    half = torch.float16 if amp.endswith("fp16") and device == "cuda" else torch.bfloat16
    scaler = torch.amp.GradScaler("cuda") if amp.endswith("fp16") and device == "cuda" else None
    parameters = [p for p in model.parameters() if p.requires_grad]
    stepping = optimizer(job, parameters)
    rows = job.micro_batch * (2 if job.dpo else 1)
    ids = torch.randint(0, vocabulary, (rows, job.seq), device=device)
    beside: dict[str, Any] = {"use_cache": False}
    if job.padded:
        beside["attention_mask"] = torch.ones(rows, job.seq, dtype=torch.long, device=device)
        beside["attention_mask"][0, job.seq - job.seq // 8 :] = 0
    for step in range(STEPS):
        for micro in range(job.accumulation):
            tag = f"{step}" if job.accumulation == 1 else f"{step}.{micro}"
            outputs = None
            with torch.autocast(device, dtype=half) if amp else contextlib.nullcontext():
                if job.dpo:
                    loss = preference(model, other, ids, beside, lambda tag=tag: meter.mark(f"ref{tag}"))
                elif job.keep_outputs:
                    outputs = model(input_ids=ids, labels=ids, **beside)
                    loss = outputs.loss
                else:
                    loss = model(input_ids=ids, labels=ids, **beside).loss
                if job.accumulation > 1:
                    loss = loss / job.accumulation
            meter.mark(f"fwd{tag}")
            (scaler.scale(loss) if scaler else loss).backward()
            loss = outputs = None
            meter.mark(f"bwd{tag}")
        finish(job, parameters, stepping, scaler, meter, step)


def finish(job: Any, parameters: list[Any], stepping: Any, scaler: Any, meter: Meter, step: int) -> None:
    import torch

    if scaler:
        scaler.unscale_(stepping)
    if job.clip:
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
    meter.mark(f"clip{step}")
    if scaler:
        scaler.step(stepping)
        scaler.update()
    else:
        stepping.step()
    meter.mark(f"opt{step}")
    stepping.zero_grad(set_to_none=True)
    meter.mark(f"zero{step}")


def by_trainer(job: Any, model: Any, vocabulary: int, device: str, meter: Meter, out: str) -> None:
    import torch
    from transformers import Trainer, TrainingArguments

    told = TrainingArguments(
        output_dir=out, max_steps=STEPS, per_device_train_batch_size=job.micro_batch, bf16=job.autocast == "bf16",
        gradient_accumulation_steps=job.accumulation, optim=TRAINER_OPTIMIZERS[job.optimizer], report_to=[],
        save_strategy="no", logging_strategy="no", gradient_checkpointing=job.checkpointing != "none", use_cpu=device == "cpu",
        gradient_checkpointing_kwargs={"use_reentrant": job.checkpointing == "reentrant"} if job.checkpointing != "none" else None,
    )  # fmt: skip
    count = job.micro_batch * job.accumulation * STEPS
    ids = torch.randint(0, vocabulary, (count, job.seq))
    rows = [{"input_ids": row, "labels": row} for row in ids]
    Trainer(model=model, args=told, train_dataset=rows).train()
    meter.mark("train")


def generate(job: Any, model: Any, vocabulary: int, device: str, meter: Meter) -> None:
    """A prefill alone, then an answer."""
    import torch

    ids = torch.randint(1, vocabulary, (job.micro_batch, job.seq), device=device)
    told = {
        "max_new_tokens": job.new_tokens,
        "min_new_tokens": job.new_tokens,
        "do_sample": False,
        "use_cache": True,
    }
    told |= {"pad_token_id": 0, "eos_token_id": None, "disable_compile": True}
    told |= {"cache_implementation": "static"} if job.cache == "static" else {}
    with torch.inference_mode():
        first = model(input_ids=ids, use_cache=True, logits_to_keep=1)
        meter.mark("prefill")
        del first
        meter.mark("freed", counts=False)
        model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), **told)
        meter.mark("generate")


# --------------------------------------------------------------------------------------------- one process
def play(case: dict[str, Any], config: dict[str, Any], device: str, out: str) -> dict[str, Any]:
    """One case from the bare process on."""
    import torch

    job = argparse.Namespace(**(DEFAULTS | case["job"]))
    cuda, meter = device == "cuda", Meter(torch, device)
    if cuda:
        if job.alloc_conf:
            torch.cuda.memory._set_allocator_settings(job.alloc_conf)
        total = torch.cuda.get_device_properties(0).total_memory
        if case.get("cap"):
            torch.cuda.set_per_process_memory_fraction(min(1.0, case["cap"] / total))
        else:
            torch.cuda.memory._record_memory_history(enabled="all", context=None, max_entries=LARGEST_TAPE)
    torch.manual_seed(0)
    status, said = "ok", ""
    try:
        model, other = (
            (built(job, config, device).eval(), None)
            if job.task == "generate"
            else ready(job, config, device)
        )
        gc.collect()
        if cuda:
            torch.cuda.empty_cache()
        meter.mark("build", counts=False)
        if job.task == "generate":
            generate(job, model, model.config.vocab_size, device, meter)
        elif job.loop == "trainer":
            by_trainer(job, model, model.config.vocab_size, device, meter, out)
        else:
            train(job, model, other, model.config.vocab_size, device, meter)
    except Exception as wrong:
        status = (
            "oom"
            if isinstance(wrong, torch.OutOfMemoryError)
            else "absent"
            if isinstance(wrong, ImportError)
            else "error"
        )
        said = f"{type(wrong).__name__}: {wrong}"[:600]
    found = {**case, "config": config, "status": status, "said": said, "allocated": meter.allocated}
    found |= {"reserved": meter.reserved, "phases": meter.phases}
    if cuda and not case.get("cap") and status == "ok":
        keep_tape(torch, case["id"], meter, out)
    if cuda:
        found["retries"] = torch.cuda.memory_stats().get("num_alloc_retries", 0)
        found["device"] = used()
    return found


def keep_tape(torch: Any, name: str, meter: Meter, out: str) -> None:
    """What the allocator was asked, in its own order."""
    events: list[int | str] = []
    numbers: dict[int, int] = {}
    marks, births = list(meter.times), 0
    for entry in torch.cuda.memory._snapshot()["device_traces"][0]:
        while marks and entry.get("time_us", 0) > marks[0][0]:
            events.append(marks.pop(0)[1])
        if entry["action"] == "alloc":
            numbers[entry["addr"]] = births
            births += 1
            events.append(entry["size"])
        elif entry["action"] == "free_completed" and entry["addr"] in numbers:
            events.append(~numbers.pop(entry["addr"]))
    with gzip.open(Path(out) / "exam-tapes.jsonl.gz", "at", compresslevel=6) as file:
        file.write(json.dumps({"id": name, "events": events}, separators=(",", ":")) + "\n")


def used() -> int:
    """Bytes in use on the first GPU, by NVML; 0 where there is none."""
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return 0
    handle, sizes = ctypes.c_void_p(), (ctypes.c_ulonglong * 3)()
    library.nvmlInit_v2()
    library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(handle))
    return int(sizes[2]) if library.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(sizes)) == 0 else 0


def settled() -> int:
    """What is in use once the process before has given its memory back."""
    least, end = used(), time.monotonic() + 3.0
    while least and time.monotonic() < end:
        time.sleep(0.2)
        now = used()
        if now >= least:
            break
        least = now
    return least


def alone(
    case: dict[str, Any], config: dict[str, Any], device: str, out: str, seconds: float
) -> dict[str, Any]:
    """The case in a process of its own, which is ended at the deadline.

    Not a fork of a parent with torch imported: something among the imports asks CUDA for its devices, and no child may.
    """
    told = json.dumps({"case": case, "config": config, "device": device, "out": out})
    with contextlib.suppress(subprocess.TimeoutExpired):
        done = subprocess.run(
            [sys.executable, __file__, "--one"],
            input=told,
            stdout=subprocess.PIPE,
            text=True,
            timeout=seconds,
            check=False,
        )
        last = done.stdout.strip().rpartition("\n")[2]
        if last.startswith("{"):
            return dict(json.loads(last))
    return {**case, "config": config, "status": "killed", "allocated": 0, "reserved": 0}


def one() -> int:
    told = json.loads(sys.stdin.read())
    print("\n" + json.dumps(play(told["case"], told["config"], told["device"], told["out"])), flush=True)
    os._exit(0)


# -------------------------------------------------------------------------------------------------- parent
def wanted(told: argparse.Namespace, whole: dict[str, Any]) -> list[dict[str, Any]]:
    """The cases, and those under caps where predictions are frozen."""
    cases = [
        c
        for c in whole["cases"]
        if re.search(told.only, c["id"]) and not (told.skip and re.search(told.skip, c["id"]))
    ]
    if not told.predictions:
        return cases
    frozen = json.loads(Path(told.predictions).read_text())["cases"]
    for case in [c for c in cases if c.get("caps")]:
        least = frozen[case["id"]]["minimum"]
        for share in (OVER, UNDER):
            cases.append({**case, "cap": int(least * share), "says": "fits" if share > 1 else "does not fit"})
    return cases


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", default=os.environ.get("OUT") or ".")
    parser.add_argument("--predictions", default="")
    parser.add_argument("--only", default="")
    parser.add_argument("--skip", default="")
    parser.add_argument("--deadline", type=float, default=440.0)
    parser.add_argument("--each", type=float, default=40.0)
    parser.add_argument("--dry", action="store_true")
    parser.add_argument("--one", action="store_true")
    told = parser.parse_args()
    os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "WANDB_MODE": "disabled"}
    if told.one:
        return one()
    begun = time.monotonic()
    whole = json.loads((HERE / "fit_cases.json").read_text())
    cases = wanted(told, whole)
    print(f"{len(cases)} cases", flush=True)
    with (Path(told.out) / "exam.jsonl").open("w", buffering=1) as file:
        for case in cases:
            left, start, idle = told.deadline - (time.monotonic() - begun), time.monotonic(), settled()
            if left < 5:
                print(f"{case['id']} not run: the deadline", flush=True)
                continue
            config = dict(whole["models"][case["model"]])
            if told.dry:
                config = {k: TINY.get(k, v) if v is not None else v for k, v in config.items()}
                case = {**case, "job": {**case["job"], "seq": 16, "micro_batch": 2, "new_tokens": 3}}
            found = alone(case, config, "cpu" if told.dry else "cuda", told.out, min(told.each, left))
            found |= {"idle": idle, "seconds": round(time.monotonic() - start, 2)}
            file.write(json.dumps(found) + "\n")
            print(f"{case['id']} {case['model']:20}{found['status']:8}{found['allocated'] / 2**30:9.3f}{found['reserved'] / 2**30:9.3f}"
                  f"{found['seconds']:6.1f} s  {found.get('says', '')} {found.get('said', '')[:90]}", flush=True)  # fmt: skip
    print(f"done after {time.monotonic() - begun:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
