"""Access to this machine, now."""

from __future__ import annotations

import os

from gpuready.system import files
from gpuready.system.door import LIMIT, Blind, Door

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


class Live(Door):
    """Answers from the machine itself.

    With a `root`, every path is below it and links stay inside: a test builds a machine out of files.
    Only programs that are run see the real one. `environ` replaces the environment likewise.
    """

    live = True

    def __init__(self, root: str = "", environ: Mapping[str, str] | None = None):
        self.root = "" if root in ("", "/") else os.path.abspath(root)
        self.variables: Mapping[str, str] = os.environ if environ is None else environ
        self._cache: bytes | None = None

    def ask(self, verb: str, *args: Any) -> Any:
        return getattr(self, f"_{verb}")(*args)

    def _at(self, path: str) -> str:
        return files.below(self.root, path) if self.root else path

    # ---- the environment

    def _env(self, name: str) -> str | None:
        from gpuready.system.redact import redact_value

        value = self.variables.get(name)
        return None if value is None else redact_value(name, files.text(value))

    def _environ(self) -> dict[str, str]:
        from gpuready.system.redact import redact_value

        pairs = ((files.text(name), files.text(value)) for name, value in self.variables.items())
        return {name: redact_value(name, value) for name, value in pairs}

    # ---- files

    def _read(self, path: str, limit: int = LIMIT) -> str | None:
        return files.read(self._at(path), limit)

    def _lines(self, path: str, pieces: list[str]) -> list[str] | None:
        from gpuready.system import loglines

        return loglines.matching(self._at(path), pieces)

    def _list(self, path: str) -> list[str] | None:
        return files.names(self._at(path))

    def _stat(self, path: str) -> dict[str, Any] | None:
        found = files.status(self._at(path))
        if found is None and self.root:  # the link's target does not exist; the link itself may
            folder, _, name = path.rstrip("/").rpartition("/")
            found = files.status(f"{self._at(folder or '/')}/{name}")
        return found

    def _real(self, path: str) -> str:
        try:
            found = self._at(path)[len(self.root) :] if self.root else os.path.realpath(path)
        except (OSError, ValueError):
            raise Blind("not a path") from None
        return files.text(found)

    def _disk(self, path: str) -> dict[str, int] | None:
        return files.space(self._at(path))

    # ---- programs

    def _which(self, name: str) -> str | None:
        if "/" in name:
            return name if self._executable(name) else None
        # An empty or relative entry means the current folder, which is not trusted.
        folders = [f for f in self.variables.get("PATH", os.defpath).split(":") if f.startswith("/")]
        tries = (f"{folder.rstrip('/')}/{name}" for folder in folders)
        return next((files.text(path) for path in tries if self._executable(path)), None)

    def _executable(self, path: str) -> bool:
        try:
            at = self._at(path)
            return os.path.isfile(at) and os.access(at, os.X_OK)
        except (Blind, ValueError):
            return False

    def _run(
        self, argv: list[str], deadline: float, limit: int, changes: dict[str, str | None] | None
    ) -> dict[str, Any]:
        from gpuready.system import runner
        from gpuready.system.door import Ran

        env = runner.environment(self.variables, changes)
        name = argv[0] if argv else ""
        program = name if "/" in name else self._which(name)
        if program is None or not name:
            return Ran(tuple(argv), None, end="not found").to_json()
        ran = runner.run(self._at(program), argv, env, deadline, limit)
        return ran.but(argv=(program, *argv[1:])).to_json()

    # ---- libraries

    def _loader_cache(self, prefix: str) -> dict[str, str]:
        """Entries of the loader's cache whose names have this prefix."""
        from gpuready.system import loader

        if self._cache is None:
            self._cache = files.read_bytes(self._at(loader.CACHE), 16 << 20) or b""
        return loader.cached(self._cache, os.uname().machine, prefix)

    def _library(self, name: str) -> str | None:
        from gpuready.system import loader

        own = self.variables.get("LD_LIBRARY_PATH", "")
        return loader.search(name, os.uname().machine, own, self._loader_cache(name), self._head)

    def _head(self, path: str) -> bytes | None:
        try:
            return files.read_bytes(self._at(path), 64)
        except Blind:  # the loader also tries the next folder
            return None

    def _libraries(self, prefix: str) -> dict[str, str]:
        return dict(sorted(self._loader_cache(prefix).items()))

    def _elf(self, path: str) -> dict[str, Any] | None:
        from gpuready.system import elf

        return elf.headers(self._at(path))

    def _elf_text(self, path: str, section: str, starts: list[str]) -> list[str]:
        from gpuready.system import elf

        return elf.strings(self._at(path), section, starts)

    def _nvml(self, deadline: float = 20.0) -> dict[str, Any]:
        from gpuready.system import nvml
        from gpuready.system.child import lone

        given = self.variables.get("GPUREADY_NVML")
        found = None if given else self._library(nvml.LIBRARY)
        path = given or (found and self._at(found))
        if not path:
            return {"error": None, "says": f"{nvml.LIBRARY} not found"}
        return nvml.ask(path, deadline, fork=lone())

    # ---- the machine

    def _uname(self) -> dict[str, str]:
        u = os.uname()
        names = {"system": u.sysname, "release": u.release, "version": u.version, "machine": u.machine}
        return {**names, "node": files.text(u.nodename)}

    def _hostname(self) -> str:
        from gpuready.system.redact import redact

        return redact(files.text(self.variables.get("GPUREADY_HOSTNAME") or os.uname().nodename))

    def _limits(self) -> dict[str, int]:
        import resource

        kinds = {
            "nofile": resource.RLIMIT_NOFILE,
            "memlock": resource.RLIMIT_MEMLOCK,
            "nproc": resource.RLIMIT_NPROC,
            "stack": resource.RLIMIT_STACK,
        }
        soft = {name: resource.getrlimit(kind)[0] for name, kind in kinds.items()}
        return {name: -1 if value == resource.RLIM_INFINITY else value for name, value in soft.items()}

    def _cpus(self) -> dict[str, int]:
        online = os.cpu_count() or 1
        try:
            return {"online": online, "usable": len(os.sched_getaffinity(0))}
        except (AttributeError, OSError):
            return {"online": online, "usable": online}

    def _libc(self) -> str | None:
        try:
            name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
        except (ValueError, OSError):
            return None
        return version if name == "glibc" and version else None

    def _user(self) -> dict[str, Any]:
        uid = os.geteuid()
        return {"uid": uid, "name": self._user_name(uid)}

    def _user_name(self, uid: int) -> str | None:
        # /etc/passwd first: a directory service that is down can take minutes to time out.
        try:
            known = files.read(self._at("/etc/passwd"), 1 << 20) or ""
        except Blind:
            known = ""
        for line in known.splitlines():
            fields = line.split(":")
            if len(fields) > 2 and fields[2] == str(uid):
                return fields[0]
        if self.root:
            return None
        import pwd

        try:
            return files.text(pwd.getpwuid(uid).pw_name)
        except KeyError:
            return None

    def _wall(self) -> float:
        import time

        return time.time()

    def _cwd(self) -> str:
        try:
            return files.text(os.getcwd())
        except OSError as error:
            raise Blind(files.why(error)) from None

    def _interpreter(self) -> dict[str, str]:
        import sys

        version = ".".join(str(part) for part in sys.version_info[:3])
        return {"executable": sys.executable or "", "prefix": sys.prefix, "version": version}
