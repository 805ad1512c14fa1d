"""HostAccess: every query gpuready can make of a machine, as typed methods over one primitive, `answer_query`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from gpuready.model import Record

READ_LIMIT = 65536
MAX_PTH_LINES = 4000
"""Lines of .pth files that are read, of all site folders together; environments have some tens."""
"""Bytes of a file that are read by default."""


class AccessError(Exception):
    """Access failed; the text is the reason, in one short phrase."""


class RunResult(Record):
    """Result of running a program, or why it could not be run.

    ``end`` is empty when it ended by itself, else: deadline, signal SEGV, endless output, not found, cannot
    execute: why, unkillable: pid and state. ``rc`` is negative after a signal, and None when there is no exit
    status: it was killed by us, abandoned, or never started. ``cut``: there was more output than is kept.
    ``argv`` begins with the file that was executed.
    """

    argv: tuple[str, ...]
    rc: int | None
    out: str = ""
    err: str = ""
    seconds: float = 0.0
    end: str = ""
    cut: bool = False


def _parse_run_result(answer: object) -> RunResult:
    ran = RunResult.from_json(answer)
    texts = (*ran.argv, ran.out, ran.err, ran.end)
    if not all(isinstance(t, str) for t in texts) or not isinstance(ran.rc, (int, type(None))):
        raise ValueError("not the record of a run")
    return ran


class HostAccess:
    """The queries. A subclass implements `answer_query`; answers are plain JSON."""

    is_live = False
    """Whether answers come from this machine now, so that a query may hang or crash."""
    may_start_python = True
    """Whether a program of a Python environment may be started to describe it. A recording starts nothing."""

    def answer_query(self, verb: str, *args: Any) -> Any:
        """Answer one query; raises AccessError where that is impossible."""
        raise NotImplementedError

    # ---- the environment

    def get_env_var(self, name: str) -> str | None:
        """One variable, with any secret in it redacted."""
        return self._expect_text(self.answer_query("env", name))

    def get_environment(self) -> dict[str, str]:
        """All variables, with secrets redacted and invalid bytes escaped."""
        variables: dict[str, str] = self._expect_dict(self.answer_query("environ")) or {}
        return variables

    # ---- files

    def read_text(self, path: str, limit: int = READ_LIMIT) -> str | None:
        """Text of a regular file, at most `limit` bytes; None where there is no such file."""
        more = () if limit == READ_LIMIT else (limit,)
        return self._expect_text(self.answer_query("read", path, *more))

    def find_log_lines(self, path: str, pieces: Sequence[str]) -> tuple[str, ...] | None:
        """The last lines of a log, or records of /dev/kmsg, that contain any of the pieces."""
        return self._expect_texts(self.answer_query("lines", path, [*pieces]))

    def list_directory(self, path: str) -> tuple[str, ...] | None:
        """Names in a folder, sorted; None where there is no such folder."""
        return self._expect_texts(self.answer_query("list", path))

    def stat_path(self, path: str) -> dict[str, Any] | None:
        """kind, mode, uid, size, mtime. Links are followed: the kind is "link" for a dangling one."""
        return self._expect_dict(self.answer_query("stat", path))

    def resolve_path(self, path: str) -> str:
        """The path with every symbolic link resolved."""
        return self._expect_text(self.answer_query("real", path)) or path

    def get_disk_space(self, path: str) -> dict[str, Any] | None:
        """free, total (bytes) and free_inodes of the file system of a path."""
        return self._expect_dict(self.answer_query("disk", path))

    # ---- programs

    def find_program(self, name: str) -> str | None:
        """Look up a program in PATH. Relative entries of PATH are ignored."""
        return self._expect_text(self.answer_query("which", name))

    def run(
        self,
        argv: Sequence[str],
        deadline: float = 3.0,
        limit: int = 1 << 20,
        env: Mapping[str, str | None] | None = None,
    ) -> RunResult:
        """Run a program to its end or deadline; never raises. `env` adds variables, or drops them (None)."""
        args = [str(a) for a in argv]
        try:
            return _parse_run_result(self.answer_query("run", args, deadline, limit, dict(env) if env else None))
        except AccessError as error:
            return RunResult(tuple(args), None, end=str(error))
        except ValueError:
            return RunResult(tuple(args), None, end="the recorded answer is damaged")

    # ---- libraries

    def find_library(self, name: str) -> str | None:
        """The file the dynamic loader would use for a library such as libcuda.so.1."""
        return self._expect_text(self.answer_query("library", name))

    def list_libraries(self, prefix: str) -> dict[str, str]:
        """Name and path of every library in the loader's cache with this prefix."""
        found: dict[str, str] = self._expect_dict(self.answer_query("libraries", prefix)) or {}
        return found

    def read_elf_headers(self, path: str) -> dict[str, Any] | None:
        """needed, soname, runpath and machine of a library or program; None where there is no such file.

        ``rpath``: whether the runpath is of the older kind, which goes before LD_LIBRARY_PATH.
        """
        return self._expect_dict(self.answer_query("elf", path))

    def find_elf_strings(self, path: str, section: str, pieces: Sequence[str]) -> tuple[str, ...]:
        """The C strings of one section that contain any of the pieces."""
        return self._expect_texts(self.answer_query("elf_text", path, section, list(pieces))) or ()

    def survey_imports(self, request: dict[str, Any]) -> dict[str, Any]:
        """What differs in the files of a Python environment: see ``imports.damage.Survey``."""
        return self._expect_dict(self.answer_query("imports", request)) or {}

    # ---- the machine

    def query_nvml(self, deadline: float = 20.0) -> dict[str, Any]:
        """What NVML reports about the driver and its GPUs; an unavailable field is {"gap": why}."""
        more = () if deadline == 20.0 else (deadline,)
        return self._expect_dict(self.answer_query("nvml", *more)) or {}

    def get_uname(self) -> dict[str, str]:
        """system, release, version, machine, node."""
        return self._expect_dict(self.answer_query("uname")) or {}

    def get_hostname(self) -> str:
        """The name of this host, or the value of GPUREADY_HOSTNAME."""
        return self._expect_text(self.answer_query("hostname")) or ""

    def get_resource_limits(self) -> dict[str, int]:
        """The soft limits nofile, memlock, nproc and stack; -1 is unlimited."""
        return self._expect_dict(self.answer_query("limits")) or {}

    def count_cpus(self) -> dict[str, int]:
        """online, and usable by this process."""
        return self._expect_dict(self.answer_query("cpus")) or {}

    def get_glibc_version(self) -> str | None:
        """The version of glibc; None on another C library."""
        return self._expect_text(self.answer_query("libc"))

    def get_user(self) -> dict[str, Any]:
        """uid, and the name where the password file has one."""
        return self._expect_dict(self.answer_query("user")) or {}

    def get_cwd(self) -> str:
        return self._expect_text(self.answer_query("cwd")) or ""

    def get_interpreter(self) -> dict[str, str]:
        """executable, prefix and version of the Python that runs gpuready; role: command, or library of a program."""
        return self._expect_dict(self.answer_query("interpreter")) or {}

    def get_wall_time(self) -> float:
        """The machine's clock in seconds since 1970. It may jump, and it may be wrong."""
        answer = self.answer_query("wall")
        if isinstance(answer, (int, float)) and not isinstance(answer, bool):
            return float(answer)
        raise AccessError("the recorded answer is damaged")

    def get_monotonic_time(self) -> float:
        """Seconds on a monotonic clock. Not a query: it is the clock of this process."""
        return time.monotonic()

    # ---- answers may come from an untrusted recording

    @staticmethod
    def _expect_text(answer: object) -> str | None:
        if answer is None or isinstance(answer, str):
            return answer
        raise AccessError("the recorded answer is damaged")

    @staticmethod
    def _expect_texts(answer: object) -> tuple[str, ...] | None:
        if answer is None:
            return None
        if isinstance(answer, (tuple, list)) and all(isinstance(a, str) for a in answer):
            return tuple(answer)
        raise AccessError("the recorded answer is damaged")

    @staticmethod
    def _expect_dict(answer: object) -> dict[str, Any] | None:
        if answer is None or isinstance(answer, dict):
            return answer
        raise AccessError("the recorded answer is damaged")
