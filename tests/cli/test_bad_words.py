"""What a new user gets wrong is answered in one sentence that names the thing as it was written, and what to do."""

from __future__ import annotations

import os
import random

import pytest

from tests.running import call_gpuready as gpuready


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "d").mkdir()
    (tmp_path / "empty.json").write_text(" \n")
    (tmp_path / "words.txt").write_text("hello world\n")
    (tmp_path / "random.bin").write_bytes(random.Random(5).randbytes(5000))
    (tmp_path / "zeros.bin").write_bytes(b"")
    os.truncate(tmp_path / "zeros.bin", 9 << 20)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("contract diff a/b trl", "a/b does not exist: name a contract in TOML, or a framework such as trl"),
        ("contract show --contract words.txt/x", "words.txt/x does not exist"),
        ("check transformers --on empty.json", "empty.json is empty; record a machine with `gpuready probe -o FILE`"),
        ("check --frob", "gpuready check has no flag '--frob'; `gpuready check --help` lists them"),
        ("check --pyhton x", "the nearest is --python"),
        ("help frob", "gpuready has no command 'frob'"),
        ("fit d", "'d' is not a folder with a config.json, nor a job file"),
        ("fit words.txt", "'words.txt' is not a folder with a config.json, nor a job file"),
        ("check trl --on " + "x" * 5000, "write for example h100x8"),
        ("check trl --python " + "x" * 5000, "there is no such file or folder"),
        ("diagnose words.txt --on gone.json", "gone.json"),
        (
            "diagnose words.txt --on h100",
            "--on h100 is no file of a recording; the name of a GPU needs the job's --config",
        ),
        ("diagnose words.txt --on words.txt", "words.txt is not JSON"),
        ("install trl== --dry-run --offline", "'trl==' names no contract"),
        ("plan trl --on h100 --no-resolve --find-links gone", "--find-links is read where versions are resolved"),
        ("fix trl --yes --only ,,", "--only names no code"),
        ("fix nonsense --yes", "there is no contract for 'nonsense'"),
        ("mcp --python gone", "--python gone: there is no such file or folder"),
        ("bench --quick -o d", "cannot write d: is a directory"),
        ("prove matmul-fp8 -o gone/x.json", "cannot write gone/x.json: no such file or directory"),
        ("fleet drift --hosts a.invalid -o words.txt/x", "cannot write words.txt/x: not a directory"),
        ("diagnose random.bin", "cannot read random.bin: it is binary data, not a log"),
    ],
)
def test_one_sentence_and_exit_2(folder, words, says):
    run = gpuready(*words.split(), cwd=folder)
    assert run.code == 2 and run.out == ""
    assert says in run.err and run.err.count("\n") == 1


def test_a_file_without_a_line_is_not_called_healthy(folder):
    run = gpuready("diagnose", "zeros.bin", cwd=folder)
    assert run.code == 3 and "nothing was read" in run.out


@pytest.mark.parametrize("text", ["a\x1b[31mred\x1b[0m\b\x07\n" * 40, "\0" * 4000 + "loss 2.1\n" * 9, "Größe\n" * 50])
def test_what_terminals_and_crashes_leave_in_a_log_is_text(tmp_path, text):
    for code in ("utf-8", "latin-1", "utf-16"):
        (tmp_path / "train.log").write_bytes(text.encode(code))
        assert gpuready("diagnose", "train.log", cwd=tmp_path).code in (0, 3)


def test_help_takes_a_command():
    assert gpuready("help", "check").out == gpuready("check", "--help").out
    assert gpuready("help", "fleet").out == gpuready("fleet", "--help").out
    assert gpuready("help", "contract", "show").out == gpuready("contract", "show", "--help").out
