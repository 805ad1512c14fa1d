"""Write catalog/architectures.toml: the sizes that transformers takes where a config.json is silent.

Run it with an interpreter that has transformers: ``python tools/architecture_defaults.py > src/gpuready/catalog/architectures.toml``.
"""

import dataclasses
import json

import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

TYPES = (
    "glm", "glm4", "gpt_oss", "granite", "granitemoe", "olmo2", "olmo3", "olmoe", "smollm3", "starcoder2",
)  # fmt: skip
IGNORED = (  # parts of the names of keys that change no size
    "token", "eps", "init", "use_cache", "pretraining", "theta", "output", "label", "loss", "jitter", "median", "mask_",
    "return_dict", "chunk_size", "_cross_attention",
)  # fmt: skip
HEAD = """\
# What transformers takes for a key that a config.json of this model_type does not have (null defaults are left out).
# Written by tools/architecture_defaults.py from the config classes of the version in ``source``.
schema = 1
as_of = "2026-11-15"
"""


def read_defaults(kind: str) -> dict[str, object]:
    """Return the plain defaults of a config class that decide sizes."""
    found = {}
    for field in dataclasses.fields(CONFIG_MAPPING[kind]):
        value = list(field.default) if isinstance(field.default, tuple) else field.default
        if not any(word in field.name for word in IGNORED) and isinstance(value, (bool, int, float, str, list)):
            found[field.name] = value
    return found


def main() -> None:
    print(HEAD)
    for kind in TYPES:
        inside = ", ".join(f"{key} = {json.dumps(value)}" for key, value in read_defaults(kind).items())
        print(f'[[architecture]]\ntype = "{kind}"\ndefaults = {{ {inside} }}')
        print(f'confirmed = true\nsource = "the config class of {kind} in transformers {transformers.__version__}"\n')


if __name__ == "__main__":
    main()
