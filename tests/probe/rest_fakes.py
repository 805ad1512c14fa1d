"""The fake machine with what only the further looks ask: ELF headers, logs, the clock."""

from __future__ import annotations

from typing import Any

from tarmac.probe.patient import Patient
from tarmac.system import Blind
from tests.probe.fakes import Fake

SITE = "/venv/lib/python3.12/site-packages"
DENIED = Blind("permission denied")


class Machine(Fake):
    """``headers`` are ELF headers by path; ``logs`` lines by path; ``wall`` is the clock."""

    def _elf(self, path: str) -> Any:
        return self.given.get("headers", {}).get(self._led(path))

    def _lines(self, path: str, pieces: list[str]) -> Any:
        found = self.given.get("logs", {}).get(path)
        return found if not isinstance(found, list) else [x for x in found if any(p in x for p in pieces)]

    def count(self, verb: str) -> int:
        """How often a question of this kind was put."""
        return len([1 for asked in self.asked if asked[0] == verb])


def library(needed: str = "", runpath: str | None = None, rpath: bool = False) -> dict[str, Any]:
    """The headers of a library, as the door gives them."""
    return {"needed": needed.split(), "soname": None, "runpath": runpath, "rpath": rpath, "machine": "x86_64"}


def someone(
    version: str | None = "3.12.4", prefix: str = "/venv", kind: str = "venv", **more: Any
) -> Patient:
    """A patient with one site folder."""
    return Patient(
        prefix, f"{prefix}/bin/python", kind, version, more.pop("site", (SITE,)), "--python", **more
    )


def files(folder: str, *names: str) -> dict[str, str]:
    """Empty files in one folder."""
    return {f"{folder}/{name}": "" for name in names}
