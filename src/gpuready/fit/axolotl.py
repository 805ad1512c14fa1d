"""Read axolotl's YAML, with axolotl's defaults for absent keys."""

from __future__ import annotations

from gpuready.fit.dialects import (
    adapter,
    asides,
    attention,
    checkpointing,
    deepspeed_named,
    fsdp,
    fsdp_words,
    optimizer,
    preference,
    targets,
)
from gpuready.fit.reading import Reading, Stated, count, shown, text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from gpuready.fit.dialects import Aside

KERNELS = ("lora_mlp_kernel", "lora_qkv_kernel", "lora_o_kernel", "lora_embedding_kernel")
LIGER = ("liger_rms_norm", "liger_glu_activation", "liger_swiglu", "liger_rope")
FUSED = ("liger_fused_linear_cross_entropy", "cut_cross_entropy", "chunked_cross_entropy")

ASIDES: tuple[Aside, ...] = (
    ("lora_modules_to_save", "more", "trains whole modules beside the adapter"),
    ("lora_target_parameters", "more", "puts adapters on parameters that are no layers"),
    ("qat", "more", "keeps rounded copies of the weights"),
    ("fp8", "both", "computes in 8 bits"),
    ("gptq", "less", "loads weights of 4 bits, which are counted in 16"),
    ("use_onebitllms", "more", "keeps rounded copies of the weights"),
    ("model_quantization_config", "both", "loads the weights in a way of its own"),
    ("quantize_moe_experts", "less", "quantises experts, which are counted in 16 bits"),
    ("torch_compile", "both", "lets the compiler decide what is kept"),
    ("tiled_mlp", "less", "computes the MLP in pieces"),
    ("layer_offloading", "less", "keeps layers in host memory"),
    ("unfrozen_parameters", "less", "trains a part of the model, and all of it is counted"),
    ("lisa_n_layers", "less", "trains some layers at a time, and all are counted"),
    ("relora", "more", "merges adapters on the way"),
    ("use_galore", "both", "projects the gradients"),
    ("reward_model", "both", "trains a reward model, on pairs and without the vocabulary"),
    ("process_reward_model", "both", "trains a reward model without the vocabulary"),
    ("diffusion", "more", "trains a diffusion model with passes of its own"),
    ("processor_type", "more", "feeds images or sound, and their layers and tokens take memory of their own"),
    ("use_scattermoe", "both", "has kernels of its own for the experts"),
    ("use_sonicmoe", "both", "has kernels of its own for the experts"),
    ("expert_parallel_size", "less", "spreads the experts over GPUs"),
    ("do_causal_lm_eval", "more", "generates in the evaluation"),
    ("eval_table_size", "more", "generates in the evaluation"),
)  # fmt: skip


def axolotl(path: str, found: Mapping[str, Any]) -> Stated:
    one = Reading("axolotl", path, found)
    one.name("base_model")
    one.put("loop", "trainer", "axolotl trains with the Trainer of transformers")
    for field, key in (
        ("micro_batch", "micro_batch_size"), ("accumulation", "gradient_accumulation_steps"),
        ("seq", "sequence_len"), ("tensor_parallel", "tensor_parallel_size"),
    ):  # fmt: skip
        one.take(field, count, key)
    if "seq" not in one.fields:
        one.put("seq", 512, "sequence_len (axolotl's default)")
    _method(one)
    _precision(one)
    optimizer(one, "optimizer")
    _attention(one)
    _loss(one)
    _packing(one)
    _kept(one)
    _kernels(one)
    preference(one, str(one.get("rl") or ""), "rl")
    _spread(one)
    asides(one, ASIDES)
    _evaluation(one)
    return one.stated()


def _method(one: Reading) -> None:
    kind = one.value("adapter", text)
    four, eight = one.on("load_in_4bit"), one.on("load_in_8bit")
    if kind in ("lora", "qlora"):
        one.put("method", kind, "adapter")
    elif kind:
        one.put("method", "lora", "adapter")
        one.unmodelled.append(f"the adapter {shown(kind)} is counted as lora")
    if kind and (four or eight):
        one.put("quant", "nf4" if four else "int8", "load_in_4bit" if four else "load_in_8bit")
        twice = one.get("bnb_config_kwargs.bnb_4bit_use_double_quant")
        double = four and (twice is None or one.on("bnb_config_kwargs.bnb_4bit_use_double_quant"))
        one.put("double_quant", double, "load_in_4bit (axolotl quantises twice)")
    if not kind:
        return  # LoRA keys without an adapter have no effect
    adapter(one, "lora_r", "lora_dropout", "peft_use_dora")
    targets(one, "lora_target_modules")
    if one.on("lora_target_linear"):
        one.put("lora_targets", "all", "lora_target_linear")


def _kernels(one: Reading) -> None:
    """axolotl uses its own LoRA kernels; with checkpointing they save memory in one layer only."""
    if one.fields.get("method", "full") == "full":
        return
    stated = [one.get(key) for key in KERNELS if one.get(key) is not None]
    by_itself = not (one.on("load_in_8bit") or one.get("rl") or one.on("trust_remote_code"))
    if any(stated) or (not stated and by_itself):
        says = "axolotl's own LoRA kernels keep less than peft's layers, which are counted"
        one.notes.append(says) if "checkpointing" in one.fields else one.lessened.append(says)


def _precision(one: Reading) -> None:
    """axolotl loads the weights in the training precision."""
    for key, own in (("bf16", "bf16"), ("bfloat16", "bf16"), ("fp16", "fp16"), ("float16", "fp16")):
        value = one.found.get(key)
        if value in ("auto", "full") or (value is not None and one.on(key)):
            one.put("precision", own, key)
            if key in ("bf16", "fp16") and value != "full":
                one.put("autocast", own, key)
            return
    if one.on("load_in_8bit"):
        one.put("precision", "fp16", "load_in_8bit, and neither bf16 nor fp16")
    else:
        one.put("precision", "fp32", "neither bf16 nor fp16")


def _attention(one: Reading) -> None:
    for key, own in (("flash_attention", "flash"), ("sdp_attention", "sdpa"), ("eager_attention", "eager")):
        if one.on(key):
            one.put("attention", own, key)
            break
    else:
        for key in ("xformers_attention", "flex_attention", "sage_attention"):
            if one.on(key):
                one.put("attention", "flash", key)
                one.notes.append(f"{key} is counted as flash attention")
                break
        else:
            attention(one, "attn_implementation")
    sharded = one.get("fsdp") or one.get("fsdp_config")
    full = not one.get("adapter") and not sharded and not one.on("cut_cross_entropy")
    if full and one.fields.get("attention", "sdpa") != "flash" and one.fields["precision"] != "fp32":
        one.unmodelled.append(
            "axolotl keeps embeddings, head and norms in fp32 without flash attention: that is not counted"
        )


def _loss(one: Reading) -> None:
    kernels = [key for key in LIGER if one.on(key)]
    fused = [key for key in FUSED if one.on(key)]
    plugins = " ".join(map(str, one.get("plugins") or ())) if isinstance(one.get("plugins"), list) else ""
    if not fused and "CutCrossEntropyPlugin" in plugins and one.get("cut_cross_entropy") is None:
        fused = ["plugins (CutCrossEntropyPlugin)"]
    if fused:
        whole = fused[0].startswith("liger") and len(kernels) >= 2
        one.put("loss", "liger" if whole else "fused", fused[0])
    elif kernels:
        one.lessened.append("liger's layers keep less than those of transformers, which are counted")


def _packing(one: Reading) -> None:
    """Packed samples are separated by lengths with flash attention, by a mask otherwise; rows are filled up."""
    if one.on("sample_packing"):
        if one.fields.get("attention", "sdpa") != "flash":
            one.put("padded", True, "sample_packing without flash attention")
    elif one.fields.get("micro_batch", 1) > 1:
        one.put("padded", True, "sample_packing")


def _kept(one: Reading) -> None:
    """Checkpointing is reentrant unless the file says otherwise, trains a part of the model, or uses ``rl``."""
    checkpointing(one)
    said = isinstance(one.get("gradient_checkpointing_kwargs"), dict)
    plain = not said and not one.get("unfrozen_parameters") and not one.get("rl")
    if one.fields.get("checkpointing") == "nonreentrant" and plain and "offload" not in one.fields:
        one.put("checkpointing", "reentrant", "gradient_checkpointing (axolotl's default)")
    where = one.get("activation_offloading")
    if where and str(where).lower() not in ("false", "no", "off"):
        one.put("checkpointing", "nonreentrant", "activation_offloading")
        one.put("offload", "activations", "activation_offloading")
        if str(where) != "hidden_states":
            one.unmodelled.append(
                "activation_offloading is counted as checkpoints in host memory; what is on its way is not"
            )


def _spread(one: Reading) -> None:
    if (one.value("context_parallel_size", count) or one.value("sequence_parallel_degree", count) or 1) > 1:
        one.lessened.append("the sequence is shared among GPUs: that is not counted")
    deepspeed_named(one)
    if one.get("fsdp") or one.get("fsdp_config"):
        _fsdp(one)
    share = one.value("dp_shard_size", count)
    if share:
        split = one.fields.get("tensor_parallel", 1)
        one.put("world", share * split, "dp_shard_size, and tensor_parallel_size")
    elif one.on("use_ray") and one.value("ray_num_workers", count):
        one.take("world", count, "ray_num_workers")


def _fsdp(one: Reading) -> None:
    inner = one.get("fsdp_config")
    plain = {str(k).removeprefix("fsdp_"): v for k, v in inner.items()} if isinstance(inner, dict) else {}
    words = fsdp_words(one.get("fsdp"))
    if "shard_grad_op" in words:
        plain.setdefault("sharding_strategy", "SHARD_GRAD_OP")
    if "offload" in words:
        plain.setdefault("offload_params", True)
    other = Reading(one.kind, one.path, {"fsdp_config": plain})
    fsdp(other, "fsdp_config.sharding_strategy", "fsdp_config.")
    one.join(other)


def _evaluation(one: Reading) -> None:
    rows, mine = one.value("eval_batch_size", count), one.fields.get("micro_batch", 1)
    if rows and rows > 2 * mine and one.get("val_set_size") not in (None, 0, 0.0):
        one.unmodelled.append(f"eval_batch_size {rows}: the evaluation is not counted")
