"""Allocate and multiply in one precision, against float64: fp32, tf32, fp16, bf16, fp8, int8.

Each bound is what the mantissa allows for sums of this length, with margin for the order of summation; a result in the
next coarser precision is outside of it.
"""

import proof

SHAPE = (512, 1024, 768)  # rows, the length of a sum, columns

# The largest error relative to the reference's largest value.
BOUNDS = {"fp32": 4e-6, "tf32": 2e-3, "fp16": 2e-3, "bf16": 1.2e-2}


def run_proof(p):
    kind = p.arguments[0] if p.arguments else "fp32"
    torch = p.torch()
    if kind == "int8":
        check_int8_product(p, torch)
    elif kind == "fp8":
        check_fp8_product(p, torch)
    else:
        check_floating(p, torch, kind)


def make_inputs(p, torch, dtype, shape=SHAPE):
    rows, inner, columns = shape
    p.begin_step("allocate")
    a = torch.randn(rows, inner, device=p.device, dtype=torch.float32)
    b = torch.randn(inner, columns, device=p.device, dtype=torch.float32)
    return a.to(dtype), b.to(dtype)


def check_floating(p, torch, kind):
    dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(kind, torch.float32)
    if p.cuda:
        set_tf32(torch, kind == "tf32")
    if kind == "bf16" and p.cuda and not torch.cuda.is_bf16_supported():
        raise proof.Unsupported("torch says that this GPU has no bf16")
    a, b = make_inputs(p, torch, dtype)
    p.begin_step("multiply in " + kind)
    c = a @ b
    p.wait_for_gpu()
    if c.dtype != dtype:
        raise proof.WrongResult("the product came out as %s" % c.dtype)
    reference = a.double() @ b.double()
    p.begin_step("compare with float64")
    error = p.check_close("product", c, reference, BOUNDS[kind])
    if kind == "tf32" and p.cuda:
        # An exact fp32 result would mean that tf32 was requested but not used.
        p.record_number("tf32_taken", error, "least", 2e-5)
    if kind == "fp32":
        check_gradient(p, torch, a, b)


def set_tf32(torch, on):
    torch.backends.cuda.matmul.allow_tf32 = on
    torch.backends.cudnn.allow_tf32 = on


def check_gradient(p, torch, a, b):
    p.begin_step("backward")
    a = a.clone().requires_grad_(True)
    (a @ b).sum().backward()
    p.check_close("gradient", a.grad, b.double().sum(1).expand_as(a), 1e-5)


def check_int8_product(p, torch):
    p.begin_step("allocate")
    rows, inner, columns = 64, 256, 128
    a = torch.randint(-127, 128, (rows, inner), device=p.device, dtype=torch.int8)
    b = torch.randint(-127, 128, (columns, inner), device=p.device, dtype=torch.int8).t()
    if not hasattr(torch, "_int_mm"):
        raise proof.Unsupported("torch %s has no int8 product (torch._int_mm)" % torch.__version__)
    p.begin_step("multiply in int8")
    c = torch._int_mm(a, b)
    p.wait_for_gpu()
    p.begin_step("compare, exactly")
    p.check_equal("product", c.double(), a.double().cpu() @ b.double().cpu())


def check_fp8_product(p, torch):
    """Check fp8 through torch._scaled_mm: one scale per tensor, and one per row where supported."""
    if not hasattr(torch, "float8_e4m3fn") or not hasattr(torch, "_scaled_mm"):
        raise proof.Unsupported("torch %s has no fp8 product (torch._scaled_mm)" % torch.__version__)
    if p.cuda and p.capability() < (8, 9):
        raise proof.Unsupported("fp8 products begin at compute capability 8.9, and this GPU has %d.%d" % p.capability())
    a, b = make_inputs(p, torch, torch.float32)
    p.begin_step("fp8, one scale for a tensor")
    a8, sa = quantise_fp8(torch, a, None)
    b8, sb = quantise_fp8(torch, b.t().contiguous(), None)
    check_scaled_product(p, torch, "per_tensor", a8, sa, b8, sb)
    if p.cuda and p.capability() >= (9, 0):
        p.begin_step("fp8, one scale for a row")
        a8, sa = quantise_fp8(torch, a, 1)
        b8, sb = quantise_fp8(torch, b.t().contiguous(), 1)
        try:
            check_scaled_product(p, torch, "per_row", a8, sa, b8, sb)
        except (RuntimeError, ValueError) as refused:
            if "scale" not in str(refused) or torch_version(torch) >= (2, 5):
                raise
            p.record_note("per_row", "this torch has no scales for rows")


def torch_version(torch):
    return tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])


def quantise_fp8(torch, x, dim):
    largest = x.abs().max() if dim is None else x.abs().amax(dim, keepdim=True)
    scale = (largest / 448.0).float()
    return (x / scale).clamp(-448, 448).to(torch.float8_e4m3fn), scale


def check_scaled_product(p, torch, name, a8, sa, b8, sb):
    """Compare with the product of the fp8 values: only the bf16 rounding of the result may differ."""
    right = sb if sb.dim() == 0 else sb.reshape(1, -1)
    c = torch._scaled_mm(a8, b8.t(), scale_a=sa, scale_b=right, out_dtype=torch.bfloat16)
    c = c[0] if isinstance(c, tuple) else c  # until torch 2.4
    p.wait_for_gpu()
    a, b = (a8.to(torch.float32).double() * sa.double(), b8.to(torch.float32).double() * sb.double())
    p.check_close(name, c, a @ b.t(), 1.2e-2)
