"""The machine, the environment and what was looked at, a line each, formatted from facts only; nothing is judged here."""

from collections.abc import Callable, Sequence
from typing import Any

from gpuready.model import NOT_STATED, Fact, Facts
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
    text = f"{units.format_count(looked['distributions'], 'package')}: {looked['files']} files by {how}, {looked['extensions']} extension modules"
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


def summarize_proofs(ran: Sequence[Fact]) -> str:
    """``matmul, nccl; failed: fp8``: executed proofs by outcome."""
    groups: dict[str, list[str]] = {"": [], "failed: ": [], "unknown: ": []}
    for fact in ran:
        kind = "unknown: " if fact.gap else "" if fact.value is True else "failed: "
        groups[kind].append(fact.key.removeprefix("can."))
    return "; ".join(kind + ", ".join(names) for kind, names in groups.items() if names)


# -- families -------------------------------------------------------------------------------------------


def _torch_version_key(facts: Facts) -> str:
    """The version torch reports, which includes its CUDA build; else the one of its metadata."""
    return "torch.version" if facts.value_if_known("torch.version") else "package.torch"


# -- phrases --------------------------------------------------------------------------------------------


def _fact_phrase(facts: Facts, key: str, name: str, format_value: ValueFormatter, absent: str = "") -> str:
    """One fact's part of a line: empty where it is not stated, ``NAME unknown`` where it could not be read."""
    fact = facts.fact(key)
    if fact.gap:
        return "" if fact.gap == NOT_STATED else f"{name} unknown"
    return absent if fact.value is None else format_value(fact.value)


def _name_and_value(name: str) -> ValueFormatter:
    return lambda value: f"{name} {value}"


def shorten_gpu_name(name: str) -> str:
    """``NVIDIA H100 80GB HBM3`` -> ``H100 80GB``: without vendor and memory type."""
    for maker in _VENDOR_PREFIXES:
        name = name.removeprefix(maker)
    words = name.split(" ")
    return " ".join(w for w in words if not (w.startswith("HBM") and len(words) > 1))


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (list, tuple)) else (value,)
