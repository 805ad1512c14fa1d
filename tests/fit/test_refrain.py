"""A later step is not played but written down once more: the tape is the one that playing it would have made."""

from __future__ import annotations

import pytest

from gpuready.fit import H200, FitJob
from gpuready.fit.search.prediction import record_job_tape
from gpuready.fit.tape.training import RepeatedStretch

MODEL = {
    "model_type": "llama", "hidden_size": 256, "intermediate_size": 704, "num_hidden_layers": 3, "num_attention_heads": 8,
    "num_key_value_heads": 4, "vocab_size": 4096, "tie_word_embeddings": True,
}  # fmt: skip
MIXTRAL = MODEL | {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2}
SETUPS = (
    {},
    {"accumulation": 4},
    {"steps": 4, "clip": False, "optimizer": "sgd"},
    {"precision": "amp-fp16", "accumulation": 2},
    {"dpo": True},
    {"method": "lora", "dpo": True, "loop": "trainer", "accumulation": 2},
    {"method": "qlora", "checkpointing": "nonreentrant"},
    {"method": "lora", "quant": "int8", "checkpointing": "reentrant"},
    {"checkpointing": "nonreentrant", "offload": "activations"},
    {"keep_outputs": True, "padded": True, "attention": "eager", "micro_batch": 2},
    {"loss": "liger"},
    {"model": MIXTRAL, "accumulation": 2},
    {"world": 4},
    {"world": 4, "fsdp": True, "accumulation": 3},
    {"world": 4, "fsdp": True, "offload": "parameters"},
    {"world": 4, "zero": 1, "accumulation": 2},
    {"world": 4, "zero": 2, "accumulation": 2},
    {"world": 4, "zero": 3, "accumulation": 2},
    {"world": 4, "zero": 3, "accumulation": 4, "steps": 3, "checkpointing": "nonreentrant"},
)


@pytest.mark.parametrize("setup", SETUPS, ids=str)
def test_the_tape_is_the_same_as_when_every_step_is_played(setup, monkeypatch):
    job = FitJob(**{"model": MODEL, "seq": 256, **setup}).validate_fields()
    short = record_job_tape(job, H200)
    monkeypatch.setattr(RepeatedStretch, "learn_events", lambda *_: False)
    whole = record_job_tape(job, H200)
    assert short.events == whole.events
    assert short.kinds == whole.kinds
    assert short.ops == whole.ops


def test_most_steps_are_learned(monkeypatch):
    appended = []
    monkeypatch.setattr(RepeatedStretch, "append_to_tape", lambda self, tag: appended.append(tag))
    record_job_tape(FitJob(MODEL, seq=256, accumulation=2, steps=3).validate_fields(), H200)
    assert appended == ["1.0", "1.1", "2.0", "2.1"]
