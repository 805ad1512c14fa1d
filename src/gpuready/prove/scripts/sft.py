"""TRL's SFTTrainer on a tiny random Llama and sentences that are written here: the loss must fall."""

import os

import package_import
import proof
import tiny_llama as tiny


def run_proof(p):
    tiny.set_offline(os.getcwd())
    p.torch()
    trl = package_import.import_compiled(p, "trl", "trl")
    trainer_kind, config_kind = package_import.get_attributes(trl, "SFTTrainer", "SFTConfig")
    from datasets import Dataset

    model = tiny.make_llama(p, **tiny.SMALL_SIZES)
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
    p.begin_step("make the SFTTrainer")
    names = trainer_kind.__init__.__code__.co_varnames
    read = "processing_class" if "processing_class" in names else "tokenizer"
    data = Dataset.from_list([{"text": text} for text in tiny.SENTENCES * 4])
    made = trainer_kind(model=model, args=config_kind(**words), train_dataset=data, **{read: tiny.make_tokenizer(p)})
    p.begin_step("train")
    made.train()
    tiny.check_weight_device(p, made.model)
    losses = [row["loss"] for row in made.state.log_history if "loss" in row]
    p.record_number("steps", made.state.global_step, "equal", 30)
    tiny.check_loss_fell(p, [sum(losses[:3]) / 3, sum(losses[-3:]) / 3], 0.8)


if __name__ == "__main__":
    proof.main(run_proof)
