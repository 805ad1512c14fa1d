"""Shapes of encoders and of encoder-decoders, and how many parameters they have."""

from __future__ import annotations

from gpuready.fit.job.model_shape import ModelShape, read_activation, read_count, read_fraction
from gpuready.fit.job.records import FitUndecided

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


def require_head(config: Mapping[str, Any], *known: str) -> None:
    """Refuse a config whose ``architectures`` names a class with another head than those known here."""
    named = config.get("architectures")
    if isinstance(named, (list, tuple)) and named and not any(str(one).endswith(known) for one in named):
        raise FitUndecided(
            f"the class {str(named[0])[:60]!r} (architectures) has a head that is not known here; --trace plays it"
        )


def read_classes(config: Mapping[str, Any]) -> dict[str, int]:
    """Return the number of classes of a head, and whether every token gets one; empty for a masked language model."""
    require_head(config, "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification")
    named = str((config.get("architectures") or [""])[0])
    if not named.endswith("Classification"):
        return {}
    return {"labels": _count_labels(config), "per_token": int(named.endswith("ForTokenClassification"))}


def _count_labels(config: Mapping[str, Any]) -> int:
    labels = config.get("num_labels") or len(config.get("id2label") or ()) or 2
    if not isinstance(labels, int):
        raise ValueError(f"the config's num_labels must be a whole number, not {labels!r}")
    return labels


def parse_distilbert(config: Mapping[str, Any], family: str) -> ModelShape:
    names = {
        "hidden_size": "dim", "num_attention_heads": "n_heads", "num_hidden_layers": "n_layers", "intermediate_size": "hidden_dim",
        "hidden_act": "activation", "hidden_dropout_prob": "dropout",
    }  # fmt: skip
    renamed = {key: config[old] for key, old in names.items() if config.get(old) is not None}
    shape = _encoder_shape({**config, **renamed}, family)
    return shape.replace(
        vocabulary=read_count(config, "vocab_size"), tied=bool(config["tie_word_embeddings"]), bias_qkv=True, bias_head=True,
        sizes={"types": 0, "positions": read_count(config, "max_position_embeddings"), **read_classes(config)},
    )  # fmt: skip


def parse_bert(config: Mapping[str, Any], family: str) -> ModelShape:
    if config.get("is_decoder") or config.get("add_cross_attention"):
        raise FitUndecided(f"a {family} as a decoder is not known here; --trace plays it")
    shape = _encoder_shape(config, family)
    sizes = {"types": read_count(config, "type_vocab_size"), "positions": read_count(config, "max_position_embeddings")}
    sizes |= read_classes(config)
    return shape.replace(
        vocabulary=read_count(config, "vocab_size"), tied=bool(config["tie_word_embeddings"]), sizes=sizes, bias_qkv=True,
        bias_head=True, dropout_embedding=shape.dropout_hidden,
    )  # fmt: skip


def _encoder_shape(config: Mapping[str, Any], family: str, kind: str = "encoder") -> ModelShape:
    hidden, heads = read_count(config, "hidden_size"), read_count(config, "num_attention_heads")
    if hidden % heads:
        raise ValueError(f"hidden_size ({hidden}) must be a multiple of the heads ({heads})")
    return ModelShape(
        family=family, kind=kind, hidden=hidden, layers=read_count(config, "num_hidden_layers"), heads=heads, kv_heads=heads,
        head_size=hidden // heads, inner=read_count(config, "intermediate_size"), vocabulary=1, tied=True, norm="layer",
        activation=read_activation(config, ("hidden_activation", "hidden_act"), "gelu"), gated=False, bias_out=True,
        bias_mlp=True, dropout_hidden=read_fraction(config, "hidden_dropout_prob"), rotary=0.0,
        dropout_attention=read_fraction(config, "attention_probs_dropout_prob", "attention_dropout"),
    )  # fmt: skip


def parse_modernbert(config: Mapping[str, Any], family: str) -> ModelShape:
    require_head(config, "ForMaskedLM")
    shape = _encoder_shape(config, family)
    if any(config.get(name) for name in ("norm_bias", "attention_bias", "mlp_bias")):
        raise FitUndecided("a ModernBERT with biases is not known here; --trace plays it")
    every, half = (
        read_count(config, "global_attn_every_n_layers", default=3),
        read_count(config, "local_attention") // 2,
    )
    kinds = config.get("layer_types") or [
        "sliding_attention" if n % every else "full_attention" for n in range(shape.layers)
    ]
    if not isinstance(kinds, (list, tuple)) or len(kinds) != shape.layers:
        raise ValueError(f"the config's layer_types must be a list of {shape.layers} names, one for each layer")
    return shape.replace(
        vocabulary=read_count(config, "vocab_size"), tied=bool(config["tie_word_embeddings"]), gated=True, bias_out=False,
        bias_mlp=False, bias_head=bool(config["decoder_bias"]), rotary=1.0, rotary_kind="fp32 pairs",
        windows=tuple(half if kind == "sliding_attention" else 0 for kind in kinds),
        dropout_embedding=read_fraction(config, "embedding_dropout"), dropout_hidden=read_fraction(config, "mlp_dropout"),
    )  # fmt: skip


def parse_vit(config: Mapping[str, Any], family: str) -> ModelShape:
    require_head(config, "ForImageClassification")
    shape = _encoder_shape(config, family, "image")
    picture, patch = read_count(config, "image_size"), read_count(config, "patch_size")
    if picture % patch:
        raise ValueError(f"image_size ({picture}) must be a multiple of patch_size ({patch})")
    sizes = {
        "channels": read_count(config, "num_channels"),
        "picture": picture,
        "patch": patch,
        "tokens": (picture // patch) ** 2 + 1,
        "labels": _count_labels(config),
    }
    return shape.replace(bias_qkv=bool(config["qkv_bias"]), sizes=sizes, dropout_embedding=shape.dropout_hidden)


def _traits(pre: int, embedding_norm: int, learned: int, logits_bias: int, shift: int) -> dict[str, int]:
    """Norms before each block, norms of the embeddings, learned positions, a bias of the logits, unused positions."""
    return {
        "pre": pre, "embedding_norm": embedding_norm, "learned": learned, "logits_bias": logits_bias, "shift": shift,
    }  # fmt: skip


SEQ2SEQ_TRAITS = {
    "whisper": _traits(1, 0, 1, 0, 0),
    "bart": _traits(0, 1, 1, 1, 2),
    "mbart": _traits(1, 1, 1, 1, 2),
    "pegasus": _traits(1, 0, 0, 1, 0),
    "marian": _traits(0, 0, 0, 1, 0),
    "m2m_100": _traits(1, 0, 0, 0, 2),
}


def parse_seq2seq(config: Mapping[str, Any], family: str) -> ModelShape:
    require_head(config, "ForConditionalGeneration", "MarianMTModel")
    hidden, heads = read_count(config, "d_model"), read_count(config, "decoder_attention_heads")
    if heads != read_count(config, "encoder_attention_heads") or hidden % heads:
        raise FitUndecided("an encoder and a decoder with different heads are not known here; --trace plays them")
    if any(read_fraction(config, name) for name in ("encoder_layerdrop", "decoder_layerdrop")):
        raise FitUndecided("layers that are dropped at random (layerdrop) are not known here")
    whisper = family == "whisper"
    encoder, decoder = read_count(config, "encoder_layers"), read_count(config, "decoder_layers")
    traits = SEQ2SEQ_TRAITS[family]
    places = 0 if whisper else read_count(config, "max_position_embeddings") + traits["shift"]
    sizes = {
        "encoder_layers": encoder, "encoder_inner": read_count(config, "encoder_ffn_dim"),
        "bins": read_count(config, "num_mel_bins", default=1), "source": places or read_count(config, "max_source_positions"),
        "target": places or read_count(config, "max_target_positions"), **traits,
    }  # fmt: skip
    return ModelShape(
        family=family, kind="encoder-decoder", hidden=hidden, layers=encoder + decoder, heads=heads, kv_heads=heads,
        head_size=hidden // heads, inner=read_count(config, "decoder_ffn_dim"), vocabulary=read_count(config, "vocab_size"),
        tied=bool(config["tie_word_embeddings"]), norm="layer", activation=read_activation(config, ("activation_function",), "gelu"),
        gated=False, sizes=sizes, rotary=0.0, dropout_hidden=read_fraction(config, "dropout"),
        dropout_attention=read_fraction(config, "attention_dropout"), dropout_embedding=read_fraction(config, "activation_dropout"),
    )  # fmt: skip


def parse_t5(config: Mapping[str, Any], family: str) -> ModelShape:
    require_head(config, "ForConditionalGeneration", "T5WithLMHeadModel")
    proj = str(config["feed_forward_proj"])
    gated, _, name = proj.rpartition("-")
    if gated not in ("", "gated"):
        raise ValueError(f"the config's feed_forward_proj must be an activation or gated-ACTIVATION, not {proj!r}")
    name = "gelu_new" if proj == "gated-gelu" else name
    encoder, heads = read_count(config, "num_layers"), read_count(config, "num_heads")
    decoder = read_count(config, "num_decoder_layers", default=encoder)
    drop = read_fraction(config, "dropout_rate")
    own_head = bool(config.get("own_lm_head"))  # of the catalogue: the checkpoint has one, and loaded it is not tied
    return ModelShape(
        family=family, kind="encoder-decoder", hidden=read_count(config, "d_model"), layers=encoder + decoder, heads=heads,
        kv_heads=heads, head_size=read_count(config, "d_kv"), inner=read_count(config, "d_ff"), vocabulary=read_count(config, "vocab_size"),
        tied=not own_head, norm="t5", activation=read_activation({"feed_forward_proj": name}, ("feed_forward_proj",), "relu"),
        gated=bool(gated), rotary=0.0, dropout_hidden=drop, dropout_attention=drop,
        scaled_logits=config.get("tie_word_embeddings") is not False,
        sizes={"encoder_layers": encoder, "buckets": read_count(config, "relative_attention_num_buckets")},
    )  # fmt: skip


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
