"""The number of parameters of models whose layers mix tokens by a recurrence."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.fit.job.model_shape import ModelShape


def count_mixer_parameters(s: ModelShape) -> int:
    """Count the parameters that mix tokens, of all layers."""
    keys, values = s.sizes["key_heads"] * s.sizes["key_size"], s.sizes["value_heads"] * s.sizes["value_size"]
    projected = 2 * keys + 2 * values + 2 * s.sizes["value_heads"]
    delta = (
        s.hidden * (projected + values)
        + (2 * keys + values) * s.sizes["kernel"]
        + 2 * s.sizes["value_heads"]
        + s.sizes["value_size"]
    )
    queries, few = s.heads * s.head_size, s.kv_heads * s.head_size
    attention = s.hidden * (3 * queries + 2 * few) + 2 * s.head_size
    attention += s.bias_qkv * (2 * queries + 2 * few + s.hidden)
    return sum(delta if kind == "delta" else attention for kind in s.mixers)
