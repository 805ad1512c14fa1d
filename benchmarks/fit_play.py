"""Jobs as people run them: the model, its adapters, and steps of training or an answer, with a meter beside them.

``fit_measure.py`` plays these in a process of their own. Here stand torch, transformers, peft, bitsandbytes and Liger as
their users call them, nothing of the package that is examined.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator
from typing import Any

STEPS = 3
IMPLEMENTATIONS = {"sdpa": "sdpa", "eager": "eager", "flash": "flash_attention_2"}
TRAINER_OPTIMIZERS = {
    "adamw": "adamw_torch", "adamw_fused": "adamw_torch_fused", "sgd": "sgd", "adamw_8bit": "adamw_8bit",
    "paged_adamw_8bit": "paged_adamw_8bit", "adafactor": "adafactor",
}  # fmt: skip


def built(job: Any, config: dict[str, Any], device: str) -> Any:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    if job.loss != "plain":
        from liger_kernel.transformers import monkey_patch

        patch = monkey_patch.MODEL_TYPE_TO_APPLY_LIGER_FN[config["model_type"]]
        alone = dict.fromkeys(("rope", "rms_norm", "swiglu", "cross_entropy"), False)
        patch(**({} if job.loss == "liger" else alone | {"fused_linear_cross_entropy": True}))
    fields = dict(config)
    made = AutoConfig.for_model(fields.pop("model_type"), **fields)
    made.bos_token_id = made.eos_token_id = None
    made.pad_token_id = 0
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(job.precision, torch.float32)
    settings = {"attn_implementation": IMPLEMENTATIONS[job.attention], "dtype": dtype}
    if "num_experts_per_tok" in config:
        settings["experts_implementation"] = "grouped_mm"
    with torch.device(device), quickly(torch) if job.quant else contextlib.nullcontext():
        model = AutoModelForCausalLM.from_config(made, **settings)
    model.tie_weights()
    return model


@contextlib.contextmanager
def quickly(torch: Any) -> Iterator[None]:
    """Random weights on the host out of one small table: billions of draws take minutes there.

    What torch draws evenly for its own layers, transformers draws anew; until then it is zero.
    """
    table, old = torch.randn(1 << 20), (torch.Tensor.normal_, torch.Tensor.uniform_)
    drawn: dict[tuple[Any, ...], Any] = {}

    def normal(tensor: Any, mean: float = 0.0, std: float = 1.0, generator: Any = None) -> Any:
        flat, key = tensor.detach().view(-1), (mean, std, tensor.dtype)
        if key not in drawn:
            drawn[key] = (table * std + mean).to(tensor.dtype)
        for start in range(0, flat.numel(), len(table)):
            part = flat[start : start + len(table)]
            part.copy_(drawn[key][: part.numel()])
        return tensor

    def uniform(tensor: Any, *_: Any, **__: Any) -> Any:
        return tensor.zero_()

    torch.Tensor.normal_, torch.Tensor.uniform_ = normal, uniform
    try:
        yield
    finally:
        torch.Tensor.normal_, torch.Tensor.uniform_ = old


def quantised(model: Any, job: Any, device: str) -> None:
    """Linear layers in four bits or eight, those that transformers quantises when it loads a checkpoint.

    The model lies on the host; weight by weight it comes to the device, as a loader does it. Quantising what already lies
    on the device leaves a hole in its memory for every weight.
    """
    import torch
    from transformers.pytorch_utils import Conv1D
    from transformers.quantizers.base import HfQuantizer
    from transformers.quantizers.quantizers_utils import should_convert_module

    kept = HfQuantizer.get_modules_to_not_convert(model, None, model._keep_in_fp32_modules)
    for path, child in list(model.named_modules()):
        if type(child) in (torch.nn.Linear, Conv1D) and should_convert_module(path, kept):
            parent, _, name = path.rpartition(".")
            weight = child.weight.data if type(child) is torch.nn.Linear else child.weight.data.T.contiguous()
            setattr(model.get_submodule(parent), name, quantised_layer(weight, child.bias, job, device))
    model.to(device)
    setattr(model, "is_loaded_in_8bit" if job.quant == "int8" else "is_loaded_in_4bit", True)


def quantised_layer(weight: Any, bias: Any, job: Any, device: str) -> Any:
    import bitsandbytes as bnb
    import torch

    sizes = weight.shape[1], weight.shape[0], bias is not None
    if job.quant == "int8":
        made = bnb.nn.Linear8bitLt(*sizes, has_fp16_weights=False, threshold=6.0, device="meta")
        made.weight = bnb.nn.Int8Params(weight, requires_grad=False, has_fp16_weights=False).to(device)
    else:
        made = bnb.nn.Linear4bit(*sizes, compute_dtype=torch.bfloat16, device="meta")
        kinds = {"compress_statistics": job.double_quant, "quant_type": job.quant}
        made.weight = bnb.nn.Params4bit(weight, requires_grad=False, **kinds).to(device)
    if bias is not None:
        made.bias = bias
    return made


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
    settings = LoraConfig(
        r=job.lora_r, lora_alpha=2 * job.lora_r, target_modules=targets, lora_dropout=job.lora_dropout,
        use_dora=job.dora, task_type="CAUSAL_LM", fan_in_fan_out=config["model_type"] == "gpt2",
    )  # fmt: skip
    return get_peft_model(model, settings, autocast_adapter_dtype=job.lora_dtype == "fp32")


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


def train(job: Any, model: Any, other: Any, vocabulary: int, device: str, meter: Any) -> None:
    import torch

    amp = job.precision if job.precision.startswith("amp") else job.autocast
    half = torch.float16 if amp.endswith("fp16") else torch.bfloat16
    scaler = torch.amp.GradScaler(device) if amp.endswith("fp16") else None
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


def finish(job: Any, parameters: list[Any], stepping: Any, scaler: Any, meter: Any, step: int) -> None:
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


def by_trainer(job: Any, model: Any, vocabulary: int, device: str, meter: Any, out: str) -> None:
    import torch
    from transformers import Trainer, TrainingArguments

    settings = TrainingArguments(
        output_dir=out, max_steps=STEPS, per_device_train_batch_size=job.micro_batch, bf16=job.autocast == "bf16",
        gradient_accumulation_steps=job.accumulation, optim=TRAINER_OPTIMIZERS[job.optimizer], report_to=[],
        save_strategy="no", logging_strategy="no", gradient_checkpointing=job.checkpointing != "none", use_cpu=device == "cpu",
        gradient_checkpointing_kwargs={"use_reentrant": job.checkpointing == "reentrant"} if job.checkpointing != "none" else None,
    )  # fmt: skip
    count = job.micro_batch * job.accumulation * STEPS
    ids = torch.randint(0, vocabulary, (count, job.seq))
    rows = [{"input_ids": row, "labels": row} for row in ids]
    Trainer(model=model, args=settings, train_dataset=rows).train()
    meter.mark("train")


def generate(job: Any, model: Any, words: tuple[int, int], device: str, meter: Any, prefills: bool = True) -> None:
    """A prefill alone, unless the model has an encoder, then an answer; the tokens are drawn from a range."""
    import torch

    ids = torch.randint(*words, (job.micro_batch, job.seq), device=device)
    settings = {
        "max_new_tokens": job.new_tokens,
        "min_new_tokens": job.new_tokens,
        "do_sample": False,
        "use_cache": True,
    }
    settings |= {"pad_token_id": 0, "eos_token_id": None, "disable_compile": True}
    settings |= {"cache_implementation": "static"} if job.cache == "static" else {}
    with torch.inference_mode():
        if prefills:
            last = {"logits_to_keep": 1} if "logits_to_keep" in inspect.signature(model.forward).parameters else {}
            first = model(input_ids=ids, use_cache=True, **last)
            meter.mark("prefill")
            del first
            meter.mark("freed", counts=False)
        model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), **settings)
        meter.mark("generate")
