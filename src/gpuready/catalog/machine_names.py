"""Machines by name: ``h100x8``, ``2x rtx 3090 + rtx 4090``, ``h100:mig-3g.40gb``, ``mi300x``.

A machine has GPUs of NVIDIA, or accelerators of one other vendor.
"""

from __future__ import annotations

import re
from typing import Any

from gpuready.catalog import gpus, load_catalog
from gpuready.catalog.gpus import find_accelerator_vendor
from gpuready.model import Record

MAX_DEVICES = 1024
MAX_NAME_LENGTH = 400


class NamedDevices(Record):
    """Equal devices of a machine that is only named; ``row`` is their row of the catalogue."""

    row: dict[str, Any]
    vendor: str
    name: str
    count: int
    memory: int | None = None


def parse_machine_name(text: str) -> list[NamedDevices]:
    """Return the devices that a name states; ValueError says in one sentence what is wrong with it."""
    parts = re.split(r"(?i)\+(?!(?:me|gfx)(?:\b|x\d))", text[:MAX_NAME_LENGTH])  # 1g.10gb+me is one slice
    devices = [_parse_devices(part.strip()) for part in parts]
    total = sum(group.count for group in devices)
    if not 1 <= total <= MAX_DEVICES or not all(group.count for group in devices):
        raise ValueError(f"a machine has between 1 and {MAX_DEVICES} GPUs, not {total}")
    if len({group.vendor for group in devices}) > 1:
        raise ValueError("a machine with accelerators of two vendors cannot be stated; name one of them")
    return devices


def parse_mig_slice(name: str) -> tuple[str, str, float] | None:
    """``h100:mig-1g.10gb`` or ``NVIDIA A100-SXM4-40GB MIG 1g.5gb`` -> the rest of the name, the profile and its GB.

    None if the name has no slice.
    """
    match = re.search(
        r"(?<![\s:/-])[\s:/-]*(?:mig[\s:/-]{0,8})?\b(\dg\.(\d{1,3})gb)(?:\+me(?:\.all)?|\+gfx)?(?:\b|(?=x\d))",
        name,
        re.IGNORECASE,
    )
    return None if match is None else (name[: match.start()] + name[match.end() :], match[1].lower(), float(match[2]))


def _parse_devices(text: str) -> NamedDevices:
    part = parse_mig_slice(text)
    name = part[0] if part else text
    if not (found := _find_counted(name)):
        raise ValueError(_describe_unknown_name(name))
    row, count = found
    if part is not None:
        return _mig_devices(row, count, part[1], part[2])
    if "compute_capability" in row:
        return NamedDevices(row, "nvidia", row["name"], count, int(row["vram_gib"] * 2**30))
    return NamedDevices(row, row["vendor"], row["name"], count)


def _find_counted(text: str) -> tuple[dict[str, Any], int] | None:
    """Parse ``h100x8``, ``8xh100``, ``h100:8`` or ``h100`` into a row and a count."""
    row = _find_device(text)
    if row is not None:
        return row, 1
    # The x of rtx and of mi300x is not a multiplication sign: the other part must name a device.
    for pattern, name, count in (
        (r"(.{1,80}?)\s{0,8}[x*×:]\s{0,8}(\d{1,9})", 1, 2),
        (r"(\d{1,9})\s{0,8}[x*×]\s{0,8}(.{1,80})", 2, 1),
    ):
        match = re.fullmatch(pattern, text.strip().lower())
        row = _find_device(match[name]) if match else None
        if match and row is not None:
            return row, int(match[count])
    return None


def _find_device(name: str) -> dict[str, Any] | None:
    name = _strip_mac_model(name) or name
    return gpus.find_gpu(name) or next(
        (row for row in load_catalog("accelerators")["product"] if _device_key(row, name) in _product_keys(row)), None
    )


def _strip_mac_model(name: str) -> str:
    """Return the chip of a Mac: ``MacBook Pro M3 Max`` -> ``m3 max``; empty for a Mac without its chip."""
    mac = r"(?:apple\s+)?(?:mac\s?book(?:\s(?:pro|air))?|mac\s?(?:studio|mini|pro)|imac|mac|apple\s+silicon)"
    return re.sub(rf"^{mac}\b[\s,(]*(?:with\s+)?(?:an?\s+)?(?:apple\s+)?", "", name.strip().lower()).strip(" )")


def _product_keys(row: dict[str, Any]) -> set[str]:
    return {_plain(word) for word in (row["name"], *row["short"])}


def _device_key(row: dict[str, Any], name: str) -> str:
    """Return a name without the words that go before a model: ``AMD Instinct MI300X`` -> ``mi300x``."""
    key = _plain(name)
    return key if key in _product_keys(row) else key.removeprefix(_plain(row["name"].split()[0]))


def _plain(text: str) -> str:
    return "".join(c for c in text.casefold() if c.isalnum())


def _mig_devices(row: dict[str, Any], count: int, profile: str, size: float) -> NamedDevices:
    if not row.get("mig"):
        raise ValueError(f"{row['name']} has no MIG")
    row = next((one for one in _same_gpu_rows(row) if profile in one.get("mig_profiles", ())), row)
    known = row.get("mig_profiles", ())
    if profile not in known:
        raise ValueError(f"{row['name']} has no MIG instance {profile}; it has {', '.join(known)}")
    return NamedDevices(row, "nvidia", f"{row['name']} MIG {profile}", count, int(size * 2**30))


def _same_gpu_rows(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the row, then its relatives with other memory: people write a100 for both of its sizes."""
    every = load_catalog("gpus")["gpu"] if row["market"] == "datacenter" else ()
    return [row, *(one for one in every if _model_word(one) == _model_word(row))]


def _model_word(row: dict[str, Any]) -> str:
    """``NVIDIA A100-SXM4-40GB`` -> ``a100``."""
    return str(row["name"]).casefold().removeprefix("nvidia ").replace("-", " ").split()[0]


def _describe_unknown_name(text: str) -> str:
    text = text[:80]
    if not _strip_mac_model(text) or _plain(text) == "mps":
        return f"{text} does not say which chip the Mac has; write for example --on m3-max"
    for row in load_catalog("accelerators")["instance"]:
        if text.casefold() == row["cloud_name"]:
            return f"{text} is a machine of a cloud; its GPUs are named --on {row['machine']}"
    for row in load_catalog("accelerators")["accelerator"]:
        words = [word for word in row["vendor"].casefold().split() if word != "nvidia"]
        if any(word in text.casefold().split() for word in words) and not _vendor_products(row["id"]):
            return f"machines of {row['vendor']} cannot be stated: the catalogue has no model of it"
    meant = re.sub(r"^(\d{1,4})\s*(?=[a-z])", r"\1x", re.sub(r"(?<=\d)o+", lambda o: "0" * len(o[0]), text.lower()))
    near = [meant] if meant != text.lower() and _find_counted(meant) else suggest_names(text)
    hint = f"nearest: {', '.join(near)}" if near else "write for example h100x8, rtx4090 or mi300x, or name a recording"
    return f"no GPU of the catalogue has the name {text!r}; {hint}"


def _vendor_products(vendor: str) -> list[dict[str, Any]]:
    return [row for row in load_catalog("accelerators")["product"] if row["vendor"] == vendor]


def suggest_names(name: str, count: int = 3) -> list[str]:
    """Return the nearest names of all vendors, at most one for each device."""
    from difflib import get_close_matches

    products = {
        _plain(word): row["short"][0] for row in load_catalog("accelerators")["product"] for word in row["short"]
    }
    others = [products[key] for key in get_close_matches(_plain(name), list(products), count, 0.6)]
    mine = gpus.suggest_gpu_names(name) or gpus.suggest_gpu_names(name.lower().rpartition("x")[0])
    exact = [word for word in others if word.startswith(_plain(name)[:3])]
    near = dict.fromkeys([*exact, *mine, *others])
    return [one for one in near if one[0] == _plain(name)[:1] or set(filter(str.isdigit, one)) & set(name)][:count]


def describe_vendor_platform(vendor: str) -> str:
    """Return the platform of a vendor's machines: cuda, rocm, xpu …"""
    return str((find_accelerator_vendor(vendor) or {})["backend"])
