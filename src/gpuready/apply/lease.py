"""One builder at a time: a kernel lock, and a lease file that names the holder, also for other machines.

The lock ends with its holder, so a dead one is noticed at once. If the disk has no locks, or the holder is on
another machine, its lease must be renewed every few seconds; one unchanged for EXPIRY seconds, by our own
clock, is taken over. Safety does not depend on this: two builders never write to the same generation. It
avoids duplicate work.
"""

from __future__ import annotations

import os
import time

from gpuready import held
from gpuready.system import alive, durable, locks
from gpuready.system.alive import Somebody

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

EXPIRY = 30.0
"""Seconds after which a lease that is not renewed is taken over."""

RENEWAL = 5.0
STOPPED = 3.0
"""How long a holder may be stopped before we give up, in seconds."""


class Held(Exception):
    """Another process holds the lease; the text names it and says what to do."""


class Lost(Exception):
    """Another machine took over the lease during the build."""


class Lease:
    """The right to build in one folder."""

    def __init__(self, folder: str, host: str):
        self.lock, self.path = f"{folder}/lock", f"{folder}/lease"
        self.own = alive.me(host)
        self.token = os.urandom(8).hex()
        self.fd: int | None = None
        self.locked = False
        self.renewed = 0.0
        self.beats = 0

    # -- acquiring --------------------------------------------------------------------------------------

    def take(self, wait: bool = True, said: Callable[[str], None] = lambda text: None) -> None:
        """Wait for the lease; LeaseHeldError if its holder is stopped, or if we must not wait."""
        seen, since, told = "", time.monotonic(), ""
        nap = 0.01
        while not self._try(seen, since):
            text = self._read()
            if text != seen:
                seen, since = text, time.monotonic()
            holder = _holder(text)
            self._stuck(holder, time.monotonic() - since, wait)
            if holder and (name := _named(holder)) != told:
                told = name
                said(f"waiting for {name}")
            time.sleep(nap)
            nap = min(nap * 1.5, 0.2)

    def _try(self, seen: str, since: float) -> bool:
        if self.fd is None:
            try:
                self.fd = locks.take(self.lock)
                self.locked = self.fd is not None
            except locks.NoLocks:
                self.fd, self.locked = -1, False
        if self.fd is None:
            return False
        text = self._read()
        if text and not self._over(text, seen, since):
            return False
        return self._replace(text)

    def _over(self, text: str, seen: str, since: float) -> bool:
        """Whether an existing lease is no longer valid."""
        holder = _holder(text)
        if holder is None or holder == self.own:
            return True
        if self.locked and alive.same_kernel(holder) and _was_locked(text):
            return True  # the kernel released its lock: it has ended
        if alive.state(holder) == "dead":
            return True
        if alive.state(holder) in ("running", "stopped"):
            return False
        return text == seen and time.monotonic() - since >= EXPIRY

    def _replace(self, text: str) -> bool:
        if text:
            stale = f"{self.path}.{self.token}.draft"
            if not durable.move(self.path, stale):
                return False
            moved = _text(stale)
            durable.remove(stale)
            if moved != text and _holder(moved) is not None:  # another machine was quicker
                durable.claim(self.path, moved)
                return False
        return durable.claim(self.path, self._written())

    def _stuck(self, holder: Somebody | None, seconds: float, wait: bool) -> None:
        if holder is None:
            if not wait and self.fd is None and seconds > 1:
                raise Held("another install is under way here")
            return
        state = alive.state(holder)
        if not wait and state != "dead":
            raise Held(f"{_named(holder)} is installing here: wait for it, or end it")
        if state == "stopped" and seconds > STOPPED:
            raise Held(
                f"{_named(holder)} is installing here and is stopped: kill -CONT {holder.pid}, or end it"
            )

    # -- holding ----------------------------------------------------------------------------------------

    def beat(self) -> None:
        """Renew the lease if due; LeaseLostError if it is no longer ours."""
        if time.monotonic() - self.renewed < RENEWAL:
            return
        if self.token not in self._read():
            raise Lost("another machine took over the lease of this environment")
        self.beats += 1
        durable.write(self.path, self._written())

    def beating(self) -> _Beating:
        """Renew the lease in a thread while this one waits."""
        return _Beating(self)

    def confirm(self) -> None:
        """LeaseLostError if the lease is no longer ours: the last check before publishing."""
        if self.token not in self._read():
            raise Lost("another machine took over the lease of this environment")

    def leave(self) -> None:
        """Release the lease; never fails."""
        try:
            if self.token in self._read():
                durable.remove(self.path)
        except OSError:
            pass  # the next process sees that we have ended
        if self.fd is not None and self.fd >= 0:
            locks.leave(self.fd)
        self.fd = None

    def _written(self) -> str:
        import json

        self.renewed = time.monotonic()
        more = {"token": self.token, "beats": self.beats, "locked": self.locked}
        return json.dumps(self.own.to_json() | more)

    def _read(self) -> str:
        return _text(self.path)


def _text(path: str) -> str:
    """Read a lease file: empty only if there is none."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(4096) or "nothing"
    except OSError:
        return ""


def _holder(text: str) -> Somebody | None:
    import json

    try:
        return held.of(Somebody, json.loads(text))
    except (ValueError, RecursionError):
        return None


def _was_locked(text: str) -> bool:
    return '"locked": true' in text


def _named(who: Somebody) -> str:
    return f"process {who.pid} on {who.host}"


class _Beating:
    """A thread that renews a lease until the work is done."""

    def __init__(self, lease: Lease):
        self.lease = lease

    def __enter__(self) -> None:
        import threading

        self.over = threading.Event()
        self.thread = threading.Thread(target=self._beat, daemon=True)
        self.thread.start()

    def _beat(self) -> None:
        while not self.over.wait(RENEWAL / 2):
            try:
                self.lease.beat()
            except (Lost, OSError):  # the installer's next renewal raises it
                return

    def __exit__(self, *why: object) -> None:
        self.over.set()
        self.thread.join()
