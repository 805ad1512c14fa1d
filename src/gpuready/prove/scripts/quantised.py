"""A tiny Llama through one of Transformers' quantisers, against the same model in float64.

Argument: bnb-4bit, bnb-8bit, torchao.
Weights are quantised while loading, as for a user. A quantiser that silently falls back to 16 bits, as several do where
the hardware lacks something, does not pass: no layer may be left plain.
"""

import os

import package_import
import proof
import tiny_llama as tiny

# Configuration class, its arguments, the required distribution, the largest error of the logits.
QUANTISERS = {
    "bnb-4bit": ("BitsAndBytesConfig", {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}, "bitsandbytes", 0.4),
    "bnb-8bit": ("BitsAndBytesConfig", {"load_in_8bit": True}, "bitsandbytes", 0.1),
    "torchao": ("TorchAoConfig", {}, "torchao", 0.1),
}


def run_proof(p):
    torch = p.torch()
    kind = p.arguments[0]
    name, words, distribution, bound = QUANTISERS[kind]
    for one in (distribution, "accelerate"):
        p.record_version(one)
    transformers = package_import.import_compiled(p, "transformers", "transformers")
    if not hasattr(transformers, name):
        raise proof.Absent("transformers %s has no %s" % (p.record_version("transformers"), name))
    folder = os.path.join(os.getcwd(), "model")
    exact = tiny.save_llama(p, folder)
    if kind == "torchao":
        words = {"quant_type": torchao_quant_type()}
    config = getattr(transformers, name)(**words)
    model = load_model(p, torch, transformers, folder, quantization_config=config)
    compare_logits(p, torch, model, exact, bound)


def torchao_quant_type():
    from torchao.quantization import Int8WeightOnlyConfig

    return Int8WeightOnlyConfig()


def load_model(p, torch, transformers, folder, **words):
    """Load the model as a user does, through the quantiser where one is given."""
    p.begin_step("load it")
    half = torch.bfloat16 if not p.cuda or p.capability() >= (8, 0) else torch.float16
    kind = transformers.AutoModelForCausalLM
    dtype = "dtype" if int(transformers.__version__.split(".")[0]) >= 5 else "torch_dtype"
    return kind.from_pretrained(folder, device_map={"": str(p.device)}, **{dtype: half}, **words)


def record_plain_layers(p, torch, model):
    """Record how many layers inside the blocks are still ordinary 16 or 32 bit products; none may be."""
    wide = (torch.float32, torch.float16, torch.bfloat16)
    layers = [x.weight.data for n, x in model.named_modules() if ".layers." in n and type(x) is torch.nn.Linear]
    plain = [weight for weight in layers if type(weight) is torch.Tensor and weight.dtype in wide]
    p.record_number("layers_left_plain", len(plain), "equal", 0)


def multiply(p, torch, model, ids):
    p.begin_step("multiply")
    with torch.no_grad():
        return model(input_ids=ids).logits


def compare_logits(p, torch, model, exact, bound):
    record_plain_layers(p, torch, model)
    p.record_note("layer", type(model.model.layers[0].mlp.down_proj).__name__)
    p.record_note("weight", str(getattr(model.model.layers[0].mlp.down_proj.weight, "dtype", "")))
    ids = tiny.make_batch(p)["input_ids"]
    got = multiply(p, torch, model, ids)
    reference = multiply(p, torch, exact.double().to(p.device), ids)
    record_plain_layers(p, torch, model)  # some dequantise the weights at the first multiplication
    p.check_close("logits", got, reference, bound)
    p.record_number("differs", float((got.double() - reference).abs().max()), "least", 1e-9)
