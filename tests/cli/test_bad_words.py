"""What a new user gets wrong is answered in one sentence that names the thing as it was written, and what to do."""

from __future__ import annotations

import os
import random

import pytest

from gpuready.commands import load_all_commands
from gpuready.commands.declaration import call_command
from gpuready.workflow.refusal import Refused
from tests.every import every
from tests.running import call_gpuready as gpuready


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "d").mkdir()
    (tmp_path / "empty.json").write_text(" \n")
    (tmp_path / "words.txt").write_text("hello world\n")
    (tmp_path / "other.yml").write_text("frob: 1\n")
    (tmp_path / "random.bin").write_bytes(random.Random(5).randbytes(5000))
    (tmp_path / "zeros.bin").write_bytes(b"")
    os.truncate(tmp_path / "zeros.bin", 9 << 20)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("contract diff a/b trl", "a/b does not exist: name a file of requirements (TOML), or a framework such as trl"),
        ("contract show --contract words.txt/x", "words.txt/x does not exist"),
        ("check transformers --on empty.json", "empty.json is empty; record a machine with `gpuready probe -o FILE`"),
        ("check --frob", "gpuready check has no flag '--frob'; `gpuready check --help` lists them"),
        ("check --pyhton x", "the nearest is --python"),
        ("check other.yml", "other.yml is not a training file of axolotl"),
        ("check trl gone/Job.YAML", "gone/Job.YAML does not exist"),
        ("check gone.txt", "gone.txt does not exist"),
        ("check a.txt b.txt", "a.txt and b.txt are files of the same kind"),
        ("plan other.yml", "'other.yml' is a file, not a framework: give it with --config"),
        ("plan mine.toml", "'mine.toml' is a file, not a framework: give it with --contract"),
        ("check Dockerfile.train", "Dockerfile.train does not exist"),
        ("fix trl other.yml", "'other.yml' is a file, not a framework: give it with --config"),
        ("run trl other.yml", "gpuready run: what it starts goes after --, such as -- train.py other.yml"),
        ("help frob", "gpuready has no command 'frob'"),
        ("fit d", "'d' is not a folder with a config.json, nor a job file"),
        ("fit words.txt", "'words.txt' is not a folder with a config.json, nor a job file"),
        ("check trl --on " + "x" * 5000, "write for example h100x8"),
        ("check trl --python " + "x" * 5000, "there is no such file or folder"),
        ("diagnose words.txt --on gone.json", "gone.json"),
        (
            "diagnose words.txt --on h100",
            "--on h100 is no recording, and of a machine that is only named the job alone is judged: add its file with --config",
        ),
        ("diagnose words.txt --for fastlorra", "--for fastlorra: no framework has that name, and it is not installed"),
        ("diagnose words.txt --for vlm", "(nearest: vllm"),
        ("diagnose words.txt --on words.txt", "words.txt is not JSON"),
        ("install trl== --dry-run --offline", "'trl==' names no requirements"),
        ("plan trl --on h100 --no-resolve --find-links gone", "--find-links is read where versions are resolved"),
        ("fix trl --yes --only ,,", "--only names no code"),
        ("env nonsense", "'nonsense' has no known requirements and is not installed here"),
        ("check train.log", "train.log is a log: `gpuready diagnose` reads those"),
        ("fix trl --on h100x8", "`gpuready check trl --on h100x8` only looks"),
        ("check trl --on h100 --driver 9999.1", "driver=9999.1: there is no such driver of NVIDIA"),
        ("check trl --on rtx5090 --driver 550.54", "no driver before branch 570 knows the NVIDIA GeForce RTX 5090"),
        ("check trl --on mi300x --driver 580.65.06", "driver is for the driver of NVIDIA GPUs"),
        ("check trl --on gb200 --arch x86_64", "is built together with a processor of aarch64"),
        ("mcp --python gone", "--python gone: there is no such file or folder"),
        ("bench --quick -o d", "cannot write d: is a directory"),
        ("prove matmul-fp8 -o gone/x.json", "cannot write gone/x.json: no such file or directory"),
        ("fleet drift --hosts a.invalid -o words.txt/x", "cannot write words.txt/x: not a directory"),
        ("diagnose random.bin", "cannot read random.bin: it is binary data, not a log"),
        ("check trl --python ls", "is a program, and no Python"),
        ("bench --python rm", "is a program, and no Python"),
        ("fix trl --dry-run --python cat", "is a program, and no Python"),
        ("check trl --on h100 --config other.yml", "--config other.yml is not a training file of axolotl"),
        ("fix trl --dry-run --offline --find-links https://", "--find-links https:// names no host"),
        ("fix trl --undo --dry-run", "--undo and --dry-run"),
        ("fix trl --undo", "--undo takes no FRAMEWORK"),
        ("fix trl", "add --yes or --dry-run"),
        ("fix trl " + "x" * 5000, "gpuready fix takes [FRAMEWORK], and was given 2"),
        ("fix " + "x" * 5000 + " --dry-run", "letters)"),
        ("bench --only gone", "--only gone: nothing is measured under that name"),
        ("bench --only ,", "--only names no measure"),
        ("bench --gpu 700", "--gpu 700: CUDA shows no such GPU here"),
        ("bench --bench words.txt", "--bench goes with --job"),
        ("bench --job words.txt", "words.txt"),
        ("bench --job gone.yml", "gone.yml does not exist"),
        ("bench --job other.yml --repeat 3", "--repeat is not read with --job"),
        ("bench --list --gpu 0", "--gpu is not read with --list"),
        ("prove --list --wants fp8", "--wants is not read with --list"),
        ("fix --undo --offline", "--offline is not read with --undo"),
        ("fix --undo --wants fp8", "--wants is not read with --undo"),
        ("install --rollback --offline", "--offline is not read with --rollback"),
        ("install --verify --wants fp8", "--wants is not read with --verify"),
        ("fleet check trl --prolog --hosts a,b", "--hosts is not read with --prolog"),
        ("fleet check trl --prolog -o x.html", "-o is not read with --prolog"),
        ("fleet check frob: --hosts a,b", "frob"),
        ("fleet check trl --wants frob --hosts a,b", "--wants frob is not known"),
        ("fleet check --format prometheus", "has no flag '--format' (gpuready check has it)"),
        ("fleet prove frob --hosts a,b", "'frob' is not a framework, a capability or a proof"),
        ("fleet bench --only frob --hosts a,b", "--only frob: nothing is measured under that name"),
        ("fleet bisect --hosts a", "bisect compares pairs of nodes, and there is only a: name two or more"),
        ("fleet bisect --hosts n[1-999999999]", "n[1-999999999]"),
        ("fleet drift --hosts a,b --pods app=x", "--pods is not read where nodes are reached through ssh"),
        ("fleet drift --hosts a,b --image x", "--image is not read where nodes are reached through ssh"),
        ("fleet drift --hosts a,b --address h:1", "--address is not read where nodes are reached through ssh"),
        ("fleet drift --hosts a,b --nodes c", "--nodes and --hosts exclude each other"),
        ("fleet drift --engine ray --nodes c", "which takes --address"),
        ("fleet drift --engine slurm --hostfile words.txt", "which takes --nodes and --hosts"),
        ("fleet drift --engine kubernetes --hosts a", "--hosts is not read where nodes are reached through kubernetes"),
        ("fleet drift --pods app=x --image y", "--image and --pods exclude each other"),
        ("fleet drift --hostfile gone", "gone does not exist"),
        ("fleet prove --resume d --hosts a,b", "d/run.json does not exist"),
        ("fleet prove --reference words.txt --hosts a,b", "words.txt is not JSON"),
    ],
)
def test_one_sentence_and_exit_2(folder, words, says):
    run = gpuready(*words.split(), cwd=folder)
    assert run.code == 2 and run.out == ""
    assert says in run.err and run.err.count("\n") == 1


COMMANDS = load_all_commands()
ABSURD = {
    "count": ("-1", "1e999", "NaN", "two", "0x10", "999999999999999999999", "\u0661", "1.5"),
    "whole": ("-1", "0", "1e999", "NaN", "two", "0x10", "999999999999999999999", "\u0661", "1.5"),
    "number": ("-1", "0", "1e999", "NaN", "two", "0x10", "999999999999999999999"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_absurd_numbers_and_choices_of_every_command(folder, name):
    """Before anything is done: no probe, no node, no measurement."""
    for one in COMMANDS[name].flags:
        values = ABSURD.get(one.kind, ()) if not one.choices else ("frob", "AUTO ", "-")
        for value in values:
            run = gpuready(*name.split(), *["x"] * COMMANDS[name].least, f"{one.flag}={value}", cwd=folder)
            assert (run.code, run.out) == (2, ""), f"{name} {one.flag} {value}"
            assert one.flag in run.err and run.err.count("\n") == 1 and "failed" not in run.err, run.err


@every("name", COMMANDS)
def test_absurd_numbers_of_every_python_call(name):
    for one in COMMANDS[name].parameters.values():
        is_number = one.kind in ABSURD and one.python and one.group != "job"
        for value in (-1, True, "two", float("nan"), 10**30, [], 1j) if is_number else ():
            with pytest.raises(Refused, match=one.name):
                call_command(COMMANDS[name], ["x"] * COMMANDS[name].least, {one.name: value})


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
