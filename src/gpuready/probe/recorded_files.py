"""What the RECORD of a distribution says of its files, asked only where two sources contradict each other."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Sequence

from gpuready.probe.fact_helpers import read_if_present
from gpuready.system import HostAccess

MAX_RECORD_BYTES = 1 << 24
MAX_SAMPLED = 40
WHOLE, PARTLY = 0.95, 0.75
"""The share of files as recorded in the copy that is there, and in one that was replaced."""


def find_present_copy(host: HostAccess, places: Sequence[str]) -> str:
    """Return the metadata folder whose recorded files are there, where it is the only one of several; else an empty text."""
    shares = {place: _share_present(host, place) for place in places}
    whole = [place for place, share in shares.items() if share >= WHOLE]
    others = [share for place, share in shares.items() if place not in whole]
    return whole[0] if len(whole) == 1 and all(share <= PARTLY for share in others) else ""


def _share_present(host: HostAccess, place: str) -> float:
    """The share of sources that have their recorded size; 0 where nothing is recorded, or the RECORD is of another folder."""
    site, _, folder = place.rpartition("/")
    every = _read_rows(host, place)
    rows = [row for row in every if row[0].endswith(".py") and row[2].isdecimal()]
    if not any(name.startswith(f"{folder}/") for name, _, _ in every):
        return 0.0
    sample = rows[:: max(len(rows) // MAX_SAMPLED, 1)]
    sizes = [((read_if_present(host.stat_path, f"{site}/{name}") or {}).get("size"), size) for name, _, size in sample]
    return sum(found == int(size) for found, size in sizes) / len(sizes) if sizes else 0.0


def is_as_recorded(host: HostAccess, place: str, name: str, text: str) -> bool | None:
    """Return whether a text file has the hash of its RECORD; None where that does not tell."""
    from hashlib import sha256

    digest = next((digest for one, digest, _ in _read_rows(host, place) if one == name), "")
    if not digest.startswith("sha256="):
        return None
    return urlsafe_b64encode(sha256(text.encode()).digest()).decode().rstrip("=") == digest.removeprefix("sha256=")


def _read_rows(host: HostAccess, place: str) -> list[tuple[str, str, str]]:
    text = read_if_present(host.read_text, f"{place}/RECORD", MAX_RECORD_BYTES) or ""
    parts = (line.rsplit(",", 2) for line in text.splitlines())
    return [(row[0].strip('"'), row[1], row[2].strip()) for row in parts if len(row) == 3]
