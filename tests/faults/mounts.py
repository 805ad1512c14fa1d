"""Mounts for the tests that need root: in a mount namespace of this process alone, and gone when it ends."""

from __future__ import annotations

import ctypes
import os
import signal
import struct
import subprocess
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NEW_NAMESPACE, RECURSIVE, PRIVATE, LAZY = 0x20000, 0x4000, 1 << 18, 2
INIT, WATCH = 26, 60
"""The first question that a kernel asks a FUSE server; how long a frozen disk may stay frozen, in seconds."""

ROOT_NODE, LOOKUP, GETATTR, OPENS = 1, 1, 3, (14, 27)
"""Further questions, and the number of a mount's own folder."""

libc = ctypes.CDLL(None, use_errno=True)


def _done(code: int) -> None:
    if code != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


apart_already: set[int] = set()
"""Processes that have mounts of their own: a second time would cut them off from what they have open."""


def apart() -> None:
    """From here on this process and its children have mounts of their own: what they mount, nobody else sees."""
    if os.getpid() in apart_already:
        return
    _done(libc.unshare(NEW_NAMESPACE))
    _done(libc.mount(None, b"/", None, RECURSIVE | PRIVATE, None))
    apart_already.add(os.getpid())


def sh(*argv: object) -> None:
    subprocess.run([str(word) for word in argv], check=True, capture_output=True)


@contextmanager
def mounted(at: Path, *options: object) -> Iterator[Path]:
    """Something mounted at a folder of our own, and taken away whatever happens."""
    at.mkdir(parents=True, exist_ok=True)
    sh("mount", *options, at)
    try:
        yield at
    finally:
        if subprocess.run(["umount", at], capture_output=True).returncode:
            libc.umount2(os.fsencode(at), LAZY)


@contextmanager
def disk(folder: Path, size: int = 16 << 20, *options: str) -> Iterator[Path]:
    """A small ext4 of our own, in a file; the kernel frees its loop device with the mount."""
    image = folder / f"{os.urandom(4).hex()}.img"
    with image.open("wb") as file:
        file.truncate(size)
    sh("mkfs.ext4", "-q", "-F", "-m", "0", *options, image)
    with mounted(folder / f"{image.stem}.disk", "-o", "loop", image) as at:
        yield at


@contextmanager
def frozen(at: Path) -> Iterator[None]:
    """A disk on which every write waits, and no kill helps. A watch thaws it, should this process be killed."""
    sh("fsfreeze", "-f", at)
    words = ["sh", "-c", f'sleep {WATCH}; exec fsfreeze -u "$1"', "watch", str(at)]
    watch = subprocess.Popen(words, start_new_session=True)
    try:
        yield
    finally:
        sh("fsfreeze", "-u", at)
        os.killpg(watch.pid, signal.SIGKILL)  # with its sleep
        watch.wait()


@contextmanager
def dead(at: Path, reads_only: bool = False) -> Iterator[Path]:
    """A disk whose server has gone away: whoever looks at it waits for ever, and no kill helps.

    It is a FUSE server that answers the first question of the kernel and no other; with ``reads_only`` every name is a
    file of 4 KiB that can be opened, and only what reads it waits. Closing it ends every wait.
    """
    at.mkdir(parents=True, exist_ok=True)
    server = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={server},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
    _done(libc.mount(b"dead", os.fsencode(at), b"fuse", 0, options))
    threading.Thread(target=_serve, args=(server, reads_only), daemon=True).start()
    try:
        yield at
    finally:
        libc.umount2(os.fsencode(at), LAZY | 1)  # by force: every wait ends with an error
        os.close(server)


def _attributes(node: int) -> bytes:
    mode = 0o40755 if node == ROOT_NODE else 0o100644
    return struct.pack("=6Q10I", node, 4096, 8, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


def _read_only_answers(kind: int, node: int) -> bytes | None:
    """What a server says of names, and of files that it never reads."""
    if kind == LOOKUP:
        return struct.pack("=4Q2I", 2, 0, 60, 60, 0, 0) + _attributes(2)
    if kind == GETATTR:
        return struct.pack("=Q2I", 60, 0, 0) + _attributes(node)
    return struct.pack("=Q2I", 1, 0, 0) if kind in OPENS else None


def _serve(server: int, reads_only: bool = False) -> None:
    """Take every question, so that it counts as being worked on, and answer only the first, and those about names."""
    while True:
        try:
            asked = os.read(server, 1 << 17)
        except OSError:
            return
        _, kind, number, node = struct.unpack_from("=IIQQ", asked)
        body = _read_only_answers(kind, node) if reads_only else None
        if kind == INIT:
            body = struct.pack("=IIIIHHIIHHI7I", 7, 31, 65536, 0, 12, 9, 65536, 1, 0, 0, 0, *[0] * 7)
        if body is not None:
            os.write(server, struct.pack("=IiQ", 16 + len(body), 0, number) + body)
