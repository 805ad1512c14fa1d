"""Mixtures of experts through Transformers' implementations: a tiny Mixtral, against float64.

Argument: grouped_mm.
Every token goes to every expert, so that rounding cannot reroute a token and the comparison stays smooth.
"""

import os

import package_import
import proof
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


def run_proof(p):
    torch = p.torch()
    kind = p.arguments[0]
    package_import.require_capability(p, 8, 0, kind)
    transformers = package_import.import_compiled(p, "transformers", "transformers")
    folder = os.path.join(os.getcwd(), "model")
    exact = save_tiny_model(p, torch, transformers, folder)
    model = load_model(p, torch, transformers, folder, kind)
    taken = getattr(model.config, "_experts_implementation", "")
    p.record_note("experts", taken)
    if taken != kind:
        raise proof.WrongResult("the experts go by %s instead of %s" % (taken or "an unknown implementation", kind))
    compare_expert_logits(p, torch, model, exact)


def save_tiny_model(p, torch, transformers, folder):
    """Make and save the model; weights are rounded to bf16 first, so that both sides start equal."""
    if not hasattr(transformers, "MixtralConfig"):
        raise proof.Absent("transformers %s has no Mixtral" % p.record_version("transformers"))
    p.begin_step("make a tiny Mixtral")
    torch.manual_seed(5)
    model = transformers.MixtralForCausalLM(transformers.MixtralConfig(**MODEL_SIZES)).to(torch.bfloat16)
    model.save_pretrained(folder)
    return model


def load_model(p, torch, transformers, folder, kind):
    p.begin_step("load it")
    dtype = "dtype" if int(transformers.__version__.split(".")[0]) >= 5 else "torch_dtype"
    words = {dtype: torch.bfloat16, "experts_implementation": kind}
    return transformers.AutoModelForCausalLM.from_pretrained(folder, device_map={"": str(p.device)}, **words)


def multiply(p, torch, model, ids):
    p.begin_step("multiply")
    with torch.no_grad():
        return model(input_ids=ids).logits


def compare_expert_logits(p, torch, model, exact):
    ids = torch.arange(96, device=p.device).reshape(2, 48)
    got = multiply(p, torch, model, ids)
    exact = exact.double().to(p.device)
    if hasattr(exact, "set_experts_implementation"):
        exact.set_experts_implementation("eager")
    p.check_close("logits", got, multiply(p, torch, exact, ids), 5e-2)
