"""Make facts: a value with its source, or a gap with its reason."""

from __future__ import annotations

from gpuready.model import Fact
from gpuready.system import Blind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from gpuready.system import Door


def seen(key: str, source: str, see: Callable[..., Any], *args: Any) -> Fact:
    """Return the fact that a reader gives, or its gap on AccessError."""
    try:
        return Fact(key, see(*args), source)
    except Blind as blind:
        return Fact(key, None, source, gap=str(blind))


def gaps(keys: Iterable[str], reason: str, source: str = "") -> list[Fact]:
    """Facts that could not be read, all for one reason."""
    return [Fact(key, None, source, gap=reason) for key in keys]


def absent(keys: Iterable[str], source: str) -> list[Fact]:
    """Facts that were looked for and do not exist."""
    return [Fact(key, None, source) for key in keys]


def glimpse(see: Callable[..., Any], *args: Any, otherwise: Any = None) -> Any:
    """Return what a reader gives, or ``default`` on AccessError: for optional evidence."""
    try:
        return see(*args)
    except Blind:
        return otherwise


def digits(text: str) -> str | None:
    """Return the version at the start of a text: ``6.8.0-45-generic`` -> ``6.8.0``."""
    bare = text[: len(text) - len(text.lstrip("0123456789."))]
    return ".".join(part for part in bare.split(".") if part) or None


DRIVERS = ("/sys/module/nvidia", "/proc/driver/nvidia", "/dev/nvidiactl", "/dev/dxg")


def driver_loaded(door: Door) -> bool:
    """Whether an NVIDIA driver seems to be loaded: only then can NVML calls hang."""
    return any(glimpse(door.stat, path, otherwise=True) for path in DRIVERS)
