"""On the nodes of a Slurm cluster, munge vouches for the ranks of a job."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from gpuready.cluster import Rendezvous
from gpuready.rollcall import job_secret
from tests.rollcall.strangers import TWO_HOSTS, Job, gone, intrude


@pytest.fixture
def munge_daemon(monkeypatch):
    """A real munged with a key of its own, and its two programs first on PATH; not below pytest's folder, which no other user may enter."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("munge", "unmunge"))):
        pytest.skip("NO munge: install munge, and run as root")
    folder = Path(tempfile.mkdtemp())
    (folder / "bin").mkdir(parents=True)
    (folder / "key").write_bytes(os.urandom(128))
    (folder / "key").chmod(0o400)
    for name in ("munge", "unmunge"):
        script = folder / "bin" / name
        script.write_text(f'#!/bin/sh\nexec {shutil.which(name)} --socket={folder}/socket "$@"\n')
        script.chmod(0o755)
    folder.chmod(0o755)
    files = [f"--{what}-file={folder}/{what}" for what in ("key", "pid", "log", "seed")]
    words = ["/usr/sbin/munged", "--foreground", "--force", f"--socket={folder}/socket", *files]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as daemon:
        while not (folder / "socket").exists():
            assert daemon.poll() is None
            time.sleep(0.01)
        monkeypatch.setenv("PATH", f"{folder}/bin:{os.environ['PATH']}")
        monkeypatch.setenv("SLURM_JOB_ID", "7")
        yield folder / "bin"
        daemon.terminate()
    shutil.rmtree(folder)


def test_on_a_slurm_cluster_munge_vouches_for_the_ranks(munge_daemon, other_hosts):
    job = Job(**TWO_HOSTS)
    job.start(0)
    assert b'"elsewhere":"secret"' in intrude(job.port)
    job.start(1)
    answers = job.end()
    assert gone(answers), answers
    assert job_secret.OPEN_NOTE not in answers[0].notes and not list(other_hosts.glob(".gpuready*"))


def test_munge_tells_the_token_to_its_user_alone(munge_daemon):
    credential = job_secret.encode_for_own_user("token")
    assert [job_secret.decode_from_own_user(credential) for _ in range(3)] == ["token"] * 3, "every rank of a node"
    stranger = subprocess.run([munge_daemon / "unmunge"], input=credential.encode(), capture_output=True, user=65534)
    assert stranger.returncode and b"token" not in stranger.stdout
    words = [munge_daemon / "munge"]
    forged = subprocess.run(words, input=b"theirs", capture_output=True, user=65534).stdout.decode()
    assert forged.startswith("MUNGE:") and job_secret.decode_from_own_user(forged.strip()) == ""
    assert [job_secret.decode_from_own_user(other) for other in (None, 7, "", "MUNGE:rubbish:", credential[:-9])] == [
        ""
    ] * 5


def test_a_cluster_without_munge_is_as_before(monkeypatch, other_hosts):
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("PATH", str(other_hosts))
    secret = job_secret.hold_secret(Rendezvous(0, 2, 0, **TWO_HOSTS), "")
    assert secret.is_open and not secret.credential
