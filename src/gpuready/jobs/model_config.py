"""Read a model's config.json: the config of its language model, its parameters, and what it sets for a job.

Multimodal models keep their language model in ``text_config``, often with only the values that differ from
transformers' defaults; a quantised checkpoint has a ``quantization_config``.
"""

from collections.abc import Mapping
from typing import Any

from gpuready.fit.job.model_parser import name_text_type, parse_model_config, read_tied_embeddings
from gpuready.fit.job.parameter_counts import count_parameters
from gpuready.fit.job.records import FitUndecided
from gpuready.jobs import job_files
from gpuready.jobs.config_reader import ConfigReader, JobSettings, short_repr
from gpuready.model.sizes import parse_count
from gpuready.system import AccessError, HostAccess

SHAPE_KEYS = (
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "vocab_size",
)
SHAPE_DEFAULTS = {
    "llama": (4096, 11008, 32, 32, None, 32000),
    "mistral": (4096, 14336, 32, 32, 8, 32000),
    "qwen2": (4096, 22016, 32, 32, 32, 151936),
    "qwen3": (4096, 22016, 32, 32, 32, 151936),
    "gemma": (3072, 24576, 28, 16, 16, 256000),
    "gemma2": (2304, 9216, 26, 8, 4, 256000),
    "gemma3_text": (2304, 9216, 26, 8, 4, 262208),
    "phi3": (3072, 8192, 32, 32, None, 32064),
}
"""transformers' defaults for a nested language model, in the order of SHAPE_KEYS (None: as many as heads)."""

MULTIMODAL_KEYS = ("vision_config", "audio_config", "vision_tower", "mm_vision_tower", "visual")
TEXT_CONFIG_KEYS = ("text_config", "llm_config", "language_config")
INHERITED_KEYS = ("torch_dtype", "dtype", "quantization_config")


def read_model_settings(config: Mapping[str, Any], path: str) -> JobSettings:
    """Return the language model's config and the job settings of a config."""
    reader = ConfigReader("model", path, config)
    flat = language_model_config(config)
    part = next((key for key in MULTIMODAL_KEYS if config.get(key)), "")
    if part:
        reader.add_uncounted(
            f"the model's {part} and what it feeds in take memory of their own: that is not counted", "more"
        )
    _read_stored_quantisation(reader, flat.get("quantization_config"))
    reader.model = flat
    return reader.to_job_settings()


def language_model_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the config of the language model: nested in a multimodal one, else the config itself."""
    inner = next((config[key] for key in TEXT_CONFIG_KEYS if isinstance(config.get(key), dict)), None)
    if inner is None or isinstance(config.get("hidden_size"), int):
        return dict(config)
    inner = name_text_type(config, inner)
    outer = {key: config[key] for key in INHERITED_KEYS if config.get(key) is not None}
    kind = str(inner.get("model_type") or "")
    defaults = {name: size for name, size in zip(SHAPE_KEYS, SHAPE_DEFAULTS.get(kind, ()), strict=False) if size}
    tied = read_tied_embeddings(config, inner)
    merged: dict[str, Any] = defaults | outer | inner | ({} if tied is None else {"tie_word_embeddings": tied})
    return merged


def _read_stored_quantisation(reader: ConfigReader, quantisation: object) -> None:
    """Read the quantisation of a checkpoint."""
    if not isinstance(quantisation, dict):
        return
    method = str(quantisation.get("quant_method") or "bitsandbytes").lower()
    key = "quantization_config"
    if method == "bitsandbytes" and (quantisation.get("load_in_4bit") or quantisation.get("load_in_8bit")):
        four = bool(quantisation.get("load_in_4bit"))
        reader.set_field("quant", str(quantisation.get("bnb_4bit_quant_type") or "fp4") if four else "int8", key)
        reader.set_field("double_quant", four and bool(quantisation.get("bnb_4bit_use_double_quant")), key)
    elif method != "bitsandbytes":
        reader.add_uncounted(
            f"the checkpoint is stored in a quantised form ({short_repr(method)}), and counted in 16 bits", "less"
        )


def settings_from_model_name(name: str, path: str) -> JobSettings | None:
    """Return settings for a built-in model whose name says that it is quantised, such as llama-3-8b-bnb-4bit."""
    low = name.lower()
    if "bnb" not in low or ("4bit" not in low and "nf4" not in low and "8bit" not in low):
        return None
    reader = ConfigReader("model", path, {})
    four = "8bit" not in low
    reader.set_field("quant", "nf4" if four else "int8", "the model's name")
    reader.set_field("double_quant", four, "the model's name")
    return reader.to_job_settings()


def resolve_precision(fields: dict[str, Any], sources: Mapping[str, str], config: Mapping[str, Any]) -> list[str]:
    """Resolve the weights' precision: DeepSpeed casts them; otherwise they have the checkpoint's dtype."""
    notes: list[str] = []
    if fields.get("zero"):
        fields.pop("autocast", None)
    follows_checkpoint = "over weights in the checkpoint's dtype" in sources.get("precision", "")
    if follows_checkpoint:
        own = {"amp-bf16": "bf16", "amp-fp16": "fp16"}[fields["precision"]]
        stored = str(config.get("dtype") or config.get("torch_dtype") or "")
        if fields.get("zero"):  # DeepSpeed casts the weights itself
            fields["precision"] = own
        elif stored == "bfloat16" and own == "bf16":
            fields["precision"] = "bf16"
            fields.setdefault("autocast", "bf16")
            notes.append(
                "weights in bfloat16 as the model's config says; if your script loads fp32: --precision amp-bf16"
            )
    return notes + _resolve_fsdp_upcast(fields, sources)


def _resolve_fsdp_upcast(fields: dict[str, Any], sources: Mapping[str, str]) -> list[str]:
    """FSDP under accelerate's mixed precision: trained shards become fp32 and compute in 16 bit."""
    mixed = fields.get("autocast") or str(fields.get("precision", "")).removeprefix("amp-")
    plain = sources.get("precision") == "the command line" or not sources.get("fsdp", "the command line").count(":")
    if not fields.get("fsdp") or plain or mixed not in ("bf16", "fp16") or fields.get("method", "full") != "full":
        return []
    if not fields.get("autocast") and fields["precision"] == mixed and "fp32_shards" not in fields:
        return []  # no mixed precision: everything is 16 bit
    fields["precision"] = mixed
    fields["fp32_shards"] = True
    return ["FSDP with mixed precision keeps the shares of the weights in fp32"]


MIXTURE_SIZES = {"8x7b": 46_702_792_704, "8x22b": 140_620_634_112}
"""Names whose product is not the size: the experts share everything but their MLP."""


def find_size_in_name(name: str) -> int | None:
    """Return the size in a model's name: ``meta-llama/Llama-3.1-8B-Instruct`` -> 8e9."""
    words = name.rpartition("/")[2].lower().replace("_", "-").split("-")
    for word in words:
        if word in MIXTURE_SIZES:
            return MIXTURE_SIZES[word]
        count = parse_count(word) if word[-1:] in ("b", "m") else None
        if count is not None and count >= 10_000_000:  # 1M in a name is a context length
            return count
    return None


def count_model_parameters(config: Mapping[str, Any]) -> int | None:
    """Count the parameters of the language model of a config.json; None for an unknown architecture.

    ValueError if a number is missing or invalid.
    """
    text_config = {"model_type": config.get("model_type")} | language_model_config(config)
    try:
        return count_parameters(parse_model_config(text_config))
    except FitUndecided:
        declared = config.get("num_parameters")
        return declared if isinstance(declared, int) and declared > 0 else None


def count_parameters_at_path(host: HostAccess, path: str, flag: str) -> int | None:
    """Count by the config.json at a path; None if there is no such file or folder."""
    try:
        status = host.stat_path(path)
        if status is None:
            return None
        file = f"{path.rstrip('/')}/config.json" if status["kind"] == "dir" else path
        text = host.read_text(file, job_files.MAX_FILE_BYTES)
    except AccessError as error:
        raise ValueError(f"{flag} {path} cannot be read: {error}") from None
    if text is None:
        raise ValueError(f"{flag} {path} has no config.json; give the folder of a model or its size, such as 7b")
    return count_config_parameters(job_files.decode_json_object(text, f"{flag} {file}"), file, flag)


def count_config_parameters(config: Mapping[str, Any], file: str, flag: str) -> int:
    """Count the parameters that a config.json describes. ValueError if it cannot be counted."""
    kind = config.get("model_type")
    try:
        count = count_model_parameters(config)
    except ValueError as error:
        raise ValueError(f"{flag} {file}: {error}; give the size, such as --model 7b") from None
    if count is None:
        raise ValueError(f"{flag} {file}: models of type {kind!r} cannot be counted; give the size, such as 7b")
    return count
