"""FP8 products of Transformer Engine against float64, on a GPU.

Argument: transformer-engine (per tensor), blockscale (128 x 128 blocks, mxfp8 on Blackwell).
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
