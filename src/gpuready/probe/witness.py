"""Query the GPUs: NVML, else nvidia-smi, else the kernel module's list."""

from __future__ import annotations

from gpuready.probe.presence import PCI
from gpuready.probe.sight import glimpse
from gpuready.system import Blind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuready.probe.presence import Presence
    from gpuready.system import Door

    Record = dict[str, Any]

MISSING = 12
"""NVML's code for a missing library."""

OPEN = (None, MISSING, 13)
"""Errors (no reply, no library, a function missing from it) after which nvidia-smi may still work."""

PROC = "/proc/driver/nvidia/gpus"
LABELS = (("name", "Model"), ("uuid", "GPU UUID"))


def ask(door: Door, found: Presence) -> dict[str, Any]:
    """Return ``gpus`` and ``source`` of the first source that replies; ``error`` and ``says`` of one that failed."""
    if not found.signs and found.blind:
        return {"says": "; ".join(found.blind)}
    if not found.signs:
        return {"gpus": [], "source": f"{PCI}, /dev, /sys/module"}
    answer = _nvml(door)
    if "gpus" not in answer and answer.get("error") in OPEN:
        second = _smi(door)
        if "gpus" in second:
            # A missing NVML is harmless; one that hangs or crashes is still reported if nvidia-smi replies.
            silent = {} if answer["error"] else answer
            source = f"{second.pop('path', 'nvidia-smi')} -q -x"
            return {**silent, **second, "source": source, "smi": True}
        both = f"{answer['says']}; {second['says']}"
        answer = {**second, **answer, "says": both} if second.get("error") is None else second
    if "gpus" not in answer and (listed := _listed(door)):
        return {**answer, "gpus": listed, "source": f"{PROC}/*/information"}
    return {"source": "NVML", **_placed(answer, found)}


def _nvml(door: Door) -> dict[str, Any]:
    try:
        answer = door.nvml()
    except Blind as blind:
        return {"error": None, "says": f"NVML: {blind}"}
    if isinstance(answer.get("gpus"), (list, tuple)):
        return answer
    if not answer.get("says"):
        return {"error": None, "says": "NVML gave no answer"}
    code = answer.get("error")
    return {"error": MISSING if code is None else code, "says": str(answer["says"])}


def _smi(door: Door) -> dict[str, Any]:
    from gpuready.probe import smi

    try:
        return smi.ask(door)
    except Blind as blind:
        return {"error": None, "says": f"nvidia-smi: {blind}"}


def _listed(door: Door) -> list[Record]:
    """GPUs from /proc: name, UUID and PCI address, even if NVML is broken."""
    addresses = glimpse(door.list, PROC) or ()
    return [_information(door, index, address) for index, address in enumerate(addresses)]


def _information(door: Door, index: int, address: str) -> Record:
    text = glimpse(door.read, f"{PROC}/{address}/information") or ""
    parts = (line.partition(":") for line in text.splitlines())
    lines = {label.strip(): value.strip() for label, _, value in parts}
    record: Record = {"index": index, "pci": address}
    for field, label in LABELS:
        value = lines.get(label, "")
        # The module writes question marks until the GPU is opened for the first time.
        record[field] = value if value and "?" not in value and value != "Unknown" else {"gap": "not listed"}
    return record


def _placed(answer: dict[str, Any], found: Presence) -> dict[str, Any]:
    """A lost GPU does not report its address: it is the one PCI address that no other GPU has."""
    from gpuready.probe.smi import pci

    gpus = answer.get("gpus", ())
    lost = [gpu for gpu in gpus if "gap" in gpu and "pci" not in gpu]
    taken = {pci(gpu["pci"]) for gpu in gpus if isinstance(gpu.get("pci"), str)}
    free = [address for address in found.pci or () if pci(address) not in taken]
    if len(lost) != 1 or len(free) != 1:
        return answer
    return {**answer, "gpus": [{**gpu, "pci": free[0]} if gpu is lost[0] else gpu for gpu in gpus]}


def capabilities(door: Door) -> dict[int, str]:
    """Query compute capabilities from nvidia-smi, for a GPU that the catalogue does not have."""
    path = door.which("nvidia-smi")
    if path is None:
        return {}
    ran = door.run([path, "--query-gpu=index,compute_cap", "--format=csv,noheader"])
    rows = [line.partition(",")[::2] for line in ran.out.splitlines()]
    known = ((index.strip(), capability.strip()) for index, capability in rows)
    return {int(i): c for i, c in known if i.isdecimal() and c.replace(".", "", 1).isdecimal()}
