"""How a probe says what it saw: a value with its source, or a gap with its reason."""

from __future__ import annotations

from gpuready.model import Fact
from gpuready.system import Blind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from gpuready.system import Door


def seen(key: str, source: str, see: Callable[..., Any], *args: Any) -> Fact:
    """The fact that a look gives, or its gap where the look was blind."""
    try:
        return Fact(key, see(*args), source)
    except Blind as blind:
        return Fact(key, None, source, gap=str(blind))


def gaps(keys: Iterable[str], reason: str, source: str = "") -> list[Fact]:
    """Facts that could not be seen, all for one reason."""
    return [Fact(key, None, source, gap=reason) for key in keys]


def absent(keys: Iterable[str], source: str) -> list[Fact]:
    """Facts that were looked for and are not there."""
    return [Fact(key, None, source) for key in keys]


def glimpse(see: Callable[..., Any], *args: Any, otherwise: Any = None) -> Any:
    """What a look gives, or something else where it was blind: for evidence that only helps to find more."""
    try:
        return see(*args)
    except Blind:
        return otherwise


def digits(text: str) -> str | None:
    """The version that a text begins with: ``6.8.0-45-generic`` -> ``6.8.0``."""
    bare = text[: len(text) - len(text.lstrip("0123456789."))]
    return ".".join(part for part in bare.split(".") if part) or None


DRIVERS = ("/sys/module/nvidia", "/proc/driver/nvidia", "/dev/nvidiactl", "/dev/dxg")


def driver_loaded(door: Door) -> bool:
    """Whether a driver for NVIDIA GPUs is there, as far as can be seen: its calls are what hangs."""
    return any(glimpse(door.stat, path, otherwise=True) for path in DRIVERS)
