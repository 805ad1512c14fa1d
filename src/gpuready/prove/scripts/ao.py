"""torchao: quantise a small network, compare it with float64, and train in float8.

Argument: int8 (weights, and weights with activations), float8 (cuda), training (float8 linear layers), nvfp4,
attention (fp8 through FlashAttention-3).
"""

import package_import
import proof


def make_network(p, torch, dtype):
    torch.manual_seed(3)
    layers = [torch.nn.Linear(256, 512), torch.nn.SiLU(), torch.nn.Linear(512, 256)]
    return torch.nn.Sequential(*layers).to(p.device, dtype)


def check_quantised(p, torch, kind, config, dtype, bound):
    """Check the network after quantize_: every weight is of torchao's type, and the output is close."""
    import copy

    p.begin_step("quantise: " + kind)
    from torchao.quantization import quantize_

    plain = make_network(p, torch, dtype)
    x = torch.randn(64, 256, device=p.device, dtype=dtype)
    exact = copy.deepcopy(plain).double()(x.double())
    quantize_(plain, config)
    left = [m for m in plain if isinstance(m, torch.nn.Linear) and type(m.weight.data) is torch.Tensor]
    p.record_number(kind + "_layers_left_plain", len(left), "equal", 0)
    p.begin_step("multiply: " + kind)
    with torch.no_grad():
        p.check_close(kind, plain(x), exact, bound)


def make_config(p, *names):
    """Make a configuration of torchao.quantization, by the first name that this version has."""
    quantization = package_import.import_compiled(p, "torchao.quantization", "torchao")
    for name in names:
        if hasattr(quantization, name):
            return getattr(quantization, name)()
    raise proof.Absent("torchao %s has no %s" % (p.record_version("torchao"), names[0]))


def check_int8(p, torch):
    dtype = torch.bfloat16 if not p.cuda or p.capability() >= (8, 0) else torch.float16
    config = make_config(p, "Int8WeightOnlyConfig", "int8_weight_only")
    check_quantised(p, torch, "int8_weights", config, dtype, 3e-2)
    config = make_config(p, "Int8DynamicActivationInt8WeightConfig", "int8_dynamic_activation_int8_weight")
    check_quantised(p, torch, "int8_both", config, dtype, 5e-2)


def check_float8(p, torch):
    package_import.require_capability(p, 8, 9, "float8 in torchao")
    check_quantised(p, torch, "float8_weights", make_config(p, "Float8WeightOnlyConfig"), torch.bfloat16, 8e-2)
    config = make_config(p, "Float8DynamicActivationFloat8WeightConfig")
    check_quantised(p, torch, "float8_both", config, torch.bfloat16, 8e-2)


def check_training(p, torch):
    """Train linear layers that multiply in float8, forward and backward: the loss has to fall."""
    import tiny_llama

    package_import.require_capability(p, 8, 9, "float8 training in torchao")
    convert = package_import.get_attributes(
        package_import.import_compiled(p, "torchao.float8", "torchao"), "convert_to_float8_training"
    )
    model = make_network(p, torch, torch.bfloat16)
    convert(model)
    kinds = [type(m).__name__ for m in model if "Float8" in type(m).__name__]
    p.record_number("float8_layers", len(kinds), "equal", 2)
    p.begin_step("learn")
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
    tiny_llama.check_loss_fell(p, losses, 0.5)


def check_nvfp4(p, torch):
    package_import.require_capability(p, 10, 0, "NVFP4")
    formats = package_import.import_compiled(p, "torchao.prototype.mx_formats", "torchao")
    names = ("NVFP4DynamicActivationNVFP4WeightConfig", "NVFP4InferenceConfig")
    kind = next((getattr(formats, one) for one in names if hasattr(formats, one)), None)
    if kind is None:
        raise proof.Absent("torchao %s has no NVFP4 configuration" % p.record_version("torchao"))
    # Four bits on both sides: rounding alone may reach a sixth of the largest value.
    check_quantised(p, torch, "nvfp4", kind(), torch.bfloat16, 0.3)


def check_attention(p, torch):
    """Check a module whose SDPA torchao replaces by fp8 FlashAttention-3."""
    import float64

    package_import.require_capability(p, 9, 0, "fp8 attention of torchao")
    if p.cuda and p.capability() >= (10, 0):
        raise proof.Unsupported("fp8 attention of torchao is FlashAttention-3, which is for compute capability 9.0")
    # torchao itself reports only that no backend is compatible.
    package_import.import_compiled(p, "flash_attn_interface", "flash-attn-3")
    attention_module = package_import.import_compiled(p, "torchao.prototype.attention", "torchao")
    apply = package_import.get_attributes(attention_module, "apply_low_precision_attention")

    class Attend(torch.nn.Module):
        def forward(self, q, k, v):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    p.begin_step("replace the attention")
    model = apply(Attend().to(p.device))
    q, k, v = (torch.randn(2, 4, 256, 64, device=p.device, dtype=torch.bfloat16) for _ in range(3))
    p.begin_step("attend in fp8")
    with torch.no_grad():
        got = model(q, k, v)
    turned = (x.transpose(1, 2) for x in (q, k, v))
    p.check_close("attention", got.transpose(1, 2), float64.exact_attention(*turned, causal=True), 0.12)
    plain = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    p.record_number("differs_from_bf16", float((got - plain).abs().max()), "least", 1e-6)
