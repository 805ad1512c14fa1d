"""nvidia-smi as a fallback for NVML: its XML parsed into the same records.

The reader keeps what came before a cut: the output may be truncated, hostile, or of a driver that renames
fields (610 writes ``kmd_version`` and ``cuda_umd_version``).
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from gpuready.model.sizes import parse_size
from gpuready.probe.gpu_fields import normalize_pci_address
from gpuready.system import HostAccess, RunResult

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

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
    log = _parse_log(ran.out)
    lost = _find_lost_gpus(ran.out + "\n" + ran.err)
    if not len(log) and not lost:
        return _parse_smi_error(ran)
    gpus = [_parse_gpu_node(node) for node in log.findall("gpu")]
    cut_reason = ran.end or ("its output was cut" if ran.cut else "")
    if gpus and cut_reason:
        gpus[-1] = _mark_interrupted(gpus[-1], cut_reason)
    gpus = _number_gpus(gpus, lost)
    attached = _parse_smi_int(_find_text(log, "attached_gpus"))
    for index in range(len(gpus), min(attached, 1024) if isinstance(attached, int) else 0):
        gpus.append({"index": index, "gap": f"nvidia-smi stopped before it ({cut_reason or 'no more output'})"})
    if not gpus and ran.rc != 0:
        return _parse_smi_error(ran)
    if not gpus and attached != 0:
        return {"error": None, "says": "nvidia-smi listed no GPU and did not say that there is none"}
    driver = _parse_smi_text(_find_text(log, "kmd_version", "driver_version"))
    cuda = _parse_smi_text(_find_text(log, "cuda_umd_version", "cuda_version"))
    return {"driver": driver, "cuda": cuda, "gpus": gpus}


_NOT_XML = {code: "?" for code in range(32) if chr(code) not in "\t\n\r"}
"""Characters that no XML document may have: one of them would hide all that follows."""


def _parse_log(text: str) -> Element:
    """The elements of nvidia-smi's document, up to where it was cut; an empty one if it wrote none."""
    from xml.etree.ElementTree import Element, ParseError, XMLPullParser

    parser: Any = XMLPullParser(("start",))
    parser.feed(text.translate(_NOT_XML).encode("utf-8", "replace"))
    root = Element("nothing")
    with suppress(ParseError):
        root = next((element for _, element in parser.read_events()), root)
    return root if root.tag == "nvidia_smi_log" else Element("nothing")


def _find_text(node: Element, *paths: str) -> str | None:
    """The text at the first path that exists; None for an element that has others inside."""
    found = (node.find(path) for path in paths)
    return next(((one.text or "").strip() for one in found if one is not None and not len(one)), None)


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


def _parse_gpu_node(node: Element) -> dict[str, Any]:
    fields = {name: reader(_find_text(node, *paths)) for name, (reader, *paths) in GPU_FIELDS.items()}
    address = normalize_pci_address(_find_text(node, "pci/pci_bus_id") or node.get("id") or "")
    if "lost" in f"{fields['name']} {fields['uuid']}".lower():
        return {"pci": address, "gap": "GPU is lost"}
    reasons = [*node.iterfind("clocks_event_reasons/*"), *node.iterfind("clocks_throttle_reasons/*")]
    active = [one.tag.partition("_reason_")[2] for one in reasons if one.text == "Active"]
    return fields | {
        "pci": address,
        "throttle": tuple(a for a in active if a != "gpu_idle") if reasons else {"gap": "not listed"},
        "capability": {"gap": "nvidia-smi -q -x does not list it"},
        "nvlink": {"gap": "nvidia-smi -q -x does not list it"},
        "ecc_errors": _count_uncorrected_errors(node),
        "mig_devices": _parse_mig_devices(node),
        "processes": _parse_gpu_processes(node),
    }


def _mark_interrupted(gpu: dict[str, Any], cut_reason: str) -> dict[str, Any]:
    """Mark the missing fields of the GPU at which the output ended: they might have followed."""
    missing = ({"gap": "not listed"}, {"gap": "empty"})
    stopped = {"gap": f"nvidia-smi stopped before it was told ({cut_reason})"}
    return {name: stopped if value in missing else value for name, value in gpu.items()}


def _count_uncorrected_errors(node: Element) -> Any:
    """Sum the uncorrected errors of every kind; driver generations count different kinds."""
    counts = [
        one
        for one in node.iterfind("ecc_errors/volatile/*")
        if "uncorrectable" in one.tag and "threshold" not in one.tag
    ]
    counts = counts or node.findall("ecc_errors/volatile/double_bit/total")
    values = [_parse_smi_int(one.text) for one in counts]
    known = [v for v in values if isinstance(v, int)]
    return sum(known) if known else (values[0] if values else {"gap": "not listed"})


def _parse_mig_devices(node: Element) -> tuple[dict[str, Any], ...]:
    return tuple(
        {
            "uuid": _parse_smi_text(device.findtext("uuid")) if device.findtext("uuid") else None,
            "instance": _parse_smi_int(_find_text(device, "gpu_instance_id")),
            "compute": _parse_smi_int(_find_text(device, "compute_instance_id")),
            "memory_total": _parse_smi_bytes(_find_text(device, "fb_memory_usage/total")),
        }
        for device in node.iterfind("mig_devices/mig_device")
    )


def _parse_gpu_processes(node: Element) -> Any:
    if node.find("processes") is None:
        return {"gap": "not listed"}
    return tuple(
        {"pid": _parse_smi_int(_find_text(one, "pid")), "used": _parse_smi_bytes(_find_text(one, "used_memory"))}
        for one in node.iterfind("processes/process_info")
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
