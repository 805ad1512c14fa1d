"""A one-line summary of each rule family, formatted from facts only; nothing is judged here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gpuready.model import NOT_STATED, Contract, Fact, Facts
from gpuready.model.facts import UNSTATED_TEXT
from gpuready.render import units

ValueFormatter = Callable[[Any], str]


_VENDOR_PREFIXES = ("NVIDIA ", "Tesla ", "GeForce ", "AMD ", "Intel(R) ")


def summarize_hardware(facts: Facts) -> str:
    """``8x H100 80GB, driver 580.95.05 (CUDA 13.0), Ubuntu 22.04``, for the line of the machine."""
    return ", ".join(part for part in (_describe_gpus(facts), _describe_driver(facts), _describe_system(facts)) if part)


def summarize_environment(facts: Facts) -> str:
    """``/opt/venv (active venv): Python 3.12.3, torch 2.11.0+cu130``; empty where nothing of it is known."""
    gap = facts.fact("python.path").gap
    if gap not in ("", NOT_STATED) and "python.path" in facts:  # it was looked for
        return gap
    named = {"python.version": "Python", _torch_version_key(facts): "torch"}
    phrases = [_fact_phrase(facts, key, n, _name_and_value(n), f"no {n}") for key, n in named.items()]
    versions = ", ".join(part for part in phrases if part)
    path = _describe_environment_path(facts)
    if not path and gap == NOT_STATED and facts.fact("os.container").how != "stated":
        return "; ".join(part for part in ("none looked at", versions) if part)
    return ": ".join(part for part in (path, versions) if part)


def summarize_looked(facts: Facts) -> str:
    """What was compared of the environment's files, and what was not; empty where nothing was."""
    looked = facts.value_if_known("import.looked")
    if not looked:
        return ""
    how = "contents" if looked["deep"] else "size"
    text = f"{looked['distributions']} packages: {looked['files']} files by {how}, {looked['extensions']} extension modules"
    left = [] if looked["deep"] else ["contents (--deep)"]
    left += [] if facts.value_if_known("import.result") else ["a real import (--import)"]
    left += [f"{looked['skipped']} other files"] if looked["skipped"] else []
    left += [f"{name} ({reason})" for name, reason in list((looked["unchecked"] or {}).items())[:2]]
    return f"{text}; not looked at: {', '.join(left)}" if left else text


def summarize_unread(facts: Facts) -> str:
    """The commands of a container file that were not looked at, and how to see what they did."""
    rows = facts.value_if_known("container.unread") or ()
    if not rows:
        return ""
    shown = [f"line {row['line']}: {row['text']}" for row in rows[:3]]
    more = f"; and {len(rows) - 3} more" if len(rows) > 3 else ""
    return f"{'; '.join(shown)}{more}. Build the image and check it with --image NAME"


def summarize_settings(facts: Facts) -> str:
    """``gpuready.toml (framework, ignore)``: the settings file that was applied, and what was taken from it."""
    file, applied = facts.value_if_known("settings.file"), _as_tuple(facts.value_if_known("settings.applied") or ())
    return f"{file} ({', '.join(map(str, applied))})" if file and applied else str(file or "")


def _describe_environment_path(facts: Facts) -> str:
    """The folder of an environment, or the path of another Python, and how it was chosen."""
    prefix, kind = facts.value_if_known("python.prefix"), facts.value_if_known("python.kind")
    path = prefix if prefix and kind in ("venv", "conda") else facts.value_if_known("python.path")
    why = facts.value_if_known("python.chosen_by")
    return (f"{path} ({why})" if why else str(path)) if path else ""


def _describe_system(facts: Facts) -> str:
    return _fact_phrase(facts, "os.pretty", "OS", lambda v: str(v).removesuffix(" LTS"))


def _describe_gpus(facts: Facts) -> str:
    """``1x H200 (141 GB)``; the memory only where the name does not have it."""
    count = facts.fact("gpu.count")
    if count.gap:
        return "" if count.gap == NOT_STATED else f"GPU unknown ({count.gap.partition(';')[0]})"
    names = [shorten_gpu_name(str(name)) for name in _as_tuple(facts.value_if_known("gpu.name") or ())]
    if not names:
        return units.format_count(count.value, "GPU") if count.value else _describe_accelerators(facts)
    memory = _as_tuple(facts.value_if_known("gpu.memory") or ())
    if len(memory) == len(names):
        names = [_with_memory(name, size) for name, size in zip(names, memory, strict=True)]
    return ", ".join(f"{number}x {name}" for name, number in units.count_each(names).items())


def _with_memory(name: str, size: Any) -> str:
    return name if "GB" in name or not units.is_byte_count(size) else f"{name} ({units.format_nominal_memory(size)})"


def _describe_accelerators(facts: Facts) -> str:
    """GPUs and accelerators that are not NVIDIA's: ``8x amd gfx942``."""
    vendor, count = facts.value_if_known("accelerator.vendor"), facts.value_if_known("accelerator.count")
    if not vendor or not count:
        return "no GPU"
    names = [str(name) for name in _as_tuple(facts.value_if_known("accelerator.name") or ()) if name]
    named = units.count_each(names) if names else {"accelerator": count}
    return ", ".join(f"{number}x {name if ' ' in name else f'{vendor} {name}'}" for name, number in named.items())


def _describe_driver(facts: Facts) -> str:
    fact, cuda = facts.fact("driver.version"), facts.value_if_known("driver.cuda")
    if fact.value is None and not fact.gap:
        return "no NVIDIA driver" if facts.value_if_known("gpu.count") else ""
    return _fact_phrase(
        facts, "driver.version", "driver", lambda v: f"driver {v}" + (f" (CUDA {cuda})" if cuda else "")
    )


def summarize_family(name: str, facts: Facts, contract: Contract) -> str:
    """One line for a family; ``not given`` where a what-if has no facts of it."""
    summarize = _FAMILY_SUMMARIES.get(name)
    if summarize is None:
        return ""
    if name in ("gpu", "driver") and (missing := _describe_missing_fact(facts.fact(_KEY_FACTS[name]))):
        return missing
    phrases = [part for part in summarize(facts, contract) if part]
    return ", ".join(phrases) or UNSTATED_TEXT


def summarize_proofs(ran: Sequence[Fact]) -> str:
    """``matmul, nccl; failed: fp8``: executed proofs by outcome."""
    groups: dict[str, list[str]] = {"": [], "failed: ": [], "unknown: ": []}
    for fact in ran:
        kind = "unknown: " if fact.gap else "" if fact.value is True else "failed: "
        groups[kind].append(fact.key.removeprefix("can."))
    return "; ".join(kind + ", ".join(names) for kind, names in groups.items() if names)


# -- families -------------------------------------------------------------------------------------------


def _summarize_gpu(facts: Facts, contract: Contract) -> list[str]:
    if facts.value_if_known("gpu.count") in (0, None):
        return ["no GPU"]
    return [
        _fact_phrase(facts, "gpu.capability", "capability", lambda v: "capability " + _join_distinct_values(v)),
        _fact_phrase(facts, "gpu.memory", "memory", _format_total_memory),
        _fact_phrase(facts, "gpu.nvlink", "NVLink", lambda v: "NVLink" if any(_as_tuple(v)) else "no NVLink")
        if facts.value_if_known("gpu.count") != 1
        else "",
        _fact_phrase(facts, "gpu.mig", "MIG", lambda v: "MIG on" if "on" in _as_tuple(v) else "no MIG"),
    ]


def _summarize_driver(facts: Facts, contract: Contract) -> list[str]:
    version, cuda = facts.value_if_known("driver.version"), facts.value_if_known("driver.cuda")
    if version is None:
        return ["no NVIDIA driver"]
    return [
        f"{version} (CUDA {cuda})" if cuda else str(version),
        "from Windows" if facts.value_if_known("driver.wsl") is True else "",
        "cuda-compat in use" if facts.value_if_known("driver.compat") else "",
    ]


def _summarize_toolchain(facts: Facts, contract: Contract) -> list[str]:
    """Present tools, then absent ones after a semicolon."""
    tools = {"toolkit.version": "nvcc", "compiler.gcc": "gcc", "compiler.ninja": "ninja"}
    seen = [_fact_phrase(facts, key, name, _name_and_value(name)) for key, name in tools.items()]
    missing = [f"no {name}" for key, name in tools.items() if _is_confirmed_absent(facts.fact(key))]
    there = ", ".join(part for part in seen if part)
    return ["; ".join(part for part in (there, ", ".join(missing)) if part)]


def _summarize_packages(facts: Facts, contract: Contract) -> list[str]:
    own = contract.distribution or contract.framework
    named = {"python.version": "Python", _torch_version_key(facts): "torch", "package.transformers": "transformers"}
    phrases = [_fact_phrase(facts, key, n, _name_and_value(n), f"no {n}") for key, n in named.items()]
    # The header already shows the framework's version: add it only where it differs.
    if f"package.{own}" not in named and facts.value_if_known(f"package.{own}") != contract.version:
        phrases.append(_fact_phrase(facts, f"package.{own}", own, _name_and_value(own), f"no {own}"))
    return phrases


def _torch_version_key(facts: Facts) -> str:
    """The version torch reports, which includes its CUDA build; else the one of its metadata."""
    return "torch.version" if facts.value_if_known("torch.version") else "package.torch"


def _summarize_memory(facts: Facts, contract: Contract) -> list[str]:
    model = facts.value_if_known("job.parameters")
    return [
        "no GPU"
        if facts.value_if_known("gpu.count") == 0
        else _fact_phrase(facts, "gpu.memory", "GPU memory", _format_memory_on_gpus),
        f"model of {units.format_parameter_count(model)} parameters" if model else "",
    ]


def _summarize_capability(facts: Facts, contract: Contract) -> list[str]:
    wants = _as_tuple(facts.value_if_known("job.wants") or ())
    return ["the job asks for " + (", ".join(str(w) for w in wants) or "nothing special")]


def _summarize_system(facts: Facts, contract: Contract) -> list[str]:
    container, limit = facts.value_if_known("os.container"), facts.value_if_known("memory.limit")
    return [
        str(container) if container and container != "none" else "",
        _fact_phrase(
            facts,
            "system.shm",
            "/dev/shm",
            lambda v: f"/dev/shm {_format_if_bytes(v, units.format_bytes)}",
            "no /dev/shm",
        ),
        _fact_phrase(facts, "memory.total", "RAM", lambda v: f"{_format_if_bytes(v, units.format_nominal_memory)} RAM"),
        f"limit {_format_if_bytes(limit, units.format_nominal_memory)}" if limit else "",
    ]


def _summarize_network(facts: Facts, contract: Contract) -> list[str]:
    return [
        _fact_phrase(facts, "nccl.version", "NCCL", _name_and_value("NCCL"), "no NCCL"),
        _fact_phrase(facts, "net.interface", "interface", str, "no interface"),
        _fact_phrase(facts, "net.ib", "RDMA", _format_rdma_devices, "no RDMA"),
    ]


_KEY_FACTS = {"gpu": "gpu.count", "driver": "driver.version"}
"""The fact a family cannot be summarized without."""

_FAMILY_SUMMARIES = {
    "gpu": _summarize_gpu,
    "driver": _summarize_driver,
    "toolchain": _summarize_toolchain,
    "packages": _summarize_packages,
    "memory": _summarize_memory,
    "capability": _summarize_capability,
    "system": _summarize_system,
    "network": _summarize_network,
}

# -- phrases --------------------------------------------------------------------------------------------


def _fact_phrase(facts: Facts, key: str, name: str, format_value: ValueFormatter, absent: str = "") -> str:
    """One fact's part of a line: empty where it is not stated, ``NAME unknown`` where it could not be read."""
    fact = facts.fact(key)
    if fact.gap:
        return "" if fact.gap == NOT_STATED else f"{name} unknown"
    return absent if fact.value is None else format_value(fact.value)


def _name_and_value(name: str) -> ValueFormatter:
    return lambda value: f"{name} {value}"


def _format_rdma_devices(devices: Any) -> str:
    return units.format_count(len(_as_tuple(devices)), "RDMA device") if devices else "no RDMA"


def _describe_missing_fact(fact: Fact) -> str:
    if fact.gap == NOT_STATED:
        return UNSTATED_TEXT
    return f"unknown, {fact.gap}" if fact.gap else ""


def _is_confirmed_absent(fact: Fact) -> bool:
    return fact.value is None and not fact.gap


def shorten_gpu_name(name: str) -> str:
    """``NVIDIA H100 80GB HBM3`` -> ``H100 80GB``: without vendor and memory type."""
    for maker in _VENDOR_PREFIXES:
        name = name.removeprefix(maker)
    words = name.split(" ")
    return " ".join(w for w in words if not (w.startswith("HBM") and len(words) > 1))


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (list, tuple)) else (value,)


def _join_distinct_values(value: Any) -> str:
    return " and ".join(dict.fromkeys(str(v) for v in _as_tuple(value)))


def _format_total_memory(value: Any) -> str:
    sizes = _as_tuple(value)
    is_known = all(units.is_byte_count(size) for size in sizes)
    return units.format_total_memory(sizes) if is_known else units.format_any_value(value)


def _format_memory_on_gpus(value: Any) -> str:
    return f"{_format_total_memory(value)} on {units.format_count(len(_as_tuple(value)), 'GPU')}"


def _format_if_bytes(value: Any, format_size: Callable[[int], str]) -> str:
    return format_size(value) if units.is_byte_count(value) else units.format_any_value(value)
