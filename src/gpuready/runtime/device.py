"""The devices of a process, behind one interface for every device type of torch.

torch.cuda, torch.npu, torch.xpu, torch.hpu and torch.mps agree in most names; Accelerator handles the differences.
torch is passed in, not imported.
"""

from __future__ import annotations

from gpuready.model import Noun
from gpuready.runtime.platform import platform

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from gpuready.cluster import Rendezvous
    from gpuready.runtime.platform import Platform

ORDER = ("cuda", "npu", "xpu", "hpu", "mps")
OWN_LIBRARY = ("nccl", "hccl", "xccl")
"""Backends that communicate between devices, and take one rank per device."""


class Memory(Noun):
    """Bytes of one device; None where its library does not report them."""

    free: int | None = None
    total: int | None = None
    allocated: int | None = None
    reserved: int | None = None
    peak: int | None = None


class NoDevice(ValueError):
    """The device that this rank should have is not available."""

    def __init__(self, said: str, fix: str, code: str) -> None:
        super().__init__(said)
        self.fix, self.code = fix, code


class Accelerator:
    """One platform, as torch drives it."""

    def __init__(self, torch: Any, on: Platform) -> None:
        self.torch, self.platform = torch, on
        self.module = getattr(torch, on.device, None)

    @property
    def device(self) -> str:
        return self.platform.device

    def available(self) -> bool:
        if self.device == "cpu":
            return True
        if self.device == "mps":
            return bool(self.torch.backends.mps.is_available())
        return self.module is not None and bool(self.module.is_available())

    def count(self) -> int:
        if self.device in ("cpu", "mps"):
            return 1
        return int(self.module.device_count()) if self.module is not None else 0

    def initialised(self) -> bool:
        """Whether a context exists already, which would be on the first device whatever the rank."""
        asked = getattr(self.module, "is_initialized", None)
        return self.device not in ("cpu", "mps") and asked is not None and bool(asked())

    def name(self, index: int = 0) -> str:
        asked = getattr(self.module, "get_device_name", None)
        return str(asked(index)) if asked is not None else self.platform.name

    def take(self, index: int) -> str:
        """Make a device the current one; return its name in torch."""
        if self.device in ("cpu", "mps"):
            return self.device
        self.module.set_device(index)  # type: ignore[union-attr]
        return f"{self.device}:{index}"

    def synchronise(self) -> None:
        asked = getattr(self.module, "synchronize", None)
        if asked is not None:
            asked()

    def seed(self, seed: int) -> None:
        for name in ("manual_seed_all", "manual_seed"):
            asked = getattr(self.module, name, None)
            if asked is not None:
                asked(seed)
                return
        self.torch.manual_seed(seed)

    def memory(self, index: int = 0) -> Memory:
        if self.device == "cpu":
            return Memory()
        if self.device == "mps":
            return Memory(
                total=self._told("recommended_max_memory"),
                allocated=self._told("current_allocated_memory"),
                reserved=self._told("driver_allocated_memory"),
            )
        both = self._told("mem_get_info", index) or (None, None)
        each = (
            self._told(name, index)
            for name in ("memory_allocated", "memory_reserved", "max_memory_allocated")
        )
        return Memory(*both, *each)

    def identity(self, index: int) -> str:
        """Return what identifies this device in the job: its UUID, else its PCI address."""
        if self.device in ("cpu", "mps") or self.module is None:
            return ""
        found = self._told("get_device_properties", index)
        uuid = getattr(found, "uuid", None)
        if uuid is not None:
            return str(uuid)
        bus = [getattr(found, name, None) for name in ("pci_domain_id", "pci_bus_id", "pci_device_id")]
        return ":".join(map(str, bus)) if None not in bus else ""

    def _told(self, name: str, *arguments: Any) -> Any:
        asked = getattr(self.module, name, None)
        try:
            return asked(*arguments) if asked is not None else None
        except (RuntimeError, NotImplementedError, AttributeError, ValueError):
            return None


def here(torch: Any, asked: str | None = None) -> Accelerator:
    """Return the devices that a job should use: those requested, else the first type that torch has."""
    if asked is not None:
        kind = str(asked).partition(":")[0]
        if kind not in (*ORDER, "cpu"):
            raise NoDevice(f"{asked!r} is no device that torch has", "write for example cuda, npu or cpu", "")
        found = Accelerator(torch, _of(torch, kind))
        if not found.available():
            raise NoDevice(
                f"torch has no {kind} here",
                f"run gpuready check, or ask for another device than {kind}",
                "GPU001",
            )
        return found
    for kind in ORDER:
        found = Accelerator(torch, _of(torch, kind))
        if found.available() and found.count():
            return found
    return Accelerator(torch, platform("cpu"))


def _of(torch: Any, kind: str) -> Platform:
    rocm = kind == "cuda" and getattr(torch.version, "hip", None)
    return platform("rocm" if rocm else kind)


def index(
    on: Accelerator, rendezvous: Rendezvous, environ: Mapping[str, str], asked: str | None = None
) -> int:
    """Return the number of this rank's device among those visible to it; DeviceUnavailable if there is none.

    A launcher may show each rank only its own device (srun with GPUs per task, Ray): that is number 0.
    """
    count, local = on.count(), rendezvous.local_rank
    if on.device in ("cpu", "mps"):
        return 0
    if asked and ":" in asked:
        number = asked.partition(":")[2]
        if not (number.isascii() and number.isdecimal()) or int(number) >= count:
            raise NoDevice(
                f"the device {asked!r} is asked for, and {count} are visible", "ask for one that is", "NET012"
            )
        return int(number)
    name, shown = visible(on.platform, environ)
    if shown is not None and len(shown) > count:
        said = f"{name}={environ[name]!r} names {len(shown)} devices, and {count} can be used"
        raise NoDevice(said, f"correct {name}: what follows a wrong entry is ignored", "GPU003")
    if local is None:
        return rendezvous.rank % count
    if local < count:
        return local
    if count == 1 and shown is not None and len(shown) == 1:
        return 0
    chosen = f" ({name}={environ[name]!r})" if shown is not None else ""
    said = f"local rank {local} needs device {local}, and {count} {'is' if count == 1 else 'are'} visible{chosen}"
    raise NoDevice(said, f"start at most {count} ranks on this host, or make more devices visible", "NET012")


def visible(on: Platform, environ: Mapping[str, str]) -> tuple[str, list[str] | None]:
    """Return the visibility variable that is set, with its entries; None if none is set."""
    for name in dict.fromkeys((on.visibility, *on.visibilities)):
        if name and name in environ:
            return name, [one.strip() for one in environ[name].split(",") if one.strip()]
    return "", None


def hidden(torch: Any, environ: Mapping[str, str]) -> str:
    """Return a note if a variable hides all GPUs from a torch that could use them.

    DeviceUnavailable if it names GPUs of which torch can use none.
    """
    built = getattr(torch.version, "cuda", None) or getattr(torch.version, "hip", None)
    name, shown = visible(_of(torch, "cuda"), environ)
    if not built or not name:
        return ""
    if not shown or shown == ["-1"]:
        return f"{name}={environ[name]!r} hides all GPUs: the job runs on the CPU"
    # A user who names a GPU wants one: silently using the CPU would go unnoticed.
    said = f"{name}={environ[name]!r} asks for GPUs, and torch can use none of them"
    raise NoDevice(said, f'correct {name}, or ask for the CPU: launch(device="cpu")', "GPU003")


def backend(on: Accelerator, asked: str | None, have: Mapping[str, bool]) -> str:
    """Return the group's backend: the requested one, else the platform's own, else gloo.

    ``composite`` means gloo on the CPU beside the platform's own. ``available`` says what this torch was built with.
    """
    own = on.platform.backend
    if asked is None:
        return own if have.get(own, True) else "gloo"
    if asked == "composite":
        return f"cpu:gloo,{on.device}:{own}" if on.device != "cpu" else "cpu:gloo"
    for part in asked.split(","):
        kind, _, name = part.strip().rpartition(":")
        if not name or not have.get(name, True) or (kind and kind not in (*ORDER, "cpu")):
            raise NoDevice(
                f"the backend {asked!r} is not one that this torch has", "ask for gloo, nccl or composite", ""
            )
    return asked


def of_device(chosen: str, device: str) -> str:
    """Return the part of a backend for a device type: nccl of ``cpu:gloo,cuda:nccl`` for cuda."""
    for part in chosen.split(","):
        kind, _, name = part.strip().rpartition(":")
        if not kind or kind == device.partition(":")[0]:
            return name
    return ""
