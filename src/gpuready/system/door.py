"""The door: every question that gpuready can put to a machine, as typed verbs over one primitive, `ask`."""

from __future__ import annotations

from gpuready.model import Noun

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

LIMIT = 65536
"""How much of a file is read unless the caller says otherwise, in bytes."""


class Blind(Exception):
    """Could not see; the text is the reason, in one short phrase."""


class Ran(Noun):
    """One program that was run, or why it could not be.

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
    """The questions. A subclass answers them in `ask`; answers are plain JSON."""

    live = False
    """Whether the answers come from this machine now, so that a question may hang or crash."""

    def ask(self, verb: str, *args: Any) -> Any:
        """Answer one question; raises Blind where it cannot be seen."""
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
        """The text of a regular file, at most `limit` bytes of it; None where there is no such file."""
        more = () if limit == LIMIT else (limit,)
        return self._text(self.ask("read", path, *more))

    def lines(self, path: str, pieces: Sequence[str]) -> tuple[str, ...] | None:
        """The last lines of a log, or records of /dev/kmsg, that contain any of the given pieces."""
        return self._texts(self.ask("lines", path, [*pieces]))

    def list(self, path: str) -> tuple[str, ...] | None:
        """The names in a folder, sorted; None where there is no such folder."""
        return self._texts(self.ask("list", path))

    def stat(self, path: str) -> dict[str, Any] | None:
        """kind, mode, uid, size, mtime. Links are followed: the kind is "link" where it leads nowhere."""
        return self._dict(self.ask("stat", path))

    def real(self, path: str) -> str:
        """The path with every symbolic link resolved."""
        return self._text(self.ask("real", path)) or path

    def disk(self, path: str) -> dict[str, Any] | None:
        """free, total (bytes) and free_inodes of the file system below a path."""
        return self._dict(self.ask("disk", path))

    # ---- programs

    def which(self, name: str) -> str | None:
        """Where PATH leads for a program. Relative entries of PATH are never followed."""
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
        """The file that the dynamic loader would take for a library such as libcuda.so.1."""
        return self._text(self.ask("library", name))

    def libraries(self, prefix: str) -> dict[str, str]:
        """Name and path of every library in the loader's cache whose name begins so."""
        found: dict[str, str] = self._dict(self.ask("libraries", prefix)) or {}
        return found

    def elf(self, path: str) -> dict[str, Any] | None:
        """needed, soname, runpath and machine of a library or program; None where there is no such file.

        ``rpath``: whether the runpath is of the older kind, which goes before LD_LIBRARY_PATH.
        """
        return self._dict(self.ask("elf", path))

    def elf_text(self, path: str, section: str, starts: Sequence[str]) -> tuple[str, ...]:
        """The C strings of one section that contain any of the given pieces."""
        return self._texts(self.ask("elf_text", path, section, list(starts))) or ()

    # ---- the machine

    def nvml(self, deadline: float = 20.0) -> dict[str, Any]:
        """What the NVIDIA driver says of its GPUs; each field that it will not tell is {"gap": why}."""
        more = () if deadline == 20.0 else (deadline,)
        return self._dict(self.ask("nvml", *more)) or {}

    def uname(self) -> dict[str, str]:
        """system, release, version, machine, node."""
        return self._dict(self.ask("uname")) or {}

    def hostname(self) -> str:
        """The name of this host, or the one that GPUREADY_HOSTNAME gives it."""
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
        """uid, and the name where the password file knows one."""
        return self._dict(self.ask("user")) or {}

    def cwd(self) -> str:
        """The current folder."""
        return self._text(self.ask("cwd")) or ""

    def interpreter(self) -> dict[str, str]:
        """executable, prefix and version of the Python that runs gpuready."""
        return self._dict(self.ask("interpreter")) or {}

    def wall(self) -> float:
        """What the machine's clock says: seconds since 1970. It may jump, and it may be wrong."""
        told = self.ask("wall")
        if isinstance(told, (int, float)) and not isinstance(told, bool):
            return float(told)
        raise Blind("the recorded answer is damaged")

    def now(self) -> float:
        """Seconds on a clock that never jumps. This one is ours, so it is not asked of the machine."""
        import time

        return time.monotonic()

    # ---- an answer may come from a file that somebody else wrote

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
