"""torch.compile: a block with norm, gate and matmul, forward and backward, against eager mode."""

import os

os.environ.setdefault(
    "TORCHINDUCTOR_COMPILE_THREADS", "1"
)  # one graph: a pool of compilers would take longer to shut down


def run_proof(p):
    torch = p.torch()
    p.begin_step("allocate")
    weight = (torch.randn(256, 256, device=p.device) / 16).requires_grad_(True)
    x = torch.randn(64, 256, device=p.device)
    p.begin_step("eager")
    expected = forward_backward(torch, gated_block, x, weight)
    exact = forward_backward(torch, gated_block, x.double(), weight.detach().double().requires_grad_(True))
    p.begin_step("compile and run")
    got = forward_backward(torch, torch.compile(gated_block), x, weight)
    p.wait_for_gpu()
    p.begin_step("compare")
    for name, one, other in zip(("output", "gradient"), got, exact):
        p.check_close(name, one, other, 5e-5)
    for name, one, other in zip(("eager_output", "eager_gradient"), expected, exact):
        p.check_close(name, one, other, 5e-5)
    p.record_number("graphs_compiled", count_compiled_graphs(), "least", 1)


def gated_block(x, weight):
    scale = (x * x).mean(-1, keepdim=True).add(1e-6).rsqrt()
    hidden = (x * scale) @ weight
    return (hidden.sigmoid() * hidden).tanh() + x


def forward_backward(torch, function, x, weight):
    weight.grad = None
    out = function(x, weight)
    (out * out).mean().backward()
    return out.detach(), weight.grad.detach().clone()


def count_compiled_graphs():
    """Count the compiled graphs: a silent fallback to eager compiles none."""
    from torch._dynamo.utils import counters

    return counters["stats"].get("unique_graphs", 0)
