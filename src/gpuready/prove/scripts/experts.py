"""Mixtures of experts through Transformers' implementations: a tiny Mixtral, against float64.

Argument: grouped_mm, sonicmoe, or mxfp4 (a tiny gpt-oss whose experts are quantised while loading).
Every token goes to every expert, so that rounding cannot reroute a token and the comparison stays smooth.
"""

import os

import package_import
import proof
import quantised
import tiny_llama as tiny

MODEL_SIZES = {
    "hidden_size": 256,
    "intermediate_size": 256,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "vocab_size": tiny.VOCABULARY,
    "num_local_experts": 4,
    "num_experts_per_tok": 4,
    "max_position_embeddings": 512,
    "use_cache": False,
}
CAPABILITY_FLOORS = {"grouped_mm": (8, 0), "sonicmoe": (9, 0), "mxfp4": (7, 5)}


def run_proof(p):
    torch = p.torch()
    kind = p.arguments[0]
    package_import.require_capability(p, *CAPABILITY_FLOORS[kind], kind)
    transformers = package_import.import_compiled(p, "transformers", "transformers")
    if kind != "grouped_mm":
        p.import_module("kernels", "kernels")  # kernels of the hub; absent if nothing can load them
    folder = os.path.join(os.getcwd(), "model")
    exact = save_tiny_model(p, torch, transformers, kind, folder)
    if kind == "mxfp4":
        model = quantised.load_model(p, torch, transformers, folder, quantization_config=transformers.Mxfp4Config())
        p.record_number("kept_in_16_bits", count_plain_experts(torch, model), "equal", 0)
    else:
        model = quantised.load_model(p, torch, transformers, folder, experts_implementation=kind)
        taken = getattr(model.config, "_experts_implementation", "")
        p.record_note("experts", taken)
        if taken != kind:
            raise proof.WrongResult("the experts go by %s instead of %s" % (taken or "an unknown implementation", kind))
    compare_expert_logits(p, torch, model, exact, 0.5 if kind == "mxfp4" else 5e-2)


def save_tiny_model(p, torch, transformers, kind, folder):
    """Make and save the model; weights are rounded to bf16 first, so that both sides start equal."""
    name = "GptOss" if kind == "mxfp4" else "Mixtral"
    if not hasattr(transformers, name + "Config"):
        raise proof.Absent("transformers %s has no %s" % (p.record_version("transformers"), name))
    p.begin_step("make a tiny " + name)
    torch.manual_seed(5)
    model = getattr(transformers, name + "ForCausalLM")(getattr(transformers, name + "Config")(**MODEL_SIZES))
    model = model.to(torch.bfloat16)
    model.save_pretrained(folder)
    return model


def count_plain_experts(torch, model):
    """Count expert weights that are still ordinary 16-bit tensors."""
    wide = (torch.float32, torch.float16, torch.bfloat16)
    names = [n for n, w in model.named_parameters() if "experts" in n and "bias" not in n and w.dtype in wide]
    return len(names)


def compare_expert_logits(p, torch, model, exact, bound):
    ids = torch.arange(96, device=p.device).reshape(2, 48)
    got = quantised.multiply(p, torch, model, ids)
    exact = exact.double().to(p.device)
    if hasattr(exact, "set_experts_implementation"):
        exact.set_experts_implementation("eager")
    p.check_close("logits", got, quantised.multiply(p, torch, exact, ids), bound)
