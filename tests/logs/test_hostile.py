"""Hostile logs: nothing is executed, nothing takes for ever, and nothing reaches the terminal unescaped."""

from __future__ import annotations

import pickle
import random

import pytest

from gpuready.logs.log_lines import MAX_LINE_BYTES
from gpuready.render.diagnosis import render_diagnosis_screen
from gpuready.workflow.diagnose import diagnose_logs

OOM = b"RuntimeError: Cannot re-initialize CUDA in forked subprocess"


def found(*pieces: bytes):
    return diagnose_logs([pieces], look=False)


@pytest.mark.parametrize(
    "noise",
    [
        b"x" * 1_000_000,
        b"\0" * 500_000,
        random.Random(3).randbytes(500_000),
        b"\x1b[" * 150_000,
        b"a\x08" * 150_000,
        b"a\r" * 150_000,
        b"[" * 300_000,
        b"(" * 300_000,
        b'File "' * 50_000,
        b"\xff\xfe\xfd" * 100_000,
        ("é" * 100_000).encode(),
        b"failed (exitcode: " + b"9" * 100_000 + b") local_rank: 1 (pid: 3)",
        b"NCCL WARN " * 30_000,
        b"[rank" * 60_000,
        b"Traceback (most recent call last):" * 10_000,
    ],
    ids=lambda noise: repr(noise[:12]),
)
def test_noise_hides_nothing_and_breaks_nothing(noise):
    one = found(noise, b"\n", OOM, b"\n", noise[: MAX_LINE_BYTES * 4])
    assert one.cause == "fork-after-cuda"


def test_a_line_without_end_still_has_its_cause():
    assert found(b"x" * 3_000_000, OOM, b"y" * 3_000_000).cause == "fork-after-cuda"


def test_a_flood_of_tracebacks_is_bounded():
    flood = b'Traceback (most recent call last):\n  File "/a/b.py", line 1, in f\n    x()\nValueError: x\n' * 1_500
    one = found(flood, OOM, b"\n")
    assert one.verdict == "cause" and len(one.evidence) <= 6


def test_escapes_do_not_reach_the_terminal():
    one = found(b"\x1b]0;owned\x07" + OOM + b" \x1b[2J\x1b[1;1H\xe2\x80\xae evil\n")
    text = render_diagnosis_screen(one)
    assert "\x1b" not in text and "\u202e" not in text and "\x07" not in text
    assert all(len(line) <= 80 for line in text.splitlines())


def test_a_pickle_with_code_is_refused_and_told(tmp_path):
    class Evil:
        def __reduce__(self):
            return open, (str(tmp_path / "was-here"), "w")

    (tmp_path / "nccl_trace_rank_0").write_bytes(pickle.dumps({"pg_config": Evil(), "entries": []}, 2))
    (tmp_path / "train.log").write_bytes(OOM)
    one = diagnose_logs([str(tmp_path)], look=False)
    assert one.cause == "fork-after-cuda" and not (tmp_path / "was-here").exists()
    assert any("code" in note for note in one.notes)


def test_a_dump_that_nests_for_ever(tmp_path):
    (tmp_path / "x_dump_0.json").write_text('{"pg_config": ' + "[" * 200_000)
    (tmp_path / "train.log").write_bytes(OOM)
    assert diagnose_logs([str(tmp_path)], look=False).cause == "fork-after-cuda"
