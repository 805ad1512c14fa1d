"""torchao: quantise a small network to int8, weights, and weights with activations, against float64."""

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


def run_proof(p):
    torch = p.torch()
    dtype = torch.bfloat16 if not p.cuda or p.capability() >= (8, 0) else torch.float16
    config = make_config(p, "Int8WeightOnlyConfig", "int8_weight_only")
    check_quantised(p, torch, "int8_weights", config, dtype, 3e-2)
    config = make_config(p, "Int8DynamicActivationInt8WeightConfig", "int8_dynamic_activation_int8_weight")
    check_quantised(p, torch, "int8_both", config, dtype, 5e-2)
