"""One builder at a time: a kernel lock, and a lease file that names the holder, also for other machines.

The lock ends with its holder, so a dead one is noticed at once. If the disk has no locks, or the holder is on
another machine, its lease must be renewed every few seconds; one unchanged for EXPIRY seconds, by our own
clock, is taken over. Safety does not depend on this: two builders never write to the same generation. It
avoids duplicate work.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable

from gpuready.model import validation
from gpuready.system import durable_files, file_contents
from gpuready.system.process import inspection
from gpuready.system.process.inspection import ProcessIdentity

EXPIRY = 30.0
"""Seconds after which a lease that is not renewed is taken over."""

RENEWAL_SECONDS = 5.0
STOPPED_SECONDS = 3.0
"""How long a holder may be stopped before we give up, in seconds."""


class LeaseBusyError(Exception):
    """Another process holds the lease; the text names it and says what to do."""


class LeaseLostError(Exception):
    """Another machine took over the lease during the build."""


class Lease:
    """The right to build in one folder."""

    def __init__(self, folder: str, host: str):
        self.lock, self.path = f"{folder}/lock", f"{folder}/lease"
        self.own_process = inspection.current_process(host)
        self.token = os.urandom(8).hex()
        self.fd: int | None = None
        self.locked = False
        self.renewed = 0.0
        self.renewals = 0

    # -- acquiring --------------------------------------------------------------------------------------

    def acquire_lease(self, wait: bool = True, on_wait: Callable[[str], None] = lambda text: None) -> None:
        """Wait for the lease; LeaseBusyError if its holder is stopped, or if we must not wait."""
        last_text, since, announced = "", time.monotonic(), ""
        delay = 0.01
        while not self._try_acquire(last_text, since):
            text = self._read_lease()
            if text != last_text:
                last_text, since = text, time.monotonic()
            holder = _parse_holder(text)
            self._raise_if_stuck(holder, time.monotonic() - since, wait)
            if holder and (name := _describe_holder(holder)) != announced:
                announced = name
                on_wait(f"waiting for {name}")
            time.sleep(delay)
            delay = min(delay * 1.5, 0.2)

    def _try_acquire(self, last_text: str, since: float) -> bool:
        if self.fd is None:
            try:
                self.fd = durable_files.take_lock(self.lock)
                self.locked = self.fd is not None
            except durable_files.LocksUnsupported:
                self.fd, self.locked = -1, False
        if self.fd is None:
            return False
        text = self._read_lease()
        if text and not self._has_expired(text, last_text, since):
            return False
        return self._replace_lease(text)

    def _has_expired(self, text: str, last_text: str, since: float) -> bool:
        """Whether an existing lease is no longer valid."""
        holder = _parse_holder(text)
        if holder is None or holder == self.own_process:
            return True
        if self.locked and inspection.is_same_kernel(holder) and ('"locked": true' in text):
            return True  # the kernel released its lock: it has ended
        if inspection.process_state(holder) == "dead":
            return True
        if inspection.process_state(holder) in ("running", "stopped"):
            return False
        return text == last_text and time.monotonic() - since >= EXPIRY

    def _replace_lease(self, text: str) -> bool:
        if text:
            stale = f"{self.path}.{self.token}.draft"
            if not durable_files.rename_path(self.path, stale):
                return False
            moved = _read_lease_file(stale)
            durable_files.remove_file(stale)
            if moved != text and _parse_holder(moved) is not None:  # another machine was quicker
                durable_files.create_exclusively(self.path, moved)
                return False
        return durable_files.create_exclusively(self.path, self._format_lease())

    def _raise_if_stuck(self, holder: ProcessIdentity | None, seconds: float, wait: bool) -> None:
        if holder is None:
            if not wait and self.fd is None and seconds > 1:
                raise LeaseBusyError("another install is under way here")
            return
        state = inspection.process_state(holder)
        if not wait and state != "dead":
            raise LeaseBusyError(f"{_describe_holder(holder)} is installing here: wait for it, or end it")
        if state == "stopped" and seconds > STOPPED_SECONDS:
            raise LeaseBusyError(
                f"{_describe_holder(holder)} is installing here and is stopped: kill -CONT {holder.pid}, or end it"
            )

    # -- holding ----------------------------------------------------------------------------------------

    def renew_if_due(self) -> None:
        """Renew the lease if due; LeaseLostError if it is no longer ours."""
        if time.monotonic() - self.renewed < RENEWAL_SECONDS:
            return
        if self.token not in self._read_lease():
            raise LeaseLostError("another machine took over the lease of this environment")
        self.renewals += 1
        durable_files.replace_file(self.path, self._format_lease())

    def renew_in_background(self) -> _LeaseRenewer:
        """Renew the lease in a thread while this one waits."""
        return _LeaseRenewer(self)

    def confirm_ownership(self) -> None:
        """LeaseLostError if the lease is no longer ours: the last check before publishing."""
        if self.token not in self._read_lease():
            raise LeaseLostError("another machine took over the lease of this environment")

    def release_lease(self) -> None:
        """Release the lease; never fails."""
        try:
            if self.token in self._read_lease():
                durable_files.remove_file(self.path)
        except OSError:
            pass  # the next process sees that we have ended
        if self.fd is not None and self.fd >= 0:
            durable_files.release_lock(self.fd)
        self.fd = None

    def _format_lease(self) -> str:
        self.renewed = time.monotonic()
        more = {"token": self.token, "beats": self.renewals, "locked": self.locked}
        return json.dumps(self.own_process.to_json() | more)

    def _read_lease(self) -> str:
        return _read_lease_file(self.path)


def _read_lease_file(path: str) -> str:
    """Read a lease file: empty only if there is none."""
    text = file_contents.read_text_file(path, 4096)
    return "" if text is None else text or "nothing"


def _parse_holder(text: str) -> ProcessIdentity | None:
    try:
        return validation.parse_record(ProcessIdentity, json.loads(text))
    except (ValueError, RecursionError):
        return None


def _describe_holder(holder: ProcessIdentity) -> str:
    return f"process {holder.pid} on {holder.host}"


class _LeaseRenewer:
    """A thread that renews a lease until the work is done."""

    def __init__(self, lease: Lease):
        self.lease = lease

    def __enter__(self) -> None:
        self.done = threading.Event()
        self.thread = threading.Thread(target=self._renew_until_done, daemon=True)
        self.thread.start()

    def _renew_until_done(self) -> None:
        while not self.done.wait(RENEWAL_SECONDS / 2):
            try:
                self.lease.renew_if_due()
            except (LeaseLostError, OSError):  # the installer's next renewal raises it
                return

    def __exit__(self, *why: object) -> None:
        self.done.set()
        self.thread.join()
