"""Accelerators that are not NVIDIA's, by what only their own driver makes.

The catalogue says where each vendor keeps what. Nothing is asked of their tools: they may be missing, slow,
or not what their name says.
"""

from __future__ import annotations

from tarmac.model import Fact, Noun
from tarmac.probe.keys import ACCELERATORS as KEYS
from tarmac.probe.presence import PCI
from tarmac.probe.sight import digits, gaps, glimpse
from tarmac.system import Blind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from tarmac.probe.presence import Presence
    from tarmac.system import Door

__all__ = ["KEYS", "gfx", "look"]

KFD = "/sys/class/kfd/kfd/topology/nodes"
ROCM = "/opt/rocm/.info/version"
ASCEND = "/usr/local/Ascend"
OWN_GRAPHICS = "0000:00:02.0"
"""Where Intel's processors have their own graphics, which compute only where Level Zero is installed."""

LEVEL_ZERO = "libze_intel_gpu.so.1"


class Seen(Noun):
    """The accelerators of one vendor. ``names`` is None where no file tells; ``gap`` says so."""

    vendor: str
    count: int
    source: str
    names: tuple[str, ...] | None = None
    driver: str | None = None
    runtime: str | None = None
    places: tuple[str, str] = ("", "")  # where driver and runtime were read or looked for
    gap: str = ""


def look(door: Door, found: Presence) -> list[Fact]:
    """Vendor, count, names, driver and runtime; all absent where there is no such accelerator."""
    try:
        nodes = door.list("/dev") or ()
        tries = (one(door, found, nodes) for one in VENDORS)
        seen = next((s for s in tries if s is not None), None)
    except Blind as blind:
        return gaps(KEYS, str(blind), "/dev")
    if seen is None:
        return [Fact(key, 0 if key == "accelerator.count" else None, f"/dev, {PCI}") for key in KEYS]
    return [
        Fact("accelerator.vendor", seen.vendor, seen.source),
        Fact("accelerator.count", seen.count, seen.source),
        Fact("accelerator.name", seen.names, seen.source, gap=seen.gap),
        Fact("accelerator.driver", seen.driver, seen.places[0] or seen.source),
        Fact("accelerator.runtime", seen.runtime, seen.places[1] or seen.source),
    ]


def _numbered(nodes: tuple[str, ...], start: str) -> list[str]:
    """Device files such as davinci0, hl1 or mtgpu.0, without their kin such as davinci_manager."""
    return [n for n in nodes if n.startswith(start) and n[len(start) :].lstrip(".").isdecimal()]


def _row(vendor: str) -> dict[str, Any]:
    from tarmac.catalog.accelerators import vendor as row

    return row(vendor) or {}


def _module(door: Door, vendor: str) -> tuple[str | None, str]:
    """The kernel module that is loaded, with its version where it tells one, and where it shows."""
    for name in _row(vendor).get("modules", ()):
        path = f"/sys/module/{name}"
        if glimpse(door.stat, path):
            version = (glimpse(door.read, f"{path}/version") or "").strip()
            return f"{name} {version}".strip(), f"{path}/version" if version else path
    return None, "/sys/module"


def _library(door: Door, vendor: str) -> tuple[str | None, str]:
    """The file or folder of the vendor's runtime, for those that write no version anywhere."""
    names = _row(vendor).get("libraries", ())
    for name in names:
        path = (
            name
            if glimpse(door.stat, name)
            else None
            if name.startswith("/")
            else glimpse(door.library, name)
        )
        if path:
            return path, path
    return None, ", ".join(names)


# -- vendors ------------------------------------------------------------------------------------------


def _amd(door: Door, found: Presence, nodes: tuple[str, ...]) -> Seen | None:
    if "kfd" not in nodes:
        return None
    targets = [_target(door, node) for node in door.list(KFD) or ()]
    names = tuple(gfx(target) for target in targets if target)
    driver, place = _module(door, "amd")
    version = digits((glimpse(door.read, ROCM) or "").strip())
    runtime = f"rocm {version}" if version else None
    return Seen("amd", len(names), KFD, names, driver, runtime, (place, ROCM))


def _target(door: Door, node: str) -> int:
    """gfx_target_version of one node; a processor has 0."""
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
    files = (f"{ASCEND}/driver/version.info", f"{toolkit}/{machine}-linux/ascend_toolkit_install.info")
    driver, runtime = (_assigned(glimpse(door.read, file) or "", "version") for file in files)
    cann = f"cann {runtime}" if runtime else None
    return Seen(
        "huawei", len(own), "/dev/davinci*", None, driver, cann, files, gap="only npu-smi tells the model"
    )


def _assigned(text: str, name: str) -> str | None:
    pairs = (line.partition("=") for line in text.splitlines())
    return next((v.strip() or None for n, e, v in pairs if e and n.strip().lower() == name), None)


def _habana(door: Door, found: Presence, nodes: tuple[str, ...]) -> Seen | None:
    """By the bus or by its own device files: /dev/accel may belong to anybody."""
    cards = [address for vendor, address in found.others if vendor == "habana"]
    own = _numbered(nodes, "hl") if glimpse(door.stat, "/sys/module/habanalabs") else []
    if not cards and not own:
        return None
    driver, place = _module(door, "habana")
    runtime, where = _library(door, "habana")
    source, gap = (PCI if cards else "/dev/hl*"), "only hl-smi tells the model"
    return Seen("habana", len(cards) or len(own), source, None, driver, runtime, (place, where), gap=gap)


def _mthreads(door: Door, found: Presence, nodes: tuple[str, ...]) -> Seen | None:
    own = _numbered(nodes, "mtgpu")
    if not own:
        return None
    driver, place = _module(door, "mthreads")
    runtime, where = _library(door, "mthreads")
    gap = "only mthreads-gmi tells the model"
    return Seen("mthreads", len(own), "/dev/mtgpu*", None, driver, runtime, (place, where), gap=gap)


def _intel(door: Door, found: Presence, nodes: tuple[str, ...]) -> Seen | None:
    """Display controllers that i915 or xe drives; the processor's own graphics only with Level Zero."""
    drivers = {a: _driver(door, a) for vendor, a in found.others if vendor == "intel"}
    cards = [a for a, driver in drivers.items() if driver in _row("intel").get("modules", ())]
    path = glimpse(door.library, LEVEL_ZERO) if cards else None
    cards = [a for a in cards if path or a != OWN_GRAPHICS]
    if not cards or "dri" not in nodes:
        return None
    names = tuple(f"8086:{(glimpse(door.read, f'{PCI}/{a}/device') or '').strip()[2:]}" for a in cards)
    version = digits((glimpse(door.real, path) or "").rpartition(".so.")[2]) if path else None
    runtime = f"level-zero {version}" if version else path
    places = (f"{PCI}/{cards[0]}/uevent", path or LEVEL_ZERO)
    return Seen("intel", len(cards), PCI, names, drivers[cards[0]], runtime, places)


def _driver(door: Door, address: str) -> str | None:
    return _assigned(glimpse(door.read, f"{PCI}/{address}/uevent") or "", "driver")


def _apple(door: Door, found: Presence, nodes: tuple[str, ...]) -> Seen | None:
    system = glimpse(door.uname, otherwise={})
    if (system.get("system"), system.get("machine")) != ("Darwin", "arm64"):
        return None
    asked = ("sysctl", "-n", "machdep.cpu.brand_string")
    ran = door.run(asked)
    name = ran.out.strip()
    gap = "" if name and ran.rc == 0 else ran.end or f"sysctl ended with {ran.rc}"
    return Seen(
        "apple", 1, " ".join(asked), None if gap else (name,), "metal", None, ("uname", "uname"), gap=gap
    )


VENDORS: tuple[Callable[[Door, Presence, tuple[str, ...]], Seen | None], ...]
VENDORS = (_amd, _huawei, _habana, _mthreads, _intel, _apple)
"""The surer signs first."""
