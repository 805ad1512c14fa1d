"""``gpuready diagnose`` from the words of the command line to its exit code."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import gpuready
from gpuready.cli import run_command_line as run
from tests.deadlines import wait_until
from tests.running import call_gpuready

MACHINES = Path(__file__).parents[1] / "machines"
OOM = (
    "[rank3]: Traceback (most recent call last):\n"
    '[rank3]:   File "/home/me/train.py", line 8, in <module>\n'
    "[rank3]:     loss.backward()\n"
    "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.69 GiB. GPU 3 has a total capacity of 79.10 GiB of which 387.12 MiB "
    "is free. Including non-PyTorch memory, this process has 78.70 GiB memory in use. Of the allocated memory 77.10 GiB is allocated by PyTorch\n"
)


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "train.log"
    path.write_text(OOM)
    return str(path)


def test_one_screen(log, capsys):
    assert run(["diagnose", log]) == 1
    out = capsys.readouterr().out
    assert (
        out.startswith("cause (95 % sure): the job needs more memory than the GPU has")
        and "  where  rank 3 (" in out
        and "      4> [rank3]: torch.OutOfMemoryError" in out
    )
    assert "fix" in out and "gpuready explain MEM001" in out
    assert all(len(line) <= 80 for line in out.splitlines())


def test_json_for_a_launcher(log, capsys):
    assert run(["diagnose", "--json", log]) == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["cause"], document["code"], document["rank"], document["verdict"]) == (
        "cuda-oom",
        "MEM001",
        3,
        "cause",
    )
    assert (
        document["evidence"][0]["line"] == 4
        and document["fix"]
        and document["alternatives"] == []
        and document["schema"]
    )


def test_one_line(log, capsys):
    assert run(["diagnose", "-q", log]) == 1
    assert capsys.readouterr().out.startswith("cuda-oom MEM001 rank 3: ")


def test_healthy_and_unknown(tmp_path, capsys):
    (tmp_path / "a.log").write_text("step 1 loss 2.0\n")
    assert run(["diagnose", str(tmp_path / "a.log")]) == 0
    (tmp_path / "b.log").write_text("torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n")
    assert run(["diagnose", str(tmp_path / "b.log")]) == 3
    assert "no cause found" in capsys.readouterr().out


def test_folders_of_ranks(tmp_path, capsys):
    for rank in range(4):
        place = tmp_path / "attempt_0" / str(rank)
        place.mkdir(parents=True)
        text = (
            OOM.replace("[rank3]: ", "") if rank == 2 else "RuntimeError: Connection closed by peer [10.0.0.2]:4411\n"
        )
        (place / "stderr.log").write_bytes(gzip.compress(text.encode()) if rank == 2 else text.encode())
    (tmp_path / "weights.safetensors").write_bytes(b"\0" * 4096)
    assert run(["diagnose", "--json", str(tmp_path)]) == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["cause"], document["rank"], len(document["logs"])) == ("cuda-oom", 2, 4)
    assert document["evidence"][0]["source"] == "attempt_0/2/stderr.log"


@pytest.mark.parametrize(
    ("words", "says"),
    [(["/nonexistent.log"], "cannot read"), (["-q", "-v", "x"], "-q and -v"), (["--watch", "a", "b"], "leave the others out"), (["--on", "/nonexistent.json", "LOG"], "nonexistent")],
)  # fmt: skip
def test_bad_words_are_refused_in_a_sentence(words, says, log, capsys):
    assert run(["diagnose", *(log if word == "LOG" else word for word in words)]) == 2
    err = capsys.readouterr().err
    assert says in err and err.count("\n") == 1


def test_a_log_that_this_python_cannot_unpack_is_refused_in_a_sentence(tmp_path, monkeypatch, capsys):
    from gpuready.system import log_streams

    monkeypatch.setattr(log_streams, "_decompressor_factory", lambda kind: None)  # as before Python 3.14
    sealed = tmp_path / "run.log.zst"
    sealed.write_bytes(b"\x28\xb5\x2f\xfd" + b"x" * 64)
    assert run(["diagnose", str(sealed)]) == 2
    err = capsys.readouterr().err
    assert "run.log.zst" in err and "compressed with zst" in err and err.count("\n") == 1
    (tmp_path / "other.log").write_text("RuntimeError: No CUDA GPUs are available\n")
    assert run(["diagnose", "--json", str(tmp_path)]) == 1, "a folder is read without it"
    document = json.loads(capsys.readouterr().out)
    assert document["cause"] == "no-gpu-visible" and "run.log.zst is left out" in " ".join(document["notes"])


def test_an_empty_folder_is_refused(tmp_path, capsys):
    assert run(["diagnose", str(tmp_path)]) == 2
    assert "there is no log" in capsys.readouterr().err


def process(*words: str, **options):
    env = os.environ | {"PYTHONPATH": str(Path(gpuready.__file__).parent.parent)}
    return subprocess.Popen(
        [sys.executable, "-m", "gpuready", "diagnose", *words],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def test_stdin():
    done = process("-q", stdin=subprocess.PIPE)
    out, _ = done.communicate(OOM, timeout=60)
    assert done.returncode == 1 and out.startswith("cuda-oom MEM001 rank 3")


def test_watch_ends_with_the_run(tmp_path):
    path = tmp_path / "live.log"
    path.write_text(OOM + "[launch.py:321:sigkill_handler] ['python', 'x.py'] exits with return code = 1\n")
    done = process("--watch", str(path), "-q")
    out, _ = done.communicate(timeout=60)
    assert done.returncode == 1 and out.startswith("cuda-oom MEM001")


def _open_files(pid: int) -> set[str]:
    """The paths that a process has open; none once it has ended."""
    found = set()
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                found.add(os.readlink(f"/proc/{pid}/fd/{name}"))
    return found


def test_watch_tells_when_the_cause_appears_and_ends_with_ctrl_c(tmp_path):
    path = tmp_path / "live.log"
    path.write_text("step 1\n")
    done = process("--watch", str(path), "-q", start_new_session=True)
    assert wait_until(lambda: str(path) in _open_files(done.pid)), "it does not read the log"
    with path.open("a") as out:
        out.write(OOM)
    assert done.stdout.readline().startswith("cuda-oom MEM001 rank 3")
    done.send_signal(2)
    done.communicate(timeout=60)
    assert done.returncode == 1


def _watch(path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> dict:
    """What --watch tells of a run that is over."""
    monkeypatch.setattr("gpuready.workflow.diagnose.QUIET_CHECKS", 0)
    path.write_text(OOM + "[launch.py:321:sigkill_handler] ['python', 'x.py'] exits with return code = 1\n")
    assert run(["diagnose", "--watch", str(path), "--json", *words]) == 1
    return json.loads(capsys.readouterr().out)


def test_watch_reads_the_machine_and_the_job_as_a_complete_log_does(tmp_path, monkeypatch, capsys):
    path, job = tmp_path / "live.log", tmp_path / "axolotl.yml"
    job.write_text("base_model: Qwen/Qwen2.5-0.5B\nadapter: lora\nmicro_batch_size: 1\nsequence_len: 256\nbf16: true\n")
    for words in (
        [],
        ["--on", str(MACHINES / "h200.json")],
        ["--config", str(job)],
        ["--config", str(job), "--on", "h100"],
    ):
        watched = _watch(path, monkeypatch, capsys, *words)
        assert run(["diagnose", str(path), "--json", *words]) == 1
        whole = json.loads(capsys.readouterr().out)
        assert {key: watched[key] for key in ("cause", "fix", "says", "notes")} == {
            key: whole[key] for key in ("cause", "fix", "says", "notes")
        }
        assert any("by gpuready fit" in note for note in watched["notes"]) == ("--config" in words)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--on", "gone.json"], "gone.json"),
        (["--on", "h100"], "add its file with --config"),
        (["--config", "gone.yml"], "gone.yml does not exist"),
        (["--config", "LOG"], "nor a job file"),
        (["--config", "LOG", "--on", "frob"], "nor a job file"),
    ],
)
def test_watch_refuses_a_machine_or_job_before_it_waits(words, says, tmp_path, capsys):
    """The log is empty, so that it would wait for ever."""
    (tmp_path / "live.log").write_text("")
    words = [str(tmp_path / "live.log") if word == "LOG" else word for word in words]
    assert run(["diagnose", "--watch", str(tmp_path / "live.log"), *words]) == 2
    err = capsys.readouterr().err
    assert says in err and err.count("\n") == 1


def test_an_empty_log_is_no_healthy_run(tmp_path, capsys):
    path = tmp_path / "empty.log"
    path.write_text("")
    assert run(["diagnose", str(path)]) == 3
    assert "the log is empty" in capsys.readouterr().out


@pytest.mark.parametrize(
    "head", [b"PK\x03\x04", b"\x7fELF", b"GGUF\x03\0\0\0", b"PAR1\x15\0", b"%PDF-1.7\n", b"\x80\x04\x95"]
)
def test_what_is_no_log_is_told_by_its_first_bytes(tmp_path, capsys, head):
    path = tmp_path / "run.log"
    path.write_bytes(head + b"\n" + OOM.encode())
    assert run(["diagnose", str(path)]) == 2
    assert "not a log" in capsys.readouterr().err


@pytest.mark.parametrize("first", ["GGUF export started", "PAR1 of 4", "%PDF of the loss", "Rar! it says"])
def test_a_log_may_begin_with_the_name_of_a_format(tmp_path, capsys, first):
    path = tmp_path / "run.log"
    path.write_text(f"{first}\n{OOM}")
    assert run(["diagnose", str(path)]) == 1
    assert capsys.readouterr().out.startswith("cause (95 % sure): the job needs more memory")


STARTED = "torchrun --nproc_per_node 8 train.py --model_name_or_path {model} --per_device_train_batch_size {batch} --bf16 --max_seq_length 4096 --gradient_checkpointing"


@pytest.mark.parametrize(
    ("model", "batch", "expected"),
    [
        (
            "Qwen/Qwen3-8B",
            "4",
            "gpuready fit Qwen/Qwen3-8B --on a100 --micro-batch 4 --seq 4096 --gradient-checkpointing --precision amp-bf16 --world 8",
        ),
        ("Qwen/Qwen3-8B", "4;reboot", ""),
        ("Qwen/Qwen3-8B", "9999999999999", ""),
        ("/etc/../Qwen/Qwen3-8B", "4", ""),
        ("$(reboot)Qwen3-8B", "4", ""),
        ("--offline", "4", ""),
        ("nobody/of-the-catalogue-8b", "4", ""),
    ],
)
def test_out_of_memory_names_the_fit_of_the_logged_command(tmp_path, model, batch, expected):
    """Of a log only numbers, words of a job and the name of a known model are printed as a command."""
    (tmp_path / "job.log").write_text(f"$ {STARTED.format(model=model, batch=batch)}\n{OOM}\n")
    found = call_gpuready("diagnose", "job.log", "--json", cwd=tmp_path)
    runs = [shlex.join(step["run"]) for step in json.loads(found.out)["fix"] if step["run"][:2] == ["gpuready", "fit"]]
    assert runs == ([expected] if expected else [])
