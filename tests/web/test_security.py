"""What is refused: another host, another site, no token, a path, too much, too slow. Nothing of it leaves a trace of code."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket

import pytest

from tests.web.served import TOKEN, ask_until_complete

PAGES = ("/", "/page.js", "/page.css", "/style.css", "/report/x")
QUESTIONS = (
    "/api/check?framework=trl&on=h100", "/api/plan?framework=trl&on=h100", "/api/env?framework=trl&on=h100", "/api/explain",
    "/api/fit?model=qwen2.5-0.5b&on=h100", "/api/contracts", "/api/gpus", "/api/models", "/api/whatif?framework=trl", "/api/choices",
)  # fmt: skip
SEALED = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


def cookie(server) -> str:
    said = server.ask(f"/?token={TOKEN}", token=None).headers["set-cookie"]
    return said.partition(";")[0]


def refused(reply, status: int) -> str:
    """The one sentence of a refusal."""
    assert reply.status == status, (reply.status, reply.text[:200])
    error = reply.json["error"]
    assert "Traceback" not in error and "\n" not in error and 'File "' not in error
    return error


# -- the token ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [*PAGES, *QUESTIONS])
def test_nothing_without_the_token(server, path):
    for token in (None, "wrong", TOKEN + "x", TOKEN[:-1], ""):
        reply = server.ask(path, token=token)
        assert reply.status == 401
        assert "set-cookie" not in reply.headers
        assert len(reply.body) < 600


@pytest.mark.parametrize("path", ("/api/diagnose", "/api/report"))
def test_nothing_can_be_sent_without_the_token(server, path):
    assert server.ask(path, "POST", b"x", token=None).status == 401


@pytest.mark.parametrize(
    "requested", [f"Basic {TOKEN}", TOKEN, f"Bearer {TOKEN} x", "Bearer ", "bearer", "Bearer \xe9" + TOKEN]
)
def test_the_token_is_given_as_bearer_or_not_at_all(server, requested):
    assert server.ask("/api/gpus", token=None, authorization=requested).status == 401


def test_a_token_in_a_query_opens_the_page_alone_and_does_not_stay_there(server):
    assert server.ask(f"/api/gpus?token={TOKEN}", token=None).status == 401
    reply = server.ask(f"/?gpu=h100&token={TOKEN}&framework=trl", token=None)
    assert reply.status == 200 and TOKEN not in reply.text
    assert "0;url=/?gpu=h100&amp;framework=trl" in reply.text
    assert "HttpOnly" in reply.headers["set-cookie"] and "SameSite=Strict" in reply.headers["set-cookie"]
    assert TOKEN not in reply.headers["set-cookie"]
    assert server.ask("/?token=wrong", token=None).status == 401


def test_what_a_query_says_is_no_markup_in_the_page_that_goes_on(server):
    reply = server.ask(f'/?token={TOKEN}&gpu="><script>alert(1)</script>', token=None)
    assert "<script" not in reply.text


def test_the_cookie_opens_pages_and_with_the_header_answers(server):
    own = cookie(server)
    assert server.ask("/", token=None, cookie=own).status == 200
    assert server.ask("/api/gpus", token=None, cookie=own, x_gpuready="1").status == 200
    assert server.ask("/api/gpus", token=None, cookie=own).status == 403  # what a link or an image could send
    other = own.partition("=")[0] + "=" + "0" * 64
    assert server.ask("/", token=None, cookie=other).status == 401
    assert server.ask("/", token=None, cookie=f"gpuready-1={own.partition('=')[2]}").status == 401


def test_no_session_can_be_fixed_by_somebody_else(server):
    """A cookie that was there before is not taken over by the exchange."""
    planted = cookie(server).partition("=")[0] + "=planted"
    reply = server.ask(f"/?token={TOKEN}", token=None, cookie=planted)
    assert "planted" not in reply.headers["set-cookie"]
    assert server.ask("/", token=None, cookie=planted).status == 401


# -- hosts and sites ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1", "127.0.0.1:1", "localhost", "127.0.0.1.evil.example:{port}", "", "0:{port}"]
)
def test_another_host_is_refused(server, host):
    refused(server.ask("/api/gpus", host=host.format(port=server.port)), 403)


def test_its_own_names_are_taken(server):
    assert server.ask("/api/gpus", host=f"localhost:{server.port}").status == 200
    assert server.ask("/api/gpus", host=f"LOCALHOST:{server.port}").status == 200


def test_a_second_request_on_the_same_socket_is_looked_at_too(server):
    """DNS rebinding: the connection was opened under one name, and the next request bears another."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as line:
        reader = line.makefile("rb")
        for host, wanted in ((server.host, b"200"), (f"evil.example:{server.port}", b"403")):
            line.sendall(f"GET /api/gpus HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())
            assert reader.readline().split()[1] == wanted
            length = 0
            while header := reader.readline().strip():
                if header.lower().startswith(b"content-length:"):
                    length = int(header.split(b":")[1])
            reader.read(length)


def test_two_hosts_are_none(server):
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as line:
        line.sendall(
            f"GET / HTTP/1.1\r\nHost: {server.host}\r\nHost: evil.example\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode()
        )
        assert line.recv(100).split()[1] in (b"400", b"403")


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "https://127.0.0.1:{port}", "http://127.0.0.1:1", "file://"]
)
def test_another_origin_is_refused(server, origin):
    result = origin.format(port=server.port)
    refused(server.ask("/api/gpus", origin=result), 403)
    refused(server.ask("/api/diagnose", "POST", b"x", origin=result), 403)
    assert server.ask("/", origin=result).status == 403


def test_its_own_origin_is_taken(server):
    assert server.ask("/api/gpus", origin=server.address).status == 200


def test_what_the_browser_tells_of_another_site_is_believed(server):
    def sent(path="/api/gpus", **fetch):
        return server.ask(path, **{f"sec_fetch_{name}": value for name, value in fetch.items()}).status

    assert sent(site="cross-site") == 403
    assert sent(site="same-site", mode="cors") == 403
    assert sent("/", site="cross-site", mode="navigate", dest="iframe") == 403
    assert sent("/", site="cross-site", mode="navigate", dest="document") == 200  # a link, and the token is there
    assert sent(site="same-origin", mode="cors") == 200


def test_a_form_of_another_site_cannot_post(server):
    own = cookie(server)
    for kind in ("application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/plain"):
        reply = server.ask("/api/diagnose", "POST", b"a=b", token=None, cookie=own, content_type=kind)
        refused(reply, 403)


def test_a_preflight_gets_nothing(server):
    reply = server.ask(
        "/api/diagnose", "OPTIONS", token=None, origin="http://evil.example", access_control_request_method="POST",
        access_control_request_headers="x-gpuready",
    )  # fmt: skip
    assert reply.status == 403
    assert server.ask("/api/diagnose", "OPTIONS").status == 405
    for one in (reply, server.ask("/api/gpus", origin=server.address)):
        assert not [name for name in one.headers if name.startswith("access-control")]


def test_every_answer_is_sealed(server):
    replies = [server.ask(path) for path in ("/", "/page.js", "/api/gpus", "/api/check?x=1", "/nothing")]
    replies += [server.ask("/", token=None), server.ask("/", host="evil"), server.ask("/api/gpus", "DELETE")]
    assert {one.status for one in replies} == {200, 400, 401, 403, 404, 405}
    for one in replies:
        assert {name: one.headers.get(name) for name in SEALED} == SEALED
        policy = one.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy and "unsafe" not in policy
        assert "server" not in one.headers


# -- paths --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    ["/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/page.js/../../app.py", "/static/page.js", "/..%2fapp.py",
     "/report/..%2f..%2fapp.py", "/report/../page.html", "//etc/passwd", "/page.html", "/app.py", "/api", "/api/", "/api/run",
     "/api/install", "/.%00./x"],
)  # fmt: skip
def test_no_path_leads_to_a_file(server, path):
    reply = server.ask(path)
    assert reply.status in (400, 404), (path, reply.status)
    assert b"root:" not in reply.body and b"import" not in reply.body


@pytest.mark.parametrize(
    "question",
    ["check?framework=trl&on={file}", "check?framework=trl&on=machine.json", "check?framework=trl&on=..", "check?framework={file}",
     "check?framework=trl&on=h100&contract={file}", "check?framework=trl&on=h100&config={file}", "check?framework=trl&model={file}",
     "check?framework=trl&python={file}", "check?framework=trl&on=h100&since={file}", "plan?framework=trl&on={file}",
     "plan?framework=trl&on=h100&source={file}", "plan?framework=trl&on=h100&bundle=x", "plan?framework=trl&on=h100&o=x",
     "plan?framework=trl&on=h100&find-links={file}", "fit?model={file}", "fit?model=config.json", "fit?model=x/llama-3.1-8b",
     "fit?model=train.py", "fit?model=llama-3.1-8b&trace=1", "fit?model=llama-3.1-8b&python={file}", "env?framework=trl&contract={file}",
     "contracts?contract={file}", "explain?code={file}", "whatif?framework=trl&gpu={file}", "whatif?model={file}", "whatif?on=h100"],
)  # fmt: skip
def test_no_question_names_a_file(server, tmp_path, question):
    """The file is a real recording: it would be read where a path came through."""
    file = tmp_path / "machine.json"
    file.write_text(json.dumps({"schema": 1, "kind": "recording", "host": "SECRET", "facts": []}))
    reply = server.ask("/api/" + question.format(file=file))
    assert "SECRET" not in reply.text
    refused(reply, 400)


# -- too much, too strange --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "question",
    ["check?framework=%00", "check?framework=trl&on=h100%0a", "check?framework=trl&on=h100&driver=%1b[31m", "check?framework=a'b",
     "check?framework=--json", "check?framework=trl&on=h100&on=h200", "check?nonsense=1", "check?framework=" + "a" * 300,
     "check?framework=trl&on=h100x99999999999", "check?framework=trl&on=h100&driver=9" * 3, "check?framework=trl&on=h100&ram=1e400GB",
     "check?framework=trl&on=h100&torch=%f0%9f%92%a9", "plan", "env", "env?framework=trl&framework=vllm", "fit", "fit?model=unheard-of",
     "fit?model=llama-3.1-8b&seq=-1", "fit?model=llama-3.1-8b&seq=99999999999999999999", "fit?model=llama-3.1-8b&fsdp=maybe",
     "fit?model=llama-3.1-8b&on=h100&micro-batch=1e9", "explain?code=XYZ999", "contracts?framework=unheard-of", "gpus?x=1",
     "whatif?count=0&gpu=h100", "whatif?count=99999&gpu=h100", "whatif?framework=trl&wait=x", "whatif?framework=trl&wait=-1",
     "whatif?%ff=1", "check?framework=trl&on=h100&strict=perhaps", "check?framework=trl&ignore=XYZ"],
)  # fmt: skip
def test_malformed_questions_get_one_sentence(server, question):
    refused(server.ask("/api/" + question), 400)


def test_a_long_query_is_refused(server):
    refused(server.ask("/api/check?framework=" + "a" * 5000), 414)


def test_a_refusal_of_a_part_stands_in_its_place(server):
    result = ask_until_complete(server, "/api/whatif?framework=trl&gpu=h100&model=unheard-of")
    assert result["pending"] == [] and result["parts"]["check"]["verdict"] == "undecided"
    assert "no model is known" in result["parts"]["memory"]["error"]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "TRACE"])
def test_questions_are_only_asked(server, method):
    assert server.ask("/api/check?framework=trl&on=h100", method, b"").status in (400, 405)
    assert server.ask("/", method, b"").status in (400, 405)


def test_what_is_sent_is_not_asked_for(server):
    assert server.ask("/api/diagnose").status == 405
    assert server.ask("/api/report").status == 405


def test_a_huge_body_is_refused_before_it_comes(server):
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as line:
        head = f"POST /api/diagnose HTTP/1.1\r\nHost: {server.host}\r\nAuthorization: Bearer {TOKEN}\r\n"
        line.sendall(f"{head}Content-Length: {1 << 40}\r\n\r\n".encode())
        assert line.recv(200).split()[1] == b"413"


def test_a_body_that_hides_its_size_is_cut(server):
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as line:
        head = f"POST /api/report HTTP/1.1\r\nHost: {server.host}\r\nAuthorization: Bearer {TOKEN}\r\n"
        line.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
        piece = b"100000\r\n" + b"x" * 0x100000 + b"\r\n"
        try:
            for _ in range(24):
                line.sendall(piece)
        except OSError:
            pass  # it hung up, as it may
        with contextlib.suppress(ConnectionResetError):
            assert line.recv(200).split()[1] == b"413"
    assert server.ask("/api/gpus").status == 200


def test_an_empty_body_is_nothing(server):
    refused(server.ask("/api/diagnose", "POST", b""), 400)


def test_a_slow_body_is_given_up(tmp_path):
    from gpuready.web.app import build_web_app

    app = build_web_app(token=TOKEN, hosts=["h:1"], port=1, folders=[str(tmp_path)], body_seconds=0.2)
    sent = []

    async def receive():
        await asyncio.sleep(0.05)
        return {"type": "http.request", "body": b"x", "more_body": True}

    async def send(message):
        sent.append(message)

    scope = {
        "type": "http", "method": "POST", "path": "/api/diagnose", "raw_path": b"/api/diagnose", "query_string": b"", "scheme": "http",
        "headers": [(b"host", b"h:1"), (b"authorization", f"Bearer {TOKEN}".encode())], "root_path": "", "http_version": "1.1",
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 1),
    }  # fmt: skip
    asyncio.run(asyncio.wait_for(app(scope, receive, send), 20))
    assert sent[0]["status"] == 408


def test_a_websocket_is_refused(server):
    reply = server.ask(
        "/", upgrade="websocket", connection="Upgrade", sec_websocket_key="x", sec_websocket_version="13"
    )
    assert reply.status in (200, 400, 403)  # as a plain page, or not at all
    assert "sec-websocket-accept" not in reply.headers
