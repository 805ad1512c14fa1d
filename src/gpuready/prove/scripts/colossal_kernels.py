"""ColossalAI's own extensions, built on first use if needed, against float64.

Argument: cpu-adam, fused-optim, layernorm, masked-softmax, moe, inference-ops.
"""

import package_import
import proof


def load_extension(p, name):
    """Load an extension with ColossalAI's loader; on first use that compiles it."""
    package_import.import_compiled(p, "colossalai", "colossalai")
    from colossalai.kernel import kernel_loader

    p.begin_step("build or load (%s)" % name)
    try:
        return getattr(kernel_loader, name)().load()
    except AssertionError as none:
        raise proof.Unsupported("no kernel of %s is for this machine: %s" % (name, none)) from None


def compare_adamw(p, torch, kind, device, **words):
    """Compare ten steps of an AdamW optimizer with the same in float64."""
    import float64

    torch.manual_seed(4)
    start = torch.randn(1000, 37, device=device)
    slopes = [torch.randn_like(start) for _ in range(10)]
    weight = torch.nn.Parameter(start.clone())
    p.begin_step("make " + kind.__name__)
    made = kind([weight], lr=1e-2, weight_decay=0.1, **words)
    p.begin_step("step " + kind.__name__)
    for slope in slopes:
        weight.grad = slope.clone()
        made.step()
    moved = float64.exact_adamw(start, slopes, 1e-2, decay=0.1) - start.double()
    p.check_close("moved", weight.double() - start.double(), moved, 1e-4)


def check_cpu_adam(p, torch):
    load_extension(p, "CPUAdamLoader")
    from colossalai.nn.optimizer import CPUAdam

    compare_adamw(p, torch, CPUAdam, "cpu", adamw_mode=True)


def check_fused_optim(p, torch):
    load_extension(p, "FusedOptimizerLoader")
    from colossalai.nn.optimizer import FusedAdam

    compare_adamw(p, torch, FusedAdam, p.device, adamw_mode=True)


def check_layernorm(p, torch):
    extension = load_extension(p, "LayerNormLoader")
    x = torch.randn(64, 256, device=p.device)
    weight, bias = torch.randn(256, device=p.device), torch.randn(256, device=p.device)
    p.begin_step("normalise")
    out = extension.forward_affine(x, [256], weight, bias, 1e-5)[0]
    exact = torch.nn.functional.layer_norm(x.double(), (256,), weight.double(), bias.double(), 1e-5)
    p.check_close("layernorm", out, exact, 1e-4)


def check_masked_softmax(p, torch):
    """Check both: with a mask, and with the upper triangle hidden."""
    masked, upper = (
        load_extension(p, "ScaledMaskedSoftmaxLoader"),
        load_extension(p, "ScaledUpperTriangleMaskedSoftmaxLoader"),
    )
    x = torch.randn(2, 4, 64, 64, device=p.device, dtype=torch.float16)
    hidden = torch.rand(2, 1, 64, 64, device=p.device) < 0.3
    hidden[..., 0] = False
    p.begin_step("softmax with a mask")
    exact = (x.double() * 0.5).masked_fill(hidden, float("-inf")).softmax(-1)
    p.check_close("masked", masked.forward(x, hidden.to(torch.uint8), 0.5), exact, 1e-2)
    p.begin_step("softmax below the diagonal")
    above = torch.ones(64, 64, dtype=torch.bool, device=p.device).triu(1)
    exact = (x.double() * 0.5).masked_fill(above, float("-inf")).softmax(-1).reshape(8, 64, 64)
    p.check_close("upper", upper.forward(x.reshape(8, 64, 64), 0.5), exact, 1e-2)


def check_moe(p, torch):
    extension = load_extension(p, "MoeLoader")
    p.begin_step("cumulated places")
    x = torch.randint(0, 2, (256, 16), device=p.device, dtype=torch.int32)
    p.check_equal("cumsum", extension.cumsum_sub_one(x), torch.cumsum(x, 0) - 1)


def check_inference_ops(p, torch):
    import float64

    extension = load_extension(p, "InferenceOpsLoader")
    x = torch.randn(64, 256, device=p.device, dtype=torch.float16)
    weight = torch.randn(256, device=p.device, dtype=torch.float16)
    p.begin_step("rms norm")
    out = torch.empty_like(x)
    extension.rms_layernorm(out, x, weight, 1e-6)
    p.check_close("rms_norm", out, float64.exact_rms_norm(x, weight), 5e-3)
    p.begin_step("silu and multiply")
    pair = torch.randn(2, 64, 128, device=p.device, dtype=torch.float16)
    exact = torch.nn.functional.silu(pair[0].double()) * pair[1].double()
    p.check_close("silu_and_mul", extension.silu_and_mul(pair), exact, 5e-3)
