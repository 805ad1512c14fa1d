"""Routes of ``gpuready serve``. Results are those of the command line; nothing changes the machine."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.datastructures import QueryParams
from starlette.responses import Response
from starlette.routing import Route

from gpuready import system
from gpuready.system.process.worker_pool import WorkerPool
from gpuready.web import query_parser
from gpuready.web.query_service import HttpReply, QueryService, error_reply
from gpuready.web.request_guard import BODY_TIMEOUT, InvalidUpload, PageGuard, read_request_body
from gpuready.workflow import catalog_lists

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp

    Handler = Callable[[Request], Awaitable[Response]]


MAX_LOG_BYTES, MAX_RECORDING_BYTES = 32 << 20, 16 << 20


MAX_CONCURRENT_UPLOADS = 2
"""Each upload is kept in memory."""
MAX_KEPT_REPORTS = 8
"""Rendered reports kept for viewing."""
MAX_WAIT_SECONDS = 15.0
"""The longest the page may wait for all parts."""
COMMANDS = ("check", "plan", "fit", "env", "explain")
CHOICE_NAMES = tuple(catalog_lists.CHOICES)
STATIC_FILES = {"/page.js": "text/javascript", "/page.css": "text/css", "/style.css": "text/css"}
WARM_UP_QUERY = "framework=transformers&gpu=h100&model=qwen2.5-0.5b"
"""Answered by every worker at start-up, so that the first user does not wait for module imports."""
# The report carries its own policy with the hashes of its style and script; sandboxed it has no origin, so no cookie.
REPORT_POLICY = "sandbox allow-scripts allow-downloads allow-modals; frame-ancestors 'none'"


def build_web_app(
    *,
    token: str,
    hosts: Sequence[str],
    port: int,
    folders: Sequence[str],
    body_seconds: float = BODY_TIMEOUT,
    cache_bytes: int | None = None,
) -> ASGIApp:
    """Build the app behind its guard. Each worker runs in one of ``folders``."""
    web_app = WebApp(folders, body_seconds, cache_bytes)
    app = Starlette(routes=web_app.list_routes(), lifespan=web_app.manage_workers, exception_handlers=_HANDLERS)
    return PageGuard(app, token=token, hosts=hosts, port=port)


class WebApp:
    """All routes and their shared state: the query service, kept reports, the upload limit."""

    query_service: QueryService

    def __init__(self, folders: Sequence[str], body_seconds: float, cache_bytes: int | None):
        self.folders, self.body_seconds, self.cache_bytes = folders, body_seconds, cache_bytes
        self.uploads = asyncio.Semaphore(MAX_CONCURRENT_UPLOADS)
        self.reports: dict[str, bytes] = {}

    def list_routes(self) -> list[Route]:
        return [
            Route("/", self.serve_page),
            *(Route(path, self.serve_static_file) for path in STATIC_FILES),
            *(Route(f"/api/{name}", self.command_handler(name)) for name in COMMANDS),
            Route("/api/contracts", self.answer_contracts),
            Route("/api/gpus", self.choices_handler("gpus")),
            Route("/api/models", self.choices_handler("models")),
            Route("/api/choices", self.choices_handler(*CHOICE_NAMES)),
            Route("/api/whatif", self.answer_whatif),
            Route("/api/diagnose", self.diagnose_upload, methods=["POST"]),
            Route("/api/report", self.report_upload, methods=["POST"]),
            Route("/report/{name}", self.serve_report),
        ]

    @contextlib.asynccontextmanager
    async def manage_workers(self, app: Starlette) -> AsyncIterator[None]:
        workers = WorkerPool("gpuready.web.worker", self.folders, slow=len(self.folders) - 1)
        self.query_service = QueryService(workers, self.cache_bytes)
        warm_up_tasks = [asyncio.ensure_future(self._warm_worker(number)) for number in range(len(self.folders))]
        try:
            yield
        finally:
            for task in warm_up_tasks:
                task.cancel()
            await workers.stop_all()

    async def _warm_worker(self, number: int) -> None:
        """Warm one worker up; errors here would be reported again to whoever asks."""
        parts = query_parser.build_page_commands(QueryParams(WARM_UP_QUERY).multi_items())
        for name in ("check", "plan", "env", "memory"):
            await self.query_service.warm_up_worker(name, parts[name])
        if number == 0:
            await self.query_service.answer_command(CHOICE_NAMES, "offer")

    # -- queries --------------------------------------------------------------------------------------------------

    def command_handler(self, name: str) -> Handler:
        async def answer_command(request: Request) -> Response:
            words = query_parser.build_command_words(name, request.query_params.multi_items())
            return _json_response(await self.query_service.answer_command(words, slow=name == "fit"))

        return answer_command

    async def answer_contracts(self, request: Request) -> Response:
        name = "contract show" if "framework" in request.query_params else "contract list"
        return await self.command_handler(name)(request)

    def choices_handler(self, *names: str) -> Handler:
        async def answer_choices(request: Request) -> Response:
            if request.query_params:
                raise query_parser.InvalidQuery("there is nothing to ask here: leave the query out")
            return _json_response(await self.query_service.answer_command(names, "offer"))

        return answer_choices

    async def answer_whatif(self, request: Request) -> Response:
        parts = query_parser.build_page_commands(
            (key, value) for key, value in request.query_params.multi_items() if key != "wait"
        )
        wait = query_parser.parse_wait_seconds(request.query_params.get("wait", "0"), MAX_WAIT_SECONDS)
        return Response(await self.query_service.answer_page(parts, wait), media_type="application/json")

    # -- uploads --------------------------------------------------------------------------------------------------

    async def diagnose_upload(self, request: Request) -> Response:
        frameworks = query_parser.parse_framework_query(request.query_params.multi_items())
        words = ["diagnose", "--json", *(f"--for={name}" for name in frameworks), "run.log"]
        return _json_response(await self._run_on_upload(request, words, "run.log", MAX_LOG_BYTES))

    async def report_upload(self, request: Request) -> Response:
        frameworks = query_parser.parse_framework_query(request.query_params.multi_items())
        words = ["report", "--on", "recording.json", "-o", "-", "--", *frameworks]
        reply = await self._run_on_upload(request, words, "recording.json", MAX_RECORDING_BYTES)
        if reply.status != 200:
            return _json_response(reply)
        name = secrets.token_urlsafe(16)
        while len(self.reports) >= MAX_KEPT_REPORTS:
            del self.reports[next(iter(self.reports))]
        self.reports[name] = reply.text
        return _report_response(reply.text, {"location": f"/report/{name}"})

    async def _run_on_upload(self, request: Request, words: Sequence[str], name: str, max_bytes: int) -> HttpReply:
        async with self.uploads:
            body = await read_request_body(request, max_bytes, self.body_seconds)
            return await self.query_service.answer_upload(words, name, body)

    # -- pages ----------------------------------------------------------------------------------------------------

    async def serve_report(self, request: Request) -> Response:
        report = self.reports.get(request.path_params["name"])
        return (
            _report_response(report)
            if report is not None
            else _json_response(error_reply(404, "there is no such report any more"))
        )

    async def serve_page(self, request: Request) -> Response:
        return Response(_read_static_file("page.html"), media_type="text/html")

    async def serve_static_file(self, request: Request) -> Response:
        path = request.url.path
        return Response(_read_static_file(path[1:]), media_type=STATIC_FILES[path])


# -- responses ----------------------------------------------------------------------------------------------------


def _json_response(reply: HttpReply) -> Response:
    more = {"gpuready-exit": str(reply.more["exit"])} if "exit" in reply.more else {}
    return Response(reply.text, reply.status, more, "application/json")


def _report_response(page: bytes, more: dict[str, str] | None = None) -> Response:
    return Response(page, 200, {"content-security-policy": REPORT_POLICY, **(more or {})}, "text/html")


_HTTP_ERRORS = {404: "there is nothing here", 405: "this cannot be asked so: GET asks, POST sends a log or a recording"}


async def _handle_error(request: Request, error: Exception) -> Response:
    if isinstance(error, InvalidUpload):
        reply = error_reply(error.status, str(error))
        return Response(reply.text, reply.status, {"connection": "close"}, "application/json")
    if isinstance(error, query_parser.InvalidQuery):
        return _json_response(error_reply(400, str(error)))
    status = getattr(error, "status_code", 500)
    failed = f"gpuready failed over this question: {type(error).__name__}"
    return _json_response(error_reply(status, _HTTP_ERRORS.get(status, failed)))


_HANDLERS = dict.fromkeys([query_parser.InvalidQuery, InvalidUpload, 404, 405, Exception], _handle_error)
_FILE_CACHE: dict[str, str] = {}


def _read_static_file(name: str) -> str:
    """Read one of our static files. ``name`` is from STATIC_FILES; the style is the report's own."""
    here = __file__.rpartition("/")[0]
    folder = f"{here}/../render/html/templates" if name == "style.css" else f"{here}/static"
    if name not in _FILE_CACHE:
        _FILE_CACHE[name] = system.LiveHost().read_text(f"{folder}/{name}") or ""
    return _FILE_CACHE[name]
