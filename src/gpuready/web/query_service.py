"""Answer command lines from the cache or through the worker processes."""

import asyncio
import json
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Hashable, Mapping, Sequence
from typing import Any

from gpuready.render.json_document import format_json_document
from gpuready.system.process.worker_pool import PoolBusy, WorkerLost, WorkerPool, WorkerTimeout

PAGE_WAIT_SECONDS = 0.06
"""Seconds the page waits for its parts; parts that take longer are listed as pending."""
COMMAND_TIMEOUT, UPLOAD_TIMEOUT = 20.0, 60.0
"""The seconds a worker may take for a command, and for a log or a recording."""
LOCAL_CACHE_SECONDS = 5.0
"""Seconds a result about this machine is cached; the machine may change at any time."""
SLOW_PARTS = ("fit",)
"""Parts that may take a second or more: queued behind the others, and never on every worker at once."""


class HttpReply:
    """An HTTP status, a body, and the worker's other fields."""

    __slots__ = ("more", "status", "text")

    def __init__(self, status: int, text: bytes, more: Mapping[str, Any] | None = None):
        self.status, self.text, self.more = status, text, more or {}


def error_reply(status: int, text: str) -> HttpReply:
    """An error as JSON with one sentence."""
    return HttpReply(status, format_json_document({"error": text}).encode())


class QueryService:
    def __init__(self, workers: WorkerPool, cache_bytes: int | None = None):
        self._workers = workers
        self.cache = ResponseCache() if cache_bytes is None else ResponseCache(cache_bytes)

    async def answer_command(self, words: Sequence[str], mode: str = "", slow: bool = False) -> HttpReply:
        """Answer a command line, from the cache where possible."""
        reply = self.cache.get_cached((mode, *words))
        return reply if reply is not None else await asyncio.shield(self._start_command(words, mode, slow))

    def _start_command(self, words: Sequence[str], mode: str, slow: bool) -> asyncio.Task[HttpReply]:
        key = (mode, *words)

        async def ask_worker() -> HttpReply:
            reply = await self._ask_worker({"words": list(words), "how": mode}, b"", COMMAND_TIMEOUT, slow)
            if reply.status < 500:
                self.cache.store_answer(key, reply, len(reply.text), _cache_seconds(words, mode))
            return reply

        return self.cache.run_once(key, ask_worker)

    async def warm_up_worker(self, part: str, words: Sequence[str]) -> None:
        """Have a worker answer, ignoring the cache."""
        await self._ask_worker({"words": list(words), "how": _answer_mode(part)}, b"", UPLOAD_TIMEOUT, False)

    async def answer_upload(self, words: Sequence[str], name: str, body: bytes) -> HttpReply:
        """Answer a command line that reads an uploaded file; one worker stays free for other questions."""
        return await self._ask_worker({"words": list(words), "name": name}, body, UPLOAD_TIMEOUT, slow=True)

    async def _ask_worker(self, head: Mapping[str, Any], body: bytes, seconds: float, slow: bool) -> HttpReply:
        try:
            reply, text = await self._workers.send_request(head, body, seconds=seconds, slow=slow)
        except PoolBusy:
            return error_reply(503, "too many questions wait already: ask again in a moment")
        except WorkerTimeout:
            return error_reply(504, f"no answer within {seconds:.0f} s: ask for less at once")
        except WorkerLost:
            return error_reply(500, "the worker ended over this question")
        if reply["status"] != 200:
            return error_reply(reply["status"], text.decode("utf-8", "replace"))
        return HttpReply(200, text, reply)

    # -- the page -------------------------------------------------------------------------------------------------

    async def answer_page(self, parts: Mapping[str, Sequence[str]], wait: float) -> bytes:
        """Return all page parts in one document. The search for a fitting set-up runs only if the client waits."""
        quick = {name: words for name, words in parts.items() if name != "fit"}
        replies = await self._collect_ready(quick, wait or PAGE_WAIT_SECONDS)
        if wait and "fit" in parts and not _is_complete(replies.get("memory")):
            replies |= await self._collect_ready({"fit": parts["fit"]}, wait)
        if "fit" not in replies and _is_complete(replies.get("memory")):
            replies["fit"] = replies["memory"]
        return _join_parts(parts, replies)

    async def _collect_ready(self, parts: Mapping[str, Sequence[str]], wait: float) -> dict[str, HttpReply]:
        """Return the parts that are ready in time; the others continue and are cached when done."""
        cached = {name: self.cache.get_cached((_answer_mode(name), *words)) for name, words in parts.items()}
        tasks = {
            name: self._start_command(words, _answer_mode(name), name in SLOW_PARTS)
            for name, words in parts.items()
            if cached[name] is None
        }
        if tasks:
            await asyncio.wait(tasks.values(), timeout=wait)
        done = {name: task.result() for name, task in tasks.items() if task.done() and not task.cancelled()}
        return {name: reply for name in parts if (reply := cached[name] or done.get(name)) is not None}


def _cache_seconds(words: Sequence[str], mode: str) -> float:
    """Seconds to cache a result: unlimited unless it describes this machine."""
    elsewhere = any(word.startswith("--on=") for word in words)
    return float("inf") if elsewhere or mode == "offer" or words[0] in ("contract", "explain") else LOCAL_CACHE_SECONDS


def _answer_mode(part: str) -> str:
    return {"memory": "quick", "fit": ""}.get(part, "brief")


def _is_complete(reply: HttpReply | None) -> bool:
    """Whether no search is needed: the job fits, or the query was refused."""
    return reply is not None and (reply.status != 200 or bool(reply.more.get("whole")))


def _join_parts(parts: Mapping[str, Sequence[str]], replies: Mapping[str, HttpReply]) -> bytes:
    """Join the parts into one document without parsing them again."""
    head = {"pending": [name for name in parts if name not in replies], "commands": dict(parts)}
    pieces = [f'"{name}":'.encode() + reply.text for name, reply in replies.items()]
    return json.dumps(head).encode()[:-1] + b',"parts":{' + b",".join(pieces) + b"}}\n"


MAX_CACHE_BYTES = 48 << 20
"""The least recently used results are dropped first."""
ENTRY_OVERHEAD = 512
"""Bytes counted for each entry besides its text."""


class ResponseCache:
    def __init__(self, max_bytes: int = MAX_CACHE_BYTES):
        self._max_bytes, self.used_bytes = max_bytes, 0
        self._answers: OrderedDict[Hashable, tuple[float, int, Any]] = OrderedDict()
        self._pending: dict[Hashable, asyncio.Task[Any]] = {}

    def get_cached(self, key: Hashable) -> Any:
        """Return the cached result, or None if there is none or it expired."""
        entry = self._answers.get(key)
        if entry is None:
            return None
        expires, size, answer = entry
        if expires < time.monotonic():
            del self._answers[key]
            self.used_bytes -= size
            return None
        self._answers.move_to_end(key)
        return answer

    def store_answer(self, key: Hashable, answer: Any, size: int, seconds: float = float("inf")) -> None:
        replaced = self._answers.pop(key, None)
        self.used_bytes += size + ENTRY_OVERHEAD - (replaced[1] if replaced else 0)
        self._answers[key] = time.monotonic() + seconds, size + ENTRY_OVERHEAD, answer
        while self.used_bytes > self._max_bytes and self._answers:
            self.used_bytes -= self._answers.popitem(last=False)[1][1]

    def run_once(self, key: Hashable, ask: Callable[[], Coroutine[Any, Any, Any]]) -> asyncio.Task[Any]:
        """Return the task that answers a query; it continues if one client disconnects."""
        task = self._pending.get(key)
        if task is None:
            task = self._pending[key] = asyncio.ensure_future(ask())
            task.add_done_callback(lambda done: self._finish_task(key, done))
        return task

    def _finish_task(self, key: Hashable, task: asyncio.Task[Any]) -> None:
        self._pending.pop(key, None)
        if not task.cancelled():
            task.exception()  # mark as retrieved: waiting clients get it, nobody else needs it
