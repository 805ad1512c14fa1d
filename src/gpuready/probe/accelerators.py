"""Detect accelerators of other vendors by files that only their driver creates.

The catalogue lists the paths per vendor. Vendor tools are not run: they may be missing, slow, or something
else of the same name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpuready.catalog.gpus import find_accelerator_vendor as row
from gpuready.model import Fact, Record
from gpuready.probe.device_detection import INTEGRATED_GRAPHICS, PCI_DEVICES, DetectedDevices
from gpuready.probe.fact_helpers import ACCELERATORS as KEYS
from gpuready.probe.fact_helpers import gap_facts, leading_version, read_fact, read_if_present
from gpuready.system import AccessError, HostAccess

__all__ = ["KEYS", "format_gfx_name", "probe_accelerators"]

KFD_NODES = "/sys/class/kfd/kfd/topology/nodes"
ROCM_VERSION_FILE = "/opt/rocm/.info/version"
ASCEND_FOLDER = "/usr/local/Ascend"
LEVEL_ZERO_LIBRARY = "libze_intel_gpu.so.1"


class VendorAccelerators(Record):
    """Accelerators of one vendor. ``names`` is None where no file has them; ``gap`` gives the reason."""

    vendor: str
    count: int
    source: str
    driver: Fact
    runtime: Fact
    names: tuple[str, ...] | None = None
    gap: str = ""


class VendorSearch(Record):
    """Where a vendor's accelerators are looked for."""

    host: HostAccess
    detected: DetectedDevices
    nodes: tuple[str, ...]  # names in /dev

    def numbered_files(self, start: str) -> list[str]:
        """List device files such as davinci0, hl1 or mtgpu.0, without davinci_manager and the like."""
        return [n for n in self.nodes if n.startswith(start) and n[len(start) :].lstrip(".").isdecimal()]


def probe_accelerators(host: HostAccess, detected: DetectedDevices) -> list[Fact]:
    """Return vendor, count, names, driver and runtime; all absent if there is no such accelerator."""
    try:
        search = VendorSearch(host, detected, host.list_directory("/dev") or ())
        first = next((found for find_vendor in VENDOR_FINDERS if (found := find_vendor(search))), None)
    except AccessError as error:
        return gap_facts(KEYS, str(error), "/dev")
    if first is None:
        return [Fact(key, 0 if key == "accelerator.count" else None, f"/dev, {PCI_DEVICES}") for key in KEYS]
    return [
        Fact("accelerator.vendor", first.vendor, first.source),
        Fact("accelerator.count", first.count, first.source),
        Fact("accelerator.name", first.names, first.source, gap=first.gap),
        first.driver,
        first.runtime,
    ]


def _vendor_catalog_row(vendor: str) -> dict[str, Any]:
    return row(vendor) or {}


def _accelerator_driver_fact(value: str | None, source: str) -> Fact:
    return Fact("accelerator.driver", value, source)


def _accelerator_runtime_fact(value: str | None, source: str) -> Fact:
    return Fact("accelerator.runtime", value, source)


def _kernel_module_fact(host: HostAccess, vendor: str) -> Fact:
    """Return the loaded kernel module, with its version if sysfs has one."""
    path = "/sys/module"
    try:
        for name in _vendor_catalog_row(vendor).get("modules", ()):
            path = f"/sys/module/{name}"
            if host.stat_path(path):
                version = (host.read_text(f"{path}/version") or "").strip()
                return _accelerator_driver_fact(f"{name} {version}".strip(), f"{path}/version" if version else path)
    except AccessError as error:
        return _accelerator_driver_fact(None, path).replace(gap=str(error))
    return _accelerator_driver_fact(None, "/sys/module")


def _vendor_library_fact(host: HostAccess, vendor: str) -> Fact:
    """Return the file or folder of the vendor's runtime, for vendors that write no version file."""
    names = _vendor_catalog_row(vendor).get("libraries", ())
    try:
        for name in names:
            path = name if name.startswith("/") and host.stat_path(name) else None
            path = path or (None if name.startswith("/") else host.find_library(name))
            if path:
                return _accelerator_runtime_fact(path, path)
    except AccessError as error:
        return _accelerator_runtime_fact(None, ", ".join(names)).replace(gap=str(error))
    return _accelerator_runtime_fact(None, ", ".join(names))


# -- vendors ------------------------------------------------------------------------------------------


def _find_amd_accelerators(search: VendorSearch) -> VendorAccelerators | None:
    if "kfd" not in search.nodes:
        return None
    targets = [_read_gfx_target(search.host, node) for node in search.host.list_directory(KFD_NODES) or ()]
    names = tuple(format_gfx_name(target) for target in targets if target)
    runtime = read_fact("accelerator.runtime", ROCM_VERSION_FILE, _read_rocm_version, search.host)
    return VendorAccelerators("amd", len(names), KFD_NODES, _kernel_module_fact(search.host, "amd"), runtime, names)


def _read_rocm_version(host: HostAccess) -> str | None:
    version = leading_version((host.read_text(ROCM_VERSION_FILE) or "").strip())
    return f"rocm {version}" if version else None


def _read_gfx_target(host: HostAccess, node: str) -> int:
    """Return gfx_target_version of one KFD node; CPUs have 0."""
    text = host.read_text(f"{KFD_NODES}/{node}/properties") or ""
    pairs = (line.partition(" ") for line in text.splitlines())
    word = next((value.strip() for name, _, value in pairs if name == "gfx_target_version"), "")
    return int(word) if word.isdecimal() else 0


def format_gfx_name(target: int) -> str:
    """90402 -> gfx942, 90010 -> gfx90a, 110501 -> gfx1151."""
    return f"gfx{target // 10000}{target // 100 % 100:x}{target % 100:x}"


def _find_huawei_accelerators(search: VendorSearch) -> VendorAccelerators | None:
    device_files = search.numbered_files("davinci")
    if not device_files:
        return None
    machine = read_if_present(search.host.get_uname, default={}).get("machine", "")
    toolkit = (
        read_if_present(search.host.get_env_var, "ASCEND_TOOLKIT_HOME") or f"{ASCEND_FOLDER}/ascend-toolkit/latest"
    ).rstrip("/")
    files = f"{ASCEND_FOLDER}/driver/version.info", f"{toolkit}/{machine}-linux/ascend_toolkit_install.info"
    driver = read_fact("accelerator.driver", files[0], _read_version_file, search.host, files[0])
    cann = read_fact("accelerator.runtime", files[1], _read_version_file, search.host, files[1], "cann ")
    return VendorAccelerators(
        "huawei", len(device_files), "/dev/davinci*", driver, cann, gap="only npu-smi tells the model"
    )


def _read_version_file(host: HostAccess, file: str, prefix: str = "") -> str | None:
    version = _find_assigned_value(host.read_text(file) or "", "version")
    return f"{prefix}{version}" if version else None


def _find_assigned_value(text: str, name: str) -> str | None:
    pairs = (line.partition("=") for line in text.splitlines())
    return next((v.strip() or None for n, e, v in pairs if e and n.strip().lower() == name), None)


def _find_habana_accelerators(search: VendorSearch) -> VendorAccelerators | None:
    """By PCI, or by device files plus the kernel module: /dev/accel may belong to any driver."""
    cards = [address for vendor, address in search.detected.others if vendor == "habana"]
    device_files = search.numbered_files("hl")
    if not cards and (not device_files or not search.host.stat_path("/sys/module/habanalabs")):
        return None
    driver, runtime = _kernel_module_fact(search.host, "habana"), _vendor_library_fact(search.host, "habana")
    source, gap = PCI_DEVICES if cards else "/dev/hl*", "only hl-smi tells the model"
    return VendorAccelerators("habana", len(cards) or len(device_files), source, driver, runtime, gap=gap)


def _find_mthreads_accelerators(search: VendorSearch) -> VendorAccelerators | None:
    device_files = search.numbered_files("mtgpu")
    if not device_files:
        return None
    driver, runtime = _kernel_module_fact(search.host, "mthreads"), _vendor_library_fact(search.host, "mthreads")
    return VendorAccelerators(
        "mthreads", len(device_files), "/dev/mtgpu*", driver, runtime, gap="only mthreads-gmi tells the model"
    )


def _find_intel_accelerators(search: VendorSearch) -> VendorAccelerators | None:
    """Display controllers driven by i915 or xe; integrated graphics only with Level Zero."""
    known = _vendor_catalog_row("intel").get("modules", ())
    uses = {a: _read_pci_driver(search.host, a) for vendor, a in search.detected.others if vendor == "intel"}
    cards = [address for address, driver in uses.items() if driver in known]
    if not cards or "dri" not in search.nodes:
        return None
    runtime = read_fact("accelerator.runtime", LEVEL_ZERO_LIBRARY, _read_level_zero_version, search.host)
    cards = [address for address in cards if runtime.value or address != INTEGRATED_GRAPHICS]
    if not cards:
        return None
    names = tuple(f"8086:{(search.host.read_text(f'{PCI_DEVICES}/{a}/device') or '').strip()[2:]}" for a in cards)
    driver = _accelerator_driver_fact(uses[cards[0]], f"{PCI_DEVICES}/{cards[0]}/uevent")
    return VendorAccelerators("intel", len(cards), PCI_DEVICES, driver, runtime, names)


def _read_level_zero_version(host: HostAccess) -> str | None:
    path = host.find_library(LEVEL_ZERO_LIBRARY)
    version = leading_version(host.resolve_path(path).rpartition(".so.")[2]) if path else None
    return f"level-zero {version}" if version else path


def _read_pci_driver(host: HostAccess, address: str) -> str | None:
    return _find_assigned_value(host.read_text(f"{PCI_DEVICES}/{address}/uevent") or "", "driver")


def _find_apple_accelerator(search: VendorSearch) -> VendorAccelerators | None:
    system = search.host.get_uname()
    if (system.get("system"), system.get("machine")) != ("Darwin", "arm64"):
        return None
    command = ("sysctl", "-n", "machdep.cpu.brand_string")
    ran = search.host.run(command)
    name = ran.out.strip()
    gap = "" if name and ran.rc == 0 else ran.end or f"sysctl ended with {ran.rc}"
    names = None if gap else (name,)
    return VendorAccelerators(
        "apple",
        1,
        " ".join(command),
        _accelerator_driver_fact("metal", "uname"),
        _accelerator_runtime_fact(None, "uname"),
        names,
        gap,
    )


VENDOR_FINDERS: tuple[Callable[[VendorSearch], VendorAccelerators | None], ...] = (
    _find_amd_accelerators,
    _find_huawei_accelerators,
    _find_habana_accelerators,
    _find_mthreads_accelerators,
    _find_intel_accelerators,
    _find_apple_accelerator,
)
"""The most reliable detection first."""
