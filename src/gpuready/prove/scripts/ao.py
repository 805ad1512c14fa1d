"""torchao: quantise a small network, compare it with float64, and train in float8.

Argument: int8 (weights, and weights with activations), float8 (cuda), training (float8 linear layers), nvfp4,
attention (fp8 through FlashAttention-3).
"""

import opening
import proof


def act(p):
    torch = p.torch()
    roads = {"int8": int8, "float8": float8, "training": training, "nvfp4": nvfp4, "attention": attention}
    roads[p.arguments[0]](p, torch)


def network(p, torch, dtype):
    torch.manual_seed(3)
    layers = [torch.nn.Linear(256, 512), torch.nn.SiLU(), torch.nn.Linear(512, 256)]
    return torch.nn.Sequential(*layers).to(p.device, dtype)


def quantised(p, torch, kind, config, dtype, bound):
    """Check the network after quantize_: every weight is of torchao's type, and the output is close."""
    import copy

    p.step("quantise: " + kind)
    from torchao.quantization import quantize_

    plain = network(p, torch, dtype)
    x = torch.randn(64, 256, device=p.device, dtype=dtype)
    exact = copy.deepcopy(plain).double()(x.double())
    quantize_(plain, config)
    left = [m for m in plain if isinstance(m, torch.nn.Linear) and type(m.weight.data) is torch.Tensor]
    p.number(kind + "_layers_left_plain", len(left), "equal", 0)
    p.step("multiply: " + kind)
    with torch.no_grad():
        p.close(kind, plain(x), exact, bound)


def named(p, *names):
    """Make a configuration of torchao.quantization, by the first name that this version has."""
    found = opening.module(p, "torchao.quantization", "torchao")
    for name in names:
        if hasattr(found, name):
            return getattr(found, name)()
    raise proof.Absent("torchao %s has no %s" % (p.version("torchao"), names[0]))


def int8(p, torch):
    dtype = torch.bfloat16 if not p.cuda or p.capability() >= (8, 0) else torch.float16
    config = named(p, "Int8WeightOnlyConfig", "int8_weight_only")
    quantised(p, torch, "int8_weights", config, dtype, 3e-2)
    config = named(p, "Int8DynamicActivationInt8WeightConfig", "int8_dynamic_activation_int8_weight")
    quantised(p, torch, "int8_both", config, dtype, 5e-2)


def float8(p, torch):
    opening.least(p, 8, 9, "float8 in torchao")
    quantised(p, torch, "float8_weights", named(p, "Float8WeightOnlyConfig"), torch.bfloat16, 8e-2)
    config = named(p, "Float8DynamicActivationFloat8WeightConfig")
    quantised(p, torch, "float8_both", config, torch.bfloat16, 8e-2)


def training(p, torch):
    """Train linear layers that multiply in float8, forward and backward: the loss has to fall."""
    import tiny_llama

    opening.least(p, 8, 9, "float8 training in torchao")
    convert = opening.names(opening.module(p, "torchao.float8", "torchao"), "convert_to_float8_training")
    model = network(p, torch, torch.bfloat16)
    convert(model)
    kinds = [type(m).__name__ for m in model if "Float8" in type(m).__name__]
    p.number("float8_layers", len(kinds), "equal", 2)
    p.step("learn")
    x = torch.randn(128, 256, device=p.device, dtype=torch.bfloat16)
    aim = x.roll(1, -1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    for _ in range(40):
        loss = (model(x) - aim).float().pow(2).mean()
        losses.append(float(loss))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    tiny_llama.fell(p, losses, 0.5)


def nvfp4(p, torch):
    opening.least(p, 10, 0, "NVFP4")
    found = opening.module(p, "torchao.prototype.mx_formats", "torchao")
    names = ("NVFP4DynamicActivationNVFP4WeightConfig", "NVFP4InferenceConfig")
    kind = next((getattr(found, one) for one in names if hasattr(found, one)), None)
    if kind is None:
        raise proof.Absent("torchao %s has no NVFP4 configuration" % p.version("torchao"))
    # Four bits on both sides: rounding alone may reach a sixth of the largest value.
    quantised(p, torch, "nvfp4", kind(), torch.bfloat16, 0.3)


def attention(p, torch):
    """Check a module whose SDPA torchao replaces by fp8 FlashAttention-3."""
    import float64

    opening.least(p, 9, 0, "fp8 attention of torchao")
    if p.cuda and p.capability() >= (10, 0):
        raise proof.Unsupported(
            "fp8 attention of torchao is FlashAttention-3, which is for compute capability 9.0"
        )
    # torchao itself reports only that no backend is compatible.
    opening.module(p, "flash_attn_interface", "flash-attn-3")
    found = opening.module(p, "torchao.prototype.attention", "torchao")
    apply = opening.names(found, "apply_low_precision_attention")

    class Attend(torch.nn.Module):
        def forward(self, q, k, v):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    p.step("replace the attention")
    model = apply(Attend().to(p.device))
    q, k, v = (torch.randn(2, 4, 256, 64, device=p.device, dtype=torch.bfloat16) for _ in range(3))
    p.step("attend in fp8")
    with torch.no_grad():
        got = model(q, k, v)
    turned = (x.transpose(1, 2) for x in (q, k, v))
    p.close("attention", got.transpose(1, 2), float64.attention(*turned, causal=True), 0.12)
    plain = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    p.number("differs_from_bf16", float((got - plain).abs().max()), "least", 1e-6)


if __name__ == "__main__":
    proof.main(act)
