"""A worker process of ``gpuready serve``: reads command lines and writes results, one at a time.

It runs in a folder of its own, where an upload is stored while it is read. A request is a line of JSON with the size of
the body that follows; the reply has the same form.
"""

from __future__ import annotations

import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, BinaryIO

    Answer = tuple[int, dict[str, Any], str]

OK, REFUSED, FAILED = 200, 400, 500
BRIEF = {
    "check": ("verdict", "exit", "host", "findings", "undecided", "unstated", "ignored", "strict", "catalog"),
    "plan": (
        "verdict", "exit", "framework", "version", "variant", "machine", "python", "torch", "cuda", "index", "kernels", "steps",
        "because", "conflicts", "opens", "resolved", "notes", "packages",
    ),
}  # fmt: skip
"""The fields the page needs; /api/check and /api/plan return all of them."""
OFFERS = {
    "gpus": "gpu_list",
    "models": "model_list",
    "torches": "torch_list",
    "drivers": "driver_list",
    "systems": "system_list",
}


def answer(words: Sequence[str], how: str = "") -> Answer:
    """Return status, extra fields and text. Never raises: a failure becomes a sentence."""
    from gpuready.cli.words import Usage
    from gpuready.workflow.refusal import Refused

    try:
        if how == "offer":
            return OK, {}, _offer(words)
        if how == "quick":
            return _quick(words)
        text, code = _run(words)
        return OK, {"exit": code}, _brief(words[0], text) if how == "brief" else text
    except (Refused, Usage, ValueError) as bad:
        return REFUSED, {}, _sentence(str(bad))
    except (Exception, SystemExit) as error:  # the worker must survive for the next request
        return FAILED, {}, f"gpuready failed over this question: {type(error).__name__}"


def _run(words: Sequence[str]) -> tuple[str, int]:
    from gpuready.cli import grammar
    from gpuready.render.layout import Screen

    told = grammar.parse(words)
    found: tuple[str, int] = grammar.module(told.command).run(told, Screen(), time.perf_counter())
    return found


def _quick(words: Sequence[str]) -> Answer:
    """Run ``fit`` without the search for a fitting set-up: the same result where the job fits as it is."""
    from gpuready.cli import grammar
    from gpuready.cli.fit import fields
    from gpuready.render import answers
    from gpuready.workflow.fitting import fit

    told = grammar.parse(words)
    found = fit(list(told.arguments), fields(told.flags), on=told.flags.get("on"), search=False)
    whole = found.verdict == "fits" or not found.places
    return OK, {"exit": found.exit, "whole": whole}, answers.fit(found)


def _offer(words: Sequence[str]) -> str:
    from gpuready.render import json
    from gpuready.workflow import offering

    return json.document({name: getattr(offering, OFFERS[name])() for name in words})


def _brief(command: str, text: str) -> str:
    import json

    whole = json.loads(text)
    return json.dumps({name: whole[name] for name in BRIEF.get(command, whole) if name in whole})


def _sentence(text: str) -> str:
    from gpuready.render.escape import visible

    return visible(text)[:1000]


# -- request loop -------------------------------------------------------------------------------------------------


def serve(source: BinaryIO, sink: BinaryIO) -> None:
    """Answer requests until the input ends."""
    import json

    for line in iter(source.readline, b""):
        asked = json.loads(line)
        body = source.read(asked.get("body", 0))
        status, more, text = _with(asked.get("name", ""), body, asked["words"], asked.get("how", ""))
        data = text.encode("utf-8", "backslashreplace")
        head = {**more, "status": status, "size": len(data)}
        sink.write(json.dumps(head).encode() + b"\n" + data)
        sink.flush()


def _with(name: str, body: bytes, words: Sequence[str], how: str) -> Answer:
    """Answer a request; its upload exists under ``name`` in this folder only meanwhile."""
    if not name:
        return answer(words, how)
    with open(name, "wb") as file:  # chosen by the server, never by the user
        file.write(body)
    try:
        return answer(words, how)
    finally:
        os.unlink(name)


def main() -> None:
    source = sys.stdin.buffer
    sink = os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_RDWR)  # stray prints, also of a child, must not reach the reply stream
    os.dup2(nowhere, 1)
    serve(source, sink)


if __name__ == "__main__":
    main()
