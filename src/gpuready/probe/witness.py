"""Who says what of the GPUs: NVML, else nvidia-smi, else the kernel module's own list."""

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
"""How NVML itself would call it that its library is not there."""

OPEN = (None, MISSING, 13)
"""Errors (no answer, no library, a function missing from it) after which nvidia-smi may still answer."""

PROC = "/proc/driver/nvidia/gpus"
LABELS = (("name", "Model"), ("uuid", "GPU UUID"))


def ask(door: Door, found: Presence) -> dict[str, Any]:
    """The first witness that answers: ``gpus`` and ``source``; ``error`` and ``says`` where one stumbled."""
    if not found.signs and found.blind:
        return {"says": "; ".join(found.blind)}
    if not found.signs:
        return {"gpus": [], "source": f"{PCI}, /dev, /sys/module"}
    answer = _nvml(door)
    if "gpus" not in answer and answer.get("error") in OPEN:
        second = _smi(door)
        if "gpus" in second:
            # An NVML that is missing does no harm; one that hangs or crashes stays told, whoever else answers.
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
    """What the kernel module lists: name, UUID and place on the bus, even where NVML is broken."""
    addresses = glimpse(door.list, PROC) or ()
    return [_information(door, index, address) for index, address in enumerate(addresses)]


def _information(door: Door, index: int, address: str) -> Record:
    text = glimpse(door.read, f"{PROC}/{address}/information") or ""
    parts = (line.partition(":") for line in text.splitlines())
    lines = {label.strip(): value.strip() for label, _, value in parts}
    record: Record = {"index": index, "pci": address}
    for field, label in LABELS:
        value = lines.get(label, "")
        # The module writes question marks until the GPU has been opened once.
        record[field] = value if value and "?" not in value and value != "Unknown" else {"gap": "not listed"}
    return record


def _placed(answer: dict[str, Any], found: Presence) -> dict[str, Any]:
    """A lost GPU does not say where it sits; the one address on the bus that nobody else has is its place."""
    from gpuready.probe.smi import pci

    gpus = answer.get("gpus", ())
    lost = [gpu for gpu in gpus if "gap" in gpu and "pci" not in gpu]
    taken = {pci(gpu["pci"]) for gpu in gpus if isinstance(gpu.get("pci"), str)}
    free = [address for address in found.pci or () if pci(address) not in taken]
    if len(lost) != 1 or len(free) != 1:
        return answer
    return {**answer, "gpus": [{**gpu, "pci": free[0]} if gpu is lost[0] else gpu for gpu in gpus]}


def capabilities(door: Door) -> dict[int, str]:
    """One more question to nvidia-smi, for a GPU that the catalogue does not know."""
    path = door.which("nvidia-smi")
    if path is None:
        return {}
    ran = door.run([path, "--query-gpu=index,compute_cap", "--format=csv,noheader"])
    rows = [line.partition(",")[::2] for line in ran.out.splitlines()]
    known = ((index.strip(), capability.strip()) for index, capability in rows)
    return {int(i): c for i, c in known if i.isdecimal() and c.replace(".", "", 1).isdecimal()}
