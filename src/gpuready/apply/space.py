"""Disk space that an environment needs: exact if the wheels are local, else estimated."""

from __future__ import annotations

from gpuready.model import Noun
from gpuready.system import contents

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuready.planned import Locked, Plan

UNPACKED = 3.0
"""Unpacked size of a wheel as a multiple of its size: 1.6 for CUDA libraries, 4 for Python sources."""

USUAL = (15 << 20, 250)
"""Bytes and files of an unknown distribution: the mean of a transformers environment."""

TORCH = {"cpu": (900 << 20, 12_000), "cuda": (1_900 << 20, 13_000)}
NVIDIA = (600 << 20, 150)
"""One CUDA library wheel; a stack has about fifteen of them, of 10 MiB to 1.2 GiB."""

SPARE = (64 << 20, 2_000)
"""The environment itself, its byte-code and the journal."""


class Need(Noun):
    """Bytes and files that an install needs, and how many of its packages were estimated."""

    size: int
    files: int
    estimated: int = 0
    packages: int = 0

    @property
    def how(self) -> str:
        if not self.estimated:
            return "measured in the wheels"
        return f"{self.estimated} of {self.packages} packages estimated"


def need(plan: Plan, folders: Sequence[str]) -> Need:
    """Return the unpacked size of a plan's rows."""
    size, files, estimated = *SPARE, 0
    for row in plan.lock:
        exact = _measured(row, folders)
        more = exact or _estimated(row, plan)
        size, files = size + more[0], files + more[1]
        estimated += exact is None
    return Need(size, files, estimated, len(plan.lock))


def _measured(row: Locked, folders: Sequence[str]) -> tuple[int, int] | None:
    origin = row.origin.removeprefix("file://")
    if origin.endswith(".whl"):
        return contents.unpacked(origin)
    start = f"{_wheel_name(row.name)}-{row.version.lower()}-"
    for folder in folders:
        for name in contents.names(folder):
            if name.endswith(".whl") and _wheel_name(name).startswith(_wheel_name(start)):
                return contents.unpacked(f"{folder}/{name}")
    return None


def _wheel_name(name: str) -> str:
    return name.lower().replace("-", "_").replace(".", "_").replace("%2b", "+")


def _estimated(row: Locked, plan: Plan) -> tuple[int, int]:
    if row.size:
        return int(row.size * UNPACKED), USUAL[1]
    if row.name == "torch":
        return TORCH["cuda" if plan.cuda else "cpu"]
    return NVIDIA if row.name.startswith("nvidia-") and plan.cuda else USUAL


def shortage(wanted: Need, ground: str, cache: str = "") -> str:
    """Return why it will not fit, in a sentence; empty if it will. The cache counts if it is on another disk."""
    here = contents.room(ground)
    if here["free"] < wanted.size:
        return _sentence(
            f"{_size(wanted.size)} are needed", f"{_size(here['free'])} are free", ground, wanted
        )
    if 0 <= here["inodes"] < wanted.files:
        return _sentence(
            f"{wanted.files} files are needed", f"room for {here['inodes']} is left", ground, wanted
        )
    if cache:
        other = contents.room(cache)
        if other["disk"] != here["disk"] and other["free"] < wanted.size:
            free = f"{_size(other['free'])} are free"
            return _sentence(f"{_size(wanted.size)} are needed in uv's cache", free, cache, wanted)
    return ""


def _sentence(needed: str, found: str, where: str, wanted: Need) -> str:
    return f"{needed} ({wanted.how}) and {found} on the disk of {where}: free some, or choose another folder"


def _size(count: int) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 1 << 30 else f"{max(count >> 20, 0)} MiB"
