"""A worker process of ``gpuready serve``: reads command lines and writes results, one at a time.

It runs in a folder of its own, where an upload is stored while it is read. A request is a line of JSON with the size of
the body that follows; the reply has the same form.
"""

import json
import os
import sys
import time
from collections.abc import Sequence
from typing import Any, BinaryIO

from gpuready import cli
from gpuready.cli.parser import parse_command_line
from gpuready.commands.declaration import UsageError
from gpuready.commands.fit import predict_fit
from gpuready.model.visible_text import escape_unprintable
from gpuready.render import json_document, json_results
from gpuready.render.layout import Screen
from gpuready.system.durable_files import unlink_quietly
from gpuready.system.own_folders import write_scratch_file
from gpuready.workflow import catalog_lists
from gpuready.workflow.diagnose import limit_reading_time
from gpuready.workflow.refusal import Refused

WorkerReply = tuple[int, dict[str, Any], str]


OK, REFUSED, FAILED = 200, 400, 500
LEFT_OUT = {"check": ("contract", "requirements", "facts", "judged"), "plan": ("lock", "fell", "tools")}
"""The large fields that the page does not need; /api/check and /api/plan return them too."""


def answer_command_words(words: Sequence[str], mode: str = "") -> WorkerReply:
    """Return status, extra fields and text. Never raises: a failure becomes a sentence."""
    try:
        if mode == "offer":
            return OK, {}, _list_choices(words)
        if mode == "quick":
            return _quick_fit_answer(words)
        text, code = cli.run_parsed_command(parse_command_line(words), Screen(), time.perf_counter())
        return OK, {"exit": code}, _select_brief_fields(words[0], text) if mode == "brief" else text
    except (Refused, UsageError, ValueError) as refusal:
        return REFUSED, {}, escape_unprintable(str(refusal))[:1000]
    except (Exception, SystemExit) as error:  # the worker must survive for the next request
        return FAILED, {}, f"gpuready failed over this question: {type(error).__name__}"


def _quick_fit_answer(words: Sequence[str]) -> WorkerReply:
    """Run ``fit`` without the search for a fitting set-up: the same result where the job fits as it is."""
    request = cli.make_request(parse_command_line(words), Screen(), time.perf_counter())
    result = predict_fit(request, search=False)
    is_complete = result.verdict == "fits" or not result.places
    return OK, {"exit": result.exit, "whole": is_complete}, json_results.render_json("fit", result)


def _list_choices(words: Sequence[str]) -> str:
    return json_document.format_json_document({name: catalog_lists.CHOICES[name]() for name in words})


def _select_brief_fields(command: str, text: str) -> str:
    left_out = LEFT_OUT.get(command, ())
    return json.dumps({name: value for name, value in json.loads(text).items() if name not in left_out})


# -- request loop -------------------------------------------------------------------------------------------------


def serve_requests(source: BinaryIO, sink: BinaryIO) -> None:
    """Answer requests until the input ends."""
    for line in iter(source.readline, b""):
        request = json.loads(line)
        body = source.read(request.get("body", 0))
        status, more, text = _answer_with_upload(
            request.get("name", ""), body, request["words"], request.get("how", "")
        )
        data = text.encode("utf-8", "backslashreplace")
        head = {**more, "status": status, "size": len(data)}
        sink.write(json.dumps(head).encode() + b"\n" + data)
        sink.flush()


def _answer_with_upload(name: str, body: bytes, words: Sequence[str], mode: str) -> WorkerReply:
    """Answer a request; its upload exists under ``name`` in this folder only meanwhile."""
    if not name:
        return answer_command_words(words, mode)
    write_scratch_file(name, body)  # the name is chosen by the server, never by the user
    try:
        return answer_command_words(words, mode)
    finally:
        unlink_quietly(name)


def main() -> None:
    limit_reading_time()
    source = sys.stdin.buffer
    sink = os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_RDWR)  # stray prints, also of a child, must not reach the reply stream
    os.dup2(nowhere, 1)
    serve_requests(source, sink)


if __name__ == "__main__":
    main()
