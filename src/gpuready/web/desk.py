"""The desk: a question comes in as a command line, and its answer is looked up, or worked out by the crew."""

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
"""Seconds that the page's question waits for its parts; what is not there by then is named as pending."""
SECONDS, READING = 20.0, 60.0
"""What a worker may take for an answer, and for a log or a recording."""
FRESH = 5.0
"""Seconds that an answer about this machine counts, which may change at any time."""
SLOW = ("fit",)
"""What may take a second and more: it waits behind the rest, and never has every worker."""


class Said:
    """An answer: the status of HTTP, the text, and what else the worker told."""

    __slots__ = ("more", "status", "text")

    def __init__(self, status: int, text: bytes, more: Mapping[str, Any] | None = None):
        self.status, self.text, self.more = status, text, more or {}


def sentence(status: int, text: str) -> Said:
    """A refusal: one sentence, as JSON, never more."""
    from gpuready.render.json import document

    return Said(status, document({"error": text}).encode())


class Desk:
    def __init__(self, crew: Crew, room: int | None = None):
        self._crew = crew
        self.kept = Kept() if room is None else Kept(room)

    async def answer(self, words: Sequence[str], how: str = "", slow: bool = False) -> Said:
        """The answer to a command line, kept for the next who asks."""
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
        """Have a worker answer, whatever is kept."""
        await self._asked({"words": list(words), "how": _how(part)}, b"", READING, False)

    async def read(self, words: Sequence[str], name: str, body: bytes) -> Said:
        """The answer to a command line that reads what was sent along."""
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
        """Every part of the page in one document. What would make a job fit is looked for only where one waits for it."""
        quick = {name: words for name, words in parts.items() if name != "fit"}
        said = await self._ready(quick, wait or AT_ONCE)
        if wait and "fit" in parts and not _whole(said.get("memory")):
            said |= await self._ready({"fit": parts["fit"]}, wait)
        if "fit" not in said and _whole(said.get("memory")):
            said["fit"] = said["memory"]
        return _together(parts, said)

    async def _ready(self, parts: Mapping[str, Sequence[str]], wait: float) -> dict[str, Said]:
        """The parts that are there in time; the others are being worked out, and are kept when they are."""
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
    """Seconds that an answer counts: for ever, unless it is about the machine that we are on."""
    elsewhere = any(word.startswith("--on=") for word in words)
    return float("inf") if elsewhere or how == "offer" or words[0] in ("contract", "explain") else FRESH


def _how(part: str) -> str:
    return {"memory": "quick", "fit": ""}.get(part, "brief")


def _whole(said: Said | None) -> bool:
    """Whether there is nothing to look for: the job fits, or the question was refused."""
    return said is not None and (said.status != 200 or bool(said.more.get("whole")))


def _together(parts: Mapping[str, Sequence[str]], said: Mapping[str, Said]) -> bytes:
    """One document; the parts go in as they were written."""
    head = {"pending": [name for name in parts if name not in said], "commands": dict(parts)}
    pieces = [f'"{name}":'.encode() + one.text for name, one in said.items()]
    return json.dumps(head).encode()[:-1] + b',"parts":{' + b",".join(pieces) + b"}}\n"
