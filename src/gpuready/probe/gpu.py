"""The GPUs and their driver: from NVML, else nvidia-smi, else the kernel module's list.

Every list has one item per GPU in PCI bus order. If one GPU gives no value, its item is None and the whole
fact has a gap that names it: an incomplete list counts as unknown.
"""

from typing import Any

from gpuready.catalog import gpus as catalogue
from gpuready.model import Fact
from gpuready.probe import device_detection, driver, gpu_fields, visibility
from gpuready.probe.device_detection import PCI_DEVICES, DetectedDevices
from gpuready.probe.fact_helpers import gap_facts, read_if_present
from gpuready.probe.gpu_fields import FieldReader, GpuRecord, normalize_pci_address
from gpuready.system import AccessError, HostAccess

GPU_KEYS = ("gpu.count", "gpu.vendor", *gpu_fields.LIST_FIELDS, "gpu.lost", "gpu.capability", "gpu.remap_pending")
GPU_KEYS += ("gpu.remap_failure", "gpu.recovery", "gpu.mig_devices", "gpu.processes")
KEYS = (*GPU_KEYS, *device_detection.KEYS, *driver.KEYS, *visibility.KEYS)


def probe_gpus(host: HostAccess, detected: device_detection.DetectedDevices | None = None) -> list[Fact]:
    """Return all facts about the GPUs, their driver, and which of them CUDA would show."""
    detected = detected or device_detection.detect_devices(host)
    reply = query_gpus(host, detected)
    facts = gpu_facts(host, detected, reply)
    visible_facts = visibility.probe_visibility(host, {f.key: f for f in facts})
    return [
        *facts,
        *device_detection.detected_device_facts(host, detected),
        *driver.probe_driver(host, detected, reply),
        *visible_facts,
    ]


def gpu_facts(host: HostAccess, detected: device_detection.DetectedDevices, reply: dict[str, Any]) -> list[Fact]:
    """Return the facts in the reply of ``query_gpus``; without GPUs in it, every fact is a gap."""
    if "gpus" not in reply:
        evidence = ", ".join(detected.signs[:3])
        why = str(reply.get("says") or "no witness") + (f"; yet there is {evidence}" if evidence else "")
        return gap_facts(GPU_KEYS, why, str(reply.get("source", "")))
    gpus, source = reply["gpus"], str(reply["source"])
    return [
        Fact("gpu.count", len(gpus), source),
        Fact("gpu.vendor", ("nvidia",) * len(gpus), source),
        *(_per_gpu_fact(key, gpus, source, field, reader) for key, (field, reader) in gpu_fields.LIST_FIELDS.items()),
        _lost_gpus_fact(gpus, source),
        _compute_capability_fact(host, gpus, reply),
        _flagged_gpus_fact("gpu.remap_pending", gpus, "remap_pending", source),
        _flagged_gpus_fact("gpu.remap_failure", gpus, "remap_failure", source),
        _recovery_fact(gpus, source),
        _mig_devices_fact(gpus, source),
        _gpu_processes_fact(host, gpus, source),
    ]


def _lost_gpus_fact(gpus: list[GpuRecord], source: str) -> Fact:
    """GPUs that have fallen off the bus; one that is silent for another reason is uncertain."""
    silent = [(gpu, str(gpu["gap"])) for gpu in gpus if "gap" in gpu]
    lost = [(gpu, why) for gpu, why in silent if "lost" in why.lower() or "NVML 15" in why]
    descriptions = [f"GPU {gpu['index']} ({gpu.get('pci', 'address unknown')}): {why}" for gpu, why in lost]
    uncertain = [f"GPU {gpu['index']}: {why}" for gpu, why in silent if (gpu, why) not in lost]
    indices = tuple(gpu["index"] for gpu, _ in lost)
    return Fact("gpu.lost", indices, "; ".join([source, *descriptions]), gap="; ".join(uncertain))


def _per_gpu_fact(key: str, gpus: list[GpuRecord], source: str, field: str, reader: FieldReader) -> Fact:
    readings = [gpu_fields.read_gpu_field(gpu, field, reader) for gpu in gpus]
    values = tuple(value for value, _ in readings)
    reasons = [why for _, why in readings]
    if any(reasons) and len(set(reasons)) == 1:
        return Fact(key, None, source, gap=reasons[0])
    return Fact(key, values, source, gap=_format_gaps(gpus, reasons))


def _format_gaps(gpus: list[GpuRecord], reasons: list[str]) -> str:
    """The gap of a list: which GPUs gave no value, and why."""
    return "; ".join(f"GPU {gpu['index']}: {why}" for gpu, why in zip(gpus, reasons, strict=True) if why)


def _flagged_gpus_fact(key: str, gpus: list[GpuRecord], field: str, source: str) -> Fact:
    """Indices of the GPUs whose flag is true; a GPU without the feature counts as false."""
    readings = [gpu_fields.read_gpu_field(gpu, field, gpu_fields.read_flag_field) for gpu in gpus]
    reasons = ["" if gpu_fields.is_unsupported(why) else why for _, why in readings]
    flagged = tuple(gpu["index"] for gpu, (value, _) in zip(gpus, readings, strict=True) if value is True)
    return Fact(key, flagged, source, gap=_format_gaps(gpus, reasons))


def _recovery_fact(gpus: list[GpuRecord], source: str) -> Fact:
    readings = [gpu_fields.read_recovery_action(gpu) for gpu in gpus]
    gap = _format_gaps(gpus, [why for _, why in readings])
    return Fact("gpu.recovery", tuple(value for value, _ in readings), source, gap=gap)


def _compute_capability_fact(host: HostAccess, gpus: list[GpuRecord], reply: dict[str, Any]) -> Fact:
    """As the driver reports it; else by product name, or by one more nvidia-smi query."""
    fact = _per_gpu_fact("gpu.capability", gpus, reply["source"], "capability", gpu_fields.read_compute_capability)
    if not fact.gap:
        return fact
    known = [_capability_by_name(gpu, fact.source) for gpu in gpus]
    if reply.get("smi") and any(value is None for value, _ in known):
        queried = query_compute_capabilities(host)
        more = [(queried.get(gpu["index"]), "nvidia-smi --query-gpu=compute_cap") for gpu in gpus]
        known = [old if old[0] is not None else new for old, new in zip(known, more, strict=True)]
    values = tuple(value for value, _ in known)
    if not any(values):
        return fact
    reasons = ["" if v else str(g.get("gap", "unknown model")) for v, g in zip(values, gpus, strict=True)]
    sources = dict.fromkeys(source for value, source in known if value is not None)
    return Fact(fact.key, values, "; ".join(sources), gap=_format_gaps(gpus, reasons))


def _capability_by_name(gpu: GpuRecord, source: str) -> tuple[str | None, str]:
    reported, _ = gpu_fields.read_gpu_field(gpu, "capability", gpu_fields.read_compute_capability)
    if reported is not None:
        return reported, source
    row = catalogue.find_gpu(gpu["name"]) if isinstance(gpu.get("name"), str) else None
    return (row["compute_capability"], f"catalogue: {row['name']}") if row else (None, source)


def _mig_devices_fact(gpus: list[GpuRecord], source: str) -> Fact:
    rows = []
    for gpu in gpus:
        devices = gpu.get("mig_devices", ())
        for device in devices if isinstance(devices, (list, tuple)) else ():
            row = device if isinstance(device, dict) else {"uuid": str(device)}
            rows.append({"gpu": gpu["index"], **{k: None if isinstance(v, dict) else v for k, v in row.items()}})
    return Fact("gpu.mig_devices", tuple(rows), source)


def _gpu_processes_fact(host: HostAccess, gpus: list[GpuRecord], source: str) -> Fact:
    rows: list[GpuRecord] = []
    reasons = []
    for gpu in gpus:
        listed = gpu.get("processes", {"gap": gpu.get("gap", "not given")})
        if isinstance(listed, (list, tuple)):
            rows += [
                _describe_gpu_process(host, gpu["index"], process) for process in listed if isinstance(process, dict)
            ]
        else:
            reasons.append(f"GPU {gpu['index']}: {listed.get('gap') if isinstance(listed, dict) else listed}")
    return Fact("gpu.processes", tuple(rows), source, gap="; ".join(reasons))


def _describe_gpu_process(host: HostAccess, index: int, process: GpuRecord) -> GpuRecord:
    """One process with GPU memory. Owner and command are visible only in our own PID namespace."""
    pid, used = process.get("pid"), process.get("used")
    uid = (read_if_present(host.stat_path, f"/proc/{pid}") or {}).get("uid")
    command = " ".join((read_if_present(host.read_text, f"/proc/{pid}/cmdline", 4096) or "").replace("\0", " ").split())
    row: GpuRecord = {
        "gpu": index,
        "pid": pid if isinstance(pid, int) else None,
        "used": used if isinstance(used, int) else None,
        "user": None if uid is None else _login_name(host, uid),
        "command": command[:200] or None,
    }
    # Only a stopped or dead process keeps its memory indefinitely: report just those states.
    letter = (read_if_present(host.read_text, f"/proc/{pid}/stat", 4096) or "").rpartition(")")[2].strip()[:1]
    state = {"T": "stopped", "t": "stopped", "Z": "dead, not yet reaped"}.get(letter)
    return row | {"state": state} if state else row


def _login_name(host: HostAccess, uid: int) -> str:
    rows = (line.split(":") for line in (read_if_present(host.read_text, "/etc/passwd") or "").splitlines())
    return next((row[0] for row in rows if len(row) > 2 and row[2] == str(uid)), str(uid))


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
    from gpuready.probe import nvidia_smi

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
