"""Uploads that take long: others are answered meanwhile, and the answer says what was not read."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import lzma
import threading
import time

import pytest

from gpuready.workflow.diagnose import load_pattern_table
from tests.web.served import Reply, serving

SHORT = """
from gpuready.system.process import worker_pool
bound = "from gpuready.workflow import diagnose; diagnose.SERVER_SECONDS = 1.0; __import__"
worker_pool.WORKER_SCRIPT = worker_pool.WORKER_SCRIPT.replace("__import__", bound)
"""


@pytest.fixture(scope="module")
def slow_logs() -> list[bytes]:
    """Some kilobytes each, of which each takes minutes without a bound."""
    words = b" ".join(literal.encode() for literal in load_pattern_table().literals)
    lines = b"\n".join(words[at : at + 700] for at in range(0, len(words), 700)) + b"\n"
    return [gzip.compress(lines * 60), lzma.compress(lines * 60, preset=0)]


def test_uploads_leave_a_worker_free_and_say_what_was_not_read(slow_logs):
    replies: list[Reply] = []
    with serving(before=SHORT) as server:
        assert server.ask("/api/contracts").status == 200

        def upload(body: bytes) -> None:
            with contextlib.suppress(OSError, http.client.HTTPException):  # the server ends before the last one
                replies.append(server.ask("/api/diagnose", "POST", body, x_gpuready="1"))

        threads = [threading.Thread(target=upload, args=(body,)) for body in slow_logs]
        for thread in threads:
            thread.start()
        time.sleep(0.2)
        asked = 0
        while not replies and any(thread.is_alive() for thread in threads):
            asked += 1
            assert server.ask(f"/api/explain?code=GPU00{asked % 6 + 1}").status == 200
            assert server.ask(f"/api/check?framework=trl&on=h100&driver=580.65.{asked:02}").status == 200
            time.sleep(0.1)  # the processor is the upload's
    for thread in threads:
        thread.join()
    assert asked >= 2 and replies[0].status == 200, replies
    found = replies[0].json
    assert (
        "the rest was not looked at" in found["notes"][0]
        and "in 1 s" in found["notes"][0]
        and found["verdict"] != "healthy"
    )
