"""Fused training kernels against float64, forward and backward.

Argument: liger (linear cross entropy, RMS norm, SwiGLU), cut-cross-entropy.
"""

import package_import
import proof


def compare_function(p, label, ours, exact, inputs, bound):
    """Compare a function's result and all gradients with its float64 form."""
    import float64

    torch = p.torch()
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    out = ours(*leaves)
    towards = torch.randn_like(out.detach())
    reference, slopes = float64.exact_gradients(exact, inputs, towards)
    p.check_close(label, out, reference, bound)
    out.backward(towards)
    for place, (leaf, slope) in enumerate(zip(leaves, slopes)):
        p.check_close("%s_d%d" % (label, place), leaf.grad, slope, 2 * bound)


def check_linear_loss(p, torch, label, ours, bound=3e-2):
    """Check a loss of hidden states and the head's weight, with some labels ignored."""
    import float64

    hidden = torch.randn(192, 256, device=p.device, dtype=torch.bfloat16)
    weight = torch.randn(1000, 256, device=p.device, dtype=torch.bfloat16) / 16
    labels = torch.randint(0, 1000, (192,), device=p.device)
    labels[::7] = -100
    p.begin_step(label)
    compare_function(
        p,
        label,
        lambda h, w: ours(h, w, labels),
        lambda h, w: float64.exact_cross_entropy(h, w, labels),
        [hidden, weight],
        bound,
    )


def check_liger(p, torch):
    import float64

    package_import.require_capability(p, 7, 0, "Triton")
    package_import.import_compiled(p, "triton")
    package = package_import.import_compiled(p, "liger_kernel.transformers", "liger-kernel")
    fused, norm = package_import.get_attributes(package, "LigerFusedLinearCrossEntropyLoss", "LigerRMSNorm")
    check_linear_loss(p, torch, "linear_cross_entropy", lambda h, w, y: fused()(w, h, y))
    p.begin_step("rms norm")
    layer = norm(256, eps=1e-6).to(p.device)
    x = torch.randn(64, 256, device=p.device)
    compare_function(p, "rms_norm", layer, lambda a: float64.exact_rms_norm(a, layer.weight.detach()), [x], 1e-4)
    p.begin_step("swiglu")
    ops = package_import.import_compiled(p, "liger_kernel.ops.swiglu")
    gate, up = torch.randn(2, 64, 512, device=p.device).unbind(0)
    silu = torch.nn.functional.silu
    compare_function(p, "swiglu", ops.LigerSiLUMulFunction.apply, lambda a, b: silu(a) * b, [gate, up], 1e-4)


def check_cut_cross_entropy(p, torch):
    package_import.require_capability(p, 7, 0, "Triton")
    package = package_import.import_compiled(p, "cut_cross_entropy", "cut-cross-entropy")
    fused = package_import.get_attributes(package, "linear_cross_entropy")
    # By default its gradient drops what is below the rounding of bf16.
    check_linear_loss(p, torch, "linear_cross_entropy", lambda h, w, y: fused(h, w, y, filter_eps=None))
    if "fork" in p.arguments:
        patch = package_import.import_compiled(p, "cut_cross_entropy.transformers.patch")
        if not getattr(patch, "AXOLOTL_CCE_FORK", False):
            raise proof.WrongResult("cut-cross-entropy is not Axolotl's fork, which is the only one that it takes")
