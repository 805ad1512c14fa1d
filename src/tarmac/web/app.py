"""The app: which question is answered where. Answers are those of the command line; nothing is changed by any of them."""

from __future__ import annotations

import asyncio
import contextlib
import secrets

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from tarmac import system
from tarmac.web import asked
from tarmac.web.desk import Desk, Said, sentence
from tarmac.web.guard import Guard

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from starlette.types import ASGIApp

    Handler = Callable[[Request], Awaitable[Response]]

LOG, RECORDING = 32 << 20, 16 << 20
"""The largest log and the largest recording, in bytes."""
BODY = 30.0
"""Seconds in which a body must be here."""
UPLOADS = 2
"""How many bodies are taken at the same time: each is held in memory."""
REPORTS = 8
"""How many reports are kept to be looked at."""
WAIT = 15.0
"""Seconds that the page may wait for all parts, at most."""
STATIC = {"/page.js": "text/javascript", "/page.css": "text/css", "/style.css": "text/css"}
WARM = "framework=transformers&gpu=h100&model=qwen2.5-0.5b"
"""A question that every worker answers before the first is asked, so that nobody waits for its modules."""
# The report's own policy stands in it, with the hashes of its style and script; here it has no origin, and so no cookie.
SANDBOX = "sandbox allow-scripts allow-downloads allow-modals; frame-ancestors 'none'"


def build(
    *,
    token: str,
    hosts: Sequence[str],
    port: int,
    folders: Sequence[str],
    body_seconds: float = BODY,
    room: int | None = None,
) -> ASGIApp:
    """The whole app behind its guard. Each worker stands in one of ``folders``."""
    desk: list[Desk] = []

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        from tarmac.system.crew import Crew

        crew = Crew("tarmac.web.worker", folders, slow=len(folders) - 1)
        desk.append(Desk(crew, room))
        warm = [asyncio.ensure_future(_warmed(desk[0], number)) for number in range(len(folders))]
        try:
            yield
        finally:
            for task in warm:
                task.cancel()
            await crew.stop()

    uploads = asyncio.Semaphore(UPLOADS)
    reports: dict[str, bytes] = {}

    def command(name: str) -> Handler:
        async def answer(request: Request) -> Response:
            words = asked.words(name, request.query_params.multi_items())
            return _answer(await desk[0].answer(words, slow=name == "fit"))

        return answer

    async def contracts(request: Request) -> Response:
        name = "contract show" if "framework" in request.query_params else "contract list"
        return await command(name)(request)

    def offer(*names: str) -> Handler:
        async def answer(request: Request) -> Response:
            if request.query_params:
                raise asked.Wrong("there is nothing to ask here: leave the query out")
            return _answer(await desk[0].answer(names, "offer"))

        return answer

    async def whatif(request: Request) -> Response:
        pairs = [(k, v) for k, v in request.query_params.multi_items() if k != "wait"]
        parts = asked.parts(pairs)
        return Response(
            await desk[0].whatif(parts, _wait(request.query_params.get("wait", "0"))), media_type="application/json"
        )

    async def diagnose(request: Request) -> Response:
        words = ["diagnose", "--json", *_framework(request, "--for="), "run.log"]
        async with uploads:
            return _answer(await desk[0].read(words, "run.log", await _body(request, LOG, body_seconds)))

    async def report(request: Request) -> Response:
        named = _framework(request, "")
        words = ["report", "--on", "recording.json", "-o", "-", "--", *named]
        async with uploads:
            said = await desk[0].read(words, "recording.json", await _body(request, RECORDING, body_seconds))
        if said.status != 200:
            return _answer(said)
        name = secrets.token_urlsafe(16)
        while len(reports) >= REPORTS:
            del reports[next(iter(reports))]
        reports[name] = said.text
        return _report(said.text, {"location": f"/report/{name}"})

    async def kept_report(request: Request) -> Response:
        found = reports.get(request.path_params["name"])
        return _report(found) if found is not None else _answer(sentence(404, "there is no such report any more"))

    async def page(request: Request) -> Response:
        return Response(_file("page.html"), media_type="text/html")

    async def static(request: Request) -> Response:
        path = request.url.path
        return Response(_file(path[1:]), media_type=STATIC[path])

    routes = [
        Route("/", page),
        *(Route(path, static) for path in STATIC),
        *(Route(f"/api/{name}", command(name)) for name in ("check", "plan", "fit", "env", "explain")),
        Route("/api/contracts", contracts),
        Route("/api/gpus", offer("gpus")),
        Route("/api/models", offer("models")),
        Route("/api/choices", offer("gpus", "models", "torches", "drivers", "systems")),
        Route("/api/whatif", whatif),
        Route("/api/diagnose", diagnose, methods=["POST"]),
        Route("/api/report", report, methods=["POST"]),
        Route("/report/{name}", kept_report),
    ]
    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers=_HANDLERS)
    return Guard(app, token=token, hosts=hosts, port=port)


async def _warmed(desk: Desk, number: int) -> None:
    """Every worker has its modules loaded when it is first asked; what goes wrong here will be told to who asks."""
    from starlette.datastructures import QueryParams

    parts = asked.parts(QueryParams(WARM).multi_items())
    words = [parts["check"], parts["plan"], parts["env"], parts["memory"]]
    for one, how in zip(words, ("brief", "brief", "brief", "quick"), strict=True):
        await desk._asked({"words": list(one), "how": how}, b"", 60.0, False)
    if number == 0:
        await desk.answer(("gpus", "models", "torches", "drivers", "systems"), "offer")


# -- answers ------------------------------------------------------------------------------------------------------


def _answer(said: Said) -> Response:
    more = {"tarmac-exit": str(said.more["exit"])} if "exit" in said.more else {}
    more |= {"connection": "close"} if said.status == 413 else {}
    return Response(said.text, said.status, more, "application/json")


def _report(page: bytes, more: dict[str, str] | None = None) -> Response:
    return Response(page, 200, {"content-security-policy": SANDBOX, **(more or {})}, "text/html")


async def _wrong(request: Request, bad: Exception) -> Response:
    return _answer(sentence(400, str(bad)))


async def _too_large(request: Request, bad: Exception) -> Response:
    assert isinstance(bad, _Body)
    return Response(sentence(bad.status, str(bad)).text, bad.status, {"connection": "close"}, "application/json")


async def _http(request: Request, bad: Exception) -> Response:
    status = getattr(bad, "status_code", 500)
    said = {404: "there is nothing here", 405: "this cannot be asked so: GET asks, POST sends a log or a recording"}
    return _answer(sentence(status, said.get(status, "this request is not understood")))


async def _failed(request: Request, bad: Exception) -> Response:
    return _answer(sentence(500, f"tarmac failed over this question: {type(bad).__name__}"))


class _Body(Exception):
    """A body that is too large, too late, or none."""

    def __init__(self, status: int, text: str):
        super().__init__(text)
        self.status = status


_HANDLERS = {asked.Wrong: _wrong, _Body: _too_large, 404: _http, 405: _http, Exception: _failed}


# -- requests -----------------------------------------------------------------------------------------------------


async def _body(request: Request, most: int, seconds: float) -> bytes:
    """The body, in memory, no larger than allowed and no later."""
    stated = request.headers.get("content-length", "")
    if stated.isdecimal() and int(stated) > most:
        raise _Body(413, f"larger than {most >> 20} MiB: use the command line for it")
    try:
        body = await asyncio.wait_for(_collected(request, most), seconds)
    except (TimeoutError, asyncio.TimeoutError):
        raise _Body(408, f"not here within {seconds:.0f} s") from None
    except ClientDisconnect:
        raise _Body(400, "the connection ended before the whole was here") from None
    if not body:
        raise _Body(400, "there is nothing in it: send the file as the body")
    return body


async def _collected(request: Request, most: int) -> bytes:
    held = bytearray()
    async for piece in request.stream():
        held += piece
        if len(held) > most:
            raise _Body(413, f"larger than {most >> 20} MiB: use the command line for it")
    return bytes(held)


def _framework(request: Request, flag: str) -> list[str]:
    pairs = request.query_params.multi_items()
    if any(key != "framework" for key, _ in pairs) or len(pairs) > 1:
        raise asked.Wrong("only framework can be told beside what is sent")
    named = [value for _, value in pairs if value.strip()]
    return [flag + asked._shaped("check", "framework", value) for value in named]


def _wait(text: str) -> float:
    if not text.isascii() or not text.isdecimal() or len(text) > 3:
        raise asked.Wrong(f"wait takes whole seconds, not {text[:20]!r}")
    return min(float(text), WAIT)


def _file(name: str) -> str:
    """A file of ours; the name is one of the table above, and the style is the report's own."""
    here = __file__.rpartition("/")[0]
    folder = f"{here}/../render/html/templates" if name == "style.css" else f"{here}/static"
    if name not in _FILES:
        _FILES[name] = system.Live().read(f"{folder}/{name}") or ""
    return _FILES[name]


_FILES: dict[str, str] = {}
