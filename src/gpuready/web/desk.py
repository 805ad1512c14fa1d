"""Answer command lines from the cache or through the worker processes."""

from __future__ import annotations

import asyncio
import json

from gpuready.web.kept import Kept

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from gpuready.system.crew import Crew

AT_ONCE = 0.06
"""Seconds the page waits for its parts; parts that take longer are listed as pending."""
SECONDS, READING = 20.0, 60.0
"""The seconds a worker may take for a command, and for a log or a recording."""
FRESH = 5.0
"""Seconds a result about this machine is cached; the machine may change at any time."""
SLOW = ("fit",)
"""Parts that may take a second or more: queued behind the others, and never on every worker at once."""


class Said:
    """An HTTP status, a body, and the worker's other fields."""

    __slots__ = ("more", "status", "text")

    def __init__(self, status: int, text: bytes, more: Mapping[str, Any] | None = None):
        self.status, self.text, self.more = status, text, more or {}


def sentence(status: int, text: str) -> Said:
    """An error as JSON with one sentence."""
    from gpuready.render.json import document

    return Said(status, document({"error": text}).encode())


class Desk:
    def __init__(self, crew: Crew, room: int | None = None):
        self._crew = crew
        self.kept = Kept() if room is None else Kept(room)

    async def answer(self, words: Sequence[str], how: str = "", slow: bool = False) -> Said:
        """Answer a command line, from the cache where possible."""
        found = self.kept.get((how, *words))
        return found if found is not None else await asyncio.shield(self._begun(words, how, slow))

    def _begun(self, words: Sequence[str], how: str, slow: bool) -> asyncio.Task[Said]:
        key = (how, *words)

        async def ask() -> Said:
            said = await self._asked({"words": list(words), "how": how}, b"", SECONDS, slow)
            if said.status < 500:
                self.kept.put(key, said, len(said.text), _counts(words, how))
            return said

        return self.kept.once(key, ask)

    async def warm(self, part: str, words: Sequence[str]) -> None:
        """Have a worker answer, ignoring the cache."""
        await self._asked({"words": list(words), "how": _how(part)}, b"", READING, False)

    async def read(self, words: Sequence[str], name: str, body: bytes) -> Said:
        """Answer a command line that reads an uploaded file."""
        return await self._asked({"words": list(words), "name": name}, body, READING, False)

    async def _asked(self, head: Mapping[str, Any], body: bytes, seconds: float, slow: bool) -> Said:
        from gpuready.system.crew import Busy, Late, Lost

        try:
            told, text = await self._crew.ask(head, body, seconds=seconds, slow=slow)
        except Busy:
            return sentence(503, "too many questions wait already: ask again in a moment")
        except Late:
            return sentence(504, f"no answer within {seconds:.0f} s: ask for less at once")
        except Lost:
            return sentence(500, "the worker ended over this question")
        if told["status"] != 200:
            return sentence(told["status"], text.decode("utf-8", "replace"))
        return Said(200, text, told)

    # -- the page -------------------------------------------------------------------------------------------------

    async def whatif(self, parts: Mapping[str, Sequence[str]], wait: float) -> bytes:
        """Return all page parts in one document. The search for a fitting set-up runs only if the client waits."""
        quick = {name: words for name, words in parts.items() if name != "fit"}
        said = await self._ready(quick, wait or AT_ONCE)
        if wait and "fit" in parts and not _whole(said.get("memory")):
            said |= await self._ready({"fit": parts["fit"]}, wait)
        if "fit" not in said and _whole(said.get("memory")):
            said["fit"] = said["memory"]
        return _together(parts, said)

    async def _ready(self, parts: Mapping[str, Sequence[str]], wait: float) -> dict[str, Said]:
        """Return the parts that are ready in time; the others continue and are cached when done."""
        asked = {name: self.kept.get((_how(name), *words)) for name, words in parts.items()}
        tasks = {
            name: self._begun(words, _how(name), name in SLOW)
            for name, words in parts.items()
            if asked[name] is None
        }
        if tasks:
            await asyncio.wait(tasks.values(), timeout=wait)
        done = {name: task.result() for name, task in tasks.items() if task.done() and not task.cancelled()}
        return {name: said for name in parts if (said := asked[name] or done.get(name)) is not None}


def _counts(words: Sequence[str], how: str) -> float:
    """Seconds to cache a result: unlimited unless it describes this machine."""
    elsewhere = any(word.startswith("--on=") for word in words)
    return float("inf") if elsewhere or how == "offer" or words[0] in ("contract", "explain") else FRESH


def _how(part: str) -> str:
    return {"memory": "quick", "fit": ""}.get(part, "brief")


def _whole(said: Said | None) -> bool:
    """Whether no search is needed: the job fits, or the query was refused."""
    return said is not None and (said.status != 200 or bool(said.more.get("whole")))


def _together(parts: Mapping[str, Sequence[str]], said: Mapping[str, Said]) -> bytes:
    """Join the parts into one document without parsing them again."""
    head = {"pending": [name for name in parts if name not in said], "commands": dict(parts)}
    pieces = [f'"{name}":'.encode() + one.text for name, one in said.items()]
    return json.dumps(head).encode()[:-1] + b',"parts":{' + b",".join(pieces) + b"}}\n"
