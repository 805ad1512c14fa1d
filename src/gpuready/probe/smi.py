"""nvidia-smi as a fallback for NVML: its XML parsed into the same records.

The parser keeps what came before a cut: the output may be truncated, hostile, or of a driver that renames
fields (610 writes ``kmd_version`` and ``cuda_umd_version``).
"""

from __future__ import annotations

from gpuready.probe.markup import first, node_at, tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuready.system import Door, Ran

SILENT = (
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

ERRORS = (
    ("driver/library version mismatch", 18),
    ("couldn't communicate with the nvidia driver", 9),
    ("driver not loaded", 9),
    ("insufficient permissions", 4),
    ("gpu is lost", 15),
    ("shared library", 12),
    ("unknown error", 999),
)
"""nvidia-smi's messages and the matching NVML error codes."""

LABELS = (
    ("KMD Version", "driver"),
    ("Driver Version", "driver"),
    ("CUDA UMD Version", "cuda"),
    ("CUDA Version", "cuda"),
)
LOST = "unable to determine the device handle for gpu"


USUAL = (
    "/usr/bin",
    "/bin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/lib/wsl/lib",
    "/opt/bin",
    "/usr/local/nvidia/bin",
)
"""Where drivers install nvidia-smi."""


def ask(door: Door) -> dict[str, Any]:
    """Run nvidia-smi once; return the records of ``nvml()``, or ``error`` and ``says``."""
    path = door.which("nvidia-smi") or _beside(door)
    if path is None:
        return {"error": None, "says": "nvidia-smi is not on the path"}
    told = read(door.run([path, "-q", "-x"]))
    if path.rpartition("/")[0] in USUAL:
        return told
    # A program of this name in another folder may be anything: name it in the reply.
    return told | {"path": path} | ({"says": f"{told['says']} ({path})"} if "says" in told else {})


def _beside(door: Door) -> str | None:
    path = "/usr/lib/wsl/lib/nvidia-smi"  # installed by Windows, not on PATH
    return path if door.stat(path) else None


def read(ran: Ran) -> dict[str, Any]:
    """Parse one run of ``nvidia-smi -q -x``."""
    root = tree(ran.out)
    log = node_at(root, "nvidia_smi_log")
    lost = _lost(ran.out + "\n" + ran.err)
    if not log and not lost:
        return {**banner(ran.out), **_complaint(ran)}
    gpus = [_gpu(node, ran) for node in log.get("gpu", ()) if isinstance(node, dict)]
    early = ran.end or ("its output was cut" if ran.cut else "")
    if gpus and early:
        gpus[-1] = _interrupted(gpus[-1], early)
    gpus = _numbered(gpus, lost)
    attached = _int(first(log, "attached_gpus"))
    for index in range(len(gpus), min(attached, 1024) if isinstance(attached, int) else 0):
        gpus.append({"index": index, "gap": f"nvidia-smi stopped before it ({early or 'no more output'})"})
    if not gpus and ran.rc != 0:
        return _complaint(ran)
    if not gpus and attached != 0:
        return {"error": None, "says": "nvidia-smi listed no GPU and did not say that there is none"}
    driver = _word(first(log, "kmd_version", "driver_version"))
    cuda = _word(first(log, "cuda_umd_version", "cuda_version"))
    return {"driver": driver, "cuda": cuda, "gpus": gpus}


def banner(text: str) -> dict[str, str]:
    """Parse driver and CUDA from nvidia-smi's table; driver 610 renamed both labels."""
    found: dict[str, str] = {}
    for label, name in LABELS:
        for rest in text.split(label)[1:]:
            words = rest.lstrip(" ").removeprefix(":").split(maxsplit=1)
            # Driver 610 also writes the labels in sentences; only a number after a colon counts.
            if rest.lstrip(" ").startswith(":") and words and words[0][:1].isdigit():
                found.setdefault(name, words[0])
    return found


def _complaint(ran: Ran) -> dict[str, Any]:
    if ran.end:
        return {"error": None, "says": f"nvidia-smi: {ran.end}"}
    said = " ".join((ran.out + " " + ran.err).split())[:300]
    if not said:
        return {"error": None, "says": f"nvidia-smi ended with {ran.rc} and wrote nothing"}
    low = said.lower()
    if "no devices were found" in low:
        return {"driver": {"gap": said}, "cuda": {"gap": said}, "gpus": []}
    code = next((code for text, code in ERRORS if text in low), ran.rc if ran.rc in range(1, 30) else None)
    return {"error": code, "says": said}


def _lost(text: str) -> list[tuple[str, str]]:
    """PCI address and reason of each GPU that could not be opened."""
    found = []
    for line in text.splitlines():
        at = line.lower().find(LOST)
        if at >= 0:
            words = line[at + len(LOST) :].strip()
            address, _, why = words.partition(": ")
            if "." not in address:  # newer drivers put the index first: GPU3: 0000:5E:00.0: reason
                address, _, why = why.partition(": ")
            found.append((pci(address), why.strip() or "could not be opened"))
    return found


def _numbered(gpus: list[dict[str, Any]], lost: list[tuple[str, str]]) -> list[dict[str, Any]]:
    """Number all GPUs in bus order, including the lost ones."""
    known = {g["pci"] for g in gpus}
    every = gpus + [
        {"pci": address, "gap": why, "lost": True} for address, why in lost if address not in known
    ]
    if len(every) > len(gpus):
        every.sort(key=lambda g: str(g["pci"]))
    return [{**gpu, "index": index} for index, gpu in enumerate(every)]


def pci(text: str) -> str:
    """Normalize a PCI address: ``00000000:5E:00.0`` -> ``0000:5e:00.0``."""
    domain, _, rest = text.strip().lower().partition(":")
    return f"{domain.lstrip('0').rjust(4, '0')}:{rest}" if rest.count(":") == 1 else text.strip().lower()


def _gpu(node: dict[str, Any], ran: Ran) -> dict[str, Any]:
    fields = {name: reader(first(node, *paths)) for name, (reader, *paths) in FIELDS.items()}
    address = first(node, "pci/pci_bus_id") or first(node, "@id") or ""
    reasons = node_at(node, "clocks_event_reasons", "clocks_throttle_reasons")
    active = [k.partition("_reason_")[2] for k, v in reasons.items() if v[:1] == ["Active"]]
    fields |= {
        "pci": pci(address),
        "throttle": tuple(a for a in active if a != "gpu_idle") if reasons else {"gap": "not listed"},
        "capability": {"gap": "nvidia-smi -q -x does not list it"},
        "nvlink": {"gap": "nvidia-smi -q -x does not list it"},
        "ecc_errors": _uncorrected(node_at(node, "ecc_errors/volatile")),
        "mig_devices": _mig(node),
        "processes": _processes(node),
    }
    if "lost" in (first(node, "product_name") or "").lower() + (first(node, "uuid") or "").lower():
        return {"pci": pci(address), "gap": "GPU is lost"}
    return fields


def _interrupted(gpu: dict[str, Any], early: str) -> dict[str, Any]:
    """Mark the missing fields of the GPU at which the output ended: they might have followed."""
    unsaid = ({"gap": "not listed"}, {"gap": "empty"})
    stopped = {"gap": f"nvidia-smi stopped before it was told ({early})"}
    return {name: stopped if value in unsaid else value for name, value in gpu.items()}


def _uncorrected(counts: dict[str, Any]) -> Any:
    """Sum the uncorrected errors of every kind; driver generations count different kinds."""
    names = [n for n in counts if "uncorrectable" in n and "threshold" not in n]
    if not names and isinstance(node_at(counts, "double_bit").get("total"), list):
        return _int(first(counts, "double_bit/total"))
    values = [_int(first(counts, name)) for name in names]
    known = [v for v in values if isinstance(v, int)]
    return sum(known) if known else (values[0] if values else {"gap": "not listed"})


def _mig(node: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    devices = node_at(node, "mig_devices").get("mig_device", ())
    return tuple(
        {
            "uuid": _word(first(d, "uuid")) if first(d, "uuid") else None,
            "instance": _int(first(d, "gpu_instance_id")),
            "compute": _int(first(d, "compute_instance_id")),
            "memory_total": _bytes(first(d, "fb_memory_usage/total")),
        }
        for d in devices
        if isinstance(d, dict)
    )


def _processes(node: dict[str, Any]) -> Any:
    if "processes" not in node:
        return {"gap": "not listed"}
    return tuple(
        {"pid": _int(first(p, "pid")), "used": _bytes(first(p, "used_memory"))}
        for p in node_at(node, "processes").get("process_info", ())
        if isinstance(p, dict)
    )


# -- values -------------------------------------------------------------------------------------------


def _word(text: str | None) -> Any:
    """Return a value without the driver's note in brackets; a gap if there is none."""
    if text is None:
        return {"gap": "not listed"}
    bare = text.partition(" [")[0].strip()
    if bare.strip("[]").strip().lower() in SILENT:
        return {"gap": bare.strip("[]") or "empty"}
    return bare


def _int(text: str | None) -> Any:
    word = _word(text)
    if isinstance(word, dict):
        return word
    number = word.split()[0].rstrip("x")
    plain = number.isdigit() and number.isascii() and len(number) < 20
    return int(number) if plain else {"gap": f"not a number: {word[:40]!r}"}


def _bytes(text: str | None) -> Any:
    number = _int(text)
    if isinstance(number, dict):
        return number
    unit = (text or "").split()[-1].lower()
    return number * {"mib": 1 << 20, "kib": 1 << 10, "gib": 1 << 30}.get(unit, 1)


def _watts(text: str | None) -> Any:
    word = _word(text)
    if isinstance(word, dict):
        return word
    try:
        number = float(word.split()[0])
    except ValueError:
        number = float("nan")
    return number if 0 <= number < 1e9 else {"gap": f"not a number: {word[:40]!r}"}


FIELDS: dict[str, tuple[Any, ...]] = {
    "name": (_word, "product_name"),
    "uuid": (_word, "uuid"),
    "memory_total": (_bytes, "fb_memory_usage/total"),
    "memory_free": (_bytes, "fb_memory_usage/free"),
    "memory_used": (_bytes, "fb_memory_usage/used"),
    "mode": (_word, "compute_mode"),
    "persistence": (_word, "persistence_mode"),
    "mig": (_word, "mig_mode/current_mig"),
    "ecc": (_word, "ecc_mode/current_ecc"),
    "remap_pending": (_word, "remapped_rows/remapped_row_pending"),
    "remap_failure": (_word, "remapped_rows/remapped_row_failure"),
    "pcie_gen": (_int, "pci/pci_gpu_link_info/pcie_gen/current_link_gen"),
    "pcie_gen_max": (_int, "pci/pci_gpu_link_info/pcie_gen/max_link_gen"),
    "pcie_width": (_int, "pci/pci_gpu_link_info/link_widths/current_link_width"),
    "pcie_width_max": (_int, "pci/pci_gpu_link_info/link_widths/max_link_width"),
    "power_limit": (
        _watts,
        "gpu_power_readings/current_power_limit",
        "power_readings/enforced_power_limit",
        "gpu_power_readings/enforced_power_limit",
        "power_readings/power_limit",
    ),
    "power_limit_default": (
        _watts,
        "gpu_power_readings/default_power_limit",
        "power_readings/default_power_limit",
    ),
    "minor": (_int, "minor_number"),
}
