"""Write catalog/architectures.toml: the sizes that transformers takes where a config.json is silent.

Run it with an interpreter that has transformers: ``python tools/architecture_defaults.py > src/gpuready/catalog/architectures.toml``.
"""

from __future__ import annotations

import dataclasses
import json

import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

TYPES = (
    "arcee", "bart", "bert", "bloom", "camembert", "cohere", "cohere2", "deepseek_v2", "deepseek_v3", "distilbert",
    "electra", "ernie4_5", "exaone4", "falcon", "falcon_mamba", "gemma3", "glm", "glm4", "glm4_moe", "gpt_bigcode",
    "gpt_neo", "gpt_oss", "gptj", "granite", "granitemoe", "helium", "hunyuan_v1_dense", "llama4_text", "m2m_100",
    "mamba", "mamba2", "marian", "mbart", "modernbert", "mt5", "nemotron", "olmo", "olmo2", "olmo3", "olmoe", "opt",
    "pegasus", "phimoe", "qwen2_5_vl_text", "qwen2_5_vl_vision", "qwen2_vl_text", "qwen2_vl_vision", "qwen3_5_moe_text", "qwen3_5_text", "qwen3_next",
    "qwen3_vl_moe_text", "qwen3_vl_text", "qwen3_vl_vision", "roberta", "seed_oss", "siglip_vision_model", "smollm3",
    "stablelm", "starcoder2", "t5", "umt5", "vit", "whisper", "xlm-roberta",
)  # fmt: skip
IGNORED = (  # parts of the names of keys that change no size
    "token", "eps", "init", "use_cache", "pretraining", "theta", "output", "label", "loss", "jitter", "median", "mask_",
    "apply_spec", "return_dict", "chunk_size", "is_encoder_decoder", "_cross_attention", "deterministic", "reference_compile", "sparse_pred", "encoder_stride", "pooler_act", "tokens_per_second", "time_step_limit",
)  # fmt: skip
HEAD = """\
# What transformers takes for a key that a config.json of this model_type does not have (null defaults are left out).
# Written by tools/architecture_defaults.py from the config classes of the version in ``source``.
schema = 1
as_of = "2026-11-15"
"""


def read_defaults(kind: str) -> dict[str, object]:
    """Return the plain defaults of a config class that decide sizes."""
    cls = CONFIG_MAPPING[kind] if kind in CONFIG_MAPPING else _nested_class(kind)
    found = {}
    for field in dataclasses.fields(cls):
        value = list(field.default) if isinstance(field.default, tuple) else field.default
        if not any(word in field.name for word in IGNORED) and isinstance(value, (bool, int, float, str, list)):
            found[field.name] = value
    return found


def _nested_class(kind: str) -> type:
    every = (getattr(transformers, name) for name in dir(transformers) if name.endswith("Config"))
    return next(cls for cls in every if getattr(cls, "model_type", "") == kind)


def main() -> None:
    print(HEAD)
    for kind in TYPES:
        inside = ", ".join(f"{key} = {json.dumps(value)}" for key, value in read_defaults(kind).items())
        print(f'[[architecture]]\ntype = "{kind}"\ndefaults = {{ {inside} }}')
        print(f'confirmed = true\nsource = "the config class of {kind} in transformers {transformers.__version__}"\n')


if __name__ == "__main__":
    main()
