"""One builder at a time in a folder: a kernel lock on a file, in which its holder is named.

The lock ends with its holder, and a disk that several machines share has it for all of them. On a disk without locks the file
is there as long as its holder; that of a dead one is removed.
"""

import json
import time
from collections.abc import Callable

from gpuready.model import validation
from gpuready.system import durable_files, file_contents
from gpuready.system.process import inspection
from gpuready.system.process.inspection import ProcessIdentity

STOPPED_SECONDS = 3.0
"""How long a holder may be stopped before we give up."""
EXPIRY = 3600.0
"""After how long a holder on another machine is taken for dead, on a disk without locks."""


class InstallLockBusyError(Exception):
    """Another process holds the lock; the text names it and says what to do."""


class InstallLock:
    """The right to build in one folder."""

    def __init__(self, folder: str, host: str):
        self.path, self.is_kernel_lock = f"{folder}/lock", True
        self.own_process = inspection.current_process(host)
        self._fd: int | None = None

    def acquire(self, wait: bool = True, on_wait: Callable[[str], None] = lambda text: None) -> None:
        """Wait for the lock; InstallLockBusyError if its holder is stopped, or if we must not wait."""
        announced, stopped_since = "", time.monotonic()
        while (fd := self._take()) is None:
            holder = _read_holder(self.path)
            name = f"process {holder.pid} on {holder.host}" if holder else "another process"
            is_stopped = holder is not None and inspection.process_state(holder) == "stopped"
            stopped_since = stopped_since if is_stopped else time.monotonic()
            if holder and time.monotonic() - stopped_since > STOPPED_SECONDS:
                way = f"and is stopped: kill -CONT {holder.pid}, or end it"
                raise InstallLockBusyError(f"{name} is installing here {way}")
            if not wait:
                raise InstallLockBusyError(f"{name} is installing here: wait for it, or end it")
            if name != announced:
                announced = name
                on_wait(f"waiting for {name}")
            time.sleep(0.05)
        durable_files.name_holder(fd, json.dumps(self.own_process.to_json()))
        self._fd = fd

    def _take(self) -> int | None:
        try:
            return durable_files.take_lock(self.path) if self.is_kernel_lock else self._create()
        except durable_files.LocksUnsupported:
            self.path, self.is_kernel_lock = f"{self.path}.held", False
            return self._create()

    def _create(self) -> int | None:
        """Create the file, unless a process that may live has it; of another machine's process it is forgotten after an hour."""
        if (fd := durable_files.create_lock(self.path)) is not None:
            return fd
        holder = _read_holder(self.path)
        state = inspection.process_state(holder) if holder else "elsewhere"
        is_old = not file_contents.has_changed_since(self.path, time.time() - EXPIRY)
        if state == "dead" or (state == "elsewhere" and is_old):
            durable_files.unlink_quietly(self.path)
            return durable_files.create_lock(self.path)
        return None

    def release(self) -> None:
        if self._fd is not None:
            if not self.is_kernel_lock:
                durable_files.unlink_quietly(self.path)
            durable_files.release_lock(self._fd)
        self._fd = None


def _read_holder(path: str) -> ProcessIdentity | None:
    try:
        return validation.parse_record(ProcessIdentity, json.loads(file_contents.read_text_file(path, 4096) or ""))
    except (ValueError, RecursionError):
        return None
