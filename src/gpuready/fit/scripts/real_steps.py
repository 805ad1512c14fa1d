"""Run a few real steps of a job with random weights, and print their times. Runs in the target environment.

    python real_steps.py REQUEST

REQUEST is JSON: the model's config, the fields of the job, the device, and how many steps. One line of JSON is printed.
"""

from __future__ import annotations

import json
import statistics
import sys
import time


def main() -> None:
    request = json.loads(sys.argv[1])
    import torch

    device = torch.device(request["device"])
    model, config = build_model(torch, request, device)
    job = request["job"]
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = make_optimizer(torch, job, trained)
    tokens = torch.randint(5, config.vocab_size - 5, (job["micro_batch"], job["seq"]), device=device)
    for _ in range(request["warm"]):
        run_step(torch, model, optimizer, tokens, job, device)
    steps = [run_step(torch, model, optimizer, tokens, job, device) for _ in range(request["steps"])]
    middle = {name: statistics.median(step[name] for step in steps) for name in steps[0]}
    peak = torch.cuda.max_memory_allocated() if device.type == "cuda" else 0
    print(json.dumps({"seconds": middle, "peak_allocated": peak, "torch": torch.__version__, "steps": len(steps)}))


def build_model(torch, request, device):  # type: ignore[no-untyped-def]
    """Build the model from its config with random weights; nothing is downloaded and no remote code is run."""
    import transformers

    values, job = dict(request["config"]), request["job"]
    values.pop("auto_map", None)
    config = transformers.AutoConfig.for_model(values.pop("model_type"), **values)
    wide = job["precision"] in ("fp32", "amp-bf16", "amp-fp16")
    kinds = {"bf16": torch.bfloat16, "fp16": torch.float16}
    torch.set_default_dtype(torch.float32 if wide else kinds[job["precision"]])
    attention = {"flash": "flash_attention_2"}.get(job["attention"], job["attention"])
    with device:
        model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation=attention)
    torch.set_default_dtype(torch.float32)
    model.train()
    model.config.use_cache = False
    if job["checkpointing"] != "none":
        reentrant = {"use_reentrant": job["checkpointing"] == "reentrant"}
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=reentrant)
    if job["method"] == "lora":
        import peft

        if job["checkpointing"] != "none":
            model.enable_input_require_grads()
        targets = {"all": "all-linear", "qv": ["q_proj", "v_proj"]}.get(job["lora_targets"], job["lora_targets"])
        adapter = peft.LoraConfig(
            r=job["lora_r"], lora_alpha=job["lora_r"], target_modules=targets, task_type="CAUSAL_LM"
        )
        model = peft.get_peft_model(model, adapter)
    return model, config


def make_optimizer(torch, job, trained):  # type: ignore[no-untyped-def]
    """Return the optimizer of the job."""
    name = job["optimizer"]
    if name.startswith("sgd"):
        return torch.optim.SGD(trained, lr=1e-5, momentum=0.9 if name == "sgd_momentum" else 0.0)
    options = {"adamw_fused": {"fused": True}, "adamw_forloop": {"foreach": False}}.get(name, {})
    return torch.optim.AdamW(trained, lr=1e-5, **options)


def run_step(torch, model, optimizer, tokens, job, device):  # type: ignore[no-untyped-def]
    """Run one optimizer step; return the seconds of its parts. Waits for the GPU once, at the end."""
    on_gpu = device.type == "cuda"
    marks = []

    def mark(name):  # type: ignore[no-untyped-def]
        if on_gpu:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            marks.append((name, event))
        else:
            marks.append((name, time.perf_counter()))

    narrow = {"amp-bf16": torch.bfloat16, "amp-fp16": torch.float16}.get(job["precision"])
    mark("start")
    for _ in range(job["accumulation"]):
        with torch.autocast(device.type, narrow or torch.bfloat16, enabled=narrow is not None):
            loss = model(input_ids=tokens, labels=tokens).loss / job["accumulation"]
        mark("forward")
        loss.backward()
        mark("backward")
    if job["clip"]:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        mark("clipping")
    optimizer.step()
    optimizer.zero_grad()
    mark("optimizer")
    if on_gpu:
        torch.cuda.synchronize()
    spent = {"step": _between(marks[0][1], marks[-1][1], on_gpu)}
    before = marks[0][1]
    for name, after in marks[1:]:
        spent[name] = spent.get(name, 0.0) + _between(before, after, on_gpu)
        before = after
    return spent


def _between(before, after, on_gpu):  # type: ignore[no-untyped-def]
    return before.elapsed_time(after) / 1e3 if on_gpu else after - before


if __name__ == "__main__":
    main()
