"""Sockets by which a user's processes on one host find each other; they vanish with the process.

They use the kernel's abstract name space (Linux): no file, no port. Rank 0 opens a beacon during a roll-call,
so that a rank of its job with another port can find it. Every rank keeps a claim while it lives, so that a
late duplicate learns which process has its rank.
"""

import os
import socket
import struct
import sys
import zlib
from contextlib import suppress

from gpuready.cluster import Rendezvous
from gpuready.rollcall.endpoint import read_text

HAS_ABSTRACT_NAMES = sys.platform.startswith("linux")
BEACON_PREFIX = f"gpuready-rollcall-{os.getuid()}-"


def open_beacon(name: str) -> socket.socket | None:
    """Open a beacon of this process; None without abstract names. ``name`` tells it from others."""
    return _bind_abstract_socket(f"{BEACON_PREFIX}{os.getpid()}-{name}")


def list_beacons() -> list[str]:
    """List this user's beacons on this host except our own."""
    return [name for name in _list_all_beacons() if not name.startswith(f"{BEACON_PREFIX}{os.getpid()}-")]


def find_beacon(name: str) -> str:
    """Return the whole name of the beacon that was opened with this name; empty if this host has none."""
    return next((one for one in _list_all_beacons() if one.endswith(f"-{name}")), "")


def _list_all_beacons() -> list[str]:
    lines = read_text("/proc/net/unix", 1 << 26).splitlines()
    return sorted({line.split()[-1][1:] for line in lines if f"@{BEACON_PREFIX}" in line})


def connect_beacon(name: str, seconds: float = 1.0) -> socket.socket | None:
    """Connect to a beacon of this user."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with suppress(OSError):
        sock.settimeout(seconds)
        sock.connect("\0" + name)
        if is_own_user(sock):
            return sock
    sock.close()
    return None


def claim_rank(rendezvous: Rendezvous) -> tuple[socket.socket | None, int]:
    """Claim this rank until the socket is closed; else return the pid of the living process that has it."""
    name = f"gpuready-rank-{_job_key(rendezvous)}-{rendezvous.rank}"
    sock = _bind_abstract_socket(name)
    if sock is not None:
        return sock, 0
    other = connect_beacon(name, 0.2)
    if other is None:
        return None, 0
    with other:
        pid = _peer_credentials(other)[0]
    return None, pid if os.path.exists(f"/proc/{pid}") else 0


def _job_key(rendezvous: Rendezvous) -> str:
    job = f"{rendezvous.run_id} {rendezvous.address} {rendezvous.port} {rendezvous.restart}"
    return f"{os.getuid()}-{zlib.crc32(job.encode('utf-8', 'replace')):08x}"


def _bind_abstract_socket(name: str) -> socket.socket | None:
    if not HAS_ABSTRACT_NAMES:
        return None
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.bind("\0" + name)
        sock.listen(1024)
    except OSError:
        sock.close()
        return None
    return sock


def is_own_user(conn: socket.socket) -> bool:
    """Whether the other side is a process of this user, as the kernel says."""
    return _peer_credentials(conn)[1] == os.getuid()


def _peer_credentials(conn: socket.socket) -> tuple[int, int]:
    """Return pid and uid of the peer, from the kernel."""
    raw = conn.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid, uid, _ = struct.unpack("3i", raw)
    return pid, uid
