"""The GPUs and their driver.

Every list has one item per GPU in PCI bus order. If one GPU gives no value, its item is None and the whole
fact has a gap that names it: an incomplete list counts as unknown.
"""

from __future__ import annotations

from gpuready.model import Fact
from gpuready.probe import driver, fields, presence, visibility, witness
from gpuready.probe.sight import gaps, glimpse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuready.probe.fields import Reader, Record
    from gpuready.system import Door

GPU_KEYS = ("gpu.count", "gpu.vendor", *fields.LISTS, "gpu.lost", "gpu.capability", "gpu.remap_pending")
GPU_KEYS += ("gpu.remap_failure", "gpu.mig_devices", "gpu.processes")
KEYS = (*GPU_KEYS, *presence.KEYS, *driver.KEYS, *visibility.KEYS)


def look(door: Door, found: presence.Presence | None = None) -> list[Fact]:
    """Return all facts about the GPUs, their driver, and which of them CUDA would show."""
    found = found or presence.presence(door)
    answer = witness.ask(door, found)
    facts = describe(door, found, answer)
    shown = visibility.look(door, {f.key: f for f in facts})
    return [*facts, *presence.facts(door, found), *driver.look(door, found, answer), *shown]


def describe(door: Door, found: presence.Presence, answer: dict[str, Any]) -> list[Fact]:
    """Return the facts in the reply of ``query_gpus``; without GPUs in it, every fact is a gap."""
    if "gpus" not in answer:
        signs = ", ".join(found.signs[:3])
        why = str(answer.get("says") or "no witness") + (f"; yet there is {signs}" if signs else "")
        return gaps(GPU_KEYS, why, str(answer.get("source", "")))
    gpus, source = answer["gpus"], str(answer["source"])
    return [
        Fact("gpu.count", len(gpus), source),
        Fact("gpu.vendor", ("nvidia",) * len(gpus), source),
        *(_listing(key, gpus, source, field, reader) for key, (field, reader) in fields.LISTS.items()),
        _lost(gpus, source),
        _capability(door, gpus, answer),
        _flagged("gpu.remap_pending", gpus, "remap_pending", source),
        _flagged("gpu.remap_failure", gpus, "remap_failure", source),
        _mig_devices(gpus, source),
        _processes(door, gpus, source),
    ]


def _lost(gpus: list[Record], source: str) -> Fact:
    """GPUs that have fallen off the bus; one that is silent for another reason is uncertain."""
    silent = [(gpu, str(gpu["gap"])) for gpu in gpus if "gap" in gpu]
    lost = [(gpu, why) for gpu, why in silent if "lost" in why.lower() or "NVML 15" in why]
    named = [f"GPU {gpu['index']} ({gpu.get('pci', 'address unknown')}): {why}" for gpu, why in lost]
    unsure = [f"GPU {gpu['index']}: {why}" for gpu, why in silent if (gpu, why) not in lost]
    indices = tuple(gpu["index"] for gpu, _ in lost)
    return Fact("gpu.lost", indices, "; ".join([source, *named]), gap="; ".join(unsure))


def _listing(key: str, gpus: list[Record], source: str, field: str, reader: Reader) -> Fact:
    found = [fields.value(gpu, field, reader) for gpu in gpus]
    values = tuple(value for value, _ in found)
    reasons = [why for _, why in found]
    if any(reasons) and len(set(reasons)) == 1:
        return Fact(key, None, source, gap=reasons[0])
    return Fact(key, values, source, gap=_holes(gpus, reasons))


def _holes(gpus: list[Record], reasons: list[str]) -> str:
    """The gap of a list: which GPUs gave no value, and why."""
    return "; ".join(f"GPU {gpu['index']}: {why}" for gpu, why in zip(gpus, reasons, strict=True) if why)


def _flagged(key: str, gpus: list[Record], field: str, source: str) -> Fact:
    """Indices of the GPUs whose flag is true; a GPU without the feature counts as false."""
    found = [fields.value(gpu, field, fields.flag) for gpu in gpus]
    reasons = ["" if fields.unsupported(why) else why for _, why in found]
    flagged = tuple(gpu["index"] for gpu, (value, _) in zip(gpus, found, strict=True) if value is True)
    return Fact(key, flagged, source, gap=_holes(gpus, reasons))


def _capability(door: Door, gpus: list[Record], answer: dict[str, Any]) -> Fact:
    """As the driver reports it; else by product name, or by one more nvidia-smi query."""
    fact = _listing("gpu.capability", gpus, answer["source"], "capability", fields.capability)
    if not fact.gap:
        return fact
    known = [_by_name(gpu, fact.source) for gpu in gpus]
    if answer.get("smi") and any(value is None for value, _ in known):
        asked = witness.capabilities(door)
        more = [(asked.get(gpu["index"]), "nvidia-smi --query-gpu=compute_cap") for gpu in gpus]
        known = [old if old[0] is not None else new for old, new in zip(known, more, strict=True)]
    values = tuple(value for value, _ in known)
    if not any(values):
        return fact
    reasons = ["" if v else str(g.get("gap", "unknown model")) for v, g in zip(values, gpus, strict=True)]
    sources = dict.fromkeys(source for value, source in known if value is not None)
    return Fact(fact.key, values, "; ".join(sources), gap=_holes(gpus, reasons))


def _by_name(gpu: Record, source: str) -> tuple[str | None, str]:
    from gpuready.catalog import gpus as catalogue

    said, _ = fields.value(gpu, "capability", fields.capability)
    if said is not None:
        return said, source
    row = catalogue.find(gpu["name"]) if isinstance(gpu.get("name"), str) else None
    return (row["compute_capability"], f"catalogue: {row['name']}") if row else (None, source)


def _mig_devices(gpus: list[Record], source: str) -> Fact:
    rows = []
    for gpu in gpus:
        devices = gpu.get("mig_devices", ())
        for device in devices if isinstance(devices, (list, tuple)) else ():
            row = device if isinstance(device, dict) else {"uuid": str(device)}
            rows.append(
                {"gpu": gpu["index"], **{k: None if isinstance(v, dict) else v for k, v in row.items()}}
            )
    return Fact("gpu.mig_devices", tuple(rows), source)


def _processes(door: Door, gpus: list[Record], source: str) -> Fact:
    rows: list[Record] = []
    reasons = []
    for gpu in gpus:
        held = gpu.get("processes", {"gap": gpu.get("gap", "not given")})
        if isinstance(held, (list, tuple)):
            rows += [_process(door, gpu["index"], process) for process in held if isinstance(process, dict)]
        else:
            reasons.append(f"GPU {gpu['index']}: {held.get('gap') if isinstance(held, dict) else held}")
    return Fact("gpu.processes", tuple(rows), source, gap="; ".join(reasons))


def _process(door: Door, index: int, process: Record) -> Record:
    """One process with GPU memory. Owner and command are visible only in our own PID namespace."""
    pid, used = process.get("pid"), process.get("used")
    uid = (glimpse(door.stat, f"/proc/{pid}") or {}).get("uid")
    command = " ".join((glimpse(door.read, f"/proc/{pid}/cmdline", 4096) or "").replace("\0", " ").split())
    row: Record = {
        "gpu": index,
        "pid": pid if isinstance(pid, int) else None,
        "used": used if isinstance(used, int) else None,
        "user": None if uid is None else _login(door, uid),
        "command": command[:200] or None,
    }
    # Only a stopped or dead process keeps its memory indefinitely: report just those states.
    letter = (glimpse(door.read, f"/proc/{pid}/stat", 4096) or "").rpartition(")")[2].strip()[:1]
    state = {"T": "stopped", "t": "stopped", "Z": "dead, not yet reaped"}.get(letter)
    return row | {"state": state} if state else row


def _login(door: Door, uid: int) -> str:
    rows = (line.split(":") for line in (glimpse(door.read, "/etc/passwd") or "").splitlines())
    return next((row[0] for row in rows if len(row) > 2 and row[2] == str(uid)), str(uid))
