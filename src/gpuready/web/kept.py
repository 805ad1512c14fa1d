"""A cache of results, limited in bytes; identical concurrent queries share one task."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Hashable
    from typing import Any

ROOM = 48 << 20
"""The least recently used results are dropped first."""
EACH = 512
"""Bytes counted for each entry besides its text."""


class Kept:
    def __init__(self, room: int = ROOM):
        self._room, self._held = room, 0
        self._answers: OrderedDict[Hashable, tuple[float, int, Any]] = OrderedDict()
        self._asked: dict[Hashable, asyncio.Task[Any]] = {}

    def get(self, key: Hashable) -> Any:
        """Return the cached result, or None if there is none or it expired."""
        found = self._answers.get(key)
        if found is None:
            return None
        until, size, answer = found
        if until < time.monotonic():
            del self._answers[key]
            self._held -= size
            return None
        self._answers.move_to_end(key)
        return answer

    def put(self, key: Hashable, answer: Any, size: int, seconds: float = float("inf")) -> None:
        old = self._answers.pop(key, None)
        self._held += size + EACH - (old[1] if old else 0)
        self._answers[key] = time.monotonic() + seconds, size + EACH, answer
        while self._held > self._room and self._answers:
            self._held -= self._answers.popitem(last=False)[1][1]

    def once(self, key: Hashable, ask: Callable[[], Coroutine[Any, Any, Any]]) -> asyncio.Task[Any]:
        """Return the task that answers a query; it continues if one client disconnects."""
        task = self._asked.get(key)
        if task is None:
            task = self._asked[key] = asyncio.ensure_future(ask())
            task.add_done_callback(lambda done: self._over(key, done))
        return task

    def _over(self, key: Hashable, task: asyncio.Task[Any]) -> None:
        self._asked.pop(key, None)
        if not task.cancelled():
            task.exception()  # mark as retrieved: waiting clients get it, nobody else needs it

    @property
    def held(self) -> int:
        return self._held
