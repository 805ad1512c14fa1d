"""Detect accelerators of other vendors by files that only their driver creates.

The catalogue lists the paths per vendor. Vendor tools are not run: they may be missing, slow, or something
else of the same name.
"""

from __future__ import annotations

from gpuready.model import Fact, Noun
from gpuready.probe.keys import ACCELERATORS as KEYS
from gpuready.probe.presence import OWN_GRAPHICS, PCI
from gpuready.probe.sight import digits, gaps, glimpse, seen
from gpuready.system import Blind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from gpuready.probe.presence import Presence
    from gpuready.system import Door

__all__ = ["KEYS", "gfx", "look"]

KFD = "/sys/class/kfd/kfd/topology/nodes"
ROCM = "/opt/rocm/.info/version"
ASCEND = "/usr/local/Ascend"
LEVEL_ZERO = "libze_intel_gpu.so.1"


class Seen(Noun):
    """Accelerators of one vendor. ``names`` is None where no file has them; ``gap`` gives the reason."""

    vendor: str
    count: int
    source: str
    driver: Fact
    runtime: Fact
    names: tuple[str, ...] | None = None
    gap: str = ""


def look(door: Door, found: Presence) -> list[Fact]:
    """Return vendor, count, names, driver and runtime; all absent if there is no such accelerator."""
    try:
        nodes = door.list("/dev") or ()
        tries = (one(door, found, nodes) for one in VENDORS)
        first = next((s for s in tries if s is not None), None)
    except Blind as blind:
        return gaps(KEYS, str(blind), "/dev")
    if first is None:
        return [Fact(key, 0 if key == "accelerator.count" else None, f"/dev, {PCI}") for key in KEYS]
    return [
        Fact("accelerator.vendor", first.vendor, first.source),
        Fact("accelerator.count", first.count, first.source),
        Fact("accelerator.name", first.names, first.source, gap=first.gap),
        first.driver,
        first.runtime,
    ]


def _numbered(nodes: tuple[str, ...], start: str) -> list[str]:
    """List device files such as davinci0, hl1 or mtgpu.0, without davinci_manager and the like."""
    return [n for n in nodes if n.startswith(start) and n[len(start) :].lstrip(".").isdecimal()]


def _row(vendor: str) -> dict[str, Any]:
    from gpuready.catalog.accelerators import vendor as row

    return row(vendor) or {}


def _driver(value: str | None, source: str) -> Fact:
    return Fact("accelerator.driver", value, source)


def _runtime(value: str | None, source: str) -> Fact:
    return Fact("accelerator.runtime", value, source)


def _module(door: Door, vendor: str) -> Fact:
    """Return the loaded kernel module, with its version if sysfs has one."""
    path = "/sys/module"
    try:
        for name in _row(vendor).get("modules", ()):
            path = f"/sys/module/{name}"
            if door.stat(path):
                version = (door.read(f"{path}/version") or "").strip()
                return _driver(f"{name} {version}".strip(), f"{path}/version" if version else path)
    except Blind as blind:
        return _driver(None, path).but(gap=str(blind))
    return _driver(None, "/sys/module")


def _library(door: Door, vendor: str) -> Fact:
    """Return the file or folder of the vendor's runtime, for vendors that write no version file."""
    names = _row(vendor).get("libraries", ())
    try:
        for name in names:
            path = name if name.startswith("/") and door.stat(name) else None
            path = path or (None if name.startswith("/") else door.library(name))
            if path:
                return _runtime(path, path)
    except Blind as blind:
        return _runtime(None, ", ".join(names)).but(gap=str(blind))
    return _runtime(None, ", ".join(names))


# -- vendors ------------------------------------------------------------------------------------------


def _amd(door: Door, found: Presence, nodes: tuple[str, ...]) -> Seen | None:
    if "kfd" not in nodes:
        return None
    targets = [_target(door, node) for node in door.list(KFD) or ()]
    names = tuple(gfx(target) for target in targets if target)
    runtime = seen("accelerator.runtime", ROCM, _rocm, door)
    return Seen("amd", len(names), KFD, _module(door, "amd"), runtime, names)


def _rocm(door: Door) -> str | None:
    version = digits((door.read(ROCM) or "").strip())
    return f"rocm {version}" if version else None


def _target(door: Door, node: str) -> int:
    """Return gfx_target_version of one KFD node; CPUs have 0."""
    text = door.read(f"{KFD}/{node}/properties") or ""
    pairs = (line.partition(" ") for line in text.splitlines())
    word = next((value.strip() for name, _, value in pairs if name == "gfx_target_version"), "")
    return int(word) if word.isdecimal() else 0


def gfx(target: int) -> str:
    """90402 -> gfx942, 90010 -> gfx90a, 110501 -> gfx1151."""
    return f"gfx{target // 10000}{target // 100 % 100:x}{target % 100:x}"


def _huawei(door: Door, found: Presence, nodes: tuple[str, ...]) -> Seen | None:
    own = _numbered(nodes, "davinci")
    if not own:
        return None
    machine = glimpse(door.uname, otherwise={}).get("machine", "")
    toolkit = (glimpse(door.env, "ASCEND_TOOLKIT_HOME") or f"{ASCEND}/ascend-toolkit/latest").rstrip("/")
    files = f"{ASCEND}/driver/version.info", f"{toolkit}/{machine}-linux/ascend_toolkit_install.info"
    driver = seen("accelerator.driver", files[0], _versioned, door, files[0])
    cann = seen("accelerator.runtime", files[1], _versioned, door, files[1], "cann ")
    return Seen("huawei", len(own), "/dev/davinci*", driver, cann, gap="only npu-smi tells the model")


def _versioned(door: Door, file: str, before: str = "") -> str | None:
    version = _assigned(door.read(file) or "", "version")
    return f"{before}{version}" if version else None


def _assigned(text: str, name: str) -> str | None:
    pairs = (line.partition("=") for line in text.splitlines())
    return next((v.strip() or None for n, e, v in pairs if e and n.strip().lower() == name), None)


def _habana(door: Door, found: Presence, nodes: tuple[str, ...]) -> Seen | None:
    """By PCI, or by device files plus the kernel module: /dev/accel may belong to any driver."""
    cards = [address for vendor, address in found.others if vendor == "habana"]
    own = _numbered(nodes, "hl")
    if not cards and (not own or not door.stat("/sys/module/habanalabs")):
        return None
    driver, runtime = _module(door, "habana"), _library(door, "habana")
    source, gap = PCI if cards else "/dev/hl*", "only hl-smi tells the model"
    return Seen("habana", len(cards) or len(own), source, driver, runtime, gap=gap)


def _mthreads(door: Door, found: Presence, nodes: tuple[str, ...]) -> Seen | None:
    own = _numbered(nodes, "mtgpu")
    if not own:
        return None
    driver, runtime = _module(door, "mthreads"), _library(door, "mthreads")
    return Seen("mthreads", len(own), "/dev/mtgpu*", driver, runtime, gap="only mthreads-gmi tells the model")


def _intel(door: Door, found: Presence, nodes: tuple[str, ...]) -> Seen | None:
    """Display controllers driven by i915 or xe; integrated graphics only with Level Zero."""
    known = _row("intel").get("modules", ())
    uses = {a: _driven(door, a) for vendor, a in found.others if vendor == "intel"}
    cards = [address for address, driver in uses.items() if driver in known]
    if not cards or "dri" not in nodes:
        return None
    runtime = seen("accelerator.runtime", LEVEL_ZERO, _level_zero, door)
    cards = [address for address in cards if runtime.value or address != OWN_GRAPHICS]
    if not cards:
        return None
    names = tuple(f"8086:{(door.read(f'{PCI}/{a}/device') or '').strip()[2:]}" for a in cards)
    driver = _driver(uses[cards[0]], f"{PCI}/{cards[0]}/uevent")
    return Seen("intel", len(cards), PCI, driver, runtime, names)


def _level_zero(door: Door) -> str | None:
    path = door.library(LEVEL_ZERO)
    version = digits(door.real(path).rpartition(".so.")[2]) if path else None
    return f"level-zero {version}" if version else path


def _driven(door: Door, address: str) -> str | None:
    return _assigned(door.read(f"{PCI}/{address}/uevent") or "", "driver")


def _apple(door: Door, found: Presence, nodes: tuple[str, ...]) -> Seen | None:
    system = door.uname()
    if (system.get("system"), system.get("machine")) != ("Darwin", "arm64"):
        return None
    asked = ("sysctl", "-n", "machdep.cpu.brand_string")
    ran = door.run(asked)
    name = ran.out.strip()
    gap = "" if name and ran.rc == 0 else ran.end or f"sysctl ended with {ran.rc}"
    names = None if gap else (name,)
    return Seen("apple", 1, " ".join(asked), _driver("metal", "uname"), _runtime(None, "uname"), names, gap)


VENDORS: tuple[Callable[[Door, Presence, tuple[str, ...]], Seen | None], ...]
VENDORS = (_amd, _huawei, _habana, _mthreads, _intel, _apple)
"""The most reliable detection first."""
