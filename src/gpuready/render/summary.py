"""A one-line summary of each rule family, formatted from facts only; nothing is judged here."""

from __future__ import annotations

from gpuready.model import NOT_STATED
from gpuready.render import units
from gpuready.render.escape import visible

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from gpuready.model import Contract, Fact, Facts

    Says = Callable[[Any], str]

_MAKERS = ("NVIDIA ", "Tesla ", "GeForce ", "AMD ", "Intel(R) ")


def machine(facts: Facts) -> str:
    """``8 x H100 80GB, Ubuntu 22.04``, for the header."""
    system = _phrase(facts, "os.pretty", "OS", lambda v: str(v).removesuffix(" LTS"))
    return visible(", ".join(part for part in (_gpus(facts), system) if part))


def family(name: str, facts: Facts, contract: Contract) -> str:
    """One line for a family; ``not stated`` where a what-if has no facts of it."""
    of = _OF_FAMILY.get(name)
    if of is None:
        return ""
    if name in ("gpu", "driver") and (unseen := _unseen(facts.fact(_HEART[name]))):
        return unseen
    told = [part for part in of(facts, contract) if part]
    return visible(", ".join(told)) or NOT_STATED


def proof(ran: Sequence[Fact]) -> str:
    """``matmul, nccl; failed: fp8``: executed proofs by outcome."""
    groups: dict[str, list[str]] = {"": [], "failed: ": [], "unknown: ": []}
    for fact in ran:
        kind = "unknown: " if fact.gap else "" if fact.value is True else "failed: "
        groups[kind].append(visible(fact.key).removeprefix("can."))
    return "; ".join(kind + ", ".join(names) for kind, names in groups.items() if names)


# -- families -------------------------------------------------------------------------------------------


def _gpu(facts: Facts, contract: Contract) -> list[str]:
    if facts.known("gpu.count") in (0, None):
        return ["no GPU"]
    return [
        _phrase(facts, "gpu.capability", "capability", lambda v: "capability " + _unlike(v)),
        _phrase(facts, "gpu.memory", "memory", _total),
        _phrase(facts, "gpu.nvlink", "NVLink", lambda v: "NVLink" if any(_many(v)) else "no NVLink")
        if facts.known("gpu.count") != 1
        else "",
        _phrase(facts, "gpu.mig", "MIG", lambda v: "MIG on" if "on" in _many(v) else "no MIG"),
    ]


def _driver(facts: Facts, contract: Contract) -> list[str]:
    version, cuda = facts.known("driver.version"), facts.known("driver.cuda")
    if version is None:
        return ["no NVIDIA driver"]
    return [
        f"{version} (CUDA {cuda})" if cuda else str(version),
        "from Windows" if facts.known("driver.wsl") is True else "",
        "cuda-compat in use" if facts.known("driver.compat") else "",
    ]


def _toolchain(facts: Facts, contract: Contract) -> list[str]:
    """Present tools, then absent ones after a semicolon."""
    tools = {"toolkit.version": "nvcc", "compiler.gcc": "gcc", "compiler.ninja": "ninja"}
    seen = [_phrase(facts, key, name, _named(name)) for key, name in tools.items()]
    missing = [f"no {name}" for key, name in tools.items() if _absent(facts.fact(key))]
    there = ", ".join(part for part in seen if part)
    return ["; ".join(part for part in (there, ", ".join(missing)) if part)]


def _packages(facts: Facts, contract: Contract) -> list[str]:
    own = contract.distribution or contract.framework
    named = {"python.version": "Python", _torch_key(facts): "torch", "package.transformers": "transformers"}
    told = [_phrase(facts, key, n, _named(n), f"no {n}") for key, n in named.items()]
    # The header already shows the framework's version: add it only where it differs.
    if f"package.{own}" not in named and facts.known(f"package.{own}") != contract.version:
        told.append(_phrase(facts, f"package.{own}", own, _named(own), f"no {own}"))
    return told


def _torch_key(facts: Facts) -> str:
    """The version torch reports, which includes its CUDA build; else the one of its metadata."""
    return "torch.version" if facts.known("torch.version") else "package.torch"


def _memory(facts: Facts, contract: Contract) -> list[str]:
    model = facts.known("job.parameters")
    return [
        "no GPU" if facts.known("gpu.count") == 0 else _phrase(facts, "gpu.memory", "GPU memory", _on_gpus),
        f"model of {units.parameters(model)} parameters" if model else "",
    ]


def _capability(facts: Facts, contract: Contract) -> list[str]:
    wants = _many(facts.known("job.wants") or ())
    return ["the job asks for " + (", ".join(str(w) for w in wants) or "nothing special")]


def _system(facts: Facts, contract: Contract) -> list[str]:
    container = facts.known("os.container")
    return [
        str(container) if container and container != "none" else "",
        _phrase(facts, "system.shm", "/dev/shm", lambda v: "/dev/shm " + _sized(v), "no /dev/shm"),
        _phrase(facts, "memory.total", "RAM", lambda v: f"{_boxed(v)} RAM"),
        f"limit {_boxed(facts.known('memory.limit'))}" if facts.known("memory.limit") else "",
    ]


def _network(facts: Facts, contract: Contract) -> list[str]:
    return [
        _phrase(facts, "nccl.version", "NCCL", _named("NCCL"), "no NCCL"),
        _phrase(facts, "net.interface", "interface", str, "no interface"),
        _phrase(facts, "net.ib", "RDMA", _rdma, "no RDMA"),
    ]


_HEART = {"gpu": "gpu.count", "driver": "driver.version"}
"""The fact a family cannot be summarized without."""

_OF_FAMILY = {
    "gpu": _gpu,
    "driver": _driver,
    "toolchain": _toolchain,
    "packages": _packages,
    "memory": _memory,
    "capability": _capability,
    "system": _system,
    "network": _network,
}

# -- phrases --------------------------------------------------------------------------------------------


def _phrase(facts: Facts, key: str, name: str, says: Says, absent: str = "") -> str:
    """One fact's part of a line: empty where it is not stated, ``NAME unknown`` where it could not be read."""
    fact = facts.fact(key)
    if fact.gap:
        return "" if fact.gap == NOT_STATED else f"{name} unknown"
    return absent if fact.value is None else says(fact.value)


def _named(name: str) -> Says:
    return lambda value: f"{name} {value}"


def _rdma(devices: Any) -> str:
    return units.counted(len(_many(devices)), "RDMA device") if devices else "no RDMA"


def _unseen(fact: Fact) -> str:
    if fact.gap == NOT_STATED:
        return NOT_STATED
    return f"unknown, {visible(fact.gap)}" if fact.gap else ""


def _absent(fact: Fact) -> bool:
    return fact.value is None and not fact.gap


def _gpus(facts: Facts) -> str:
    count = facts.fact("gpu.count")
    if count.gap:
        return "" if count.gap == NOT_STATED else "GPU unknown"
    names = [short(str(name)) for name in _many(facts.known("gpu.name") or ())]
    if names:
        return ", ".join(units.grouped(names))
    return units.counted(count.value, "GPU") if count.value else "no GPU"


def short(name: str) -> str:
    """``NVIDIA H100 80GB HBM3`` -> ``H100 80GB``: without vendor and memory type."""
    for maker in _MAKERS:
        name = name.removeprefix(maker)
    words = name.split(" ")
    return " ".join(w for w in words if not (w.startswith("HBM") and len(words) > 1))


def _many(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (list, tuple)) else (value,)


def _unlike(value: Any) -> str:
    return " and ".join(dict.fromkeys(str(v) for v in _many(value)))


def _total(value: Any) -> str:
    sizes = _many(value)
    return units.memories(sizes) if all(units.countable(s) for s in sizes) else units.say(value)


def _on_gpus(value: Any) -> str:
    return f"{_total(value)} on {units.counted(len(_many(value)), 'GPU')}"


def _boxed(value: Any) -> str:
    return units.memory(value) if units.countable(value) else units.say(value)


def _sized(value: Any) -> str:
    return units.size(value) if units.countable(value) else units.say(value)
