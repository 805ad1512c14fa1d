"""Machines and contracts to judge, made of plain values."""

from __future__ import annotations

from gpuready import rules
from gpuready.check.evaluate import TrackedFacts, apply_rule
from gpuready.model import Contract, Fact, Facts, UnknownFactError

GAP = "it was dark"
GB, GIB = 10**9, 2**30
A100, T4 = "NVIDIA A100-SXM4-80GB", "Tesla T4"

H100 = {
    "gpu.count": 1,
    "gpu.visible": (0,),
    "gpu.vendor": ("nvidia",),
    "gpu.name": ("NVIDIA H100 80GB HBM3",),
    "gpu.capability": ("9.0",),
    "gpu.memory": (85_520_809_984,),
    "gpu.free": (85_000_000_000,),
    "gpu.uuid": ("GPU-5b7a0f6e-1111-2222-3333-444444444444",),
    "gpu.processes": (),
    "gpu.pci_count": 1,
    "gpu.nodes": ({"path": "/dev/nvidia0", "mode": "0666", "uid": 0},),
    "visibility.cuda": None,
    "platform.name": "cuda",
    "driver.version": "580.95.05",
    "driver.library": "580.95.05",
    "driver.compat": None,
    "driver.stub": None,
    "driver.wsl": False,
    "driver.error": None,
    "driver.says": None,
    "libcuda.path": "/usr/lib/x86_64-linux-gnu/libcuda.so.1",
    "toolkit.version": "12.8.93",
    "toolkit.path": "/usr/local/cuda-12.8",
    "toolkit.nvcc": "/usr/local/cuda-12.8/bin/nvcc",
    "toolkit.others": (),
    "toolkit.chosen_by": "nvcc on the path",
    "toolkit.home_missing": None,
    "compiler.gcc": "13.3.0",
    "compiler.gxx": "13.3.0",
    "compiler.ninja": "1.11.1",
    "compiler.cmake": "3.28.3",
    "python.version": "3.12.3",
    "python.path": "/venv/bin/python",
    "python.packages": 100,
    "python.half_installed": (),
    "python.duplicates": (),
    "python.shadowed": (),
    "python.requires": {},
    "python.kind": "venv",
    "python.headers": True,
    "torch.version": "2.8.0+cu128",
    "torch.build": "cuda",
    "torch.cuda": "12.8",
    "torch.arch": ("sm_70", "sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"),
    "torch.broken": None,
    "torch.abi": True,
    "extension.linked": {},
    "library.shadowed": {},
    "libcudnn.path": None,
    "libnccl.path": None,
    "package.torch": "2.8.0+cu128",
    "cudnn.version": "9.10.2",
    "nccl.version": "2.27.3",
    "os.system": "linux",
    "os.name": "ubuntu",
    "os.version": "24.04",
    "os.pretty": "Ubuntu 24.04.3 LTS",
    "os.kernel": "6.8.0",
    "os.arch": "x86_64",
    "os.glibc": "2.39",
    "os.container": None,
    "memory.total": 2 << 40,
    "memory.available": 2 << 40,
    "memory.limit": None,
    "host.cores_usable": 64,
    "env.names": (),
    "tmp.path": "/tmp",
    "tmp.exists": True,
    "tmp.noexec": False,
    "tmp.free": 10**11,
    "cache.locks": (),
    "disk.free": 10**12,
    "disk.path": "/home",
    "disk.rotational": False,
    "system.shm": 1 << 40,
}
"""A healthy machine with one H100 and a torch that fits it."""
HEALTHY = {key: Fact(key, value, f"source of {key}") for key, value in H100.items()}


def facts(values, **gaps) -> Facts:
    """Facts of these values; a keyword (``gpu_count="why"``) puts a gap in the place of one."""
    known = {
        key: HEALTHY[key] if key in H100 and value is H100[key] else Fact(key, value, f"source of {key}")
        for key, value in values.items()
    }
    for name, why in gaps.items():
        key = name.replace("__", "-").replace("_", ".", 1)
        known[key] = Fact(key, None, gap=why)
    return Facts(known.values(), "gpu-07")


def dark(values, *keys) -> Facts:
    return Facts([Fact(k, v) for k, v in values.items() if k not in keys] + [Fact(key, None, gap=GAP) for key in keys])


def env(**variables):
    """An environment of these variables and no others."""
    return {"env.names": tuple(variables)} | {f"env.{name}": value for name, value in variables.items()}


def contract(*needs, **fields) -> Contract:
    """A contract of these needs, each a dict; ``demo 1.0`` for CUDA unless said otherwise."""
    data = {"framework": "demo", "version": "1.0", "platforms": ["cuda"], **fields}
    return Contract.from_json(data | {"needs": [*needs, *fields.get("needs", ())]})


def need(key, want, when="", level="required", cite="README:1"):
    return {"key": key, "want": want, "when": when, "level": level, "cite": cite}


def example(rule) -> Contract:
    """The contract for a rule's own examples."""
    return contract(**{k: list(v) if isinstance(v, tuple) else v for k, v in getattr(rule, "CONTRACT", {}).items()})


def judged(code, values, agreed=None, **gaps):
    """What a rule says of these values: a Finding, None, or the Unknown that stopped it."""
    return outcome(rules.load_rule(code), facts(values, **gaps), agreed or contract())


def outcome(rule, known: Facts, agreed: Contract):
    view = TrackedFacts(known)
    try:
        found = apply_rule(rule, view, agreed)
    except UnknownFactError as unknown:
        found = unknown
    undeclared = {key for key in view.keys_read if not declared(rule, key)}
    assert not undeclared, f"{rule.CODE} reads what it does not declare: {sorted(undeclared)}"
    return found


def declared(rule, key) -> bool:
    return any(key == r or r == "*" or (r.endswith(".*") and key.startswith(r[:-1])) for r in rule.READS)


def variable(name, access="read", **fields):
    return {"name": name, "access": access, "cite": "code.py:1", **fields}


def gpus(count, name=A100, **values):
    """A machine of so many GPUs, each fact the same for all or given as a tuple."""
    lists = {f"gpu.{key}": value if isinstance(value, tuple) else (value,) * count for key, value in values.items()}
    base = {"gpu.name": (name,) * count, "gpu.uuid": tuple(f"GPU-{i}" for i in range(count))}
    return {"gpu.count": count, "gpu.visible": tuple(range(count)), **base, **lists}


def with_hole(code, values, key, reported, gap):
    """What a rule says where one GPU keeps a fact to itself."""
    return outcome(rules.load_rule(code), facts(values).with_facts(Fact(key, reported, "NVML", gap=gap)), contract())


def several(count, memory=H100["gpu.memory"][0], free=None):
    return {
        "gpu.count": count,
        "gpu.visible": tuple(range(count)),
        "gpu.name": ("GPU",) * count,
        "gpu.memory": (memory,) * count,
        "gpu.free": (memory if free is None else free,) * count,
    }
