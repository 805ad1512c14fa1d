"""Access to this machine, now."""

import os
import pwd
import resource
import sys
import time
from collections.abc import Mapping
from typing import Any

from gpuready.system import files
from gpuready.system.host_access import READ_LIMIT, AccessError, HostAccess, RunResult
from gpuready.system.process.isolation import is_single_threaded
from gpuready.system.redaction.text import redact_text, redact_value


class LiveHost(HostAccess):
    """Answers from the machine itself.

    With a `root`, every path is below it and links stay inside: a test builds a machine out of files.
    Only programs that are run see the real one. `environ` replaces the environment likewise.
    """

    is_live = True
    runs_command = False
    """Whether this process is gpuready's own, a command or a node of a fleet, and not a program that imports it."""

    def __init__(self, root: str = "", environ: Mapping[str, str] | None = None):
        self.root = "" if root in ("", "/") else os.path.abspath(root)
        self.variables: Mapping[str, str] = os.environ if environ is None else environ
        self._ld_cache: bytes | None = None

    def answer_query(self, verb: str, *args: Any) -> Any:
        return getattr(self, f"_answer_{verb}")(*args)

    def _map_path(self, path: str) -> str:
        return files.resolve_below_root(self.root, path) if self.root else path

    # ---- the environment

    def _answer_env(self, name: str) -> str | None:
        value = self.variables.get(name)
        return None if value is None else redact_value(name, files.printable_name(value))

    def _answer_environ(self) -> dict[str, str]:
        pairs = ((files.printable_name(name), files.printable_name(value)) for name, value in self.variables.items())
        return {name: redact_value(name, value) for name, value in pairs}

    # ---- files

    def _answer_read(self, path: str, limit: int = READ_LIMIT) -> str | None:
        return files.read_text(self._map_path(path), limit)

    def _answer_lines(self, path: str, pieces: list[str]) -> list[str] | None:
        return files.find_matching_lines(self._map_path(path), pieces)

    def _answer_list(self, path: str) -> list[str] | None:
        return files.list_names(self._map_path(path))

    def _answer_stat(self, path: str) -> dict[str, Any] | None:
        found = files.path_status(self._map_path(path))
        if found is None and self.root:  # the link's target does not exist; the link itself may
            folder, _, name = path.rstrip("/").rpartition("/")
            found = files.path_status(f"{self._map_path(folder or '/')}/{name}")
        return found

    def _answer_real(self, path: str) -> str:
        try:
            found = self._map_path(path)[len(self.root) :] if self.root else os.path.realpath(path)
        except (OSError, ValueError):
            raise AccessError("not a path") from None
        return files.printable_name(found)

    def _answer_disk(self, path: str) -> dict[str, int] | None:
        return files.filesystem_space(self._map_path(path))

    # ---- programs

    def _answer_which(self, name: str) -> str | None:
        if "/" in name:
            return name if self._is_executable(name) else None
        paths = files.list_program_paths(name, self.variables.get("PATH", os.defpath))
        return next((files.printable_name(path) for path in paths if self._is_executable(path)), None)

    def _is_executable(self, path: str) -> bool:
        try:
            return files.is_executable_file(self._map_path(path))
        except (AccessError, ValueError):
            return False

    def _answer_run(
        self, argv: list[str], deadline: float, limit: int, changes: dict[str, str | None] | None
    ) -> dict[str, Any]:
        from gpuready.system.process import runner

        env = runner.child_environment(self.variables, changes)
        name = argv[0] if argv else ""
        program = name if "/" in name else self._answer_which(name)
        if program is None or not name:
            return RunResult(tuple(argv), None, end="not found").to_json()
        ran = runner.run_program(self._map_path(program), argv, env, deadline, limit)
        return ran.replace(argv=(program, *argv[1:])).to_json()

    # ---- libraries

    def _read_loader_cache(self, prefix: str) -> dict[str, str]:
        """Entries of the loader's cache whose names have this prefix."""
        from gpuready.system import dynamic_loader

        if self._ld_cache is None:
            self._ld_cache = files.read_bytes(self._map_path(dynamic_loader.CACHE_PATH), 16 << 20) or b""
        return dynamic_loader.parse_loader_cache(self._ld_cache, os.uname().machine, prefix)

    def _answer_library(self, name: str) -> str | None:
        from gpuready.system import dynamic_loader

        library_path = self.variables.get("LD_LIBRARY_PATH", "")
        return dynamic_loader.find_library_file(
            name, os.uname().machine, library_path, self._read_loader_cache(name), self._read_head
        )

    def _read_head(self, path: str) -> bytes | None:
        try:
            return files.read_bytes(self._map_path(path), 64)
        except AccessError:  # the loader also tries the next folder
            return None

    def _answer_libraries(self, prefix: str) -> dict[str, str]:
        return dict(sorted(self._read_loader_cache(prefix).items()))

    def _answer_elf(self, path: str) -> dict[str, Any] | None:
        from gpuready.system import elf

        return elf.read_elf_headers(self._map_path(path))

    def _answer_elf_text(self, path: str, section: str, pieces: list[str]) -> list[str]:
        from gpuready.system import elf

        return elf.find_section_strings(self._map_path(path), section, pieces)

    def _answer_imports(self, request: dict[str, Any]) -> dict[str, Any]:
        from gpuready.system.imports import survey_cache

        return survey_cache.survey_imports(self.root, self.variables, request)

    def _answer_nvml(self, deadline: float = 20.0) -> dict[str, Any]:
        from gpuready.system import nvml

        override = self.variables.get("GPUREADY_NVML")
        found = None if override else self._answer_library(nvml.LIBRARY_NAME)
        path = override or (found and self._map_path(found))
        if not path:
            return {"error": None, "says": f"{nvml.LIBRARY_NAME} not found"}
        return nvml.query_in_process(path, deadline, fork=is_single_threaded())

    # ---- the machine

    def _answer_uname(self) -> dict[str, str]:
        u = os.uname()
        names = {"system": u.sysname, "release": u.release, "version": u.version, "machine": u.machine}
        return {**names, "node": files.printable_name(u.nodename)}

    def _answer_hostname(self) -> str:
        return redact_text(files.printable_name(self.variables.get("GPUREADY_HOSTNAME") or os.uname().nodename))

    def _answer_limits(self) -> dict[str, int]:
        names = ("nofile", "memlock", "nproc", "stack")
        soft = {name: resource.getrlimit(getattr(resource, f"RLIMIT_{name.upper()}"))[0] for name in names}
        return {name: -1 if value == resource.RLIM_INFINITY else value for name, value in soft.items()}

    def _answer_cpus(self) -> dict[str, int]:
        online = os.cpu_count() or 1
        try:
            return {"online": online, "usable": len(os.sched_getaffinity(0))}
        except (AttributeError, OSError):
            return {"online": online, "usable": online}

    def _answer_libc(self) -> str | None:
        try:
            name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
        except (ValueError, OSError):
            return None
        return version if name == "glibc" and version else None

    def _answer_user(self) -> dict[str, Any]:
        uid = os.geteuid()
        return {"uid": uid, "name": self._find_user_name(uid)}

    def _find_user_name(self, uid: int) -> str | None:
        # /etc/passwd first: a directory service that is down can take minutes to time out.
        try:
            known = files.read_text(self._map_path("/etc/passwd"), 1 << 20) or ""
        except AccessError:
            known = ""
        for line in known.splitlines():
            fields = line.split(":")
            if len(fields) > 2 and fields[2] == str(uid):
                return fields[0]
        if self.root:
            return None
        try:
            return files.printable_name(pwd.getpwuid(uid).pw_name)
        except KeyError:
            return None

    def _answer_wall(self) -> float:
        return time.time()

    def _answer_cwd(self) -> str:
        try:
            return files.printable_name(os.getcwd())
        except OSError as error:
            raise AccessError(files.error_reason(error)) from None

    def _answer_interpreter(self) -> dict[str, str]:
        version = ".".join(str(part) for part in sys.version_info[:3])
        role = "command" if self.runs_command else "library"
        return {"executable": sys.executable or "", "prefix": sys.prefix, "version": version, "role": role}


NOT_STARTED = "not started, since it is a program of a Python environment"
NOT_STARTED_HERE = "not started, since it lies below the current folder"


class ReadOnlyHost(LiveHost):
    """This machine for commands that only look: no program of a Python environment or of the current folder is started, whoever names it.

    An environment may be a stranger's, and an active one comes first on PATH: nvidia-smi there is any script. So may a checkout be.
    """

    may_start_python = False

    def _answer_run(
        self, argv: list[str], deadline: float, limit: int, changes: dict[str, str | None] | None
    ) -> dict[str, Any]:
        program = self._answer_which(argv[0]) if argv else None
        places = (program, self._answer_real(program)) if program else ()
        for refuses, end in ((self._is_in_environment, NOT_STARTED), (self._is_below_here, NOT_STARTED_HERE)):
            if any(map(refuses, places)):
                return RunResult((str(program), *argv[1:]), None, end=end).to_json()
        return super()._answer_run(argv, deadline, limit, changes)

    def _is_in_environment(self, path: str) -> bool:
        return files.is_in_environment(path, lambda place: os.path.lexists(self._map_path(place)))

    def _is_below_here(self, path: str) -> bool:
        """Whether a path is relative, or below the current folder where that may be a checkout: no home or system is in it."""
        if self.root or not path.startswith("/"):
            return not path.startswith("/")
        here = os.path.realpath("/proc/self/cwd").rstrip("/") + "/"  # os.getcwd() raises where the folder is gone
        others = (os.path.realpath(self.variables.get("HOME") or "/"), "/usr/local", "/opt")
        return path.startswith(here) and not any(f"{folder}/".startswith(here) for folder in others)
