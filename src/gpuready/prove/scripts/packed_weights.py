"""GPTQ and AWQ: write a checkpoint of packed 4-bit weights, and check the kernels' products.

Arguments: gptq or awq, then transformers (through gptqmodel, the default) or vllm. The packing is that of the
published formats: groups of 128 inputs, eight values in an int32; AWQ interleaves them. The reference has the same
weights unpacked, in float64.
"""

import os

import package_import
import proof
import tiny_llama as tiny

GROUP, BITS = 128, 4
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)


def quantise_weight(torch, weight, symmetric):
    """Quantise a weight (outputs, inputs).

    Return integers (inputs, outputs), scales and zeros (groups, outputs), and the dequantised weight.
    """
    turned = weight.detach().float().t().reshape(-1, GROUP, weight.shape[0])
    if symmetric:
        scale = turned.abs().amax(1) / 7.0
        zero = torch.full_like(scale, 8)
    else:
        low, high = turned.amin(1), turned.amax(1)
        scale = (high - low) / 15.0
        zero = (-low / scale).round()
    scale = scale.half().float()
    values = (turned / scale[:, None] + zero[:, None]).round().clamp(0, 15)
    back = ((values - zero[:, None]) * scale[:, None]).reshape(-1, weight.shape[0]).t()
    return values.reshape(-1, weight.shape[0]).int(), scale.half(), zero.int(), back


def pack_int4(torch, values, axis, order=tuple(range(8))):
    """Pack eight 4-bit values into one int32, along an axis."""
    values = values.to(torch.int64)
    if axis == 0:
        return pack_int4(torch, values.t(), 1, order).t().contiguous()
    parts = values.reshape(values.shape[0], -1, 8)
    out = sum(parts[:, :, order[i]] << (BITS * i) for i in range(8))
    return torch.where(out >= 2**31, out - 2**32, out).to(torch.int32).contiguous()


def pack_layer(torch, kind, weight):
    """Return the tensors of one layer in the format, and its dequantised weight."""
    values, scale, zero, back = quantise_weight(torch, weight, kind == "gptq")
    if kind == "awq":
        made = {"qweight": pack_int4(torch, values, 1, AWQ_ORDER), "qzeros": pack_int4(torch, zero, 1, AWQ_ORDER)}
    else:
        # The first format of GPTQ stores zeros minus one.
        made = {"qweight": pack_int4(torch, values, 0), "qzeros": pack_int4(torch, zero - 1, 1)}
        made["g_idx"] = torch.arange(weight.shape[1], dtype=torch.int32) // GROUP
    return dict(made, scales=scale), back


def write_packed_checkpoint(p, torch, kind, folder):
    """Write the checkpoint; return the model with the dequantised weights."""
    model = tiny.save_llama(p, folder)
    p.begin_step("write a %s checkpoint" % kind)
    tensors = {}
    state = model.state_dict()
    for name, weight in state.items():
        if ".layers." in name and name.endswith("proj.weight"):
            packed_tensors, unpacked = pack_layer(torch, kind, weight)
            tensors.update({name[: -len("weight")] + k: v for k, v in packed_tensors.items()})
            weight.copy_(unpacked)
        else:
            tensors[name] = weight.half().contiguous()
    model.load_state_dict(state)
    tiny.replace_checkpoint(folder, tensors, packed_scheme(kind), dtype="float16", torch_dtype="float16")
    return model


def packed_scheme(kind):
    quantization = {"bits": BITS, "group_size": GROUP, "quant_method": kind}
    if kind == "gptq":
        quantization.update(sym=True, desc_act=False, checkpoint_format="gptq")
    else:
        quantization.update(zero_point=True, version="gemm", modules_to_not_convert=["lm_head"])
    return quantization


def run_proof(p):
    torch = p.torch()
    kind, engine = (list(p.arguments) + ["transformers"])[:2]
    folder = os.path.join(os.getcwd(), "model")
    if engine == "vllm":
        import text_engine

        return text_engine.check_engine(p, "vllm", folder, write_packed_checkpoint(p, torch, kind, folder))
    p.record_version("gptqmodel")
    if kind == "gptq":
        p.record_version("optimum")
    exact = write_packed_checkpoint(p, torch, kind, folder)
    package_import.import_compiled(p, "gptqmodel", "gptqmodel")
    import quantised

    transformers = package_import.import_compiled(p, "transformers", "transformers")
    model = quantised.load_model(p, torch, transformers, folder)
    taken = type(model.model.layers[0].mlp.down_proj).__name__
    p.record_note("kernel", taken)
    if taken == "Linear":
        raise proof.WrongResult("the layers are plain after loading: nothing multiplies by packed weights")
    quantised.compare_logits(p, torch, model, exact, 5e-2)
