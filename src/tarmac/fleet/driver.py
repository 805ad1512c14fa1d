"""A script of ours in somebody else's Python (one with Ray, one with torch): told once, heard line by line."""

from __future__ import annotations

import json

from tarmac.fleet import parcel
from tarmac.fleet.transport import last_line
from tarmac.system.crowd import Task, crowd
from tarmac.system.live import Live
from tarmac.system.scratch import Scratch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from tarmac.system.crowd import Ended

    Line = Callable[[str, str, str], None]


def drive(
    python: str,
    script: str,
    mark: str,
    told: Mapping[str, Any],
    data: bytes,
    limit: float,
    line: Line,
    variables: Mapping[str, str] | None = None,
) -> tuple[str, Ended]:
    """Run the script; ``line(word, key, text)`` gets what it says. Returns what is wrong with its engine, and its end."""
    over: list[Ended] = []
    trouble: list[str] = []

    def heard(_: str, text: str) -> bool:
        if not text.startswith(f"{mark} "):
            return False
        word, _, rest = text[len(mark) + 1 :].partition(" ")
        key, _, body = rest.partition(" ")
        if word == "engine":
            trouble.append(body)
        elif word != "end":
            line(word, key, body)
        return word == "end"

    with Scratch(Live().variables if variables is None else variables) as folder:
        path = f"{folder}/orders"
        with open(path, "wb") as file:
            file.write(json.dumps({"mark": mark, **told}).encode("ascii") + b"\n" + data)
        argv = (python, f"{parcel.SCRIPTS}/{script}", path)
        env: dict[str, str | None] = {"PYTHONUNBUFFERED": "1", "RAY_DEDUP_LOGS": "0"}
        crowd([Task(script, argv, limit, env=env)], 1, heard, over.append, variables)
    return trouble[0] if trouble else _wrong(over[0]), over[0]


def _wrong(ended: Ended) -> str:
    if ended.end == "heard" or (not ended.end and ended.rc == 0):
        return ""
    if ended.end == "deadline":
        return f"no answer within {ended.seconds:.0f} s"
    return last_line(ended.err) or ended.end or f"it ended with {ended.rc}"
