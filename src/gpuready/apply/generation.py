"""The folder of an environment: its generations, and the link that selects one.

    DIR/generations/0007-3f2a…/     a whole environment, made by uv; complete once it has its manifest
    DIR/current -> generations/0007-3f2a…
    DIR/bin -> current/bin, and so lib, pyvenv.cfg …: DIR itself is used like any environment
    DIR/.gpuready/                    the lock and the lease; marks DIR as managed by gpuready
    DIR/journal.jsonl               what was done, step by step

Publishing is one rename of ``current``. A generation without a manifest is unfinished and gets removed.
"""

from __future__ import annotations

import os

from gpuready.model import Noun
from gpuready.system import alive, durable, locks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

MANIFEST = "gpuready.json"
IN_USE = "in-use.lock"
ORDER = "order"
FIXED = ("bin", "lib", "lib64", "include", "share", "etc", "pyvenv.cfg")
_OWN = ".gpuready"


class Generation(Noun):
    """One generation: its number, the plan it was made from, and its path."""

    number: int
    plan: str  # the first letters of the hash of its contents
    path: str

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def complete(self) -> bool:
        return os.path.isfile(f"{self.path}/{MANIFEST}")

    @property
    def order(self) -> int:
        """Order of installation: its number, or a later one if it was published again."""
        from gpuready.system import contents

        told = (contents.text(f"{self.path}/{ORDER}") or "").strip()
        return int(told) if told.isdecimal() and len(told) < 10 else self.number

    def manifest(self) -> dict[str, Any]:
        """Return the manifest written at publication; empty if it cannot be read."""
        import json

        try:
            with open(f"{self.path}/{MANIFEST}", encoding="utf-8") as file:
                found = json.load(file)
        except (OSError, ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}


class Home:
    """The folder of one environment."""

    def __init__(self, path: str):
        self.path = os.path.abspath(path)

    def at(self, *names: str) -> str:
        return "/".join((self.path, *names))

    # -- reading ----------------------------------------------------------------------------------------

    def refusal(self) -> str:
        """Return why this folder cannot hold an environment, as a phrase; empty if it can."""
        try:
            names = os.listdir(self.path)
        except FileNotFoundError:
            return self._above()
        except NotADirectoryError:
            return "is not a folder"
        except OSError as error:
            return f"cannot be read: {(error.strerror or 'error').lower()}"
        if names and _OWN not in names:
            if "pyvenv.cfg" in names:
                return "is an environment that gpuready did not make: name another folder, or move it away"
            return "has files that are not gpuready's: name another folder"
        if not os.access(self.path, os.W_OK | os.X_OK):
            return "cannot be written"
        return ""

    def _above(self) -> str:
        folder = self.ground()
        if not os.path.isdir(folder):
            return f"cannot be made: {folder} is not a folder"
        if not os.access(folder, os.W_OK | os.X_OK):
            return f"cannot be made: {folder} cannot be written"
        return ""

    def ground(self) -> str:
        """Return the folder itself, or its nearest existing parent."""
        folder = self.path
        while not os.path.lexists(folder):
            folder = os.path.dirname(folder)
        return folder

    def ours(self) -> bool:
        return os.path.isdir(self.at(_OWN))

    def generations(self) -> list[Generation]:
        """List every generation, oldest first, complete or not."""
        try:
            names = os.listdir(self.at("generations"))
        except OSError:
            return []
        found = []
        for name in names:
            number, _, plan = name.partition("-")
            if number.isdigit():
                found.append(Generation(int(number), plan, self.at("generations", name)))
        return sorted(found, key=lambda g: (g.order, g.name))

    def current(self) -> Generation | None:
        """Return the published generation."""
        try:
            name = os.readlink(self.at("current")).rpartition("/")[2]
        except OSError:
            return None
        return next((g for g in self.generations() if g.name == name and g.complete), None)

    def previous(self) -> Generation | None:
        """Return the complete generation before the published one."""
        now = self.current()
        older = [g for g in self.generations() if g.complete and (now is None or g.order < now.order)]
        return older[-1] if older else None

    def made_from(self, plan: str) -> list[Generation]:
        """List the complete generations of a plan: the published one first, then the newest."""
        now = self.current()
        found = [g for g in self.generations() if g.complete and g.plan == plan]
        return sorted(found, key=lambda g: (g != now, -g.order))

    # -- changing ---------------------------------------------------------------------------------------

    def occupy(self) -> None:
        """Mark the folder as ours. OSError if it cannot hold links, which all of this needs."""
        durable.folder(self.at(_OWN))
        durable.folder(self.at("generations"))
        durable.link(self.at(_OWN, "links"), "work")
        durable.remove(self.at(_OWN, "links"))

    def next(self, plan: str) -> Generation:
        number = self._last() + 1
        return Generation(number, plan, self.at("generations", f"{number:04}-{plan}"))

    def _last(self) -> int:
        return max([max(g.order, g.number) for g in self.generations()], default=0)

    def take_up(self, generation: Generation) -> None:
        """Order an older generation as the newest, so that a rollback leads to the one before."""
        durable.write(f"{generation.path}/{ORDER}", str(self._last() + 1))

    def publish(self, generation: Generation) -> None:
        """Make this generation the environment by one durable rename."""
        for name in FIXED:
            self._fixed(name, generation)
        durable.link(self.at("current"), f"generations/{generation.name}")

    def _fixed(self, name: str, generation: Generation) -> None:
        """Create the lasting link to one part of ``current``, before ``current`` exists."""
        if os.path.islink(self.at(name)) or not os.path.lexists(f"{generation.path}/{name}"):
            return
        durable.link(self.at(name), f"current/{name}")

    def sweep(self, goes_on: Callable[[], bool] = lambda: True) -> list[str]:
        """Remove what an earlier run left unfinished; return the names."""
        swept = []
        for generation in self.generations():
            if not generation.complete:
                durable.remove_tree(generation.path, goes_on)
                swept.append(generation.name)
        for folder in (self.path, self.at(_OWN), self.at("generations")):
            for name in _drafts(folder):
                durable.remove(f"{folder}/{name}")
        return swept

    def tidy(self, keep: int) -> tuple[list[str], dict[str, int]]:
        """Remove all but the newest ``keep``, the published and the used; return removed, and used with PIDs."""
        complete = [g for g in self.generations() if g.complete]
        now = self.current()
        others = [g for g in complete if g != now]
        spare = others[: max(len(others) - (keep - 1), 0)]
        busy = self.busy(spare)
        gone = []
        for generation in spare:
            if generation.path in busy:
                continue
            durable.remove(f"{generation.path}/{MANIFEST}")  # first: without it the generation counts as unfinished
            durable.remove_tree(generation.path)
            gone.append(generation.name)
        return gone, {path.rpartition("/")[2]: pid for path, pid in busy.items()}

    def busy(self, generations: list[Generation]) -> dict[str, int]:
        """Return generations used by a process (PID 0 if only its lock shows it); uncertain counts as used."""
        if not generations:
            return {}
        found = alive.users([g.path for g in generations], self.path)
        for generation in generations:
            if generation.path not in found and locks.held(f"{generation.path}/{IN_USE}") is not False:
                found[generation.path] = 0
        return found


def _drafts(folder: str) -> list[str]:
    try:
        return [name for name in os.listdir(folder) if name.endswith(".draft")]
    except OSError:
        return []
