"""Routes of ``gpuready serve``. Results are those of the command line; nothing changes the machine."""

from __future__ import annotations

import asyncio
import contextlib
import secrets

from starlette.applications import Starlette
from starlette.datastructures import QueryParams
from starlette.responses import Response
from starlette.routing import Route

from gpuready import system
from gpuready.web import asked, bodies
from gpuready.web.desk import Desk, Said, sentence
from gpuready.web.guard import Guard

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from starlette.requests import Request
    from starlette.types import ASGIApp

    Handler = Callable[[Request], Awaitable[Response]]

UPLOADS = 2
"""Each upload is kept in memory."""
REPORTS = 8
"""Rendered reports kept for viewing."""
WAIT = 15.0
"""The longest the page may wait for all parts."""
COMMANDS = ("check", "plan", "fit", "env", "explain")
OFFERS = ("gpus", "models", "torches", "drivers", "systems")
STATIC = {"/page.js": "text/javascript", "/page.css": "text/css", "/style.css": "text/css"}
WARM = "framework=transformers&gpu=h100&model=qwen2.5-0.5b"
"""Answered by every worker at start-up, so that the first user does not wait for module imports."""
# The report carries its own policy with the hashes of its style and script; sandboxed it has no origin, so no cookie.
SANDBOX = "sandbox allow-scripts allow-downloads allow-modals; frame-ancestors 'none'"


def build(
    *,
    token: str,
    hosts: Sequence[str],
    port: int,
    folders: Sequence[str],
    body_seconds: float = bodies.SECONDS,
    room: int | None = None,
) -> ASGIApp:
    """Build the app behind its guard. Each worker runs in one of ``folders``."""
    house = House(folders, body_seconds, room)
    app = Starlette(routes=house.routes(), lifespan=house.lifespan, exception_handlers=_HANDLERS)
    return Guard(app, token=token, hosts=hosts, port=port)


class House:
    """All routes and their shared state: the query service, kept reports, the upload limit."""

    desk: Desk

    def __init__(self, folders: Sequence[str], body_seconds: float, room: int | None):
        self.folders, self.body_seconds, self.room = folders, body_seconds, room
        self.uploads = asyncio.Semaphore(UPLOADS)
        self.reports: dict[str, bytes] = {}

    def routes(self) -> list[Route]:
        return [
            Route("/", self.page),
            *(Route(path, self.static) for path in STATIC),
            *(Route(f"/api/{name}", self.command(name)) for name in COMMANDS),
            Route("/api/contracts", self.contracts),
            Route("/api/gpus", self.offer("gpus")),
            Route("/api/models", self.offer("models")),
            Route("/api/choices", self.offer(*OFFERS)),
            Route("/api/whatif", self.whatif),
            Route("/api/diagnose", self.diagnose, methods=["POST"]),
            Route("/api/report", self.report, methods=["POST"]),
            Route("/report/{name}", self.kept_report),
        ]

    @contextlib.asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        from gpuready.system.crew import Crew

        crew = Crew("gpuready.web.worker", self.folders, slow=len(self.folders) - 1)
        self.desk = Desk(crew, self.room)
        warm = [asyncio.ensure_future(self._warmed(number)) for number in range(len(self.folders))]
        try:
            yield
        finally:
            for task in warm:
                task.cancel()
            await crew.stop()

    async def _warmed(self, number: int) -> None:
        """Warm one worker up; errors here would be reported again to whoever asks."""
        parts = asked.parts(QueryParams(WARM).multi_items())
        for name in ("check", "plan", "env", "memory"):
            await self.desk.warm(name, parts[name])
        if number == 0:
            await self.desk.answer(OFFERS, "offer")

    # -- queries --------------------------------------------------------------------------------------------------

    def command(self, name: str) -> Handler:
        async def answer(request: Request) -> Response:
            words = asked.words(name, request.query_params.multi_items())
            return _answer(await self.desk.answer(words, slow=name == "fit"))

        return answer

    async def contracts(self, request: Request) -> Response:
        name = "contract show" if "framework" in request.query_params else "contract list"
        return await self.command(name)(request)

    def offer(self, *names: str) -> Handler:
        async def answer(request: Request) -> Response:
            if request.query_params:
                raise asked.Wrong("there is nothing to ask here: leave the query out")
            return _answer(await self.desk.answer(names, "offer"))

        return answer

    async def whatif(self, request: Request) -> Response:
        parts = asked.parts(
            (key, value) for key, value in request.query_params.multi_items() if key != "wait"
        )
        wait = asked.seconds(request.query_params.get("wait", "0"), WAIT)
        return Response(await self.desk.whatif(parts, wait), media_type="application/json")

    # -- uploads --------------------------------------------------------------------------------------------------

    async def diagnose(self, request: Request) -> Response:
        named = asked.framework(request.query_params.multi_items())
        words = ["diagnose", "--json", *(f"--for={name}" for name in named), "run.log"]
        return _answer(await self._read(request, words, "run.log", bodies.LOG))

    async def report(self, request: Request) -> Response:
        named = asked.framework(request.query_params.multi_items())
        words = ["report", "--on", "recording.json", "-o", "-", "--", *named]
        said = await self._read(request, words, "recording.json", bodies.RECORDING)
        if said.status != 200:
            return _answer(said)
        name = secrets.token_urlsafe(16)
        while len(self.reports) >= REPORTS:
            del self.reports[next(iter(self.reports))]
        self.reports[name] = said.text
        return _report(said.text, {"location": f"/report/{name}"})

    async def _read(self, request: Request, words: Sequence[str], name: str, most: int) -> Said:
        async with self.uploads:
            body = await bodies.taken(request, most, self.body_seconds)
            return await self.desk.read(words, name, body)

    # -- pages ----------------------------------------------------------------------------------------------------

    async def kept_report(self, request: Request) -> Response:
        found = self.reports.get(request.path_params["name"])
        return (
            _report(found)
            if found is not None
            else _answer(sentence(404, "there is no such report any more"))
        )

    async def page(self, request: Request) -> Response:
        return Response(_file("page.html"), media_type="text/html")

    async def static(self, request: Request) -> Response:
        path = request.url.path
        return Response(_file(path[1:]), media_type=STATIC[path])


# -- responses ----------------------------------------------------------------------------------------------------


def _answer(said: Said) -> Response:
    more = {"gpuready-exit": str(said.more["exit"])} if "exit" in said.more else {}
    return Response(said.text, said.status, more, "application/json")


def _report(page: bytes, more: dict[str, str] | None = None) -> Response:
    return Response(page, 200, {"content-security-policy": SANDBOX, **(more or {})}, "text/html")


async def _wrong(request: Request, bad: Exception) -> Response:
    return _answer(sentence(400, str(bad)))


async def _unfit(request: Request, bad: Exception) -> Response:
    status = getattr(bad, "status", 400)
    return Response(sentence(status, str(bad)).text, status, {"connection": "close"}, "application/json")


async def _http(request: Request, bad: Exception) -> Response:
    status = getattr(bad, "status_code", 500)
    said = {
        404: "there is nothing here",
        405: "this cannot be asked so: GET asks, POST sends a log or a recording",
    }
    return _answer(sentence(status, said.get(status, "this request is not understood")))


async def _failed(request: Request, bad: Exception) -> Response:
    return _answer(sentence(500, f"gpuready failed over this question: {type(bad).__name__}"))


_HANDLERS = {asked.Wrong: _wrong, bodies.Unfit: _unfit, 404: _http, 405: _http, Exception: _failed}
_FILES: dict[str, str] = {}


def _file(name: str) -> str:
    """Read one of our static files. ``name`` is from STATIC_FILES; the style is the report's own."""
    here = __file__.rpartition("/")[0]
    folder = f"{here}/../render/html/templates" if name == "style.css" else f"{here}/static"
    if name not in _FILES:
        _FILES[name] = system.Live().read(f"{folder}/{name}") or ""
    return _FILES[name]
