"""A mixed-precision training step: autocast uses the narrow type, and the scaler detects overflowing gradients.

The step is compared with the same step in float64. With fp16 the scaler also gets an infinite gradient: it must keep
the weights and lower its scale.
"""

import proof


def run_proof(p):
    kind = p.arguments[0] if p.arguments else "bf16"
    torch = p.torch()
    dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}[kind]
    p.begin_step("allocate")
    model, x, y = make_model_and_data(torch, p.device)
    scaler = make_grad_scaler(torch, p) if kind == "fp16" else None
    before = model.weight.detach().clone()
    p.begin_step("step under autocast in " + kind)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss, taken = take_amp_step(torch, p, model, x, y, dtype, scaler, optimizer)
    if taken != dtype:
        raise proof.WrongResult("under autocast the product came out as %s" % taken)
    p.begin_step("compare with float64")
    exact = exact_step(torch, before, x, y)
    p.check_close("loss", loss.reshape(1), exact[0].reshape(1), 2e-2)
    p.check_close("change", model.weight.detach() - before, exact[1], 5e-2)
    if scaler is not None:
        check_overflow(p, torch, model, x, y, dtype, scaler, optimizer)


def make_model_and_data(torch, device):
    model = torch.nn.Linear(256, 64, bias=False).to(device)
    return model, torch.randn(128, 256, device=device), torch.randn(128, 64, device=device)


def make_grad_scaler(torch, p):
    if hasattr(torch.amp, "GradScaler"):
        return torch.amp.GradScaler(p.device.type, init_scale=1024.0)
    if p.cuda:
        return torch.cuda.amp.GradScaler(init_scale=1024.0)
    raise proof.Unsupported("torch %s has a GradScaler for GPUs only" % torch.__version__)


def take_amp_step(torch, p, model, x, y, dtype, scaler, optimizer):
    optimizer.zero_grad()
    with torch.autocast(p.device.type, dtype=dtype):
        out = model(x)
        loss = torch.nn.functional.mse_loss(out.float(), y)
    (scaler.scale(loss) if scaler else loss).backward()
    if scaler:
        scaler.step(optimizer)
        scaler.update()
    else:
        optimizer.step()
    p.wait_for_gpu()
    return loss, out.dtype


def exact_step(torch, weight, x, y):
    """Return the loss and the weight change in float64."""
    w = weight.double().requires_grad_(True)
    loss = torch.nn.functional.mse_loss(x.double() @ w.t(), y.double())
    loss.backward()
    return loss, -0.1 * w.grad


def check_overflow(p, torch, model, x, y, dtype, scaler, optimizer):
    p.begin_step("a gradient that overflows")
    before, scale = model.weight.detach().clone(), scaler.get_scale()
    take_amp_step(torch, p, model, x * 1e30, y, dtype, scaler, optimizer)
    p.check_equal("weights_after_overflow", model.weight, before)
    p.record_number("scale_after_overflow", scaler.get_scale() / scale, "most", 0.5)
