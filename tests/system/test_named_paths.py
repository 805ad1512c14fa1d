"""Files of a command line are asked for in a child, so that a disk that does not answer keeps nobody waiting."""

from __future__ import annotations

import os
import time

import pytest

from gpuready.system import AccessError, command_line
from tests.running import gpuready


def test_only_words_that_may_be_paths_of_another_disk_are_asked_for():
    words = ["check", "trl", "--config=/a/b", "--on", "c/d", "--find-links", "https://x/y", "-o", "/e", "--", "/f"]
    assert list(command_line._named_paths(words)) == ["/a/b", "c/d", "/e"]


def test_a_disk_that_does_not_answer_is_a_sentence(monkeypatch):
    monkeypatch.setattr(command_line, "ANSWER_SECONDS", 0.2)
    monkeypatch.setattr(command_line, "_touch_file", lambda path: time.sleep(60))
    with pytest.raises(
        AccessError, match=r"^/dead/x cannot be looked at: no answer within 0.2 s; is its disk there\?$"
    ):
        command_line.require_answering_disks(["check", "--on", "/dead/x"])


def test_what_answers_is_left_to_its_reader(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_text("x")
    command_line.require_answering_disks([f"{tmp_path}/{name}" for name in ("pipe", "file", "missing", "")])


def test_a_log_from_a_pipe_is_read_from_its_first_byte(tmp_path):
    read, write = os.pipe()
    os.write(write, b"RuntimeError: CUDA error: out of memory\n")
    os.close(write)
    (tmp_path / "log").symlink_to(f"/proc/{os.getpid()}/fd/{read}")
    ran = gpuready("diagnose", str(tmp_path / "log"))
    assert "CUDA error: out of memory" in ran.out, ran.err
    os.close(read)
