"""bitsandbytes: quantise, dequantise, multiply, backpropagate, and step its optimizers, against float64.

Argument: 4bit (NF4 and FP4), 8bit (LLM.int8), optimizer (AdamW in 8 bits).
"""

import os

import package_import
import proof


def import_bitsandbytes(p):
    """Import the package and check its library for this CUDA; without it only the first call would fail."""
    bnb = package_import.import_compiled(p, "bitsandbytes", "bitsandbytes")
    from importlib import import_module

    p.begin_step("look for its library")
    part = import_module("bitsandbytes.cextension")
    library = getattr(part, "lib", None)
    folder = os.path.dirname(bnb.__file__)
    brought = sorted(x for x in os.listdir(folder) if x.startswith("libbitsandbytes"))
    if library is None or "Error" in type(library).__name__ or "Mock" in type(library).__name__:
        why = getattr(library, "error_msg", "") or "it could not be loaded"
        raise proof.WrongResult(
            "bitsandbytes runs without its library (%s); it brings %s"
            % (str(why).strip().splitlines()[0], ", ".join(brought) or "none")
        )
    if p.cuda and not getattr(library, "compiled_with_cuda", True):
        cuda = p.record["versions"]["cuda"]
        raise proof.WrongResult(
            "bitsandbytes took its CPU library; for CUDA %s it brings %s" % (cuda, ", ".join(brought))
        )
    p.record_note(
        "library", getattr(getattr(library, "_lib", None), "_name", type(library).__name__).rpartition("/")[2]
    )
    return bnb


def check_4bit(p, torch):
    """Quantise blocks of 64 values: the largest error is half a gap of the code, so it has a strict bound."""
    bnb = import_bitsandbytes(p)
    dtype = torch.bfloat16 if has_native_bf16(p) else torch.float16
    for kind, most in (("nf4", 0.16), ("fp4", 0.26)):
        p.begin_step("quantise to " + kind)
        weight = torch.randn(256, 512, device=p.device, dtype=dtype)
        codes, state = bnb.functional.quantize_4bit(weight, blocksize=64, quant_type=kind)
        p.record_number(kind + "_bytes", codes.numel() * codes.element_size(), "most", weight.numel() / 2)
        back = bnb.functional.dequantize_4bit(codes, state)
        blocks = (back - weight).double().reshape(-1, 64).abs().amax(1)
        largest = weight.double().reshape(-1, 64).abs().amax(1)
        p.record_number(kind + "_block_error", (blocks / largest).max(), "most", most)
    for name, kind, nested in (("nf4", "nf4", False), ("fp4", "fp4", False), ("nf4_double", "nf4", True)):
        words = {"quant_type": kind, "compute_dtype": dtype, "compress_statistics": nested}
        check_layer(p, torch, bnb, bnb.nn.Linear4bit, words, name, dtype)


def check_8bit(p, torch):
    """Quantise rows to int8, with outlier columns kept in 16 bits."""
    bnb = import_bitsandbytes(p)
    if hasattr(bnb.functional, "int8_vectorwise_quant"):  # since 0.45
        p.begin_step("quantise rows to int8")
        x = torch.randn(64, 512, device=p.device, dtype=torch.float16)
        codes, scale = bnb.functional.int8_vectorwise_quant(x)[:2]
        p.check_close("int8_rows", codes.double() * scale.double()[:, None] / 127, x, 6e-3)
    for name, threshold in (("int8", 0.0), ("int8_outliers", 6.0)):
        words = {"has_fp16_weights": False, "threshold": threshold}
        check_layer(p, torch, bnb, bnb.nn.Linear8bitLt, words, name, torch.float16 if p.cuda else torch.bfloat16)


def has_native_bf16(p):
    """Whether bf16 is native here."""
    return not p.cuda or p.capability() >= (8, 0)


def check_layer(p, torch, bnb, kind, words, name, dtype):
    """Check a layer of the package: its product, and the gradient through it."""
    p.begin_step("multiply and learn through " + name)
    torch.manual_seed(1)
    plain = torch.nn.Linear(512, 256, bias=True)
    layer = kind(512, 256, bias=True, **words)
    layer.load_state_dict(plain.state_dict())
    layer = layer.to(p.device)
    layer.bias.data = layer.bias.data.to(dtype)
    x = torch.randn(48, 512, device=p.device, dtype=dtype)
    if "outliers" in name:
        x[:, 7] = 12.0
    x.requires_grad_()
    out = layer(x)
    # Four bits are compared with the dequantised weight; eight with the weight itself.
    weight = plain.weight.to(p.device)
    if "int8" not in name:
        weight = bnb.functional.dequantize_4bit(layer.weight.data, layer.weight.quant_state)
    p.check_close(name + "_product", out, x.double() @ weight.double().t() + layer.bias.double(), 3e-2)
    towards = torch.randn_like(out)
    out.backward(towards)
    p.check_close(name + "_gradient", x.grad, towards.double() @ weight.double(), 3e-2)


def check_optimizer(p, torch):
    """Compare AdamW with 8-bit state with AdamW in float64; the state must really be 8 bits wide."""
    import float64

    bnb = import_bitsandbytes(p)

    torch.manual_seed(2)
    # Fewer than 4096 values stay in 32 bits.
    start = torch.randn(128, 256, device=p.device)
    slopes = [torch.randn_like(start) + start.sign() for _ in range(10)]
    for name in ("AdamW8bit", "AdamW"):
        p.begin_step("step " + name)
        weight = torch.nn.Parameter(start.clone())
        made = getattr(bnb.optim, name)([weight], lr=1e-2, weight_decay=0.1)
        for slope in slopes:
            weight.grad = slope.clone()
            made.step()
        p.wait_for_gpu()
        moved = float64.exact_adamw(start, slopes, 1e-2, decay=0.1) - start.double()
        p.check_close(name.lower() + "_moved", weight.double() - start.double(), moved, 0.08 if "8" in name else 1e-3)
        if "8" in name:
            widths = {x.element_size() for k, x in made.state[weight].items() if k in ("state1", "state2")}
            p.record_number("state_bytes", max(widths or {0}), "equal", 1)
