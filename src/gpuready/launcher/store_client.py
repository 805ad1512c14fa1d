"""The few requests of torch's TCPStore that gpuready needs, spoken without torch: set, add, check, get.

Source: torch 2.13 torch/csrc/distributed/c10d/TCPStore.cpp and TCPStoreBackend.hpp. Numbers are in the machine's byte order.
"""

from __future__ import annotations

import socket
import struct

_VALIDATE, _SET, _GET, _ADD, _CHECK = 0, 1, 3, 4, 5
_MAGIC = 0x3C85F7CE
_READY = 0
MAX_VALUE = 1 << 20


class StoreClient:
    """One connection; OSError if the store does not answer in time."""

    def __init__(self, host: str, port: int, seconds: float):
        self.socket = socket.create_connection((host, port), seconds)
        self.socket.sendall(struct.pack("=BI", _VALIDATE, _MAGIC))

    def set_value(self, key: str, value: bytes) -> None:
        self.socket.sendall(struct.pack("=B", _SET) + _pack(key.encode()) + _pack(value))

    def add_one(self, key: str) -> int:
        """Count up and return the new count: the store decides who came first."""
        self.socket.sendall(struct.pack("=B", _ADD) + _pack(key.encode()) + struct.pack("=q", 1))
        return int(struct.unpack("=q", self._receive(8))[0])

    def get_value(self, key: str) -> bytes | None:
        """Return a value; None if there is none yet."""
        self.socket.sendall(struct.pack("=BQ", _CHECK, 1) + _pack(key.encode()))
        if self._receive(1)[0] != _READY:
            return None
        self.socket.sendall(struct.pack("=B", _GET) + _pack(key.encode()))
        length = struct.unpack("=Q", self._receive(8))[0]
        if length > MAX_VALUE:
            raise OSError("the store's value is too long")
        return self._receive(length)

    def _receive(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            piece = self.socket.recv(count - len(data))
            if not piece:
                raise OSError("the store has closed the connection")
            data += piece
        return data

    def close(self) -> None:
        self.socket.close()


def _pack(data: bytes) -> bytes:
    return struct.pack("=Q", len(data)) + data
