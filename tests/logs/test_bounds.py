"""A small log with a large result: what may be read and judged is bounded over all logs of a question, and the answer says it."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import time
from itertools import count

import pytest

from gpuready.system import log_streams
from gpuready.system.log_streams import ReadBudget
from gpuready.workflow.diagnose import diagnose_logs, load_pattern_table

SECONDS = 0.1
HEALTHY = b"{'loss': 1.0, 'epoch': 1.0}\n{'train_runtime': 9.5, 'epoch': 3.0}\n"


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """A tenth of a second of processor time, whatever the log."""
    load_pattern_table()
    monkeypatch.setattr(ReadBudget, "most_seconds", SECONDS)


@pytest.fixture
def slow(monkeypatch):
    """A clock by which every question for the time takes a third of it: on any machine the time is over soon after the beginning."""
    clock = count()
    monkeypatch.setattr(log_streams.time, "thread_time", lambda: next(clock) * SECONDS / 3)


def words() -> bytes:
    """A line with every literal that is searched for: megabytes of it take seconds."""
    return b" ".join(literal.encode() for literal in load_pattern_table().literals)


def sawtooth() -> bytes:
    """Lines of which each has a shape of its own, and next to nothing to compress."""
    return b"\n".join(b"cuda error: " * count for count in range(1, 700)) + b"\n"


LINES = {
    "one-line": lambda: words() + b" ",
    "sawtooth": sawtooth,
    "few-words-a-line": lambda: b"\n".join(words()[at : at + 700] for at in range(0, len(words()), 700)) + b"\n",
}
PACKERS = {
    "plain": lambda data: data,
    "xz": lambda data: lzma.compress(data, preset=0),
    "gz": lambda data: gzip.compress(data, 1),
    "bz2": lambda data: bz2.compress(data, 1),
}


def judged(*paths):
    started = time.thread_time()
    found = diagnose_logs([str(path) for path in paths], look=False)
    return found, time.thread_time() - started


@pytest.mark.parametrize(
    ("kind", "packer"), [*zip(LINES, ("xz", "gz", "bz2"), strict=True), ("few-words-a-line", "plain")]
)
@pytest.mark.usefixtures("slow")
def test_a_log_that_is_slow_to_read_is_given_up_and_that_is_said(tmp_path, kind, packer):
    data = LINES[kind]()
    size = log_streams.CHUNK_BYTES if packer == "plain" else 1 << 19
    data = HEALTHY + data * (1 + size // len(data))
    path = tmp_path / "run.log"
    path.write_bytes(PACKERS[packer](data))
    found = diagnose_logs([str(path)], look=False)
    assert any("of processor time; the rest was not looked at" in note for note in found.notes), found.notes
    assert found.verdict != "healthy"


@pytest.mark.usefixtures("slow")
def test_a_folder_of_slow_logs_has_one_bound_for_all(tmp_path):
    packed = lzma.compress((words() + b" ") * 5, preset=0)
    for number in range(30):
        (tmp_path / f"rank-{number}.log").write_bytes(packed)
    found = diagnose_logs([str(tmp_path)], look=False)
    assert sum(log.bytes > 0 for log in found.logs) < 5 and "the rest was not looked at" in " ".join(found.notes)


def test_a_folder_of_bombs_has_one_bound_for_all(tmp_path, monkeypatch):
    monkeypatch.setattr(log_streams, "EXPANSION_CHECK_BYTES", 8 << 20)
    monkeypatch.setattr(ReadBudget, "most_seconds", 8.0)
    packed = lzma.compress(HEALTHY * ((2 << 20) // len(HEALTHY)), preset=0)
    for number in range(12):
        (tmp_path / f"rank-{number}.log.xz").write_bytes(packed)
    found, _ = judged(tmp_path)
    assert sum(log.bytes for log in found.logs) < 12 << 20
    assert "MiB of it; the rest was not looked at" in " ".join(found.notes)
    assert found.verdict == "unknown" and "not read to its end" in found.says


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress], ids=["gz", "bz2", "xz"])
def test_members_without_content_do_not_hold_it(tmp_path, pack):
    """Each costs a copy of all that follows."""
    (tmp_path / "run.log").write_bytes(pack(HEALTHY) + pack(b"") * (1 << 20 >> 5))
    found, seconds = judged(tmp_path / "run.log")
    assert seconds < SECONDS + 3
    assert found.verdict == "unknown" or not found.notes


@pytest.mark.usefixtures("slow")
def test_a_text_that_an_agent_sends_is_bounded_too():
    data = b"\n".join(words()[at : at + 700] for at in range(0, len(words()), 700)) + b"\n"
    found = diagnose_logs([[data * (1 + (1 << 18) // len(data))]], look=False)
    assert "the rest was not looked at" in found.notes[-1]


def test_a_large_log_of_an_ordinary_run_is_read_to_its_end(tmp_path, monkeypatch):
    """Its last line decides; packed and plain."""
    monkeypatch.setattr(ReadBudget, "most_seconds", float("inf"))
    out = io.BytesIO()
    for step in range(100_000):
        out.write(b"[2026-01-01 10:00:00] step %d loss %.4f lr 1e-5 tokens/s %d\n" % (step, 2.0, step * 7 % 9001))
    out.write(b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n")
    for name, pack in PACKERS.items():
        (tmp_path / name).write_bytes(pack(out.getvalue()))
        found, _ = judged(tmp_path / name)
        assert found.cause == "cuda-oom" and not any("not looked at" in note for note in found.notes), (name, found)


def test_time_grows_with_what_is_stored():
    budget = ReadBudget()
    budget.most_seconds, budget.stored = float("inf"), 1 << 30
    assert budget.seconds > 1000 and not budget.is_spent()
