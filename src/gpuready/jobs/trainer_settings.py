"""What a trainer does with a job beyond what its flags or its file say.

The Trainer of transformers, and those built on it, run a 16-bit model under autocast. Over a quantised base peft's
``prepare_model_for_kbit_training`` makes the weights that are not quantised fp32. TRL's SFTConfig and LLaMA-Factory
checkpoint by default; TRL keeps the adapters of a 4-bit base in bf16; LLaMA-Factory casts what it trains in full to fp32.
"""

from typing import Any

FILE_TRAINERS = {"axolotl": "axolotl", "llama-factory": "llama-factory", "trainer": "transformers"}
"""The trainer of each kind of file; other kinds have loops of their own."""


def apply_trainer(fields: dict[str, Any], sources: dict[str, str], kind: str) -> None:
    """Set the fields that the trainer decides and nobody states; flags alone mean transformers."""
    alone = kind in ("flags", "model")
    stated = fields.get("trainer")
    trainer = stated or ("transformers" if alone else FILE_TRAINERS.get(kind, "plain"))
    if stated is None:
        fields["trainer"] = trainer
    if fields.get("task", "train") != "train" or trainer == "plain":
        return
    if kind == "trainer" and not stated:  # TRL's scripts prepare what their arguments quantise
        found = _trainer_fields("trl", fields)
        if "kbit" in found and "kbit" not in fields and not fields.get("zero"):
            fields["kbit"], sources["kbit"] = True, "what trl does"
    if not (alone or stated):
        return
    for name, value in _trainer_fields(trainer, fields).items():
        if name not in fields:
            fields[name], sources[name] = value, f"what {trainer} does"


def _trainer_fields(trainer: str, fields: dict[str, Any]) -> dict[str, Any]:
    method = fields.get("method", "full")
    quant = fields.get("quant", "nf4" if method == "qlora" else "")
    found: dict[str, Any] = {"loop": "trainer"}
    if trainer == "llama-factory" and method == "full" and "precision" not in fields:
        found["precision"] = "amp-bf16"
    precision = fields.get("precision", found.get("precision", "bf16"))
    sharded = fields.get("zero") or fields.get("fsdp")  # DeepSpeed and FSDP cast by themselves
    if precision in ("bf16", "fp16") and not sharded:
        found["autocast"] = precision
    if quant and method != "full" and not sharded:
        found["kbit"] = True
    if trainer in ("trl", "llama-factory"):
        found["checkpointing"] = "nonreentrant" if trainer == "trl" else "reentrant"
    if trainer == "trl" and quant in ("nf4", "fp4") and precision == "bf16":
        found["lora_dtype"] = "bf16"
    return found
