"""TRL's SFTTrainer on a tiny random Llama and sentences that are written here: the loss must fall."""

import os

import opening
import proof
import tiny_llama as tiny


def act(p):
    tiny.offline(os.getcwd())
    p.torch()
    trl = opening.module(p, "trl", "trl")
    trainer_kind, config_kind = opening.names(trl, "SFTTrainer", "SFTConfig")
    from datasets import Dataset

    model = tiny.model(p, **tiny.SMALL)
    words = {
        "output_dir": os.path.join(os.getcwd(), "out"),
        "max_steps": 30,
        "per_device_train_batch_size": 4,
        "learning_rate": 5e-3,
        "lr_scheduler_type": "constant",
        "logging_steps": 1,
        "report_to": [],
        "save_strategy": "no",
        "disable_tqdm": True,
        "bf16": bool(p.cuda and p.capability() >= (8, 0)),
        "gradient_checkpointing": False,
    }
    if not p.cuda:
        words["use_cpu"] = True
    p.step("make the SFTTrainer")
    names = trainer_kind.__init__.__code__.co_varnames
    read = "processing_class" if "processing_class" in names else "tokenizer"
    data = Dataset.from_list([{"text": text} for text in tiny.SENTENCES * 4])
    made = trainer_kind(
        model=model, args=config_kind(**words), train_dataset=data, **{read: tiny.tokenizer(p)}
    )
    p.step("train")
    made.train()
    where = {x.device.type for x in made.model.parameters()}
    if where != {p.device.type}:
        raise proof.Wrong("the weights are on %s" % ", ".join(sorted(where)))
    losses = [row["loss"] for row in made.state.log_history if "loss" in row]
    p.number("steps", made.state.global_step, "equal", 30)
    tiny.fell(p, [sum(losses[:3]) / 3, sum(losses[-3:]) / 3], 0.8)


if __name__ == "__main__":
    proof.main(act)
