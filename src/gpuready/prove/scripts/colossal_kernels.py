"""ColossalAI's own extensions, built on first use if needed, against float64.

Argument: cpu-adam, fused-optim.
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
