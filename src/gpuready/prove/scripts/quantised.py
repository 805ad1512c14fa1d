"""A tiny Llama through one of Transformers' quantisers, against the same model in float64.

Argument: bnb-4bit, bnb-8bit, torchao, eetq, finegrained-fp8, fp-quant, compressed-fp8.
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
    "eetq": ("EetqConfig", {"weights": "int8"}, "kernels", 0.1),
    "finegrained-fp8": ("FineGrainedFP8Config", {}, "kernels", 0.2),
    "fp-quant": ("FPQuantConfig", {}, "fp-quant", 0.5),
    "compressed-fp8": ("CompressedTensorsConfig", {}, "compressed-tensors", 0.2),
}
# Messages of a loader that would have to download a kernel first.
UNFETCHED_MESSAGES = (
    "offline",
    "not in the local cache",
    "couldn't connect",
    "localentrynotfound",
    "cannot find the requested",
)


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
    if kind == "compressed-fp8":
        package_import.import_compiled(p, "compressed_tensors", "compressed-tensors")  # explains what is missing
        config = write_fp8_checkpoint(p, torch, exact, folder)
    else:
        config = getattr(transformers, name)(**words)
    model = load_model(p, torch, transformers, folder, quantization_config=config)
    compare_logits(p, torch, model, exact, bound)


def torchao_quant_type():
    from torchao.quantization import Int8WeightOnlyConfig

    return Int8WeightOnlyConfig()


def load_model(p, torch, transformers, folder, **words):
    """Load the model through the quantiser; Absent if a kernel would have to be downloaded."""
    p.begin_step("load it")
    words = {name: value for name, value in words.items() if value is not None}
    half = torch.bfloat16 if not p.cuda or p.capability() >= (8, 0) else torch.float16
    kind = transformers.AutoModelForCausalLM
    dtype = "dtype" if int(transformers.__version__.split(".")[0]) >= 5 else "torch_dtype"
    try:
        return kind.from_pretrained(folder, device_map={"": str(p.device)}, **{dtype: half}, **words)
    except Exception as bad:
        raise as_absent_kernel(bad) or bad from None


def as_absent_kernel(error):
    messages = " ".join("%s %s" % (type(e).__name__, e) for e in iterate_causes(error)).lower()
    if any(phrase in messages for phrase in UNFETCHED_MESSAGES):
        return proof.Absent(
            "its kernel is not in the local cache of the hub: %s" % package_import.explain_load_error(error)
        )
    return None


def iterate_causes(error):
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def record_plain_layers(p, torch, model):
    """Record how many layers inside the blocks are still ordinary 16 or 32 bit products; none may be."""
    wide = (torch.float32, torch.float16, torch.bfloat16)
    layers = [x.weight.data for n, x in model.named_modules() if ".layers." in n and type(x) is torch.nn.Linear]
    plain = [weight for weight in layers if type(weight) is torch.Tensor and weight.dtype in wide]
    p.record_number("layers_left_plain", len(plain), "equal", 0)


def multiply(p, torch, model, ids):
    p.begin_step("multiply")
    try:
        with torch.no_grad():
            return model(input_ids=ids).logits
    except Exception as bad:
        raise as_absent_kernel(bad) or bad from None


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


def write_fp8_checkpoint(p, torch, model, folder):
    """Write an fp8 checkpoint with one scale per row, as compressed-tensors does; return its configuration, if any."""
    p.begin_step("write an fp8 checkpoint")
    tensors = {}
    for name, weight in model.state_dict().items():
        if ".layers." in name and name.endswith("proj.weight"):
            scale = weight.abs().amax(1, keepdim=True).float() / 448
            tensors[name] = (weight / scale).to(torch.float8_e4m3fn)
            tensors[name + "_scale"] = scale.to(torch.bfloat16)
        else:
            tensors[name] = weight.to(torch.bfloat16).contiguous()
    tiny.replace_checkpoint(folder, tensors, fp8_scheme())
    from transformers import CompressedTensorsConfig

    fast = "use_optimized_inference" in CompressedTensorsConfig.__init__.__code__.co_varnames
    return CompressedTensorsConfig(use_optimized_inference=True) if fast else None


def fp8_scheme():
    eight = {"num_bits": 8, "type": "float", "symmetric": True, "observer": None}
    group = {
        "targets": ["Linear"],
        "weights": dict(eight, strategy="channel", dynamic=False),
        "input_activations": dict(eight, strategy="token", dynamic=True),
        "output_activations": None,
    }
    return {
        "quant_method": "compressed-tensors",
        "format": "float-quantized",
        "quantization_status": "compressed",
        "config_groups": {"group_0": group},
        "ignore": ["lm_head"],
    }
