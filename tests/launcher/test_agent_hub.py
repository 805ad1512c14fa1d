"""The hub lets in who has the token, and nobody else disturbs it."""

from __future__ import annotations

import contextlib
import json
import socket

import pytest

from gpuready.launcher.agent_hub import AgentHub
from tests.deadlines import wait_until


@pytest.fixture
def hub():
    made = AgentHub("s3cret")
    yield made
    made.close()


def connect(hub: AgentHub, data: bytes = b"") -> socket.socket:
    made = socket.create_connection(("127.0.0.1", hub.port))
    made.sendall(data)
    return made


def drained(hub: AgentHub, looks: int = 6) -> list[dict[str, object]]:
    """What comes in so many looks; by number, as a slow machine may be away for any time."""
    return [message for _ in range(looks) for _, message in hub.receive_messages(0.05)]


def line(**message: object) -> bytes:
    return json.dumps(message).encode() + b"\n"


HELLO = line(t="hello", token="s3cret", ranks=[])


def test_a_friend_is_heard(hub):
    with connect(hub, HELLO + line(t="beat", d=[]) + b'{"t": "be') as friend:
        assert [m["t"] for m in drained(hub)] == ["hello", "beat"]
        friend.sendall(b'at", "d": []}\nrubbish\n[1]\n{"x": 1}\n')
        assert [m["t"] for m in drained(hub)] == ["beat"]
    assert [m["t"] for m in drained(hub)] == ["gone"]


@pytest.mark.parametrize(
    "data",
    [b"GET / HTTP/1.1\r\n\r\n", b"\x80\x04\x95" * 100 + b"\n", line(t="hello", token="wrong"), line(t="end", r=0),
     b"x" * (1 << 20), line(t="hello"), b"[]\n", b'{"t": "hello", "token": ' + b"[" * 900 + b"\n"],
)  # fmt: skip
def test_strangers_are_turned_away(hub, data):
    with connect(hub) as stranger, connect(hub, HELLO):
        with contextlib.suppress(OSError):
            stranger.sendall(data)
        assert [m["t"] for m in drained(hub)] == ["hello"]
        assert hub.dropped == 1 and len(hub.links) == 1


def test_who_says_nothing_is_turned_away_in_time(hub):
    hub.patience = 0.2
    with connect(hub), connect(hub, b'{"t":'):
        assert wait_until(lambda: not list(hub.receive_messages(0.05)) and hub.dropped == 2)


def test_orders_reach_all(hub):
    with connect(hub, HELLO) as one, connect(hub, HELLO) as two:
        drained(hub)
        hub.broadcast_order(t="stop", signal=15, grace=1)
        for friend in (one, two):
            assert json.loads(friend.recv(1000)) == {"t": "stop", "signal": 15, "grace": 1}
