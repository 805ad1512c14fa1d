"""The devices of a process, behind one interface for every device type of torch.

torch.cuda, torch.npu, torch.xpu, torch.hpu and torch.mps agree in most names; Accelerator handles the differences.
torch is passed in, not imported.
"""

from collections.abc import Mapping
from typing import Any

from gpuready.cluster import Rendezvous
from gpuready.runtime.platform import Platform, get_platform

DEVICE_ORDER = ("cuda", "npu", "xpu", "hpu", "mps")
DEVICE_BACKENDS = ("nccl", "hccl", "xccl")
"""Backends that communicate between devices, and take one rank per device."""


class DeviceUnavailable(ValueError):
    """The device that this rank should have is not available."""

    def __init__(self, message: str, fix: str, code: str) -> None:
        super().__init__(message)
        self.fix, self.code = fix, code


class Accelerator:
    """One platform, as torch drives it."""

    def __init__(self, torch: Any, on: Platform) -> None:
        self.torch, self.platform = torch, on
        self.module = getattr(torch, on.device, None)

    @property
    def device_type(self) -> str:
        return self.platform.device

    def is_available(self) -> bool:
        if self.device_type == "cpu":
            return True
        if self.device_type == "mps":
            return bool(self.torch.backends.mps.is_available())
        return self.module is not None and bool(self.module.is_available())

    def device_count(self) -> int:
        if self.device_type in ("cpu", "mps"):
            return 1
        return int(self.module.device_count()) if self.module is not None else 0

    def device_name(self, index: int = 0) -> str:
        function = getattr(self.module, "get_device_name", None)
        return str(function(index)) if function is not None else self.platform.name

    def set_device(self, index: int) -> str:
        """Make a device the current one; return its name in torch."""
        if self.device_type in ("cpu", "mps"):
            return self.device_type
        self.module.set_device(index)  # type: ignore[union-attr]
        return f"{self.device_type}:{index}"

    def device_identity(self, index: int) -> str:
        """Return what identifies this device in the job: its UUID, else its PCI address."""
        if self.device_type in ("cpu", "mps") or self.module is None:
            return ""
        properties = self._call_if_present("get_device_properties", index)
        uuid = getattr(properties, "uuid", None)
        if uuid is not None:
            return str(uuid)
        bus = [getattr(properties, name, None) for name in ("pci_domain_id", "pci_bus_id", "pci_device_id")]
        return ":".join(map(str, bus)) if None not in bus else ""

    def _call_if_present(self, name: str, *arguments: Any) -> Any:
        function = getattr(self.module, name, None)
        try:
            return function(*arguments) if function is not None else None
        except (RuntimeError, NotImplementedError, AttributeError, ValueError):
            return None


def find_accelerator(torch: Any, requested: str | None = None) -> Accelerator:
    """Return the devices that a job should use: those requested, else the first type that torch has."""
    if requested is not None:
        kind = str(requested).partition(":")[0]
        if kind not in (*DEVICE_ORDER, "cpu"):
            raise DeviceUnavailable(
                f"{requested!r} is not a device that torch supports", "write for example cuda, npu or cpu", ""
            )
        accelerator = Accelerator(torch, _platform_of(torch, kind))
        if not accelerator.is_available():
            raise DeviceUnavailable(
                f"torch has no {kind} here", f"run gpuready check, or ask for another device than {kind}", "GPU001"
            )
        return accelerator
    for kind in DEVICE_ORDER:
        accelerator = Accelerator(torch, _platform_of(torch, kind))
        if accelerator.is_available() and accelerator.device_count():
            return accelerator
    return Accelerator(torch, get_platform("cpu"))


def _platform_of(torch: Any, kind: str) -> Platform:
    rocm = kind == "cuda" and getattr(torch.version, "hip", None)
    return get_platform("rocm" if rocm else kind)


def choose_device_index(
    accelerator: Accelerator, rendezvous: Rendezvous, environ: Mapping[str, str], requested: str | None = None
) -> int:
    """Return the number of this rank's device among those visible to it; DeviceUnavailable if there is none.

    A launcher may show each rank only its own device (srun with GPUs per task, Ray): that is number 0.
    """
    count, local = accelerator.device_count(), rendezvous.local_rank
    if accelerator.device_type in ("cpu", "mps"):
        return 0
    if requested and ":" in requested:
        number = requested.partition(":")[2]
        if not (number.isascii() and number.isdecimal()) or int(number) >= count:
            raise DeviceUnavailable(
                f"the device {requested!r} is asked for, and {count} are visible", "ask for one that is", "NET012"
            )
        return int(number)
    name, entries = read_visible_devices(accelerator.platform, environ)
    if entries is not None and len(entries) > count:
        message = f"{name}={environ[name]!r} names {len(entries)} devices, and {count} can be used"
        raise DeviceUnavailable(message, f"correct {name}: what follows a wrong entry is ignored", "GPU003")
    if local is None:
        return rendezvous.rank % count
    if local < count:
        return local
    if count == 1 and entries is not None and len(entries) == 1:
        return 0
    chosen = f" ({name}={environ[name]!r})" if entries is not None else ""
    message = f"local rank {local} needs device {local}, and {count} {'is' if count == 1 else 'are'} visible{chosen}"
    raise DeviceUnavailable(
        message, f"start at most {count} ranks on this host, or make more devices visible", "NET012"
    )


def read_visible_devices(on: Platform, environ: Mapping[str, str]) -> tuple[str, list[str] | None]:
    """Return the visibility variable that is set, with its entries; None if none is set."""
    for name in dict.fromkeys((on.visibility, *on.visibilities)):
        if name and name in environ:
            return name, [one.strip() for one in environ[name].split(",") if one.strip()]
    return "", None


def note_hidden_devices(torch: Any, environ: Mapping[str, str]) -> str:
    """Return a note if a variable hides all GPUs from a torch that could use them.

    DeviceUnavailable if it names GPUs of which torch can use none.
    """
    built = getattr(torch.version, "cuda", None) or getattr(torch.version, "hip", None)
    name, entries = read_visible_devices(_platform_of(torch, "cuda"), environ)
    if not built or not name:
        return ""
    if not entries or entries == ["-1"]:
        return f"{name}={environ[name]!r} hides all GPUs: the job runs on the CPU"
    # A user who names a GPU wants one: silently using the CPU would go unnoticed.
    message = f"{name}={environ[name]!r} asks for GPUs, and torch can use none of them"
    raise DeviceUnavailable(message, f'correct {name}, or ask for the CPU: launch(device="cpu")', "GPU003")


def choose_backend(accelerator: Accelerator, requested: str | None, available: Mapping[str, bool]) -> str:
    """Return the group's backend: the requested one, else the platform's own, else gloo.

    ``composite`` means gloo on the CPU beside the platform's own. ``available`` says what this torch was built with.
    """
    own = accelerator.platform.backend
    if requested is None:
        return own if available.get(own, True) else "gloo"
    if requested == "composite":
        return f"cpu:gloo,{accelerator.device_type}:{own}" if accelerator.device_type != "cpu" else "cpu:gloo"
    for part in requested.split(","):
        kind, _, name = part.strip().rpartition(":")
        if not name or not available.get(name, True) or (kind and kind not in (*DEVICE_ORDER, "cpu")):
            raise DeviceUnavailable(
                f"the backend {requested!r} is not one that this torch has", "ask for gloo, nccl or composite", ""
            )
    return requested


def backend_of_device(chosen: str, device: str) -> str:
    """Return the part of a backend for a device type: nccl of ``cpu:gloo,cuda:nccl`` for cuda."""
    for part in chosen.split(","):
        kind, _, name = part.strip().rpartition(":")
        if not kind or kind == device.partition(":")[0]:
            return name
    return ""
