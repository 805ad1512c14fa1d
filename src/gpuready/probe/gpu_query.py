"""Query the GPUs: NVML, else nvidia-smi, else the kernel module's list."""

from __future__ import annotations

from typing import Any

from gpuready.probe import nvidia_smi
from gpuready.probe.device_detection import PCI_DEVICES, DetectedDevices
from gpuready.probe.fact_helpers import read_if_present
from gpuready.probe.nvidia_smi import normalize_pci_address
from gpuready.system import AccessError, HostAccess

GpuRecord = dict[str, Any]


LIBRARY_MISSING = 12
"""NVML's code for a missing library."""

RETRY_WITH_SMI = (None, LIBRARY_MISSING, 13)
"""Errors (no reply, no library, a function missing from it) after which nvidia-smi may still work."""

PROC_GPUS = "/proc/driver/nvidia/gpus"
PROC_LABELS = (("name", "Model"), ("uuid", "GPU UUID"))


def query_gpus(host: HostAccess, detected: DetectedDevices) -> dict[str, Any]:
    """Return ``gpus`` and ``source`` of the first source that replies; ``error`` and ``says`` of one that failed."""
    if not detected.signs and detected.read_errors:
        return {"says": "; ".join(detected.read_errors)}
    if not detected.signs:
        return {"gpus": [], "source": f"{PCI_DEVICES}, /dev, /sys/module"}
    reply = _query_nvml(host)
    if "gpus" not in reply and reply.get("error") in RETRY_WITH_SMI:
        smi_reply = _try_nvidia_smi(host)
        if "gpus" in smi_reply:
            # A missing NVML is harmless; one that hangs or crashes is still reported if nvidia-smi replies.
            nvml_error = {} if reply["error"] else reply
            source = f"{smi_reply.pop('path', 'nvidia-smi')} -q -x"
            return {**nvml_error, **smi_reply, "source": source, "smi": True}
        message = f"{reply['says']}; {smi_reply['says']}"
        reply = {**smi_reply, **reply, "says": message} if smi_reply.get("error") is None else smi_reply
    if "gpus" not in reply and (listed := _list_proc_gpus(host)):
        return {**reply, "gpus": listed, "source": f"{PROC_GPUS}/*/information"}
    return {"source": "NVML", **_place_lost_gpu(reply, detected)}


def _query_nvml(host: HostAccess) -> dict[str, Any]:
    try:
        reply = host.query_nvml()
    except AccessError as error:
        return {"error": None, "says": f"NVML: {error}"}
    if isinstance(reply.get("gpus"), (list, tuple)):
        return reply
    if not reply.get("says"):
        return {"error": None, "says": "NVML gave no answer"}
    code = reply.get("error")
    return {"error": LIBRARY_MISSING if code is None else code, "says": str(reply["says"])}


def _try_nvidia_smi(host: HostAccess) -> dict[str, Any]:
    try:
        return nvidia_smi.query_nvidia_smi(host)
    except AccessError as error:
        return {"error": None, "says": f"nvidia-smi: {error}"}


def _list_proc_gpus(host: HostAccess) -> list[GpuRecord]:
    """GPUs from /proc: name, UUID and PCI address, even if NVML is broken."""
    addresses = read_if_present(host.list_directory, PROC_GPUS) or ()
    return [_read_proc_gpu(host, index, address) for index, address in enumerate(addresses)]


def _read_proc_gpu(host: HostAccess, index: int, address: str) -> GpuRecord:
    text = read_if_present(host.read_text, f"{PROC_GPUS}/{address}/information") or ""
    parts = (line.partition(":") for line in text.splitlines())
    lines = {label.strip(): value.strip() for label, _, value in parts}
    record: GpuRecord = {"index": index, "pci": address}
    for field, label in PROC_LABELS:
        value = lines.get(label, "")
        # The module writes question marks until the GPU is opened for the first time.
        record[field] = value if value and "?" not in value and value != "Unknown" else {"gap": "not listed"}
    return record


def _place_lost_gpu(reply: dict[str, Any], detected: DetectedDevices) -> dict[str, Any]:
    """A lost GPU does not report its address: it is the one PCI address that no other GPU has."""
    gpus = reply.get("gpus", ())
    lost = [gpu for gpu in gpus if "gap" in gpu and "pci" not in gpu]
    taken = {normalize_pci_address(gpu["pci"]) for gpu in gpus if isinstance(gpu.get("pci"), str)}
    free = [address for address in detected.pci or () if normalize_pci_address(address) not in taken]
    if len(lost) != 1 or len(free) != 1:
        return reply
    return {**reply, "gpus": [{**gpu, "pci": free[0]} if gpu is lost[0] else gpu for gpu in gpus]}


def query_compute_capabilities(host: HostAccess) -> dict[int, str]:
    """Query compute capabilities from nvidia-smi, for a GPU that the catalogue does not have."""
    path = host.find_program("nvidia-smi")
    if path is None:
        return {}
    ran = host.run([path, "--query-gpu=index,compute_cap", "--format=csv,noheader"])
    rows = [line.partition(",")[::2] for line in ran.out.splitlines()]
    known = ((index.strip(), capability.strip()) for index, capability in rows)
    return {int(i): c for i, c in known if i.isdecimal() and c.replace(".", "", 1).isdecimal()}
