"""``gpuready mcp`` as a server: HTTP, what is refused there, the command itself."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import signal
import socket
import subprocess
import sys

import httpx2
import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

from tests.mcp.agents import READERS, START
from tests.running import QUIET, SRC
from tests.running import gpuready as command

TOKEN = "a-token-of-thirty-two-letters-000"


# -- HTTP (E13, E14) ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def served(place):
    """A server over HTTP on a free port; its address."""
    env = QUIET | {"PYTHONPATH": str(SRC), "GPUREADY_MCP_TOKEN": TOKEN}
    process = subprocess.Popen(
        [sys.executable, "-c", START, "mcp", "--http"], cwd=place, env=env, stderr=subprocess.PIPE, text=True
    )
    line = process.stderr.readline()
    assert "listening on http://127.0.0.1:" in line, line + process.stderr.read()
    assert TOKEN not in line
    yield int(line.rpartition(":")[2].partition("/")[0])
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) in (0, 143, -15)


BODY = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "explain", "arguments": {}}})


def asked(port, method="POST", path="/mcp", socket_of=None, **heads):
    """One request; the status. Heads are given by their names with _ for -; None leaves one out."""
    settings = {"Host": f"127.0.0.1:{port}", "Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    settings |= {"Accept": "application/json, text/event-stream"}
    settings |= {name.replace("_", "-"): value for name, value in heads.items()}
    link = socket_of or http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    link.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
    for name, value in settings.items():
        if value is not None:
            link.putheader(name, value)
    link.putheader("Content-Length", str(len(BODY)))
    link.endheaders(BODY.encode())
    answer = link.getresponse()
    return answer.status, answer.read().decode()


@pytest.mark.parametrize(
    ("requested", "status"),
    [
        ({"Host": "evil.example"}, 403),
        ({"Host": "evil.example:80"}, 403),
        ({"Host": "127.0.0.1"}, 403),
        ({"Host": "127.0.0.1.evil.example"}, 403),
        ({"Host": None}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://127.0.0.1:1"}, 403),
        ({"Authorization": None}, 401),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Authorization": f"Basic {TOKEN}"}, 401),
        ({"Authorization": f"Bearer {TOKEN}x"}, 401),
        ({"Authorization": None, "path": f"/mcp?token={TOKEN}"}, 401),
        ({"path": f"/mcp?token={TOKEN}"}, 401),
        ({"method": "GET"}, 405),
        ({"method": "GET", "path": "/mcp?method=tools/call&name=prove"}, 405),
        ({"method": "DELETE"}, 405),
        ({"method": "OPTIONS", "Origin": "https://evil.example", "Access_Control_Request_Method": "POST"}, 403),
        ({"method": "PUT"}, 405),
        ({"Content_Type": "text/plain"}, 400),  # what a form of another page could send
        ({"path": "/"}, 404),
        ({"path": "/mcp/../etc/passwd"}, 404),
    ],
)
def test_what_a_browser_or_a_stranger_sends_is_refused(served, requested, status):
    nameless = requested.get("Host", "") is None
    try:
        found, text = asked(served, **requested)
    except ConnectionResetError:
        assert nameless  # the HTTP parser was first, and closes before it has read the body
        return
    if nameless and found == 400:
        return
    assert found == status and '"rules"' not in text and TOKEN not in text


def test_a_name_that_is_rebound_is_refused_on_a_connection_that_was_good(served):
    link = http.client.HTTPConnection("127.0.0.1", served, timeout=60)
    assert asked(served, socket_of=link)[0] != 403
    assert asked(served, socket_of=link, Host=f"evil.example:{served}")[0] == 403
    assert asked(served, socket_of=link, Host=f"localhost:{served}")[0] != 403


def test_it_listens_on_loopback_only(served):
    others = {row[4][0] for row in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)}
    for address in others - {"127.0.0.1"}:
        if not address.startswith("127."):
            with pytest.raises(OSError):
                socket.create_connection((address, served), 2)


def test_silent_connections_keep_no_agent_out(served):
    """The guard of ``gpuready serve``: tests/web/test_connections.py has its bounds one by one."""
    silent = []
    try:
        for _ in range(520):
            silent.append(socket.create_connection(("127.0.0.1", served), 60))
            silent[-1].sendall(b"POST /mcp HTTP/1.1\r\nHost: x\r\n")
        assert asked(served)[0] != 503
        silent[0].settimeout(60)
        with contextlib.suppress(ConnectionError):
            assert silent[0].recv(1) == b""  # the oldest made room
    finally:
        for one in silent:
            one.close()


HEADS = (
    f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n"
)


@pytest.mark.parametrize(
    ("heads", "body", "status"),
    [
        ("Content-Length: 99999999999\r\n", b"", b"413"),
        (f"X: {'x' * (64 << 10)}\r\n", b"", b"400"),
        ("".join(f"X-{number}: {'x' * 90}\r\n" for number in range(900)), b"", b"400"),
        ("Transfer-Encoding: chunked\r\n", b"100000\r\n" + b" " * (1 << 20) + b"\r\n", b"413"),
        ("Content-Length: 0\r\n", b"", b"400"),
    ],
    ids=["declared", "one header", "many headers", "chunked", "empty"],
)
def test_what_is_too_large_is_refused(served, heads, body, status):
    with socket.create_connection(("127.0.0.1", served), 60) as link:
        link.sendall((HEADS % served + heads + "\r\n").encode())
        with contextlib.suppress(ConnectionError):
            for _ in range(9 if body else 0):
                link.sendall(body)
            assert link.recv(99).split()[1] == status


def test_a_body_that_does_not_come_is_given_up():
    """In this process, with a short time."""
    from gpuready.mcp.http_transport import AgentGuard

    class Guard(AgentGuard):
        body_seconds = 0.1

    sent, scope = [], {"type": "http", "method": "POST", "path": "/mcp", "query_string": b""}
    scope["headers"] = [(b"host", b"h:1"), (b"authorization", f"Bearer {TOKEN}".encode())]

    async def send(message):
        sent.append(message)

    guard = Guard(None, token=TOKEN, hosts=["h:1"])
    asyncio.run(guard(scope, lambda: asyncio.sleep(60), send))
    assert sent[0]["status"] == 408


def test_logs_leave_room_for_other_questions():
    from gpuready.mcp.server import ToolServer
    from gpuready.workflow.allowed_paths import AllowedPaths

    server = ToolServer(AllowedPaths([]))
    assert server.log_limiter is not server.light_limiter and server.log_limiter.total_tokens < 4


def test_the_same_bytes_over_http(served, portal, place):
    async def call():
        async with (
            httpx2.AsyncClient(headers={"Authorization": f"Bearer {TOKEN}"}) as http,
            Client(streamable_http_client(f"http://127.0.0.1:{served}/mcp", http_client=http)) as client,
        ):
            assert {tool.name for tool in (await client.list_tools()).tools} == READERS
            found = await client.call_tool(
                "check", {"frameworks": ["transformers"], "on": "h200.json", "detail": "full"}
            )
            refused = await client.call_tool("check", {"on": "/etc/passwd"})
            none = await client.call_tool("install_apply", {"plan_id": "x"})
            return found.content[1].text, refused.is_error, none.is_error

    text, *refused = portal.call(call)
    assert text == command("check", "transformers", "--on", "h200.json", "--json", cwd=place).out
    assert refused == [True, True]


# -- the command --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (("--port", "80"), "go with --http"),
        (("--http", "--port", "99999"), "--port takes"),
        (("--http", "--token", "short"), "a token has from 16"),
        (("--root", "/no/such/folder"), "is not a folder"),
        (("--json",), "leave out --json"),
    ],
)
def test_the_command_refuses_in_one_sentence(argv, says):
    ran = command("mcp", *argv)
    assert ran.code == 2 and says in ran.err and "Traceback" not in ran.err
    assert ran.out == "" if "--json" not in argv else json.loads(ran.out)["error"]["exit"] == 2


def test_without_the_sdk_the_command_says_what_to_install(tmp_path):
    (tmp_path / "mcp_types.py").write_text("raise ImportError('no mcp_types here')\n")
    ran = command("mcp", PYTHONPATH=f"{tmp_path}:{SRC}")
    assert ran.code == 2 and "mcp>=2" in ran.err


def test_the_end_of_stdin_is_the_end_of_the_server(place):
    ran = command("mcp", cwd=place)  # it has a deadline
    assert ran.code == 0 and ran.out == ""
