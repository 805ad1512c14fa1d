"""Strangers at a roll-call as a second real user of this machine: without the secret, with a recorded line, and in masses."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from gpuready.rollcall import wire
from tests.rollcall.strangers import EVIL, Job, gone, greet
from tests.running import SRC

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")

STRANGER = """
import json, os, socket, sys, time
port, recorded, count = int(sys.argv[1]), bytes.fromhex(sys.argv[2]), int(sys.argv[3])
"a".encode("idna")  # loaded now: nobody may not read this Python
os.setgroups([]); os.setgid(65534); os.setuid(65534)
kept, heard = [], b""
for number in range(count):
    try:
        conn = socket.create_connection(("127.0.0.1", port), 30)
        kept.append(conn)
        conn.settimeout(30)
        if number % 2 or not recorded:
            conn.sendall(b"GPUREADY-ROLLCALL/1 x\\n")
            heard += conn.recv(4096)
            conn.sendall(recorded or b' {"rank": 1}\\n')
    except OSError:
        continue
for file in [f"/proc/{sys.argv[4]}/environ", f"/proc/{sys.argv[4]}/mem"]:
    try:
        open(file, "rb").read(1)
        heard += b"LEAKED"
    except OSError:
        pass
for conn in kept[:20]:
    try:
        heard += conn.recv(4096)
    except OSError:
        pass
sys.stdout.buffer.write(heard)
sys.stdout.flush()
sys.stdin.read()  # keeps its connections until the job has gone
"""


def intrude_as_nobody(port: int, recorded: bytes = b"", count: int = 4) -> subprocess.Popen:
    words = [sys.executable, "-I", "-c", STRANGER, str(port), recorded.hex(), str(count), str(os.getpid())]
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={"PYTHONPATH": str(SRC)})


def record_a_hello(job: Job) -> bytes:
    """What a rank of the same secret would send now, with the salt of this connection: it is good for no other."""
    from gpuready.rollcall.hello import Hello

    conn, greeting = greet(job.port)
    conn.close()
    hello = Hello(rank=1, world_size=2, host="evil", pid=1, run_id="job-7", trouble="x", fix=EVIL)
    return wire.encode_message(hello.to_json(), job.token or "guessed", greeting["salt"])


@pytest.mark.parametrize("kind", ["wrong", "replay", "masses"])
def test_another_user_takes_no_rank_and_stops_no_job(kind):
    job = Job("a token")
    job.start(0)
    recorded = record_a_hello(job) if kind != "wrong" else b""
    stranger = intrude_as_nobody(job.port, recorded, 900 if kind == "masses" else 4)
    try:
        heard = os.read(stranger.stdout.fileno(), 1 << 20)  # it has made all its connections
        assert heard and b"a token" not in heard and b"LEAKED" not in heard and b'"go"' not in heard
        job.start(1)
        answers = job.end()
    finally:
        stranger.stdin.close()
        stranger.wait(60)
        stranger.stdout.close()
    assert gone(answers) and EVIL not in str(answers), answers
