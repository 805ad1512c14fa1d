"""Which GPUs CUDA would show, by the driver's rules for CUDA_VISIBLE_DEVICES.

The rules were measured on driver 580 with one H200: every value of the truth table in the tests was passed to
cuInit there. They are lenient: trailing garbage is ignored, the first entry that matches no GPU silently ends
the list, and numbers wrap at 32 bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpuready.model import Fact, Record
from gpuready.probe.fact_helpers import read_fact
from gpuready.system import AccessError, HostAccess

CUDA_VARIABLE, ORDER_VARIABLE, CONTAINER_VARIABLE = (
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "NVIDIA_VISIBLE_DEVICES",
)
OTHER_VARIABLES = (
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
    "ASCEND_RT_VISIBLE_DEVICES",
    "ZE_AFFINITY_MASK",
    "ONEAPI_DEVICE_SELECTOR",
    "HABANA_VISIBLE_MODULES",
    "MUSA_VISIBLE_DEVICES",
)
KEYS = ("gpu.visible", "visibility.cuda", "visibility.order", "visibility.container", "visibility.others")
DEVICE_ORDERS = ("FASTEST_FIRST", "PCI_BUS_ID")
UUID_PREFIXES = ("GPU-", "MIG-")
ULONG_MAX = (1 << 64) - 1
HEX_DIGITS = "0123456789abcdef"


class CudaVisibility(Record):
    """The effect of the variable: GPUs in CUDA's order, ignored entries, and why."""

    shown: tuple[int, ...]
    ignored: tuple[str, ...] = ()
    why: str = ""


def parse_visible_devices(
    value: str | None, count: int, uuids: Sequence[str] = (), mig: Sequence[tuple[int, str]] = ()
) -> CudaVisibility:
    """Parse a value as the driver does. ``mig`` has the parent's index and UUID of each MIG device."""
    if value is None:
        return CudaVisibility(tuple(range(count)), why=f"{CUDA_VARIABLE} is not set: all GPUs are shown")
    entries = value.split(",")
    by_uuid = value.startswith(UUID_PREFIXES)
    shown: list[int] = []
    names: list[str] = []
    for position, entry in enumerate(entries):
        index, name = _match_device_uuid(entry, uuids, mig) if by_uuid else _parse_device_index(entry, count)
        if index is None:
            return _stop_at_entry(shown, entries, position, name)
        if name in names:
            return CudaVisibility((), tuple(entries), f"{entry.strip()!r} names a GPU twice: CUDA fails to start")
        shown.append(index)
        names.append(name)
    return CudaVisibility(tuple(shown), why=f"{CUDA_VARIABLE} names {len(shown)} of {count}")


def _stop_at_entry(shown: list[int], entries: list[str], position: int, why: str) -> CudaVisibility:
    dropped = tuple(entries[position:])
    if not shown and (dropped == ("",) or entries[0].strip() in ("", "-1")):
        return CudaVisibility((), () if len(dropped) == 1 else dropped, f"{CUDA_VARIABLE} hides all GPUs")
    rest = "" if len(dropped) == 1 else ", and what follows is dropped in silence"
    return CudaVisibility(tuple(shown), dropped, f"{entries[position]!r} {why}{rest}")


def _parse_device_index(entry: str, count: int) -> tuple[int | None, str]:
    """Like strtoul: blanks, a sign, digits, and any rest; then truncate to 32 bits."""
    text = entry.lstrip(" \t\n\v\f\r")
    sign, rest = (text[0], text[1:]) if text[:1] in ("+", "-") else ("", text)
    number = rest[: len(rest) - len(rest.lstrip("0123456789"))]
    if not number:
        return None, "is not an index"
    size = int(number.lstrip("0")[:40] or "0")
    whole = ULONG_MAX if size > ULONG_MAX else (-size if sign == "-" else size)
    index = (whole + (1 << 31)) % (1 << 32) - (1 << 31)
    if not 0 <= index < count:
        return None, "is no GPU of this machine" if index >= 0 else "ends the list"
    return index, str(index)


def _match_device_uuid(entry: str, uuids: Sequence[str], mig: Sequence[tuple[int, str]]) -> tuple[int | None, str]:
    """Match a UUID or its start: any case, hyphens anywhere, garbage only after its end."""
    if not entry.startswith(UUID_PREFIXES):
        return None, "is no UUID, and indices cannot follow one"
    wanted = _uuid_hex_digits(entry[4:])
    if wanted is None:
        return None, "is no UUID"
    known = [(index, _uuid_hex_digits(uuid[4:]) or "") for index, uuid in enumerate(uuids) if isinstance(uuid, str)]
    known += [(index, _uuid_hex_digits(uuid.removeprefix("MIG-")) or "") for index, uuid in mig]
    matches = [(index, name) for index, name in known if name.startswith(wanted)]
    if len(matches) == 1:
        return matches[0]
    return None, "begins the UUID of several GPUs" if matches else "is the UUID of no GPU here"


def _uuid_hex_digits(text: str) -> str | None:
    """Return the hexadecimal digits of a UUID, at most 32; None if something else comes first."""
    hex_digits = ""
    for character in text.lower():
        if character in HEX_DIGITS:
            hex_digits += character
        elif character != "-":
            return None
        if len(hex_digits) == 32:
            break
    return hex_digits or None


# -- facts --------------------------------------------------------------------------------------------


def probe_visibility(host: HostAccess, gpus: Mapping[str, Fact]) -> list[Fact]:
    """Return which of the detected GPUs CUDA shows in this process's environment."""
    try:
        value, order = host.get_env_var(CUDA_VARIABLE), host.get_env_var(ORDER_VARIABLE)
    except AccessError as error:
        visible_facts = [Fact(key, None, CUDA_VARIABLE, gap=str(error)) for key in KEYS[:2]]
    else:
        visible_facts = _cuda_visibility_facts(value, order, gpus)
    return [
        *visible_facts,
        read_fact("visibility.order", ORDER_VARIABLE, host.get_env_var, ORDER_VARIABLE),
        read_fact("visibility.container", CONTAINER_VARIABLE, host.get_env_var, CONTAINER_VARIABLE),
        read_fact("visibility.others", ", ".join(OTHER_VARIABLES), _other_visibility_variables, host),
    ]


def _other_visibility_variables(host: HostAccess) -> tuple[dict[str, str], ...]:
    values = ((name, host.get_env_var(name)) for name in OTHER_VARIABLES)
    return tuple({"name": name, "value": value} for name, value in values if value is not None)


def _cuda_visibility_facts(value: str | None, order: str | None, gpus: Mapping[str, Fact]) -> list[Fact]:
    source = CUDA_VARIABLE if order is None else f"{CUDA_VARIABLE}, {ORDER_VARIABLE}"
    count, uuid, name = gpus["gpu.count"], gpus["gpu.uuid"], gpus["gpu.name"]
    if order is not None and order not in DEVICE_ORDERS:
        wrong = CudaVisibility(
            (), (), f"{ORDER_VARIABLE}={order} is neither {' nor '.join(DEVICE_ORDERS)}: CUDA fails to start"
        )
        return _make_visibility_facts(value, wrong, source, wrong=True)
    hidden = parse_visible_devices(value, 0)
    if value is not None and not hidden.shown and not hidden.ignored:
        return _make_visibility_facts(value, hidden, source)
    needed = [count, uuid] if value is not None and value.startswith(UUID_PREFIXES) else [count]
    gap = next((fact.gap for fact in needed if fact.gap), "")
    if gap:
        return [Fact(key, None, source, gap=gap) for key in KEYS[:2]]
    mig = [(row["gpu"], row["uuid"]) for row in gpus["gpu.mig_devices"].value or () if row.get("uuid")]
    result = parse_visible_devices(value, count.value, uuid.value or (), mig)
    facts = _make_visibility_facts(value, result, source)
    if value is None or value.startswith(UUID_PREFIXES) or order == "PCI_BUS_ID" or not _has_mixed_gpus(name):
        return facts
    # CUDA orders different GPUs by its own estimate of speed, so an index is ambiguous on a mixed machine.
    if 0 < len(result.shown) < count.value:
        reason = f"the GPUs differ and {ORDER_VARIABLE} is not PCI_BUS_ID: CUDA numbers them by speed"
        facts[0] = facts[0].replace(value=None, gap=reason)
    return facts


def _has_mixed_gpus(name: Fact) -> bool:
    return bool(name.gap) or len(set(name.value or ())) > 1


def _make_visibility_facts(value: str | None, result: CudaVisibility, source: str, wrong: bool = False) -> list[Fact]:
    """The visible GPUs, and the reason if a variable is involved."""
    table: dict[str, Any] | None = None
    if value is not None or wrong:
        table = {"value": value, "shown": result.shown, "ignored": result.ignored, "why": result.why}
    return [Fact("gpu.visible", result.shown, source), Fact("visibility.cuda", table, source)]
