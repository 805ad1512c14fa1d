"""A pool of worker processes for a server: each answers one request at a time, with a deadline.

A request that takes too long costs its worker, which is killed and replaced. More important requests come first; when too
many wait, the next is refused at once.
"""

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

WorkerAnswer = tuple[dict[str, Any], bytes]


MAX_WAITING = 128
"""How many requests may wait; a browser sends a handful."""
REQUESTS_PER_WORKER = 2000
"""Requests a worker answers before it is replaced, which bounds its memory."""
WORKER_SCRIPT = "import sys; sys.path[0] = sys.argv[1]; __import__(sys.argv[2], fromlist=['main']).main()"
"""Import the same gpuready that started the worker, wherever it is; the worker's own folder has nothing to import."""
_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MAX_ANSWER_BYTES = 64 << 20
"""Largest answer accepted from a worker, in bytes."""


class PoolBusy(Exception):
    """Too many requests are waiting."""


class WorkerTimeout(Exception):
    """The answer did not arrive in time."""


class WorkerLost(Exception):
    """The worker died during the request."""


class _PoolWorker:
    """One worker process."""

    def __init__(self, words: Sequence[str], folder: str, env: Mapping[str, str] | None):
        self.argv, self.folder, self.env, self.process, self.requests_left = words, folder, env, None, 0  # type: Any, str, Any, Any, int

    async def send_request(self, request: Mapping[str, Any], body: bytes) -> WorkerAnswer:
        if self.process is None or self.requests_left <= 0 or self.process.returncode is not None:
            await self._restart_process()
        self.requests_left -= 1
        pipe = self.process.stdin
        pipe.write(json.dumps({**request, "body": len(body)}).encode() + b"\n")
        if body:
            pipe.write(body)
        try:
            await pipe.drain()
            header = json.loads(await self.process.stdout.readline() or b"{}")
            size = int(header.get("size", -1))
            if not 0 <= size <= MAX_ANSWER_BYTES:
                raise WorkerLost
            return header, await self.process.stdout.readexactly(size)
        except (ConnectionError, asyncio.IncompleteReadError, ValueError):
            raise WorkerLost from None

    async def _restart_process(self) -> None:
        await self.stop_worker()
        quiet = asyncio.subprocess.DEVNULL
        self.process = await asyncio.create_subprocess_exec(
            *self.argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=quiet,
            cwd=self.folder,
            env=self.env,
            start_new_session=True,
            limit=1 << 20,
        )
        self.requests_left = REQUESTS_PER_WORKER

    async def stop_worker(self) -> None:
        process, self.process = self.process, None
        if process is None:
            return
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        await process.wait()


class WorkerPool:
    """Several workers and the queue before them."""

    def __init__(self, module: str, folders: Sequence[str], slow: int = 1, env: Mapping[str, str] | None = None):
        words = (sys.executable, "-c", WORKER_SCRIPT, _ROOT, module)
        self._workers = [_PoolWorker(words, folder, env) for folder in folders]
        self._slow = asyncio.Semaphore(max(1, slow))
        self._line: asyncio.PriorityQueue[tuple[int, int, asyncio.Future[_PoolWorker]]] = asyncio.PriorityQueue()
        self._free = list(self._workers)
        self._count = 0

    async def send_request(
        self, request: Mapping[str, Any], body: bytes = b"", *, seconds: float, slow: bool = False
    ) -> WorkerAnswer:
        """Send a request to a worker. ``slow`` requests never take every worker, and come after the others."""
        if self._line.qsize() >= MAX_WAITING:
            raise PoolBusy
        if not slow:
            return await self._request_from_worker(request, body, seconds, 0)
        async with self._slow:
            return await self._request_from_worker(request, body, seconds, 1)

    async def _request_from_worker(
        self, request: Mapping[str, Any], body: bytes, seconds: float, rank: int
    ) -> WorkerAnswer:
        worker = await self._acquire_worker(rank)
        completed = False
        try:
            answer = await asyncio.wait_for(worker.send_request(request, body), seconds)
            completed = True
            return answer
        except (TimeoutError, asyncio.TimeoutError):  # two names before Python 3.11
            raise WorkerTimeout from None
        finally:
            if not completed:  # leftover output must not become the answer to the next request
                await asyncio.shield(worker.stop_worker())
            self._release_worker(worker)

    async def _acquire_worker(self, rank: int) -> _PoolWorker:
        if self._free:
            return self._free.pop()
        self._count += 1
        waiter: asyncio.Future[_PoolWorker] = asyncio.get_running_loop().create_future()
        await self._line.put((rank, self._count, waiter))
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._release_worker(waiter.result())
            raise

    def _release_worker(self, worker: _PoolWorker) -> None:
        while not self._line.empty():
            waiter = self._line.get_nowait()[2]
            if not waiter.done():
                waiter.set_result(worker)
                return
        self._free.append(worker)

    async def stop_all(self) -> None:
        await asyncio.gather(*(worker.stop_worker() for worker in self._workers))
