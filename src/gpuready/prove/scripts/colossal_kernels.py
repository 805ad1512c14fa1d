"""ColossalAI's own extensions, built on first use if needed, against float64.

Argument: cpu-adam, fused-optim, layernorm, masked-softmax, moe, inference-ops.
"""

import opening
import proof


def act(p):
    torch = p.torch()
    opening.module(p, "colossalai", "colossalai")
    roads = {
        "cpu-adam": cpu_adam,
        "fused-optim": fused_optim,
        "layernorm": layernorm,
        "masked-softmax": masked_softmax,
        "moe": moe,
        "inference-ops": inference_ops,
    }
    roads[p.arguments[0]](p, torch)


def kernel(p, name):
    """Load an extension with ColossalAI's loader; on first use that compiles it."""
    from colossalai.kernel import kernel_loader

    p.step("build or load (%s)" % name)
    try:
        return getattr(kernel_loader, name)().load()
    except AssertionError as none:
        raise proof.Unsupported("no kernel of %s is for this machine: %s" % (name, none)) from None


def walked(p, torch, kind, device, **words):
    """Compare ten steps of an AdamW optimizer with the same in float64."""
    import float64

    torch.manual_seed(4)
    start = torch.randn(1000, 37, device=device)
    slopes = [torch.randn_like(start) for _ in range(10)]
    weight = torch.nn.Parameter(start.clone())
    p.step("make " + kind.__name__)
    made = kind([weight], lr=1e-2, weight_decay=0.1, **words)
    p.step("step " + kind.__name__)
    for slope in slopes:
        weight.grad = slope.clone()
        made.step()
    moved = float64.adamw(start, slopes, 1e-2, decay=0.1) - start.double()
    p.close("moved", weight.double() - start.double(), moved, 1e-4)


def cpu_adam(p, torch):
    kernel(p, "CPUAdamLoader")
    from colossalai.nn.optimizer import CPUAdam

    walked(p, torch, CPUAdam, "cpu", adamw_mode=True)


def fused_optim(p, torch):
    kernel(p, "FusedOptimizerLoader")
    from colossalai.nn.optimizer import FusedAdam

    walked(p, torch, FusedAdam, p.device, adamw_mode=True)


def layernorm(p, torch):
    found = kernel(p, "LayerNormLoader")
    x = torch.randn(64, 256, device=p.device)
    weight, bias = torch.randn(256, device=p.device), torch.randn(256, device=p.device)
    p.step("normalise")
    out = found.forward_affine(x, [256], weight, bias, 1e-5)[0]
    exact = torch.nn.functional.layer_norm(x.double(), (256,), weight.double(), bias.double(), 1e-5)
    p.close("layernorm", out, exact, 1e-4)


def masked_softmax(p, torch):
    """Check both: with a mask, and with the upper triangle hidden."""
    masked, upper = (
        kernel(p, "ScaledMaskedSoftmaxLoader"),
        kernel(p, "ScaledUpperTriangleMaskedSoftmaxLoader"),
    )
    x = torch.randn(2, 4, 64, 64, device=p.device, dtype=torch.float16)
    hidden = torch.rand(2, 1, 64, 64, device=p.device) < 0.3
    hidden[..., 0] = False
    p.step("softmax with a mask")
    exact = (x.double() * 0.5).masked_fill(hidden, float("-inf")).softmax(-1)
    p.close("masked", masked.forward(x, hidden.to(torch.uint8), 0.5), exact, 1e-2)
    p.step("softmax below the diagonal")
    above = torch.ones(64, 64, dtype=torch.bool, device=p.device).triu(1)
    exact = (x.double() * 0.5).masked_fill(above, float("-inf")).softmax(-1).reshape(8, 64, 64)
    p.close("upper", upper.forward(x.reshape(8, 64, 64), 0.5), exact, 1e-2)


def moe(p, torch):
    found = kernel(p, "MoeLoader")
    p.step("cumulated places")
    x = torch.randint(0, 2, (256, 16), device=p.device, dtype=torch.int32)
    p.same("cumsum", found.cumsum_sub_one(x), torch.cumsum(x, 0) - 1)


def inference_ops(p, torch):
    import float64

    found = kernel(p, "InferenceOpsLoader")
    x = torch.randn(64, 256, device=p.device, dtype=torch.float16)
    weight = torch.randn(256, device=p.device, dtype=torch.float16)
    p.step("rms norm")
    out = torch.empty_like(x)
    found.rms_layernorm(out, x, weight, 1e-6)
    p.close("rms_norm", out, float64.rms_norm(x, weight), 5e-3)
    p.step("silu and multiply")
    pair = torch.randn(2, 64, 128, device=p.device, dtype=torch.float16)
    exact = torch.nn.functional.silu(pair[0].double()) * pair[1].double()
    p.close("silu_and_mul", found.silu_and_mul(pair), exact, 5e-3)


if __name__ == "__main__":
    proof.main(act)
