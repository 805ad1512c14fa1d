"""How many tokens a model with learned positions takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuready.fit.job.model_shape import read_count

ROBERTA_FAMILIES = ("roberta", "xlm-roberta", "camembert")  # their positions start behind the padding
POSITION_DEFAULTS = {
    "gpt2": 1024, "whisper": 448, "bart": 1024, "mbart": 1024, "pegasus": 1024, "marian": 1024, "opt": 2048, "gpt_neo": 2048,
    "bert": 512, "distilbert": 512,
} | dict.fromkeys(ROBERTA_FAMILIES, 512)  # fmt: skip


def count_positions(config: Mapping[str, Any]) -> int:
    """Return how many tokens a model with learned positions takes; 0 for one without, or an unknown one."""
    family = str(config.get("model_type") or "")
    if family not in POSITION_DEFAULTS:
        return 0
    key = {"gpt2": "n_positions", "whisper": "max_target_positions"}.get(family, "max_position_embeddings")
    count = read_count(config, key, default=POSITION_DEFAULTS[family])
    return count - 2 if family in ROBERTA_FAMILIES else count
