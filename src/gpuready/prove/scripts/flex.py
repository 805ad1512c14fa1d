"""Flex attention: a sliding window written in Python, compiled, forward and backward."""

import os

import proof

os.environ.setdefault(
    "TORCHINDUCTOR_COMPILE_THREADS", "1"
)  # one graph: a pool of compilers would take longer to shut down

WINDOW = 64


def run_proof(p):
    torch = p.torch()
    p.begin_step("import flex_attention")
    try:
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    except ImportError:
        raise proof.Unsupported("torch %s has no flex attention (2.5 and newer have)" % torch.__version__) from None
    shape = (1, 4, 256, 64)
    dtype = torch.float16 if p.cuda else torch.float32
    q, k, v = (torch.randn(shape, device=p.device, dtype=dtype, requires_grad=p.cuda) for _ in range(3))
    p.begin_step("make the mask")
    mask = create_block_mask(sliding_window, None, None, shape[2], shape[2], device=str(p.device))
    p.begin_step("compile and run")
    got = torch.compile(flex_attention)(q, k, v, block_mask=mask)
    out = torch.randn_like(got)
    if p.cuda:
        got.backward(out)
    p.wait_for_gpu()
    p.begin_step("compare with float64")
    import float64

    exact, gradients = float64.masked_attention_gradients(q, k, v, out, WINDOW)
    p.check_close("output", got, exact, 1e-2)
    if p.cuda:
        p.check_close("gradient_q", q.grad, gradients[0], 2e-2)
        p.check_close("gradient_v", v.grad, gradients[2], 2e-2)


def sliding_window(batch, head, query, key):
    return (query >= key) & (query - key <= WINDOW)
