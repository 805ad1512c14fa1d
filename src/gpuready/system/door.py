"""HostAccess: every query gpuready can make of a machine, as typed methods over one primitive, `answer_query`."""

from __future__ import annotations

from gpuready.model import Noun

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

LIMIT = 65536
"""Bytes of a file that are read by default."""


class Blind(Exception):
    """Access failed; the text is the reason, in one short phrase."""


class Ran(Noun):
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


def _ran(answer: object) -> Ran:
    ran = Ran.from_json(answer)
    texts = (*ran.argv, ran.out, ran.err, ran.end)
    if not all(isinstance(t, str) for t in texts) or not isinstance(ran.rc, (int, type(None))):
        raise ValueError("not the record of a run")
    return ran


class Door:
    """The queries. A subclass implements `answer_query`; answers are plain JSON."""

    live = False
    """Whether answers come from this machine now, so that a query may hang or crash."""

    def ask(self, verb: str, *args: Any) -> Any:
        """Answer one query; raises AccessError where that is impossible."""
        raise NotImplementedError

    # ---- the environment

    def env(self, name: str) -> str | None:
        """One variable, with any secret in it redacted."""
        return self._text(self.ask("env", name))

    def environ(self) -> dict[str, str]:
        """All variables, with secrets redacted and invalid bytes escaped."""
        found: dict[str, str] = self._dict(self.ask("environ")) or {}
        return found

    # ---- files

    def read(self, path: str, limit: int = LIMIT) -> str | None:
        """Text of a regular file, at most `limit` bytes; None where there is no such file."""
        more = () if limit == LIMIT else (limit,)
        return self._text(self.ask("read", path, *more))

    def lines(self, path: str, pieces: Sequence[str]) -> tuple[str, ...] | None:
        """The last lines of a log, or records of /dev/kmsg, that contain any of the pieces."""
        return self._texts(self.ask("lines", path, [*pieces]))

    def list(self, path: str) -> tuple[str, ...] | None:
        """Names in a folder, sorted; None where there is no such folder."""
        return self._texts(self.ask("list", path))

    def stat(self, path: str) -> dict[str, Any] | None:
        """kind, mode, uid, size, mtime. Links are followed: the kind is "link" for a dangling one."""
        return self._dict(self.ask("stat", path))

    def real(self, path: str) -> str:
        """The path with every symbolic link resolved."""
        return self._text(self.ask("real", path)) or path

    def disk(self, path: str) -> dict[str, Any] | None:
        """free, total (bytes) and free_inodes of the file system of a path."""
        return self._dict(self.ask("disk", path))

    # ---- programs

    def which(self, name: str) -> str | None:
        """Look up a program in PATH. Relative entries of PATH are ignored."""
        return self._text(self.ask("which", name))

    def run(
        self,
        argv: Sequence[str],
        deadline: float = 3.0,
        limit: int = 1 << 20,
        env: Mapping[str, str | None] | None = None,
    ) -> Ran:
        """Run a program to its end or deadline; never raises. `env` adds variables, or drops them (None)."""
        args = [str(a) for a in argv]
        try:
            return _ran(self.ask("run", args, deadline, limit, dict(env) if env else None))
        except Blind as why:
            return Ran(tuple(args), None, end=str(why))
        except ValueError:
            return Ran(tuple(args), None, end="the recorded answer is damaged")

    # ---- libraries

    def library(self, name: str) -> str | None:
        """The file the dynamic loader would use for a library such as libcuda.so.1."""
        return self._text(self.ask("library", name))

    def libraries(self, prefix: str) -> dict[str, str]:
        """Name and path of every library in the loader's cache with this prefix."""
        found: dict[str, str] = self._dict(self.ask("libraries", prefix)) or {}
        return found

    def elf(self, path: str) -> dict[str, Any] | None:
        """needed, soname, runpath and machine of a library or program; None where there is no such file.

        ``rpath``: whether the runpath is of the older kind, which goes before LD_LIBRARY_PATH.
        """
        return self._dict(self.ask("elf", path))

    def elf_text(self, path: str, section: str, starts: Sequence[str]) -> tuple[str, ...]:
        """The C strings of one section that contain any of the pieces."""
        return self._texts(self.ask("elf_text", path, section, list(starts))) or ()

    # ---- the machine

    def nvml(self, deadline: float = 20.0) -> dict[str, Any]:
        """What NVML reports about the driver and its GPUs; an unavailable field is {"gap": why}."""
        more = () if deadline == 20.0 else (deadline,)
        return self._dict(self.ask("nvml", *more)) or {}

    def uname(self) -> dict[str, str]:
        """system, release, version, machine, node."""
        return self._dict(self.ask("uname")) or {}

    def hostname(self) -> str:
        """The name of this host, or the value of GPUREADY_HOSTNAME."""
        return self._text(self.ask("hostname")) or ""

    def limits(self) -> dict[str, int]:
        """The soft limits nofile, memlock, nproc and stack; -1 is unlimited."""
        return self._dict(self.ask("limits")) or {}

    def cpus(self) -> dict[str, int]:
        """online, and usable by this process."""
        return self._dict(self.ask("cpus")) or {}

    def libc(self) -> str | None:
        """The version of glibc; None on another C library."""
        return self._text(self.ask("libc"))

    def user(self) -> dict[str, Any]:
        """uid, and the name where the password file has one."""
        return self._dict(self.ask("user")) or {}

    def cwd(self) -> str:
        return self._text(self.ask("cwd")) or ""

    def interpreter(self) -> dict[str, str]:
        """executable, prefix and version of the Python that runs gpuready."""
        return self._dict(self.ask("interpreter")) or {}

    def wall(self) -> float:
        """The machine's clock in seconds since 1970. It may jump, and it may be wrong."""
        told = self.ask("wall")
        if isinstance(told, (int, float)) and not isinstance(told, bool):
            return float(told)
        raise Blind("the recorded answer is damaged")

    def now(self) -> float:
        """Seconds on a monotonic clock. Not a query: it is the clock of this process."""
        import time

        return time.monotonic()

    # ---- answers may come from an untrusted recording

    @staticmethod
    def _text(answer: object) -> str | None:
        if answer is None or isinstance(answer, str):
            return answer
        raise Blind("the recorded answer is damaged")

    @staticmethod
    def _texts(answer: object) -> tuple[str, ...] | None:
        if answer is None:
            return None
        if isinstance(answer, (tuple, list)) and all(isinstance(a, str) for a in answer):
            return tuple(answer)
        raise Blind("the recorded answer is damaged")

    @staticmethod
    def _dict(answer: object) -> dict[str, Any] | None:
        if answer is None or isinstance(answer, dict):
            return answer
        raise Blind("the recorded answer is damaged")
