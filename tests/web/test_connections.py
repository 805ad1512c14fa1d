"""Silent and slow connections, and many of one client, keep nobody out."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import pytest
import uvicorn
from uvicorn.server import ServerState

from gpuready.web.http_server import BoundedProtocol

REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


async def answer(scope, receive, send):
    if scope["path"] == "/slow":
        await asyncio.sleep(30)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@contextlib.asynccontextmanager
async def serving(**bounds):
    """A server in this loop, with small bounds."""
    config = uvicorn.Config(answer, lifespan="off", log_level="critical", ws="none")
    config.load()
    state, protocol = ServerState(), type("Small", (BoundedProtocol,), bounds)
    server = await asyncio.get_running_loop().create_server(lambda: protocol(config, state, {}), "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], state
    finally:
        for one in list(state.connections):
            one.transport.abort()
        server.close()


async def is_closed(reader) -> bool:
    with contextlib.suppress(ConnectionError):
        return await asyncio.wait_for(reader.read(), 60) == b""
    return True


@pytest.mark.parametrize("drops", [b"", REQUEST[:9], REQUEST + REQUEST[:9]], ids=["silent", "half", "second"])
def test_a_request_that_does_not_come_is_given_up(drops):
    async def run():
        async with serving(header_seconds=0.1) as (port, state):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(drops)
            assert b"ok" in await asyncio.wait_for(reader.read(), 60) if REQUEST in drops else await is_closed(reader)
            await asyncio.sleep(0)
            assert not state.connections
            writer.close()

    asyncio.run(run())


def test_letter_by_letter_is_no_sign_of_life():
    async def run():
        async with serving(header_seconds=0.3) as (port, state):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            for letter in REQUEST * 9:
                writer.write(bytes([letter]))
                await asyncio.sleep(0.02)
                if not state.connections:
                    return
            raise AssertionError("it is still there")

    asyncio.run(run())


def test_a_request_that_is_worked_on_has_no_such_limit():
    async def run():
        async with serving(header_seconds=0.05, max_silent=2) as (port, state):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(REQUEST.replace(b"/ ", b"/slow "))
            await asyncio.sleep(0.2)
            assert len(state.connections) == 1

    asyncio.run(run())


def test_the_oldest_silent_connection_makes_room():
    async def run():
        async with serving(max_silent=5) as (port, state):
            kept = [await asyncio.open_connection("127.0.0.1", port) for _ in range(9)]
            assert await is_closed(kept[0][0]) and len(state.connections) <= 6
            kept[-1][1].write(REQUEST)
            assert b"200" in await asyncio.wait_for(kept[-1][0].readline(), 60)

    asyncio.run(run())


def test_one_client_has_a_limit_and_another_is_served():
    async def run():
        async with serving(max_of_client=4) as (port, state):
            kept = [await asyncio.open_connection("127.0.0.1", port) for _ in range(4)]
            for _, writer in kept:
                writer.write(REQUEST.replace(b"/ ", b"/slow "))
            while len(state.connections) < 4 or len(state.tasks) < 4:
                await asyncio.sleep(0.01)
            assert await is_closed((await asyncio.open_connection("127.0.0.1", port))[0])
            reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0))
            writer.write(REQUEST)
            assert b"200" in await asyncio.wait_for(reader.readline(), 60) and len(state.connections) == 5

    asyncio.run(run())


def test_520_silent_connections_keep_nobody_out(server):
    silent = []
    try:
        for _ in range(520):
            silent.append(socket.create_connection(("127.0.0.1", server.port), 60))
        assert server.ask("/api/contracts").status == 200
    finally:
        for one in silent:
            one.close()
