"""TRL's SFTTrainer or DPOTrainer on a tiny random Llama and sentences that are written here: the loss must fall.

Argument: dpo; without one, sft.
"""

import os

import package_import
import tiny_llama as tiny

STEPS = 30


def run_proof(p):
    p.torch()
    trl = package_import.import_compiled(p, "trl", "trl")
    name, rows = ("DPO", make_pairs()) if p.arguments == ["dpo"] else ("SFT", make_texts())
    trainer_kind, config_kind = package_import.get_attributes(trl, name + "Trainer", name + "Config")
    from datasets import Dataset

    # By its path: DPOTrainer loads the model that it compares with from there.
    model = os.path.join(os.getcwd(), "model")
    tiny.save_llama(p, model, **tiny.SMALL_SIZES)
    p.begin_step("make the %sTrainer" % name)
    names = trainer_kind.__init__.__code__.co_varnames
    read = "processing_class" if "processing_class" in names else "tokenizer"
    args = config_kind(**choose_settings(p))
    made = trainer_kind(model=model, args=args, train_dataset=Dataset.from_list(rows), **{read: tiny.make_tokenizer(p)})
    p.begin_step("train")
    made.train()
    tiny.check_weight_device(p, made.model)
    losses = [row["loss"] for row in made.state.log_history if "loss" in row]
    p.record_number("steps", made.state.global_step, "equal", STEPS)
    tiny.check_loss_fell(p, [sum(losses[:3]) / 3, sum(losses[-3:]) / 3], 0.8)


def make_texts():
    return [{"text": text} for text in tiny.SENTENCES * 4]


def make_pairs():
    """Return rows whose preferred answer ends the sentence as it is written, and whose other one reverses it."""
    rows = []
    for text in tiny.SENTENCES * 4:
        start, rest = text[:10], text[10:]
        rows.append({"prompt": start, "chosen": rest, "rejected": rest[::-1]})
    return rows


def choose_settings(p):
    settings = {
        "max_steps": STEPS,
        "lr_scheduler_type": "constant",
        "logging_steps": 1,
        "bf16": bool(p.cuda and p.capability() >= (8, 0)),
        "gradient_checkpointing": False,
    }
    return dict(tiny.TRAINER_SETTINGS, **settings, **({} if p.cuda else {"use_cpu": True}))
