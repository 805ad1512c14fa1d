"""FP8 products of Transformer Engine, FBGEMM and DeepGEMM against float64, on a GPU.

Argument: transformer-engine (per tensor), blockscale (128 x 128 blocks, mxfp8 on Blackwell), fbgemm, deepgemm.
"""

import package_import
import proof


def check_transformer_engine(p, torch):
    """Check a Transformer Engine layer in bf16, then in fp8 with gradients; fp8 must differ from bf16."""
    blocks = p.arguments[0] == "blockscale"
    package_import.require_capability(p, *((9, 0) if blocks else (8, 9)), "this recipe of Transformer Engine")
    te = package_import.import_compiled(p, "transformer_engine.pytorch", "transformer-engine")
    layer = te.Linear(512, 256, bias=True, params_dtype=torch.bfloat16).to(p.device)
    x = torch.randn(128, 512, device=p.device, dtype=torch.bfloat16)
    exact = x.double() @ layer.weight.double().t() + layer.bias.double()
    p.begin_step("multiply in bf16")
    plain = layer(x)
    p.check_close("bf16", plain, exact, 2e-2)
    p.begin_step("multiply in fp8")
    autocast = fp8_autocast(te, choose_fp8_recipe(p, blocks))
    leaf = x.clone().requires_grad_()
    with autocast:
        out = layer(leaf)
    p.check_close("fp8", out, exact, 8e-2)
    p.record_number("differs_from_bf16", float((out - plain).abs().max()), "least", 1e-6)
    towards = torch.randn_like(out)
    out.backward(towards)
    p.check_close("fp8_dx", leaf.grad, towards.double() @ layer.weight.double(), 0.12)
    p.check_close("fp8_dw", layer.weight.grad, towards.double().t() @ x.double(), 0.12)


check_blockscale = check_transformer_engine


def fp8_autocast(te, chosen):
    """Return the fp8 context, which has had two names."""
    if hasattr(te, "autocast"):
        return te.autocast(enabled=True, recipe=chosen)
    return te.fp8_autocast(enabled=True, fp8_recipe=chosen)


def choose_fp8_recipe(p, blocks):
    import transformer_engine.common.recipe as recipes

    if not blocks:
        # Current scaling if this version has it: delayed scaling starts at 1.
        return package_import.get_attributes(
            recipes, "Float8CurrentScaling" if hasattr(recipes, "Float8CurrentScaling") else "DelayedScaling"
        )()
    name = "MXFP8BlockScaling" if p.capability() >= (10, 0) else "Float8BlockScaling"
    if not hasattr(recipes, name):
        raise proof.Absent("this transformer-engine has no %s" % name)
    return getattr(recipes, name)()


def check_fbgemm(p, torch):
    """Quantise rows to e4m3 and multiply, as Transformers' FbgemmFp8Linear does."""
    package_import.require_capability(p, 9, 0, "the fp8 product of FBGEMM")
    names = ("fbgemm-gpu-genai", "fbgemm-gpu", "fbgemm-gpu-nightly")
    for name in names:
        try:
            p.record_version(name)
            break
        except proof.Absent:
            continue
    else:
        raise proof.Absent("fbgemm-gpu-genai is not installed", "fbgemm-gpu-genai")
    package_import.import_compiled(p, "fbgemm_gpu.experimental.gen_ai")
    x = torch.randn(128, 512, device=p.device, dtype=torch.bfloat16)
    weight = torch.randn(256, 512, device=p.device, dtype=torch.bfloat16)
    p.begin_step("quantise rows")
    a, a_scale = torch.ops.fbgemm.quantize_fp8_per_row(x)
    b, b_scale = torch.ops.fbgemm.quantize_fp8_per_row(weight)
    p.check_close("rows", a.double() * a_scale.double()[:, None], x, 7e-2)
    p.begin_step("multiply")
    out = torch.ops.fbgemm.f8f8bf16_rowwise(a, b, a_scale, b_scale, use_fast_accum=True)
    p.check_close("product", out, x.double() @ weight.double().t(), 8e-2)


def check_deepgemm(p, torch):
    """Check DeepGEMM's e4m3 product with scales for 1 x 128 and 128 x 128 blocks."""
    if p.capability()[0] not in (9, 10):
        raise proof.Unsupported("DeepGEMM is for compute capability 9.x and 10.x")
    package = package_import.import_compiled(p, "deep_gemm", "deep-gemm")
    p.begin_step("quantise blocks")
    x = torch.randn(128, 512, device=p.device)
    weight = torch.randn(256, 512, device=p.device)
    rows = x.view(128, 4, 128)
    a_scale = rows.abs().amax(2).clamp_min(1e-4) / 448
    a = (rows / a_scale[..., None]).to(torch.float8_e4m3fn).view(128, 512)
    tiles = weight.view(2, 128, 4, 128)
    b_scale = tiles.abs().amax((1, 3)).clamp_min(1e-4) / 448
    b = (tiles / b_scale[:, None, :, None]).to(torch.float8_e4m3fn).view(256, 512)
    out = torch.empty(128, 256, device=p.device, dtype=torch.bfloat16)
    p.begin_step("compile and multiply")
    name = next((n for n in ("fp8_gemm_nt", "gemm_fp8_fp8_bf16_nt") if hasattr(package, n)), None)
    if name is None:
        raise proof.Absent("this deep-gemm has none of its products by the names that are known here")
    getattr(package, name)((a, a_scale), (b, b_scale), out)
    p.check_close("product", out, x.double() @ weight.double().t(), 8e-2)
