"""A pool of worker processes for a server: each answers one request at a time, with a deadline.

A request that takes too long costs its worker, which is killed and replaced. More important requests come first; when too
many wait, the next is refused at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    Answer = tuple[dict[str, Any], bytes]

WAITING = 128
"""How many requests may wait; a browser sends a handful."""
LIVES = 2000
"""Requests a worker answers before it is replaced, which bounds its memory."""
START = "import sys; sys.path[0] = sys.argv[1]; __import__(sys.argv[2], fromlist=['main']).main()"
"""Import the same gpuready that started the worker, wherever it is; the worker's own folder has nothing to import."""
_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LARGEST = 64 << 20
"""Largest answer accepted from a worker, in bytes."""


class Busy(Exception):
    """Too many requests are waiting."""


class Late(Exception):
    """The answer did not arrive in time."""


class Lost(Exception):
    """The worker died during the request."""


class _Worker:
    """One worker process."""

    def __init__(self, words: Sequence[str], folder: str, env: Mapping[str, str] | None):
        self.words, self.folder, self.env, self.process, self.left = words, folder, env, None, 0  # type: Any, str, Any, Any, int

    async def ask(self, head: Mapping[str, Any], body: bytes) -> Answer:
        if self.process is None or self.left <= 0 or self.process.returncode is not None:
            await self._fresh()
        self.left -= 1
        pipe = self.process.stdin
        pipe.write(json.dumps({**head, "body": len(body)}).encode() + b"\n")
        if body:
            pipe.write(body)
        try:
            await pipe.drain()
            told = json.loads(await self.process.stdout.readline() or b"{}")
            size = int(told.get("size", -1))
            if not 0 <= size <= LARGEST:
                raise Lost
            return told, await self.process.stdout.readexactly(size)
        except (ConnectionError, asyncio.IncompleteReadError, ValueError):
            raise Lost from None

    async def _fresh(self) -> None:
        await self.stop()
        quiet = asyncio.subprocess.DEVNULL
        self.process = await asyncio.create_subprocess_exec(
            *self.words,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=quiet,
            cwd=self.folder,
            env=self.env,
            start_new_session=True,
            limit=1 << 20,
        )
        self.left = LIVES

    async def stop(self) -> None:
        process, self.process = self.process, None
        if process is None:
            return
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        await process.wait()


class Crew:
    """Several workers and the queue before them."""

    def __init__(
        self, module: str, folders: Sequence[str], slow: int = 1, env: Mapping[str, str] | None = None
    ):
        words = (sys.executable, "-c", START, _ROOT, module)
        self._workers = [_Worker(words, folder, env) for folder in folders]
        self._slow = asyncio.Semaphore(max(1, slow))
        self._line: asyncio.PriorityQueue[tuple[int, int, asyncio.Future[_Worker]]] = asyncio.PriorityQueue()
        self._free = list(self._workers)
        self._count = 0

    async def ask(
        self, head: Mapping[str, Any], body: bytes = b"", *, seconds: float, slow: bool = False
    ) -> Answer:
        """Send a request to a worker. ``slow`` requests never take every worker, and come after the others."""
        if self._line.qsize() >= WAITING:
            raise Busy
        if not slow:
            return await self._asked(head, body, seconds, 0)
        async with self._slow:
            return await self._asked(head, body, seconds, 1)

    async def _asked(self, head: Mapping[str, Any], body: bytes, seconds: float, rank: int) -> Answer:
        worker = await self._taken(rank)
        whole = False
        try:
            answer = await asyncio.wait_for(worker.ask(head, body), seconds)
            whole = True
            return answer
        except (TimeoutError, asyncio.TimeoutError):  # two names before Python 3.11
            raise Late from None
        finally:
            if not whole:  # leftover output must not become the answer to the next request
                await asyncio.shield(worker.stop())
            self._back(worker)

    async def _taken(self, rank: int) -> _Worker:
        if self._free:
            return self._free.pop()
        self._count += 1
        turn: asyncio.Future[_Worker] = asyncio.get_running_loop().create_future()
        await self._line.put((rank, self._count, turn))
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._back(turn.result())
            raise

    def _back(self, worker: _Worker) -> None:
        while not self._line.empty():
            turn = self._line.get_nowait()[2]
            if not turn.done():
                turn.set_result(worker)
                return
        self._free.append(worker)

    async def stop(self) -> None:
        await asyncio.gather(*(worker.stop() for worker in self._workers))
