"""Transformers' Trainer on a tiny random Llama: real optimizer and scheduler, and the loss must fall.

Arguments: the precision (fp32, bf16, fp16), then any of ``lora``, ``checkpointing``, ``compile``.
"""

import tiny_llama as tiny


def run_proof(p):
    torch = p.torch()
    precision, extra = (p.arguments or ["fp32"])[0], set(p.arguments[1:])
    model = tiny.make_llama(p) if "lora" in extra else tiny.make_llama(p, **tiny.SMALL_SIZES)
    if "lora" in extra:
        model = add_lora(p, model)
    trainer = make_trainer(p, torch, model, precision, extra)
    p.begin_step("train")
    losses = [trainer.evaluate()["eval_loss"]]
    trainer.train()
    losses.append(trainer.evaluate()["eval_loss"])
    tiny.check_weight_device(p, trainer.model)
    p.record_number("steps", trainer.state.global_step, "least", 30)
    tiny.check_loss_fell(p, losses)


def add_lora(p, model):
    """Wrap the model in LoRA; only the adapters learn."""
    p.record_version("peft")
    p.begin_step("import peft")
    from peft import LoraConfig, get_peft_model

    # ``all-linear`` exists since peft 0.8, and excludes the head.
    lora_config = LoraConfig(r=16, lora_alpha=32, target_modules=list(tiny.LORA_TARGETS), task_type="CAUSAL_LM")
    return get_peft_model(model, lora_config)


def make_trainer(p, torch, model, precision, extra):
    """Make the Trainer, with the argument names of this version."""
    p.begin_step("import the Trainer")
    from transformers import Trainer, TrainingArguments

    p.record_version("accelerate")
    words = {
        **tiny.TRAINER_SETTINGS,
        "max_steps": 40 if "lora" in extra else 30,
        "per_device_eval_batch_size": 4,
        "logging_steps": 10,
        "dataloader_pin_memory": p.device.type == "cuda",
        "bf16": precision == "bf16",
        "fp16": precision == "fp16",
        "gradient_checkpointing": "checkpointing" in extra,
        "torch_compile": "compile" in extra,
    }
    names = TrainingArguments.__dataclass_fields__
    if p.device.type == "cpu":
        words["use_cpu" if "use_cpu" in names else "no_cuda"] = True
    data = tiny.make_rows()
    p.begin_step("make the Trainer")
    return Trainer(
        model=model, args=TrainingArguments(**words), train_dataset=data, eval_dataset=data, data_collator=collate_rows
    )


def collate_rows(rows):
    import torch

    return {key: torch.tensor([row[key] for row in rows]) for key in rows[0]}
