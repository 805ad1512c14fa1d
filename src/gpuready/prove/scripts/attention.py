"""scaled_dot_product_attention: one backend forced, or torch's own choice; forward and backward.

A forced backend must be the one that ran: the profiler shows which operators torch called. With ``default`` the
backend that ran is recorded.
"""

import proof

OPERATORS = {
    "flash": ("aten::_scaled_dot_product_flash_attention", "aten::_scaled_dot_product_flash_attention_for_cpu"),
    "cudnn": ("aten::_scaled_dot_product_cudnn_attention",),
    "efficient": ("aten::_scaled_dot_product_efficient_attention",),
    "math": ("aten::_scaled_dot_product_attention_math",),
}
FLOORS = {"flash": (8, 0), "cudnn": (8, 0), "efficient": (5, 0)}


def run_proof(p):
    backend = p.arguments[0] if p.arguments else "default"
    torch = p.torch()
    if p.cuda and p.capability() < FLOORS.get(backend, (0, 0)):
        floor = "%d.%d" % FLOORS[backend]
        raise proof.Unsupported("%s attention begins at compute capability %s" % (backend, floor))
    dtype = torch.float16 if p.cuda and p.capability() < (8, 0) else torch.bfloat16
    q, k, v, out = make_tensors(p, torch, dtype)
    p.begin_step("attention, %s" % backend)
    with force_backend(torch, backend), make_profiler(torch) as seen:
        got = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        got.backward(out)
        p.wait_for_gpu()
    taken = profiled_backend(seen)
    p.record_note("backend", taken)
    if backend != "default" and taken != backend:
        raise proof.WrongResult("%s attention was forced, and torch took %s" % (backend, taken or "something else"))
    p.begin_step("compare with float64")
    import float64

    exact, gradients = float64.masked_attention_gradients(q, k, v, out)
    p.check_close("output", got, exact, 2e-2)
    for name, one, other in zip("qkv", (q, k, v), gradients):
        p.check_close("gradient_%s" % name, one.grad, other, 4e-2)


def make_tensors(p, torch, dtype):
    p.begin_step("allocate")
    shape = (2, 8, 256, 64)
    q, k, v = (torch.randn(shape, device=p.device, dtype=dtype, requires_grad=True) for _ in range(3))
    return q, k, v, torch.randn(shape, device=p.device, dtype=dtype)


def force_backend(torch, backend):
    from contextlib import nullcontext

    if backend == "default":
        return nullcontext()
    try:
        from torch.nn.attention import SDPBackend, sdpa_kernel
    except ImportError:  # until torch 2.2
        if backend == "cudnn":
            raise proof.Unsupported("torch %s has no cuDNN attention" % torch.__version__) from None
        return torch.backends.cuda.sdp_kernel(
            enable_flash=backend == "flash", enable_math=backend == "math", enable_mem_efficient=backend == "efficient"
        )
    names = {"flash": "FLASH_ATTENTION", "cudnn": "CUDNN_ATTENTION", "math": "MATH"}
    one = getattr(SDPBackend, names.get(backend, "EFFICIENT_ATTENTION"), None)
    if one is None:
        raise proof.Unsupported("torch %s has no %s attention" % (torch.__version__, backend))
    return sdpa_kernel(one)


def make_profiler(torch):
    from torch.profiler import ProfilerActivity, profile

    return profile(activities=[ProfilerActivity.CPU])


def profiled_backend(seen):
    called = {event.name for event in seen.events()}
    return next((name for name, ops in OPERATORS.items() if called & set(ops)), "")
