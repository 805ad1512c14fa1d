"""A machine out of dictionaries: files, links, variables, programs and NVML as a test states them."""

from __future__ import annotations

import posixpath
from typing import Any

from gpuready.model import Fact
from gpuready.probe.target_environment import TargetEnvironment
from gpuready.system import AccessError, HostAccess, RunResult

LINUX = {"system": "Linux", "release": "6.8.0-45-generic", "version": "#45-Ubuntu SMP", "machine": "x86_64"}
BARE = {"/sys/bus/pci/devices/0000:00:00.0/vendor": "0x8086\n", "/dev/null": "", "/dev/shm/.keep": ""}
"""A machine with a PCI bus and no GPU on it."""
SITE = "/venv/lib/python3.12/site-packages"
DENIED = AccessError("permission denied")


class Fake(HostAccess):
    """Answers from what it was given; everything else is not there. An AccessError as a value is raised."""

    def __init__(self, files: dict[str, Any] | None = None, **requested: Any):
        self.files = {**(BARE if files is None else files)}
        self.answers = requested
        self.asked: list[tuple[Any, ...]] = []

    def answer_query(self, verb: str, *args: Any) -> Any:
        self.asked.append((verb, *args))
        answer = getattr(self, f"_{verb}", self._plain)(*args) if verb != "run" else self._run(*args)
        if isinstance(answer, AccessError):
            raise answer
        return answer

    def ran(self) -> list[str]:
        """The commands that were run, as lines."""
        return [" ".join(args[1]) for args in self.asked if args[0] == "run"]

    def count(self, verb: str) -> int:
        """How often a question of this kind was put."""
        return len([1 for asked in self.asked if asked[0] == verb])

    def _plain(self, *_: Any) -> Any:
        return self.answers.get(self.asked[-1][0])

    # -- variables

    def _env(self, name: str) -> Any:
        return self.answers.get("env", {}).get(name)

    def _environ(self) -> Any:
        return self.answers.get("env", {})

    # -- files

    def _led(self, path: str) -> str:
        """The path with the test's links followed."""
        links = self.answers.get("links", {})
        for _ in range(20):
            parts = posixpath.normpath(path).split("/")
            for end in range(2, len(parts) + 1):
                head = "/".join(parts[:end])
                if head in links:
                    target = posixpath.join(posixpath.dirname(head), links[head])
                    path = posixpath.normpath("/".join([target, *parts[end:]]))
                    break
            else:
                return posixpath.normpath(path)
        return path

    def _read(self, path: str, limit: int = 65536) -> Any:
        found = self.files.get(self._led(path))
        return found[:limit] if isinstance(found, str) else found

    def _list(self, path: str) -> Any:
        folder = self._led(path).rstrip("/") + "/"
        if isinstance(self.files.get(folder), AccessError):
            return self.files[folder]
        links = [p for p in self.answers.get("links", {}) if p.startswith(folder)]
        inside = {p[len(folder) :].split("/")[0] for p in [*self.files, *links] if p.startswith(folder)}
        return sorted(inside - {""}) or ([] if folder in self.files else None)

    def _stat(self, path: str) -> Any:
        real = self._led(path)
        mode = self.answers.get("modes", {}).get(real, 0o755)
        status = {"mode": mode, "uid": self.answers.get("uids", {}).get(real, 0), "size": 1, "mtime": 0.0}
        if real in self.files:
            found = self.files[real]
            status["size"] = len(found) if isinstance(found, str) and found else 1
            kind = "char" if real.startswith("/dev/") else "file"
            return found if isinstance(found, AccessError) else {"kind": kind, **status}
        if self._list(real) is not None:
            return {"kind": "dir", **status}
        return {"kind": "link", **status} if path in self.answers.get("links", {}) else None

    def _real(self, path: str) -> str:
        return self._led(path)

    def _disk(self, path: str) -> Any:
        return self.answers.get("disks", {}).get(path)

    # -- programs and libraries

    def _which(self, name: str) -> Any:
        return self.answers.get("path", {}).get(name)

    def _run(self, argv: list[str], deadline: float, limit: int, env: Any) -> Any:
        found = self.answers.get("runs", {}).get(" ".join(argv), RunResult(tuple(argv), None, end="not found"))
        if isinstance(found, str):
            found = RunResult(tuple(argv), 0, found)
        return found.replace(out=found.out[:limit]).to_json()

    def _library(self, name: str) -> Any:
        return self.answers.get("libraries", {}).get(name)

    def _libraries(self, prefix: str) -> Any:
        found = self.answers.get("libraries", {})
        return {n: p for n, p in found.items() if n.startswith(prefix)}

    def _elf(self, path: str) -> Any:
        return self.answers.get("headers", {}).get(self._led(path))

    def _lines(self, path: str, pieces: list[str]) -> Any:
        found = self.answers.get("logs", {}).get(path)
        return found if not isinstance(found, list) else [x for x in found if any(p in x for p in pieces)]

    def _elf_text(self, path: str, section: str, pieces: list[str]) -> Any:
        found = self.answers.get("elf", {}).get((path, section), [])
        return found if isinstance(found, AccessError) else [t for t in found if any(p in t for p in pieces)]

    def _nvml(self, *_: Any) -> Any:
        return self.answers.get("nvml", {"error": None, "says": "libnvidia-ml.so.1 not found"})

    # -- the machine

    def _uname(self) -> Any:
        return self.answers.get("uname", {**LINUX, "node": "gpu-07"})

    def _hostname(self) -> str:
        return str(self.answers.get("hostname", "gpu-07"))

    def _cpus(self) -> Any:
        return self.answers.get("cpus", {"online": 96, "usable": 96})

    def _limits(self) -> Any:
        return self.answers.get("limits", {"nofile": 1024, "memlock": -1, "nproc": 100, "stack": 8 << 20})

    def _cwd(self) -> Any:
        return self.answers.get("cwd", "/home/ada")

    def _interpreter(self) -> Any:
        own = {"executable": "/opt/own/bin/python", "prefix": "/opt/own", "version": "3.12.1"}
        return self.answers.get("interpreter", own)


def by_key(facts: list[Fact]) -> dict[str, Fact]:
    """Facts by key; every key once, and every one with its source."""
    found = {fact.key: fact for fact in facts}
    assert len(found) == len(facts), "a key is given twice"
    for fact in facts:
        assert fact.source or fact.gap, f"{fact.key} has no source"
    return found


def library(needed: str = "", runpath: str | None = None, rpath: bool = False) -> dict[str, Any]:
    """The headers of a library, as the door gives them."""
    return {"needed": needed.split(), "soname": None, "runpath": runpath, "rpath": rpath, "machine": "x86_64"}


def someone(
    version: str | None = "3.12.4", prefix: str = "/venv", kind: str = "venv", **more: Any
) -> TargetEnvironment:
    """A patient with one site folder."""
    return TargetEnvironment(
        prefix, f"{prefix}/bin/python", kind, version, more.pop("site", (SITE,)), "--python", **more
    )


def files(folder: str, *names: str) -> dict[str, str]:
    """Empty files in one folder."""
    return {f"{folder}/{name}": "" for name in names}
