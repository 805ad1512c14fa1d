"""Stands for transformers in a Python that has torch alone: as much of it as scripts/trace.py calls, and one model.

tests/fit/test_trace.py copies this file there as transformers.py. What the scripts say of real classes is in ``make faults``.
"""

import logging
import sys
import types

import torch
from torch import nn

__version__ = "5.0.small"
CONFIG_MAPPING = {"kite", "stone"}


class PretrainedConfig:
    def __init__(self, **fields):
        self.architectures, self.vocab_size = None, 512
        for name, value in fields.items():
            setattr(self, name, value)


class PreTrainedModel(nn.Module):
    main_input_name = "input_ids"

    def tie_weights(self):
        pass

    def get_output_embeddings(self):
        return self.head

    @property
    def dtype(self):
        return self.head.weight.dtype


class KiteForCausalLM(PreTrainedModel):
    """A table, one attention, and a head."""

    def __init__(self, size, words):
        super().__init__()
        self.table, self.mixed = nn.Embedding(words, size), nn.Linear(size, 3 * size, bias=False)
        self.head = nn.Linear(size, words, bias=False)

    @classmethod
    def _from_config(cls, config, dtype, attn_implementation="own"):
        if config.hidden_size < 1:
            raise ValueError("a size below one")
        if attn_implementation == "sdpa":  # UperNet over Swin on the H200: asked for, it would be refused for all parts
            raise ValueError("by default each part takes its own attention")
        made = cls(config.hidden_size, config.vocab_size).to(dtype)
        if getattr(config, "wide_head", False):
            made.head.float()
        made._keep_in_fp32_modules_strict = getattr(config, "kept", None)
        made.layerdrop = getattr(config, "layerdrop", 0.0)
        return made

    def forward(self, input_ids, labels=None, use_cache=False):
        seen = self.table(input_ids).unsqueeze(1)
        if torch.rand([]) >= self.layerdrop:
            parts = self.mixed(seen).chunk(3, -1)
            seen = nn.functional.dropout(nn.functional.scaled_dot_product_attention(*parts, is_causal=True), 0.1)
        logits = self.head(seen.squeeze(1))
        return {"loss": nn.functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten()), "logits": logits}


def for_model(kind, **fields):
    if not isinstance(fields.get("hidden_size", 64), int):
        raise TypeError("hidden_size is a number")
    return PretrainedConfig(**({"model_type": kind, "hidden_size": 64} | fields))


def stand_for(name, **holds):
    module = sys.modules[f"transformers.{name}"] = types.ModuleType(f"transformers.{name}")
    vars(module).update(holds)
    return module


AutoConfig = types.SimpleNamespace(for_model=for_model)
tables = stand_for(
    "models.auto.modeling_auto",
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES={"kite": "KiteForCausalLM"},
    MODEL_MAPPING_NAMES={"stone": "Stone"},
)
stand_for("models")
stand_for("models.auto", modeling_auto=tables)
utils = types.SimpleNamespace(logging=types.SimpleNamespace(get_logger=logging.getLogger))
__path__ = []
# torch imports its compiler, for seconds, only to keep it off the recorder.
torch._dynamo = sys.modules["torch._dynamo"] = types.ModuleType("torch._dynamo")
torch._dynamo.disable = lambda function, *_, **__: function
