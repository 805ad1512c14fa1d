"""A cache of results, limited in bytes; identical concurrent queries share one task."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Hashable
from typing import Any

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
