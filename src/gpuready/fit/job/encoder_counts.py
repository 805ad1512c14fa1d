"""The number of parameters of encoders, and of encoders with a decoder."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.fit.job.model_shape import ModelShape


def count_encoder_parameters(s: ModelShape) -> int:
    """Count the parameters of an encoder with its head: masked language model, or classes of pictures."""
    if s.norm == "t5":
        return _count_t5_parameters(s)
    if s.kind == "encoder-decoder":
        return _count_seq2seq_parameters(s)
    norm = 2 * s.hidden if s.family != "modernbert" else s.hidden
    attention = 4 * s.hidden * s.hidden + s.bias_qkv * 3 * s.hidden + s.bias_out * s.hidden
    mlp = (3 if s.gated else 2) * s.hidden * s.inner + s.bias_mlp * (s.inner + s.hidden)
    layers = s.layers * (attention + mlp + 2 * norm)
    if s.family == "vit":
        patches = s.sizes["channels"] * s.sizes["patch"] ** 2 * s.hidden + s.hidden
        return layers + patches + (1 + s.sizes["tokens"]) * s.hidden + norm + (s.hidden + 1) * s.sizes["labels"]
    if "labels" in s.sizes:
        tables = (s.vocabulary + s.sizes["types"] + s.sizes["positions"]) * s.hidden + norm
        dense = 0 if s.sizes["per_token"] else (s.hidden + 1) * s.hidden
        return layers + tables + dense + (s.hidden + 1) * s.sizes["labels"]
    tables = s.vocabulary * s.hidden * (1 if s.tied else 2) + s.vocabulary * s.bias_head
    if s.family == "modernbert":  # the first layer has no norm before its attention; the head's dense has no bias
        return layers - norm + tables + norm + norm + s.hidden * s.hidden + norm
    return (
        layers + tables + (s.sizes["types"] + s.sizes["positions"]) * s.hidden + norm + (s.hidden + 1) * s.hidden + norm
    )


def _count_seq2seq_parameters(s: ModelShape) -> int:
    whisper, norm, encoder = s.family == "whisper", 2 * s.hidden, s.sizes["encoder_layers"]
    attention = 4 * s.hidden * s.hidden + (3 if whisper else 4) * s.hidden

    def mlp(inner: int) -> int:
        return 2 * s.hidden * inner + inner + s.hidden

    layers = encoder * (attention + mlp(s.sizes["encoder_inner"]) + 2 * norm)
    layers += (s.layers - encoder) * (2 * attention + mlp(s.inner) + 3 * norm)
    places = (s.sizes["source"] + s.sizes["target"]) * s.hidden
    tables = s.vocabulary * s.hidden * (1 if s.tied else 2) + places * (
        s.family != "m2m_100"
    )  # these are no parameters
    convolutions = whisper * (3 * s.hidden * (s.sizes["bins"] + s.hidden) + 2 * s.hidden)
    return layers + tables + convolutions + 2 * norm * (s.sizes["pre"] + s.sizes["embedding_norm"])


def _count_t5_parameters(s: ModelShape) -> int:
    encoder = s.sizes["encoder_layers"]
    attention = 4 * s.hidden * s.heads * s.head_size + s.hidden
    mlp = (3 if s.gated else 2) * s.hidden * s.inner + s.hidden
    biased = s.layers if s.family == "umt5" else 2
    layers = s.layers * (attention + mlp) + (s.layers - encoder) * attention
    return (
        layers + s.vocabulary * s.hidden * (1 if s.tied else 2) + 2 * s.hidden + biased * s.sizes["buckets"] * s.heads
    )
