"""Mixtures of experts through Transformers' implementations: a tiny Mixtral, against float64.

Argument: grouped_mm, sonicmoe, deepgemm, or mxfp4 (a tiny gpt-oss whose experts are quantised while loading).
Every token goes to every expert, so that rounding cannot reroute a token and the comparison stays smooth.
"""

import os

import opening
import proof
import quantised
import tiny_llama as tiny

SIZES = {
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
LEAST = {"grouped_mm": (8, 0), "sonicmoe": (9, 0), "deepgemm": (9, 0), "mxfp4": (7, 5)}


def act(p):
    tiny.offline(os.getcwd())
    torch = p.torch()
    kind = p.arguments[0]
    opening.least(p, *LEAST[kind], kind)
    transformers = opening.module(p, "transformers", "transformers")
    if kind != "grouped_mm":
        p.module("kernels", "kernels")  # kernels of the hub; absent if nothing can load them
    folder = os.path.join(os.getcwd(), "model")
    exact = made(p, torch, transformers, kind, folder)
    half = torch.bfloat16
    if kind == "mxfp4":
        model = quantised.loaded(p, torch, transformers, folder, transformers.Mxfp4Config())
        p.number("kept_in_16_bits", whole(torch, model), "equal", 0)
        bound = 0.5
    else:
        p.step("load with experts by " + kind)
        model = routed(p, transformers, folder, kind, half)
        bound = 5e-2
    compared(p, torch, model, exact, bound)


def made(p, torch, transformers, kind, folder):
    """Make and save the model; weights are rounded to bf16 first, so that both sides start equal."""
    name = "GptOss" if kind == "mxfp4" else "Mixtral"
    if not hasattr(transformers, name + "Config"):
        raise proof.Absent("transformers %s has no %s" % (p.version("transformers"), name))
    p.step("make a tiny " + name)
    torch.manual_seed(5)
    model = getattr(transformers, name + "ForCausalLM")(getattr(transformers, name + "Config")(**SIZES))
    model = model.to(torch.bfloat16)
    model.save_pretrained(folder)
    return model


def routed(p, transformers, folder, kind, half):
    try:
        model = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=half, experts_implementation=kind, device_map={"": str(p.device)}
        )
    except Exception as bad:
        raise quantised.unfetched(bad) or bad from None
    taken = getattr(model.config, "_experts_implementation", "")
    p.note("experts", taken)
    if taken != kind:
        raise proof.Wrong("the experts go by %s instead of %s" % (taken or "an unknown road", kind))
    return model


def whole(torch, model):
    """Count expert weights that are still ordinary 16-bit tensors."""
    wide = (torch.float32, torch.float16, torch.bfloat16)
    names = [n for n, w in model.named_parameters() if "experts" in n and "bias" not in n and w.dtype in wide]
    return len(names)


def compared(p, torch, model, exact, bound):
    ids = torch.arange(96, device=p.device).reshape(2, 48)
    p.step("multiply")
    try:
        with torch.no_grad():
            got = model(input_ids=ids).logits
    except Exception as bad:
        raise quantised.unfetched(bad) or bad from None
    exact = exact.double().to(p.device)
    if hasattr(exact, "set_experts_implementation"):
        exact.set_experts_implementation("eager")
    with torch.no_grad():
        p.close("logits", got, exact(input_ids=ids).logits, bound)


if __name__ == "__main__":
    proof.main(act)
