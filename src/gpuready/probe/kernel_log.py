"""Xids (the driver's error numbers) in the kernel log.

Anybody can write a line into a log, so only lines written by the kernel count.
"""

from collections.abc import Callable
from typing import Any

from gpuready.model import Fact
from gpuready.probe.fact_helpers import KERNEL as KEYS
from gpuready.system import AccessError, HostAccess

__all__ = ["KEYS", "probe_kernel_log"]

KMSG, LOG_FILES = "/dev/kmsg", ("/var/log/kern.log", "/var/log/messages")
XID_PREFIX = "NVRM: Xid ("
START_MARKS = ("Linux version ", "NVRM: loading NVIDIA UNIX")
"""How the kernel and the driver begin their logs."""

MAX_LINE_LENGTH = 400


def probe_kernel_log(host: HostAccess) -> list[Fact]:
    """Return every Xid since the last boot and load of the driver, from the kernel's buffer, else from a file."""
    reasons = []
    for path in (KMSG, *LOG_FILES):
        try:
            lines = host.find_log_lines(path, [XID_PREFIX])
        except AccessError as error:
            reasons.append(f"{path}: {error}")
            continue
        if lines is not None:
            extract_message = _kmsg_message if path == KMSG else _syslog_message
            lines = _lines_since_start(host, path, lines, extract_message) if lines else ()
            return [Fact("kernel.xids", parse_xids(lines, extract_message), path)]
    return [Fact("kernel.xids", None, KMSG, gap="; ".join(reasons) or "there is no log of the kernel here")]


def _lines_since_start(
    host: HostAccess, path: str, xid_lines: tuple[str, ...], extract_message: Callable[[str], str | None]
) -> tuple[str, ...]:
    """Return the lines after the last boot and load of the driver: both begin with healthy GPUs."""
    try:
        lines = host.find_log_lines(path, [XID_PREFIX, *START_MARKS]) or xid_lines
    except AccessError:  # an old recording does not have this question
        return xid_lines
    starts = [at for at, line in enumerate(lines) if (extract_message(line) or "").startswith(START_MARKS)]
    return lines[starts[-1] + 1 :] if starts else lines


def parse_xids(lines: tuple[str, ...], extract_message: Callable[[str], str | None]) -> tuple[dict[str, Any], ...]:
    """Parse number, GPU and text of each Xid.

    ``extract_message`` returns the message if the kernel wrote the line, else None.
    """
    messages = (message for line in lines if (message := extract_message(line)))
    return tuple(row for message in messages if (row := _parse_xid_message(message)))


def _kmsg_message(line: str) -> str | None:
    """Return the message of ``3,1234,5678900,-;NVRM: Xid …``: the kernel's priorities are below 8."""
    head, semicolon, message = line.partition(";")
    priority = head.partition(",")[0]
    return message if semicolon and priority.isdecimal() and int(priority) < 8 else None


def _syslog_message(line: str) -> str | None:
    """Return the message of ``Nov 15 03:06:11 gpu-07 kernel: [12.3] NVRM: Xid …``."""
    head, tag, message = line.partition(" kernel: ")
    if not tag or any(word.endswith(":") for word in head.split()):  # the tag of another program
        return None
    message = message.lstrip()
    return message.partition("]")[2].lstrip() if message.startswith("[") else message


def _parse_xid_message(message: str) -> dict[str, Any] | None:
    """Parse ``NVRM: Xid (PCI:0000:3b:00): 79, pid=…`` as 79 and 0000:3b:00.0."""
    if not message.startswith(XID_PREFIX):
        return None
    where, _, rest = message[len(XID_PREFIX) :].partition("): ")
    number = rest[: len(rest) - len(rest.lstrip("0123456789"))]
    if not number or len(number) > 4:
        return None
    address = where.removeprefix("PCI:").lower().partition(" ")[0]  # MIG: PCI:0000:01:00 GPU-I:05
    return {
        "xid": int(number),
        "pci": f"{address}.0" if address.count(":") == 2 and "." not in address else address or None,
        "line": message[:MAX_LINE_LENGTH],
    }
