"""Xids (the driver's error numbers) in the kernel log.

Anybody can write a line into a log, so only lines written by the kernel count.
"""

from __future__ import annotations

from gpuready.model import Fact
from gpuready.probe.keys import KERNEL as KEYS
from gpuready.system import Blind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from gpuready.system import Door

__all__ = ["KEYS", "look"]

KMSG, FILES = "/dev/kmsg", ("/var/log/kern.log", "/var/log/messages")
SIGN = "NVRM: Xid ("
LONGEST = 400


def look(door: Door) -> list[Fact]:
    """Return every Xid in the kernel's buffer, else in the log on disk."""
    reasons = []
    for path in (KMSG, *FILES):
        try:
            lines = door.lines(path, [SIGN])
        except Blind as blind:
            reasons.append(f"{path}: {blind}")
            continue
        if lines is not None:
            return [Fact("kernel.xids", xids(lines, own=_record if path == KMSG else _line), path)]
    return [Fact("kernel.xids", None, KMSG, gap="; ".join(reasons) or "there is no log of the kernel here")]


def xids(lines: tuple[str, ...], own: Callable[[str], str | None]) -> tuple[dict[str, Any], ...]:
    """Parse number, GPU and text of each Xid.

    ``extract_message`` returns the message if the kernel wrote the line, else None.
    """
    messages = (message for line in lines if (message := own(line)))
    return tuple(row for message in messages if (row := _parsed(message)))


def _record(line: str) -> str | None:
    """Return the message of ``3,1234,5678900,-;NVRM: Xid …``: the kernel's priorities are below 8."""
    head, semicolon, message = line.partition(";")
    priority = head.partition(",")[0]
    return message if semicolon and priority.isdecimal() and int(priority) < 8 else None


def _line(line: str) -> str | None:
    """Return the message of ``Nov 15 03:06:11 gpu-07 kernel: [12.3] NVRM: Xid …``."""
    head, tag, message = line.partition(" kernel: ")
    if not tag or any(word.endswith(":") for word in head.split()):  # the tag of another program
        return None
    at = message.find(SIGN)
    stamp = message[:at].strip()
    return message[at:] if at >= 0 and (not stamp or (stamp[0] == "[" and stamp[-1] == "]")) else None


def _parsed(message: str) -> dict[str, Any] | None:
    """Parse ``NVRM: Xid (PCI:0000:3b:00): 79, pid=…`` as 79 and 0000:3b:00.0."""
    if not message.startswith(SIGN):
        return None
    where, _, rest = message[len(SIGN) :].partition("): ")
    number = rest[: len(rest) - len(rest.lstrip("0123456789"))]
    if not number or len(number) > 4:
        return None
    address = where.removeprefix("PCI:").lower()
    return {
        "xid": int(number),
        "pci": f"{address}.0" if address.count(":") == 2 and "." not in address else address or None,
        "line": message[:LONGEST],
    }
