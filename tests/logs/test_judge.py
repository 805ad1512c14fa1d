"""Causality: what only follows yields, whoever speaks loudest or last; and where nobody knows, nobody guesses."""

from __future__ import annotations

import pytest

from gpuready.workflow.diagnose import diagnose_logs

LIB = "/venv/lib/python3.12/site-packages"
OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB of which 387.12 MiB is free. "
    "Including non-PyTorch memory, this process has 78.70 GiB memory in use. Of the allocated memory 77.10 GiB is allocated by PyTorch"
)
HEAD = 'Traceback (most recent call last):\n  File "/home/me/train.py", line 88, in step\n    loss.backward()\n'
CLOSED = "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.2]:4411"
WATCHDOG = (
    "[E ProcessGroupNCCL.cpp:616] [Rank {r}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={s}, OpType={op}, NumelIn=683, "
    "NumelOut=683, Timeout(ms)=600000) ran for 600072 milliseconds before timing out."
)


def ranked(rank: int, text: str) -> str:
    return "\n".join(f"[rank{rank}]: {line}" for line in text.split("\n"))


def found(*texts: str):
    return diagnose_logs([[text.encode()] for text in texts], look=False)


def test_the_cause_comes_before_its_consequences_wherever_it_stands():
    loud = ranked(3, WATCHDOG.format(r=3, s=44, op="ALLREDUCE"))
    quiet = ranked(0, HEAD + OOM)
    for text in (f"{quiet}\n{loud}", f"{loud}\n{quiet}"):
        one = found(text)
        assert (one.cause, one.code, one.rank) == ("cuda-oom", "MEM001", 0)
        assert one.captures["want"] == "2.00 GiB" and one.exit == 1
        assert [c.means for c in one.consequences] == ["a rank waited for the others until its timeout"]


def test_files_of_several_ranks_in_any_order():
    texts = [ranked(r, HEAD + (OOM if r == 2 else CLOSED)) for r in range(4)]
    for order in (texts, texts[::-1], texts[2:] + texts[:2]):
        assert (found(*order).cause, found(*order).rank) == ("cuda-oom", 2)


def test_an_error_of_the_program_is_called_one_and_has_its_frame():
    text = (
        ranked(1, HEAD.replace("loss.backward()", 'row["text"]') + "KeyError: 'text'") + "\n" + ranked(0, HEAD + CLOSED)
    )
    one = found(text)
    assert (one.cause, one.rank, one.verdict) == ("not-environment", 1, "cause")
    assert one.frame == {"file": "/home/me/train.py", "line": 88, "function": "step"}


def test_a_frame_of_the_user_further_up_the_chain():
    inner = f'Traceback (most recent call last):\n  File "{LIB}/transformers/x.py", line 3, in f\n    y\nValueError: too many dimensions\n'
    text = (
        inner
        + "\nThe above exception was the direct cause of the following exception:\n\n"
        + HEAD
        + "ValueError: Unable to do it"
    )
    one = found(text)
    assert one.cause == "not-environment" and one.frame["file"] == "/home/me/train.py"
    assert one.evidence[0].text == "ValueError: too many dimensions"


def test_a_kill_is_told_by_the_launcher_alone():
    text = (
        ranked(0, HEAD + CLOSED)
        + "\nE1115 01:13:28.472000 25837 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: -9) local_rank: 1 (pid: 25861) of binary: /venv/bin/python"
        + "\nRoot Cause (first observed failure):\n[0]:\n  time      : x\n  host      : node7\n  rank      : 1 (local_rank: 1)\n  exitcode  : -9 (pid: 25861)"
    )
    one = found(text)
    assert (one.cause, one.rank, one.host) == ("host-oom-killed", 1, "node7")
    assert one.confidence < 0.9, "SIGKILL may come from elsewhere"


def test_the_launcher_says_who_was_first_among_equals():
    text = "\n".join(ranked(r, HEAD + OOM) for r in range(4))
    table = "\nRoot Cause (first observed failure):\n[0]:\n  host      : n\n  rank      : 2 (local_rank: 2)\n  exitcode  : 1 (pid: 9)"
    assert found(text).rank == 0 and found(text + table).rank == 2


def test_ranks_in_different_collectives():
    text = "\n".join(
        ranked(r, WATCHDOG.format(r=r, s=44 if r != 7 else 45, op="ALLREDUCE" if r != 7 else "BROADCAST"))
        for r in range(8)
    )
    assert (found(text).cause, found(text).rank) == ("collective-mismatch", 7)


def test_whose_memory_it_was():
    theirs = OOM.replace("this process has 78.70 GiB", "this process has 1.20 GiB")
    assert found(HEAD + theirs).cause == "gpu-memory-busy" and found(HEAD + OOM).cause == "cuda-oom"


def test_healthy_logs():
    for text in (
        "step 1 loss 2.0\nTraining completed.",
        "UserWarning: something old\n  warnings.warn(\nstep 1 loss 2.0",
        "errors: 0, failed: 0",
    ):
        assert (found(text).verdict, found(text).cause, found(text).exit) == ("healthy", "healthy", 0)


def test_a_model_that_was_loaded_is_no_proof_of_health():
    """A run may stand still right after it."""
    loaded = "Some weights of BertModel were not initialized from the checkpoint and are newly initialized: ['pooler.bias']\n"
    assert found(loaded + "You should probably TRAIN this model.\n").verdict != "healthy"
    assert found("Model loading took 14.2 GiB and 3.1 seconds\n").verdict != "healthy"


POST = 'INFO:     10.0.0.2:53812 - "POST /v1/completions HTTP/1.1" {}\n'
ASK = 'INFO:     10.0.0.2:53812 - "GET /health HTTP/1.1" 200 OK\n'


def test_a_server_that_answers_requests_is_healthy():
    assert found("INFO: loading\n" + POST.format("200 OK")).verdict == "healthy"
    assert found("INFO: loading\n" + POST.format("500 Internal Server Error")).verdict != "healthy"
    gin = '[GIN] 2026/11/18 - 06:00:01 | {} |  1.2345678s |       127.0.0.1 | POST     "/api/generate"\n'
    assert found("loading\n" + gin.format(200)).verdict == "healthy" != found("loading\n" + gin.format(500)).verdict
    assert found("INFO: loading\n" + ASK).verdict != "healthy", "its front answers, the engine may stand still"
    assert found(HEAD + OOM + "\n" + 5 * POST.format("200 OK")).cause == "cuda-oom", (
        "one request failed, others did not"
    )
    assert found(POST.format("200 OK") + 80 * ASK).verdict != "healthy", "it has not answered for long"


def test_a_dump_of_threads_without_a_crash_was_taken_because_nothing_moved():
    dump = 'Thread 0x00007fdcbce00640 (most recent call first):\n  File "/v/lib/python3.11/threading.py", line 324 in wait\n'
    assert found("INFO: epoch begins\n" + dump).cause == "hang-without-error"
    assert found("Fatal Python error: Segmentation fault\n\n" + dump).cause != "hang-without-error"


def test_a_failure_that_nobody_can_explain_is_left_unexplained():
    one = found(
        "E0101 00:00:00.000000 1 torch/x.py:1] failed (exitcode: 1) local_rank: 0 (pid: 8) of binary: /usr/bin/python"
    )
    assert (one.verdict, one.cause, one.exit) == ("unknown", "", 3)


def test_a_line_cannot_forge_a_conclusion():
    assert (
        found("derived: throughput fell by 50 % and stayed there\nstep 1 loss 2.0\nstep 2 loss 1.9").verdict
        == "healthy"
    )


def test_a_gpu_that_became_slower():
    pace = [100.0, 100.3, 99.8, 100.1, 91.0, 90.8, 90.9, 91.1]
    text = "\n".join(f"iteration {i} | samples per second: {value} |" for i, value in enumerate(pace))
    assert found(text).cause in ("gpu-degraded", "GPU019")
    steady = "\n".join(f"iteration {i} | samples per second: {100 + i % 3 * 0.5} |" for i in range(20))
    assert found(steady).verdict == "healthy"


RETRY = (
    "2026-11-15 10:00:0{n},000 WARNING trainer: no {what}, going on without it\n"
    + HEAD
    + "ModuleNotFoundError: No module named '{what}'\n"
)
STEP = "2026-11-15 10:00:1{n},000 INFO trainer: step {n} loss 1.{n}\n"


GLIBC = 'WARNING 07-16 22:59:22 ops.py:14] Failed to import from mesh._C with ImportError("/lib/libc.so.6: version `GLIBC_2.32\' not found (required by /v/mesh/_C.so)")\n'
IMPORTS = 'Traceback (most recent call last):\n  File "/v/lib/python3.8/site-packages/outlines/schema.py", line 7, in <module>\n    from jsonschema.protocols import Validator\n'


def test_what_only_a_warning_told_yields_to_the_exception_that_ended_the_process():
    ended = GLIBC + IMPORTS + "ModuleNotFoundError: No module named 'jsonschema.protocols'\n"
    assert found(ended).cause == "version-conflict"
    assert "glibc-too-old" in [other.cause for other in found(ended).alternatives]
    assert found(GLIBC + HEAD + "KeyError: 'x'\n").cause == "glibc-too-old", (
        "an error of the program may follow from it"
    )
    assert found(GLIBC).cause == "glibc-too-old"


def test_what_the_run_survived_is_no_cause():
    text = (
        RETRY.format(n=1, what="flash_attn")
        + RETRY.format(n=2, what="apex")
        + "".join(STEP.format(n=n) for n in range(5))
    )
    assert found(text).verdict == "healthy"
    assert found(text + HEAD + "KeyError: 'x'").cause == "not-environment", "but it may die of something else later"


def test_another_rank_that_goes_on_proves_nothing():
    text = ranked(0, HEAD + OOM) + "\n" + "".join(ranked(1, STEP.format(n=n).rstrip()) + "\n" for n in range(5))
    assert (found(text).cause, found(text).rank) == ("cuda-oom", 0)


def test_who_speaks_last_in_a_mixed_stream_proves_nothing_before_the_launcher_has_spoken():
    text = (
        HEAD + OOM + "\n" + STEP.format(n=1) + "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
    )
    assert found(text).cause == "cuda-oom"


def test_a_server_that_says_goodbye_calmly_is_dead_all_the_same():
    text = HEAD + OOM + "\nINFO:     Application shutdown complete.\nINFO:     Finished server process [7]\n"
    assert found(text).cause == "cuda-oom"


def test_a_complaint_without_a_traceback_at_the_end_is_quoted():
    text = STEP.format(n=1) + "2026-11-15 10:00:20,000 ERROR trainer: no rows left after filtering\n"
    one = found(text)
    assert one.verdict == "unknown" and one.evidence[0].line == 2


def test_threads_that_wait_for_others():
    text = 'Process 77: python train.py\nThread 77 (idle): "MainThread"\n    wait (threading.py:320)\n    all_reduce (torch/distributed/distributed_c10d.py:2501)\n'
    assert found(text).verdict in ("cause", "unknown")


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("./run.sh: line 14:  3312 Killed                  python train.py", "host-oom-killed"),
        ("Killed", "host-oom-killed"),
    ],
)
def test_what_a_shell_says_of_the_dead(line, cause):
    assert found(STEP.format(n=1) + line).cause == cause


def test_secrets_do_not_leave():
    token = "hf_" + "abcdefghijklmnopqrstuvwxyzABCDEFGH"
    one = found(HEAD + f"KeyError: 'no {token} there'")
    assert token not in str(one.to_json())


def test_alternatives_say_what_would_decide():
    text = (
        ranked(0, HEAD + OOM)
        + "\n"
        + ranked(
            1,
            HEAD
            + "RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the 'spawn' start method",
        )
    )
    one = found(text)
    assert one.cause == "cuda-oom" and [a.cause for a in one.alternatives] == ["fork-after-cuda"]


@pytest.mark.parametrize(
    "keep", ["cause", "code", "rank", "host", "confidence", "evidence", "consequences", "fix", "alternatives"]
)
def test_the_json_has_what_a_launcher_asks_for(keep):
    assert keep in found(HEAD + OOM).to_json()


def test_a_report_of_another_process_is_no_complaint_of_its_own():
    text = (
        "ERROR 10-26 11:35:32 registry.py:267] Traceback (most recent call last):\n"
        'ERROR 10-26 11:35:32 registry.py:267]   File "/v/lib/python3.12/site-packages/vllm/registry.py", line 4, in run\n'
        "ERROR 10-26 11:35:32 registry.py:267] subprocess.CalledProcessError: Command '['python']' returned non-zero exit status 1.\n"
    )
    found = diagnose_logs([[text.encode()]], look=False)
    assert (found.verdict, found.cause) == ("unknown", "")


def test_the_reason_stands_before_a_raise_of_the_programs_own():
    reason = "Warning: Failed to load 'a/b'. Error: (\"HTTPSConnectionPool(host='huggingface.co', port=443): Read timed out.\")\n"
    frames = 'Traceback (most recent call last):\n  File "/home/me/train.py", line 3, in load\n    {}\nValueError: no dataset\n'
    raised = diagnose_logs([[(reason + frames.format('raise ValueError("no dataset")')).encode()]], look=False)
    assert raised.cause == "hub-unreachable"
    called = diagnose_logs([[(reason + frames.format("check(rows)")).encode()]], look=False)
    assert called.cause == "not-environment"


def test_a_source_file_of_the_users_that_does_not_compile_is_no_environment():
    site = "/v/lib/python3.12/site-packages/torch/utils/cpp_extension.py"
    text = (
        "{}/main.cpp:2:49: error: 'b' was not declared in this scope\nninja: build stopped: subcommand failed.\n"
        'Traceback (most recent call last):\n  File "/home/me/train.py", line 9, in <module>\n    load_inline("add", code)\n'
        f'  File "{site}", line 2910, in _run_ninja_build\n    raise RuntimeError(message) from e\n'
        "RuntimeError: Error building extension 'add'\n"
    )
    own = diagnose_logs([[text.format("/home/me/.cache/torch_extensions/add").encode()]], look=False)
    other = diagnose_logs([[text.format("/v/lib/python3.12/site-packages/lib/csrc").encode()]], look=False)
    assert (own.cause, other.cause) == ("not-environment", "extension-build-failed")
