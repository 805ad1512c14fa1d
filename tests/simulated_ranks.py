"""Many ranks in one process, for the roll-call: real connections in its protocol, without torch."""

from __future__ import annotations

import selectors
import socket
import time

from gpuready.rollcall import wire
from gpuready.rollcall.hello import Hello

AT_ONCE = 1000
"""Connections that are being made at one time; a listener keeps only so many waiting."""


class SimulatedRanks:
    """Ranks first to last of a world; ``answers`` has the answer to each."""

    def __init__(self, port: int, ranks: range, world_size: int, token: str = "") -> None:
        self.port, self.token = port, token
        self.waiting = list(reversed(ranks))
        self.world_size, self.open = world_size, 0
        self.selector = selectors.DefaultSelector()
        self.answers: dict[int, dict] = {}

    def run(self, seconds: float) -> dict[int, dict]:
        end, count = time.monotonic() + seconds, len(self.waiting)
        while len(self.answers) < count and time.monotonic() < end:
            while self.waiting and self.open < AT_ONCE:
                self._start(self.waiting.pop())
            for key, _ in self.selector.select(0.1):
                self._step(key.fileobj, key.data)
        return self.answers

    def _start(self, rank: int) -> None:
        conn = socket.socket()
        conn.setblocking(False)
        conn.connect_ex(("127.0.0.1", self.port))
        self.open += 1
        self.selector.register(conn, selectors.EVENT_WRITE, {"rank": rank, "heard": b"", "salt": None})

    def _step(self, conn: socket.socket, mine: dict) -> None:
        if mine["salt"] is None and not mine["heard"] and self.selector.get_key(conn).events == selectors.EVENT_WRITE:
            conn.send(wire.GREETING + b"simulated\n")
            self.selector.modify(conn, selectors.EVENT_READ, mine)
            return
        try:
            more = conn.recv(65536)
        except ConnectionError:
            more = b""
        mine["heard"] += more
        if not more:
            self._done(conn, mine["rank"], {"closed": True})
        while b"\n" in mine["heard"]:
            line, _, mine["heard"] = mine["heard"].partition(b"\n")
            self._line(conn, mine, line)

    def _line(self, conn: socket.socket, mine: dict, line: bytes) -> None:
        if mine["salt"] is None:
            mine["salt"] = wire.decode_message(line[len(wire.GREETING) :], "", "")["salt"]
            rank = mine["rank"]
            hello = Hello(rank, self.world_size, rank % 8, f"node-{rank // 8}", 1000 + rank, f"machine-{rank // 8}",
                          clock=time.time(), versions={"torch": "2.13.0", "python": "3.11"})  # fmt: skip
            own = wire.encode_message(hello.to_json(), self.token, mine["salt"])
            mine["salt"] = wire.make_reply_salt(mine["salt"], own)
            conn.send(own)
            self.open -= 1
        else:
            self._done(conn, mine["rank"], wire.decode_message(line, self.token, mine["salt"]))

    def _done(self, conn: socket.socket, rank: int, said: dict) -> None:
        self.answers[rank] = said
        self.selector.unregister(conn)
        conn.close()
