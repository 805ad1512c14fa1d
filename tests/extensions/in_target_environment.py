"""Run in a Python with torch: the CPU kernel against float64 and against torch's own AdamW."""

import copy
import json
import sys
import types

sys.path.insert(0, sys.argv[1])

import torch

from gpuready import CPUAdam, extensions
from gpuready.extensions import adamw_kernels

# torch imports its compiler, for seconds, only to keep it off its optimizers.
torch._dynamo = sys.modules["torch._dynamo"] = types.ModuleType("torch._dynamo")
torch._dynamo.disable, torch._dynamo.graph_break = (lambda function, *_, **__: function), lambda: None

torch.manual_seed(3)
settings = {}
SHAPES = ((70001,), (33, 17), (3,), (1, 1), (0,), (128, 130))
SETTINGS = {"lr": 1e-2, "betas": (0.8, 0.95), "eps": 1e-6, "weight_decay": 0.1}


def gap(a, b):
    pairs = [(x.detach().double(), y.detach().double()) for x, y in zip(a, b, strict=True) if x.numel()]
    return max(float((x - y).abs().max() / y.abs().max()) for x, y in pairs)


def steps(mine, reference, a, b, count=5):
    worst = 0.0
    for _ in range(count):
        for p, q in zip(mine, reference, strict=True):
            p.grad = torch.randn(p.shape).to(p.dtype)
            q.grad = p.grad.to(q.dtype)
        a.step()
        b.step()
        worst = max(worst, gap(mine, reference))
    return worst


def laid_out(kind):
    """Plain tensors, one with channels last, one that is a strided view, one transposed."""
    found = [torch.randn(shape).to(kind).requires_grad_() for shape in SHAPES]
    found.append(torch.randn(4, 3, 5, 5).to(kind).contiguous(memory_format=torch.channels_last).requires_grad_())
    found.append(torch.randn(20, 30).to(kind)[::2, ::3].requires_grad_())
    found.append(torch.randn(20, 30).to(kind).t().requires_grad_())
    return found


def twin(tensors, kind=None):
    return [t.detach().to(kind or t.dtype, copy=True).requires_grad_() for t in tensors]


mine = laid_out(torch.float32)
reference, theirs = twin(mine, torch.float64), twin(mine)
a = CPUAdam(mine, **SETTINGS)
settings["float64"] = steps(mine, reference, a, torch.optim.AdamW(reference, **SETTINGS))
kernel = a._kernel
settings["how"], settings["flavour"], settings["threaded"] = (
    kernel.loaded.how,
    kernel.instruction_set(),
    kernel.has_openmp(),
)
mine, theirs = laid_out(torch.float32), None
theirs = twin(mine)
settings["torch"] = steps(mine, theirs, CPUAdam(mine, **SETTINGS), torch.optim.AdamW(theirs, **SETTINGS))
mine = laid_out(torch.float32)
theirs = twin(mine)
settings["adam"] = steps(mine, theirs, CPUAdam(mine, adamw=False, maximize=True, **SETTINGS),
                     torch.optim.Adam(theirs, maximize=True, **SETTINGS))  # fmt: skip

# Half precision: each step begins where ours is, and only the rounding of the result may differ.
for kind, states in ((torch.bfloat16, torch.float32), (torch.bfloat16, None), (torch.float16, torch.float32)):
    mine = laid_out(kind)
    a = CPUAdam(mine, state_dtype=states, **SETTINGS)
    reference = twin(mine, torch.float64)
    b = torch.optim.AdamW(reference, **SETTINGS)
    worst = 0.0
    for _ in range(3):
        for p, q in zip(mine, reference, strict=True):
            q.data.copy_(p.detach())
            if p in a.state:
                for name in ("exp_avg", "exp_avg_sq"):
                    b.state[q][name].copy_(a.state[p][name])
        steps(mine, reference, a, b, 1)
        for p, q in zip(mine, reference, strict=True):
            if p.numel():
                # The nearest number of this type, or its neighbour where float32 and float64 round apart.
                near = q.detach().to(kind).double()
                unit = torch.finfo(kind).eps * near.abs().clamp_min(torch.finfo(kind).tiny)
                worst = max(worst, float(((p.detach().double() - near).abs() / unit).max()))
    settings[f"{kind} {states}"] = worst

# Every half-precision number is read right, and float32 is rounded to it as torch rounds.
every = torch.arange(65536, dtype=torch.int32).to(torch.int16).view(torch.float16)
floats = torch.cat([torch.randn(50000) * 10.0 ** torch.randint(-9, 6, (50000,)), every.float(), every.float() * 1.0004883,
                    torch.tensor([65504.0, 65519.9, 65520.0, 1e9, 2.0**-24, 2.0**-25, 2.0**-25 * 1.01, 0.0, -0.0])])  # fmt: skip
settings["conversions"] = 0
for kind, name in ((torch.float16, "float16"), (torch.bfloat16, "bfloat16")):
    for flavour in (1, 2, 3):
        p, m, v = (torch.zeros(len(floats), dtype=kind) for _ in range(3))
        numbers = floats.clone()
        rows = adamw_kernels.AdamWTensors(
            *([t.data_ptr()] for t in (p, numbers, m, v)), [len(numbers)], (name, "float32", name)
        )
        try:
            kernel.step(
                rows, adamw_kernels.AdamWSettings(0.0, 0.0, 0.0), 1, flavour
            )  # beta1 = 0: the mean is the gradient
        except extensions.CannotBuild:
            assert flavour > 1
            continue
        right = numbers.to(kind)
        same = (
            (m.view(torch.int16) == right.view(torch.int16)) | (m.isnan() & right.isnan()) | ((m == 0) & (right == 0))
        )
        assert bool(same.all()), (name, flavour, numbers[~same][:5], m[~same][:5], right[~same][:5])
        settings["conversions"] += int(same.sum())

# A checkpoint goes both ways, and states in float32 stay so.
mine = [torch.randn(50).bfloat16().requires_grad_()]
a = CPUAdam(mine, state_dtype=torch.float32)
mine[0].grad = torch.randn(50).bfloat16()
a.step()
other = CPUAdam(twin(mine), state_dtype=torch.float32)
other.load_state_dict(copy.deepcopy(a.state_dict()))
kept = next(iter(other.state.values()))
settings["kept"] = kept["exp_avg"].dtype == torch.float32 and torch.equal(kept["exp_avg"], a.state[mine[0]]["exp_avg"])
mine, theirs = [torch.randn(50).requires_grad_()], None
theirs = twin(mine)
b = torch.optim.AdamW(theirs, **SETTINGS)
mine[0].grad = torch.randn(50)
theirs[0].grad = mine[0].grad.clone()
b.step()
mine[0].data.copy_(theirs[0].data)
a = CPUAdam(mine, **SETTINGS)
a.load_state_dict(copy.deepcopy(b.state_dict()))  # torch shares what is not copied
settings["resumed"] = steps(mine, theirs, a, b, 3)

# What it does not take, in a sentence.
refused = []
for bad in (torch.zeros(3, dtype=torch.float64), torch.zeros(3, device="meta")):
    p = bad.requires_grad_()
    p.grad = torch.zeros_like(p)
    try:
        CPUAdam([p]).step()
    except ValueError as error:
        refused.append(str(error))
settings["refused"] = refused
try:
    extensions.load_adamw("cuda", torch)
except extensions.CannotBuild as error:
    settings["cuda"] = str(error)
print(json.dumps(settings))
