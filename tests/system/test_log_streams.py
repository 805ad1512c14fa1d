"""Logs as streams: files, folders, pipes, what is compressed, what is wide, and what swells."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import threading
import zlib
from pathlib import Path

import pytest

from gpuready.system import AccessError, log_streams
from gpuready.system.log_streams import follow_growing_file, open_log_streams

TEXT = b"".join(b"line %d of a log\n" % i for i in range(150_000))


def read(path) -> tuple[bytes, str]:
    (stream,) = open_log_streams(str(path))
    return b"".join(stream), stream.cut


@pytest.mark.parametrize(
    "packed",
    [lambda: gzip.compress(TEXT, 1), lambda: bz2.compress(TEXT, 1), lambda: lzma.compress(TEXT, preset=0)],
    ids=["gz", "bz2", "xz"],
)
def test_compressed(tmp_path, packed):
    (tmp_path / "a.log").write_bytes(packed())
    assert read(tmp_path / "a.log") == (TEXT, "")


def test_several_members_one_after_another(tmp_path):
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"one\n") + gzip.compress(b"two\n") + b"\0" * 512)
    assert read(tmp_path / "a.gz") == (b"one\ntwo\n", "")


def test_what_ends_too_early_or_is_broken_gives_what_there_is(tmp_path):
    packed = gzip.compress(TEXT)
    (tmp_path / "a.gz").write_bytes(packed[: len(packed) // 2])
    text, cut = read(tmp_path / "a.gz")
    assert TEXT.startswith(text) and text and "too early" in cut
    (tmp_path / "b.gz").write_bytes(packed[:20] + b"\xff" * 5000)
    assert "broken" in read(tmp_path / "b.gz")[1] or "too early" in read(tmp_path / "b.gz")[1]


def test_a_bomb_is_defused(tmp_path, monkeypatch):
    checked = 32 << 20  # what is checked really takes a second to pack
    monkeypatch.setattr(log_streams, "EXPANSION_CHECK_BYTES", checked)
    monkeypatch.setattr(log_streams, "MAX_EXPANSION", 30)
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)
    zeros = b"\0" * (4 << 20)
    with open(tmp_path / "bomb.gz", "wb") as out:
        for _ in range((checked >> 22) + 20):
            out.write(packer.compress(zeros))
        out.write(packer.flush())
    (stream,) = open_log_streams(str(tmp_path / "bomb.gz"))
    requested = sum(len(piece) for piece in stream)
    assert requested <= checked * 5 // 4 and "times its size" in stream.cut


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_wide_text_becomes_utf_8(tmp_path, encoding):
    text = "Fehler: zu wenig Speicher für das Modell\n" * 50
    (tmp_path / "a.log").write_bytes(text.encode(encoding))
    assert read(tmp_path / "a.log")[0].decode().lstrip("\ufeff") == text


def test_a_folder_in_the_order_of_people(tmp_path):
    for name in ("attempt_0/10/stderr.log", "attempt_0/2/stderr.log", "attempt_0/2/stdout.log"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    os.symlink("/etc", tmp_path / "away")
    assert [s.name for s in open_log_streams(str(tmp_path))] == [
        "attempt_0/2/stderr.log",
        "attempt_0/2/stdout.log",
        "attempt_0/10/stderr.log",
    ]


def test_a_pipe(tmp_path):
    path = str(tmp_path / "pipe")
    os.mkfifo(path)
    writer = threading.Thread(target=lambda: Path(path).write_bytes(gzip.compress(b"hello\n")))
    writer.start()
    assert read(path)[0] == b"hello\n"
    writer.join()


@pytest.mark.parametrize("path", ["/nonexistent/x.log", "/dev/zero", "a\0b"])
def test_what_cannot_be_read_says_why(path):
    with pytest.raises(AccessError):
        open_log_streams(path)


def test_a_file_that_grows_and_is_replaced(tmp_path):
    path = tmp_path / "live.log"
    path.write_bytes(b"one\n")
    seen = b""
    for step, piece in enumerate(follow_growing_file(str(path), pause=0.01, patience=0.3)):
        seen += piece
        if step == 1:
            with path.open("ab") as out:
                out.write(b"two\n")
        if step == 8:
            path.unlink()
            path.write_bytes(b"three\n")
    assert seen == b"one\ntwo\nthree\n"
