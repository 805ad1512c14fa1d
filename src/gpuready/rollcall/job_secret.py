"""The secret of a job: what all of its ranks can have and a stranger cannot.

GPUREADY_TOKEN, or a random key that the launcher gives to every rank. Where there is neither, rank 0 draws one. Ranks of
the same user on its host get it through the beacon, where the kernel names the user of the other side. Ranks on other
hosts get it from munge, which names the user on the nodes of a Slurm cluster, or read it from a file that only the user may
read, if the job's folder or the home is on a network file system. Else the roll-call is open to other hosts, and says so.
"""

from __future__ import annotations

import os
import stat
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import TypeVar

from gpuready.cluster import Rendezvous
from gpuready.model.record import Record
from gpuready.rollcall import beacon, endpoint

Answer = TypeVar("Answer")


TOKEN_VARIABLE = "GPUREADY_TOKEN"
LAUNCHER_KEYS = ("OMPI_MCA_orte_precondition_transports",)
"""Random keys of 128 bits that mpirun draws for each job."""
NETWORK_DISKS = ("nfs", "nfs4", "lustre", "gpfs", "beegfs", "ceph", "panfs", "pvfs2", "wekafs", "fuse.glusterfs", "fuse.ceph-fuse")  # fmt: skip
DISK_SECONDS = 3.0
ID_LENGTH = 24
OPEN_NOTE = "the roll-call was open: the hosts of this job share no secret, so any process that reaches rank 0's port could have taken a rank; give all ranks one GPUREADY_TOKEN"  # fmt: skip


def find_job_token(environ: Mapping[str, str]) -> str:
    """Return the secret that every rank has in its variables; empty if there is none."""
    if environ.get(TOKEN_VARIABLE):
        return environ[TOKEN_VARIABLE]
    if "SLURM_JOB_ID" in environ:  # there the launcher's key may be made of the job's number
        return ""
    return next((environ[name] for name in LAUNCHER_KEYS if environ.get(name)), "")


def make_token() -> str:
    return os.urandom(16).hex()


def is_single_host(rendezvous: Rendezvous) -> bool:
    """Whether all ranks are on rank 0's host, as far as the launcher says."""
    if rendezvous.nodes:
        return rendezvous.nodes == 1
    all_here = rendezvous.local_world_size >= rendezvous.world_size
    return all_here or rendezvous.address == "localhost" or endpoint.is_loopback_address(rendezvous.address)


class JobSecret(Record):
    """Rank 0's secret: the token, a public name by which ranks find it, and what becomes of ranks without it."""

    token: str
    name: str = ""  # of the beacon and the files; empty if all ranks have the token in their variables
    files: tuple[str, ...] = ()
    credential: str = ""  # the token, readable for this user only, by munge of this cluster
    is_open: bool = False  # ranks of other hosts are taken without it

    def remove_files(self) -> None:
        for path in self.files:
            with suppress(OSError):
                os.unlink(path)


def hold_secret(rendezvous: Rendezvous, token: str) -> JobSecret:
    """Return rank 0's secret; one that is drawn is left where ranks of this user find it."""
    if token:
        return JobSecret(token)
    drawn, name = make_token(), os.urandom(ID_LENGTH // 2).hex()
    if is_single_host(rendezvous):
        return JobSecret(drawn, name, is_open=not beacon.HAS_ABSTRACT_NAMES)
    files = _call_in_time(lambda: tuple(_write_secret_files(name, drawn))) or ()
    credential = encode_for_own_user(drawn) if "SLURM_JOB_ID" in os.environ else ""
    return JobSecret(drawn, name, files, credential, is_open=not files and not credential)


def is_secret_name(name: object) -> bool:
    return isinstance(name, str) and len(name) == ID_LENGTH and all(letter in "0123456789abcdef" for letter in name)


def read_secret_file(name: str) -> str:
    """Return the token from a file of this user by that name in the job's folder or the home; empty if there is none."""
    return _call_in_time(lambda: next(filter(None, map(_read_private_file, _secret_paths(name))), "")) or ""


def _secret_paths(name: str) -> list[str]:
    folders = [os.getcwd(), os.path.expanduser("~")]
    return [f"{folder}/.gpuready-rollcall-{name}" for folder in dict.fromkeys(folders) if folder.startswith("/")]


def _write_secret_files(name: str, token: str) -> Iterator[str]:
    for path in _secret_paths(name):
        if not is_network_disk(os.path.dirname(path)):
            continue
        try:
            fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            with open(fd, "w", encoding="ascii") as file:
                file.write(token)
        except OSError:
            continue
        if _read_private_file(path) == token:  # else this disk has no owners or modes
            yield path
        else:
            os.unlink(path)


def _read_private_file(path: str) -> str:
    """Return the text of a file that belongs to this user and that nobody else may read; else nothing."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return ""
    with open(fd, encoding="ascii", errors="replace") as file:
        found = os.fstat(file.fileno())
        is_private = stat.S_ISREG(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
        return file.read(200) if is_private else ""


def is_network_disk(folder: str, mounts: str = "/proc/self/mountinfo") -> bool:
    """Whether a folder is on a file system that other hosts have too; a dead disk is not touched for this."""
    longest, kind = "", ""
    try:
        with open(mounts, encoding="utf-8", errors="replace") as file:
            # 36 35 98:0 / /home rw,relatime shared:1 - nfs4 server:/home rw
            rows = [line.partition(" - ")[::2] for line in file]
    except OSError:
        return False
    for left, right in rows:
        point = left.split()[4].replace("\\040", " ").rstrip("/")
        if (f"{folder}/").startswith(f"{point}/") and len(point) >= len(longest):
            longest, kind = point, right.split()[0]
    return kind in NETWORK_DISKS


def _call_in_time(work: Callable[[], Answer]) -> Answer | None:
    """Call in a thread that is abandoned at the deadline: a disk may not answer."""
    answers: list[Answer] = []
    thread = threading.Thread(target=lambda: answers.append(work()), daemon=True)
    thread.start()
    thread.join(DISK_SECONDS)
    return answers[0] if answers else None


MUNGE_SECONDS = 3.0
DECODED_STATUSES = (0, 17)
"""Success, and a replay: another rank of this node has decoded the same credential before."""


def encode_for_own_user(text: str) -> str:
    """Return a credential that only this user can decode, on nodes with the same munge key; empty without munge."""
    return _run_munge(("munge", "--ttl=-1", f"--restrict-uid={os.getuid()}"), text, (0,)).strip()


def decode_from_own_user(credential: object) -> str:
    """Return the text that this user has encoded; empty if it was another user, or there is no munge."""
    if not isinstance(credential, str) or not credential.startswith("MUNGE:"):
        return ""
    # STATUS:          Success (0)
    # UID:             root (0)
    head, _, text = _run_munge(("unmunge",), credential, DECODED_STATUSES).partition("\n\n")
    rows = dict(line.split(":", 1) for line in head.splitlines() if ":" in line)
    return text if rows.get("UID", "").endswith(f"({os.getuid()})") else ""


def _run_munge(command: tuple[str, ...], text: str, statuses: tuple[int, ...]) -> str:
    """Return the output; the text goes through a pipe, as arguments are visible to everybody."""
    try:
        ran = subprocess.run(command, input=text.encode(), capture_output=True, timeout=MUNGE_SECONDS, check=False)
    except (OSError, subprocess.SubprocessError):
        return ""
    return ran.stdout.decode("ascii", "replace") if ran.returncode in statuses else ""
