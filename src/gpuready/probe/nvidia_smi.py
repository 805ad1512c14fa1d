"""nvidia-smi as a fallback for NVML: its XML parsed into the same records.

The parser keeps what came before a cut: the output may be truncated, hostile, or of a driver that renames
fields (610 writes ``kmd_version`` and ``cuda_umd_version``).
"""

from __future__ import annotations

from typing import Any

from gpuready.model.sizes import parse_size
from gpuready.probe.xml_reader import find_element, find_text, parse_xml
from gpuready.system import HostAccess, RunResult

NO_VALUE_WORDS = (
    "",
    "n/a",
    "err!",
    "unknown",
    "unknown error",
    "not supported",
    "not available",
    "function not found",
    "gpu is lost",
    "insufficient permissions",
    "requested functionality has been deprecated",
)
"""What nvidia-smi writes for a missing value, with or without brackets."""

ERROR_CODES = (
    ("driver/library version mismatch", 18),
    ("couldn't communicate with the nvidia driver", 9),
    ("driver not loaded", 9),
    ("insufficient permissions", 4),
    ("gpu is lost", 15),
    ("shared library", 12),
    ("unknown error", 999),
)
"""nvidia-smi's messages and the matching NVML error codes."""

BANNER_LABELS = (
    ("KMD Version", "driver"),
    ("Driver Version", "driver"),
    ("CUDA UMD Version", "cuda"),
    ("CUDA Version", "cuda"),
)
LOST_GPU_MESSAGE = "unable to determine the device handle for gpu"


USUAL_FOLDERS = (
    "/usr/bin",
    "/bin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/lib/wsl/lib",
    "/opt/bin",
    "/usr/local/nvidia/bin",
)
"""Where drivers install nvidia-smi."""


def query_nvidia_smi(host: HostAccess) -> dict[str, Any]:
    """Run nvidia-smi once; return the records of ``nvml()``, or ``error`` and ``says``."""
    path = host.find_program("nvidia-smi") or _find_wsl_smi(host)
    if path is None:
        return {"error": None, "says": "nvidia-smi is not on the path"}
    reply = parse_smi_run(host.run([path, "-q", "-x"]))
    if path.rpartition("/")[0] in USUAL_FOLDERS:
        return reply
    # A program of this name in another folder may be anything: name it in the reply.
    return reply | {"path": path} | ({"says": f"{reply['says']} ({path})"} if "says" in reply else {})


def _find_wsl_smi(host: HostAccess) -> str | None:
    path = "/usr/lib/wsl/lib/nvidia-smi"  # installed by Windows, not on PATH
    return path if host.stat_path(path) else None


def parse_smi_run(ran: RunResult) -> dict[str, Any]:
    """Parse one run of ``nvidia-smi -q -x``."""
    root = parse_xml(ran.out)
    log = find_element(root, "nvidia_smi_log")
    lost = _find_lost_gpus(ran.out + "\n" + ran.err)
    if not log and not lost:
        return {**parse_smi_banner(ran.out), **_parse_smi_error(ran)}
    gpus = [_parse_gpu_node(node, ran) for node in log.get("gpu", ()) if isinstance(node, dict)]
    cut_reason = ran.end or ("its output was cut" if ran.cut else "")
    if gpus and cut_reason:
        gpus[-1] = _mark_interrupted(gpus[-1], cut_reason)
    gpus = _number_gpus(gpus, lost)
    attached = _parse_smi_int(find_text(log, "attached_gpus"))
    for index in range(len(gpus), min(attached, 1024) if isinstance(attached, int) else 0):
        gpus.append({"index": index, "gap": f"nvidia-smi stopped before it ({cut_reason or 'no more output'})"})
    if not gpus and ran.rc != 0:
        return _parse_smi_error(ran)
    if not gpus and attached != 0:
        return {"error": None, "says": "nvidia-smi listed no GPU and did not say that there is none"}
    driver = _parse_smi_text(find_text(log, "kmd_version", "driver_version"))
    cuda = _parse_smi_text(find_text(log, "cuda_umd_version", "cuda_version"))
    return {"driver": driver, "cuda": cuda, "gpus": gpus}


def parse_smi_banner(text: str) -> dict[str, str]:
    """Parse driver and CUDA from nvidia-smi's table; driver 610 renamed both labels."""
    versions: dict[str, str] = {}
    for label, name in BANNER_LABELS:
        for rest in text.split(label)[1:]:
            words = rest.lstrip(" ").removeprefix(":").split(maxsplit=1)
            # Driver 610 also writes the labels in sentences; only a number after a colon counts.
            if rest.lstrip(" ").startswith(":") and words and words[0][:1].isdigit():
                versions.setdefault(name, words[0])
    return versions


def _parse_smi_error(ran: RunResult) -> dict[str, Any]:
    if ran.end:
        return {"error": None, "says": f"nvidia-smi: {ran.end}"}
    output = " ".join((ran.out + " " + ran.err).split())[:300]
    if not output:
        return {"error": None, "says": f"nvidia-smi ended with {ran.rc} and wrote nothing"}
    low = output.lower()
    if "no devices were found" in low:
        return {"driver": {"gap": output}, "cuda": {"gap": output}, "gpus": []}
    code = next((code for text, code in ERROR_CODES if text in low), ran.rc if ran.rc in range(1, 30) else None)
    return {"error": code, "says": output}


def _find_lost_gpus(text: str) -> list[tuple[str, str]]:
    """PCI address and reason of each GPU that could not be opened."""
    lost = []
    for line in text.splitlines():
        at = line.lower().find(LOST_GPU_MESSAGE)
        if at >= 0:
            words = line[at + len(LOST_GPU_MESSAGE) :].strip()
            address, _, why = words.partition(": ")
            if "." not in address:  # newer drivers put the index first: GPU3: 0000:5E:00.0: reason
                address, _, why = why.partition(": ")
            lost.append((normalize_pci_address(address), why.strip() or "could not be opened"))
    return lost


def _number_gpus(gpus: list[dict[str, Any]], lost: list[tuple[str, str]]) -> list[dict[str, Any]]:
    """Number all GPUs in bus order, including the lost ones."""
    known = {g["pci"] for g in gpus}
    every = gpus + [{"pci": address, "gap": why, "lost": True} for address, why in lost if address not in known]
    if len(every) > len(gpus):
        every.sort(key=lambda g: str(g["pci"]))
    return [{**gpu, "index": index} for index, gpu in enumerate(every)]


def normalize_pci_address(text: str) -> str:
    """Normalize a PCI address: ``00000000:5E:00.0`` -> ``0000:5e:00.0``."""
    domain, _, rest = text.strip().lower().partition(":")
    return f"{domain.lstrip('0').rjust(4, '0')}:{rest}" if rest.count(":") == 1 else text.strip().lower()


def _parse_gpu_node(node: dict[str, Any], ran: RunResult) -> dict[str, Any]:
    fields = {name: reader(find_text(node, *paths)) for name, (reader, *paths) in GPU_FIELDS.items()}
    address = find_text(node, "pci/pci_bus_id") or find_text(node, "@id") or ""
    reasons = find_element(node, "clocks_event_reasons", "clocks_throttle_reasons")
    active = [k.partition("_reason_")[2] for k, v in reasons.items() if v[:1] == ["Active"]]
    fields |= {
        "pci": normalize_pci_address(address),
        "throttle": tuple(a for a in active if a != "gpu_idle") if reasons else {"gap": "not listed"},
        "capability": {"gap": "nvidia-smi -q -x does not list it"},
        "nvlink": {"gap": "nvidia-smi -q -x does not list it"},
        "ecc_errors": _count_uncorrected_errors(find_element(node, "ecc_errors/volatile")),
        "mig_devices": _parse_mig_devices(node),
        "processes": _parse_gpu_processes(node),
    }
    if "lost" in (find_text(node, "product_name") or "").lower() + (find_text(node, "uuid") or "").lower():
        return {"pci": normalize_pci_address(address), "gap": "GPU is lost"}
    return fields


def _mark_interrupted(gpu: dict[str, Any], cut_reason: str) -> dict[str, Any]:
    """Mark the missing fields of the GPU at which the output ended: they might have followed."""
    missing = ({"gap": "not listed"}, {"gap": "empty"})
    stopped = {"gap": f"nvidia-smi stopped before it was told ({cut_reason})"}
    return {name: stopped if value in missing else value for name, value in gpu.items()}


def _count_uncorrected_errors(counts: dict[str, Any]) -> Any:
    """Sum the uncorrected errors of every kind; driver generations count different kinds."""
    names = [n for n in counts if "uncorrectable" in n and "threshold" not in n]
    if not names and isinstance(find_element(counts, "double_bit").get("total"), list):
        return _parse_smi_int(find_text(counts, "double_bit/total"))
    values = [_parse_smi_int(find_text(counts, name)) for name in names]
    known = [v for v in values if isinstance(v, int)]
    return sum(known) if known else (values[0] if values else {"gap": "not listed"})


def _parse_mig_devices(node: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    devices = find_element(node, "mig_devices").get("mig_device", ())
    return tuple(
        {
            "uuid": _parse_smi_text(find_text(d, "uuid")) if find_text(d, "uuid") else None,
            "instance": _parse_smi_int(find_text(d, "gpu_instance_id")),
            "compute": _parse_smi_int(find_text(d, "compute_instance_id")),
            "memory_total": _parse_smi_bytes(find_text(d, "fb_memory_usage/total")),
        }
        for d in devices
        if isinstance(d, dict)
    )


def _parse_gpu_processes(node: dict[str, Any]) -> Any:
    if "processes" not in node:
        return {"gap": "not listed"}
    return tuple(
        {"pid": _parse_smi_int(find_text(p, "pid")), "used": _parse_smi_bytes(find_text(p, "used_memory"))}
        for p in find_element(node, "processes").get("process_info", ())
        if isinstance(p, dict)
    )


# -- values -------------------------------------------------------------------------------------------


def _parse_smi_text(text: str | None) -> Any:
    """Return a value without the driver's note in brackets; a gap if there is none."""
    if text is None:
        return {"gap": "not listed"}
    bare = text.partition(" [")[0].strip()
    if bare.strip("[]").strip().lower() in NO_VALUE_WORDS:
        return {"gap": bare.strip("[]") or "empty"}
    return bare


def _parse_smi_int(text: str | None) -> Any:
    word = _parse_smi_text(text)
    if isinstance(word, dict):
        return word
    number = word.split()[0].rstrip("x")
    plain = number.isdigit() and number.isascii() and len(number) < 20
    return int(number) if plain else {"gap": f"not a number: {word[:40]!r}"}


def _parse_smi_bytes(text: str | None) -> Any:
    word = _parse_smi_text(text)
    if isinstance(word, dict):
        return word
    size = parse_size(word, 1024)
    return int(size) if size is not None else {"gap": f"not a number: {word[:40]!r}"}


def _parse_smi_watts(text: str | None) -> Any:
    word = _parse_smi_text(text)
    if isinstance(word, dict):
        return word
    try:
        number = float(word.split()[0])
    except ValueError:
        number = float("nan")
    return number if 0 <= number < 1e9 else {"gap": f"not a number: {word[:40]!r}"}


GPU_FIELDS: dict[str, tuple[Any, ...]] = {
    "name": (_parse_smi_text, "product_name"),
    "uuid": (_parse_smi_text, "uuid"),
    "memory_total": (_parse_smi_bytes, "fb_memory_usage/total"),
    "memory_free": (_parse_smi_bytes, "fb_memory_usage/free"),
    "memory_used": (_parse_smi_bytes, "fb_memory_usage/used"),
    "mode": (_parse_smi_text, "compute_mode"),
    "persistence": (_parse_smi_text, "persistence_mode"),
    "mig": (_parse_smi_text, "mig_mode/current_mig"),
    "ecc": (_parse_smi_text, "ecc_mode/current_ecc"),
    "remap_pending": (
        _parse_smi_text,
        "remapped_rows/remapped_row_pending",
        "retired_pages/pending_retirement",
        "retired_pages/pending_blacklist",
    ),
    "remap_failure": (_parse_smi_text, "remapped_rows/remapped_row_failure"),
    "recovery": (_parse_smi_text, "gpu_recovery_action"),
    "pcie_gen": (_parse_smi_int, "pci/pci_gpu_link_info/pcie_gen/current_link_gen"),
    "pcie_gen_max": (_parse_smi_int, "pci/pci_gpu_link_info/pcie_gen/max_link_gen"),
    "pcie_width": (_parse_smi_int, "pci/pci_gpu_link_info/link_widths/current_link_width"),
    "pcie_width_max": (_parse_smi_int, "pci/pci_gpu_link_info/link_widths/max_link_width"),
    "power_limit": (
        _parse_smi_watts,
        "gpu_power_readings/current_power_limit",
        "power_readings/enforced_power_limit",
        "gpu_power_readings/enforced_power_limit",
        "power_readings/power_limit",
    ),
    "power_limit_default": (
        _parse_smi_watts,
        "gpu_power_readings/default_power_limit",
        "power_readings/default_power_limit",
    ),
    "minor": (_parse_smi_int, "minor_number"),
}
