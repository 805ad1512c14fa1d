"""Which GPUs CUDA would show, by the driver's rules for CUDA_VISIBLE_DEVICES.

The rules were measured on driver 580 with one H200: every value of the truth table in the tests was passed to
cuInit there. They are lenient: trailing garbage is ignored, the first entry that matches no GPU silently ends
the list, and numbers wrap at 32 bits.
"""

from __future__ import annotations

from gpuready.model import Fact, Noun
from gpuready.probe.sight import seen
from gpuready.system import Blind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from gpuready.system import Door

CUDA, ORDER, CONTAINER = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES"
OTHERS = (
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
ORDERS = ("FASTEST_FIRST", "PCI_BUS_ID")
PREFIXES = ("GPU-", "MIG-")
ULONG_MAX = (1 << 64) - 1
HEX = "0123456789abcdef"


class Visibility(Noun):
    """The effect of the variable: GPUs in CUDA's order, ignored entries, and why."""

    shown: tuple[int, ...]
    ignored: tuple[str, ...] = ()
    why: str = ""


def parse(
    value: str | None, count: int, uuids: Sequence[str] = (), mig: Sequence[tuple[int, str]] = ()
) -> Visibility:
    """Parse a value as the driver does. ``mig`` has the parent's index and UUID of each MIG device."""
    if value is None:
        return Visibility(tuple(range(count)), why=f"{CUDA} is not set: all GPUs are shown")
    entries = value.split(",")
    by_uuid = value.startswith(PREFIXES)
    shown: list[int] = []
    names: list[str] = []
    for position, entry in enumerate(entries):
        index, name = _uuid(entry, uuids, mig) if by_uuid else _index(entry, count)
        if index is None:
            return _ended(shown, entries, position, name)
        if name in names:
            return Visibility((), tuple(entries), f"{entry.strip()!r} names a GPU twice: CUDA fails to start")
        shown.append(index)
        names.append(name)
    return Visibility(tuple(shown), why=f"{CUDA} names {len(shown)} of {count}")


def _ended(shown: list[int], entries: list[str], position: int, why: str) -> Visibility:
    dropped = tuple(entries[position:])
    if not shown and (dropped == ("",) or entries[0].strip() in ("", "-1")):
        return Visibility((), () if len(dropped) == 1 else dropped, f"{CUDA} hides all GPUs")
    rest = "" if len(dropped) == 1 else ", and what follows is dropped in silence"
    return Visibility(tuple(shown), dropped, f"{entries[position]!r} {why}{rest}")


def _index(entry: str, count: int) -> tuple[int | None, str]:
    """Like strtoul: blanks, a sign, digits, and any rest; then truncate to 32 bits."""
    text = entry.lstrip(" \t\n\v\f\r")
    sign, rest = (text[0], text[1:]) if text[:1] in ("+", "-") else ("", text)
    number = rest[: len(rest) - len(rest.lstrip("0123456789"))]
    if not number:
        return None, "is no index"
    size = int(number.lstrip("0")[:40] or "0")
    whole = ULONG_MAX if size > ULONG_MAX else (-size if sign == "-" else size)
    index = (whole + (1 << 31)) % (1 << 32) - (1 << 31)
    if not 0 <= index < count:
        return None, "is no GPU of this machine" if index >= 0 else "ends the list"
    return index, str(index)


def _uuid(entry: str, uuids: Sequence[str], mig: Sequence[tuple[int, str]]) -> tuple[int | None, str]:
    """Match a UUID or its start: any case, hyphens anywhere, garbage only after its end."""
    if not entry.startswith(PREFIXES):
        return None, "is no UUID, and indices cannot follow one"
    wanted = _bare(entry[4:])
    if wanted is None:
        return None, "is no UUID"
    known = [(index, _bare(uuid[4:]) or "") for index, uuid in enumerate(uuids) if isinstance(uuid, str)]
    known += [(index, _bare(uuid.removeprefix("MIG-")) or "") for index, uuid in mig]
    found = [(index, name) for index, name in known if name.startswith(wanted)]
    if len(found) == 1:
        return found[0]
    return None, "begins the UUID of several GPUs" if found else "is the UUID of no GPU here"


def _bare(text: str) -> str | None:
    """Return the hexadecimal digits of a UUID, at most 32; None if something else comes first."""
    found = ""
    for character in text.lower():
        if character in HEX:
            found += character
        elif character != "-":
            return None
        if len(found) == 32:
            break
    return found or None


# -- facts --------------------------------------------------------------------------------------------


def look(door: Door, gpus: Mapping[str, Fact]) -> list[Fact]:
    """Return which of the detected GPUs CUDA shows in this process's environment."""
    try:
        value, order = door.env(CUDA), door.env(ORDER)
    except Blind as blind:
        shown = [Fact(key, None, CUDA, gap=str(blind)) for key in KEYS[:2]]
    else:
        shown = _shown(value, order, gpus)
    return [
        *shown,
        seen("visibility.order", ORDER, door.env, ORDER),
        seen("visibility.container", CONTAINER, door.env, CONTAINER),
        seen("visibility.others", ", ".join(OTHERS), _set, door),
    ]


def _set(door: Door) -> tuple[dict[str, str], ...]:
    found = ((name, door.env(name)) for name in OTHERS)
    return tuple({"name": name, "value": value} for name, value in found if value is not None)


def _shown(value: str | None, order: str | None, gpus: Mapping[str, Fact]) -> list[Fact]:
    source = CUDA if order is None else f"{CUDA}, {ORDER}"
    count, uuid, name = gpus["gpu.count"], gpus["gpu.uuid"], gpus["gpu.name"]
    if order is not None and order not in ORDERS:
        wrong = Visibility((), (), f"{ORDER}={order} is neither {' nor '.join(ORDERS)}: CUDA fails to start")
        return _facts(value, wrong, source, wrong=True)
    hidden = parse(value, 0)
    if value is not None and not hidden.shown and not hidden.ignored:
        return _facts(value, hidden, source)
    needed = [count, uuid] if value is not None and value.startswith(PREFIXES) else [count]
    gap = next((fact.gap for fact in needed if fact.gap), "")
    if gap:
        return [Fact(key, None, source, gap=gap) for key in KEYS[:2]]
    mig = [(row["gpu"], row["uuid"]) for row in gpus["gpu.mig_devices"].value or () if row.get("uuid")]
    result = parse(value, count.value, uuid.value or (), mig)
    facts = _facts(value, result, source)
    if value is None or value.startswith(PREFIXES) or order == "PCI_BUS_ID" or not _mixed(name):
        return facts
    # CUDA orders different GPUs by its own estimate of speed, so an index is ambiguous on a mixed machine.
    if 0 < len(result.shown) < count.value:
        unsure = f"the GPUs differ and {ORDER} is not PCI_BUS_ID: CUDA numbers them by speed"
        facts[0] = facts[0].but(value=None, gap=unsure)
    return facts


def _mixed(name: Fact) -> bool:
    return bool(name.gap) or len(set(name.value or ())) > 1


def _facts(value: str | None, result: Visibility, source: str, wrong: bool = False) -> list[Fact]:
    """The visible GPUs, and the reason if a variable is involved."""
    table: dict[str, Any] | None = None
    if value is not None or wrong:
        table = {"value": value, "shown": result.shown, "ignored": result.ignored, "why": result.why}
    return [Fact("gpu.visible", result.shown, source), Fact("visibility.cuda", table, source)]
