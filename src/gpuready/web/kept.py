"""Answers that were given are kept, up to a number of bytes; who asks the same at the same time waits for one answer."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Hashable
    from typing import Any

ROOM = 48 << 20
"""Bytes of answers that are kept; the least recently asked for go first."""
EACH = 512
"""Bytes that an answer takes besides its text."""


class Kept:
    def __init__(self, room: int = ROOM):
        self._room, self._held = room, 0
        self._answers: OrderedDict[Hashable, tuple[float, int, Any]] = OrderedDict()
        self._asked: dict[Hashable, asyncio.Task[Any]] = {}

    def get(self, key: Hashable) -> Any:
        """What was answered, if it still counts; else None."""
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
        """The task that answers a question; it goes on when one who asked has left."""
        task = self._asked.get(key)
        if task is None:
            task = self._asked[key] = asyncio.ensure_future(ask())
            task.add_done_callback(lambda done: self._over(key, done))
        return task

    def _over(self, key: Hashable, task: asyncio.Task[Any]) -> None:
        self._asked.pop(key, None)
        if not task.cancelled():
            task.exception()  # whoever still waits is told; nobody else needs to be

    @property
    def held(self) -> int:
        return self._held
