"""What ended the run wins over warnings, wrappers, launchers and earlier attempts; cut lines tell what they still can."""

from __future__ import annotations

import pytest

from gpuready.model.diagnosis import Diagnosis, ExceptionLink
from gpuready.workflow.diagnosis_fixes import find_remedy
from tests.logs.answers import diagnose

HEAD = "Traceback (most recent call last):\n"
SITE = "/opt/env/lib/python3.11/site-packages"
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.64 GiB of which 1.10 GiB is free."
DURING = "\nDuring handling of the above exception, another exception occurred:\n\n"


def cause_of(text: str) -> str:
    found = diagnose(text)
    return found.cause or found.verdict


def frame(file: str, function: str, code: str) -> str:
    return f'  File "{file}", line 41, in {function}\n    {code}\n'


def die(last: str, *frames: str) -> str:
    return HEAD + "".join(frames or (frame("/srv/job/train.py", "<module>", "main()"),)) + last + "\n"


# -- notes and earlier attempts -----------------------------------------------------------------------------------

NOTES = [
    "fused_ops: skipping native kernels: /opt/env/fused_ops/_C.so: undefined symbol: _ZN3c104cuda20CUDACachingAllocator9allocatorE",
    "Could not load libnvrtc, ignoring: /opt/env/fast/_k.so: undefined symbol: _ZN2at4_ops5zeros4callEv",
    "no fused sampler here: ImportError('libcudart.so.12: cannot open shared object file: No such file or directory')",
    "WARNING loader: /opt/env/ext/_C.so: undefined symbol: _ZNK3c1010TensorImpl4sizeEl",
    "[2026-01-02 03:04:05] Skipped optional backend: libcudart.so.11.0: cannot open shared object file: No such file or directory",
]


@pytest.mark.parametrize("note", NOTES)
def test_a_note_that_something_is_left_out_yields_to_the_fatal_exception(note: str) -> None:
    assert cause_of(f"{note}\n{die(OOM)}") == "cuda-oom"


@pytest.mark.parametrize("note", NOTES[:2])
def test_the_same_note_tells_the_cause_where_nothing_else_ended_the_run(note: str) -> None:
    failed = die(
        "RuntimeError: the native kernels are missing", frame(f"{SITE}/fused_ops/api.py", "run", "raise RuntimeError(")
    )
    assert cause_of(f"{note}\n{failed}") == "ext-abi-mismatch"


@pytest.mark.parametrize(
    "end",
    [
        "error: command '/usr/bin/g++' failed with exit code 1\nERROR: Failed building wheel for flash-attn",
        "ninja: build stopped: subcommand failed.\nRuntimeError: Error compiling objects for extension",
        "ERROR: Failed building wheel for causal-conv1d\nERROR: Failed to build one or more wheels",
    ],
)
def test_a_machine_without_gpu_is_a_note_in_a_build(end: str) -> None:
    start = "Building wheel for the kernels (setup.py): started\nNo CUDA runtime is found, using CUDA_HOME='/usr/local/cuda'\n"
    assert cause_of(f"{start}{end}\n") == "extension-build-failed"


def attempt(environment: str, last: str) -> str:
    site = f"/tmp/{environment}/lib/python3.11/site-packages"
    return die(
        last,
        frame(f"{site}/server/replica.py", "start", "engine = build()"),
        frame(f"{site}/server/engine.py", "build", "return make()"),
    )


@pytest.mark.parametrize(
    ("first", "last", "cause"),
    [
        ("ValueError: torch.bfloat16 is not supported for quantization method gptq", "RuntimeError: No CUDA GPUs are available", "no-gpu-visible"),
        ("ModuleNotFoundError: No module named 'uvloop'", OOM, "cuda-oom"),
        (OOM, "ModuleNotFoundError: No module named 'uvloop'", "missing-python-package"),
    ],
)  # fmt: skip
def test_of_attempts_in_different_environments_the_last_is_answered(first: str, last: str, cause: str) -> None:
    assert cause_of(attempt("env-a1", first) + attempt("env-b2", last)) == cause


def test_of_two_exceptions_in_one_environment_the_first_is_answered() -> None:
    whole = f"{OOM} Including non-PyTorch memory, this process has 22.40 GiB memory in use."
    assert (
        cause_of(attempt("env", whole) + attempt("env", "ModuleNotFoundError: No module named 'uvloop'")) == "cuda-oom"
    )


# -- launchers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "rank", "host"),
    [
        ("srun: error: gpu-b07: task 3: Exited with exit code 1", 3, "gpu-b07"),
        ("srun: error: n0412.cluster: tasks 5: Aborted (core dumped)", 5, "n0412.cluster"),
        ("slurmstepd: error: *** STEP 77120.0 ON tx17 CANCELLED AT 2026-02-03T04:05:06 ***", None, "tx17"),
        ("slurmstepd: error: *** JOB 9001 ON cn-003 CANCELLED AT 2026-02-03T04:05:06 DUE TO PREEMPTION ***", None, "cn-003"),
    ],
)  # fmt: skip
def test_rank_and_host_of_a_launcher_are_told_with_the_cause(line: str, rank: int | None, host: str) -> None:
    found = diagnose(f"{die(OOM)}{line}\n")
    assert (found.cause, found.rank, found.host) == ("cuda-oom", rank, host)


def test_the_host_of_a_node_that_failed_is_told() -> None:
    assert diagnose("srun: error: Node failure on r5i2n8\n").host == "r5i2n8"


@pytest.mark.parametrize(
    ("end", "cause", "host"),
    [
        ("slurmstepd: error: *** JOB 7 ON n4 CANCELLED AT 2026-01-02T03:04:05 ***", "stopped-by-user", "n4"),
        (
            "slurmstepd-n5: error: *** STEP 7.0 ON n5 CANCELLED AT 2026-01-02T03:04:05 DUE TO TIME LIMIT ***",
            "slurm-time-limit",
            "n5",
        ),
        (f"\n{die(OOM)}", "cuda-oom", ""),
    ],
)
@pytest.mark.parametrize("bars", [3, 900])
def test_what_stands_behind_many_progress_bars_in_one_line_ended_the_run(
    end: str, cause: str, host: str, bars: int
) -> None:
    """A copied log has lost the carriage returns between them, and such a line may be longer than what is kept of one."""
    line = "".join(f"Training: {i}%|##  | {i}/1000 [00:09<01:00, 3.2it/s]" for i in range(bars))
    found = diagnose(f"{line}{end}\n")
    assert (found.cause, found.host) == (cause, host)


def test_the_host_of_a_task_goes_before_that_of_the_step() -> None:
    step = "slurmstepd: error: *** STEP 1.0 ON n1 CANCELLED AT 2026-02-03T04:05:06 ***"
    assert diagnose(f"{die(OOM)}{step}\nsrun: error: n2: task 9: Exited with exit code 1\n").host == "n2"


def test_a_rank_that_writes_nothing_is_not_placed_on_the_host_that_waits() -> None:
    text = "[n1:0]: Ranks 4 failed to pass monitoredBarrier in 30000 ms\n" + "[n1:0]: waiting\n" * 4
    found = diagnose(text)
    assert (found.rank, found.host) == (4, "")


def test_a_message_may_name_its_host() -> None:
    words = "CUDA failure 35: CUDA driver version is insufficient for CUDA runtime version ; GPU=0 ; hostname=WS-041 ; line=236"
    assert diagnose(f"{words}\n").host == "WS-041"


@pytest.mark.parametrize(
    "failed",
    [
        die("huggingface_hub.errors.EntryNotFoundError: the dataset has no file of that name", frame(f"{SITE}/hub_data/load.py", "find", "raise EntryNotFoundError(")),
    ],
)  # fmt: skip
def test_an_error_of_data_is_told_above_a_launcher_s_line(failed: str) -> None:
    found = diagnose(f"{failed}srun: error: node31: task 2: Exited with exit code 1\n")
    assert (found.cause, found.rank, found.host) == ("dataset-error", 2, "node31")


# -- wrappers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("inner", "outer", "cause"),
    [
        ("ImportError: libcudart.so.11.0: cannot open shared object file: No such file or directory", "ImportError: deepspeed is required for this trainer. Run `pip install deepspeed`.", "ext-abi-mismatch"),
        (f"ImportError: {SITE}/flash_attn_2_cuda.so: undefined symbol: _ZN3c104cuda9SetDeviceEi", "ImportError: Unable to import flash_attn. Please install flash-attn first.", "flash-attn-abi"),
        ("ImportError: numpy.core.multiarray failed to import", "ModuleNotFoundError: could not import scorer; is it installed?", "numpy2-abi"),
    ],
)  # fmt: skip
def test_what_asks_for_a_package_yields_to_why_its_import_failed(inner: str, outer: str, cause: str) -> None:
    assert (
        cause_of(die(inner) + DURING + die(outer, frame(f"{SITE}/tool/deps.py", "need", "raise ImportError("))) == cause
    )


def test_a_package_that_is_not_there_stays_missing() -> None:
    inner, outer = (
        "ModuleNotFoundError: No module named 'scorer'",
        "ImportError: Please install scorer: pip install scorer",
    )
    assert cause_of(die(inner) + DURING + die(outer)) == "missing-python-package"


@pytest.mark.parametrize("capability", ["(7, 0)", "(7, 5)", "(6, 1)"])
def test_a_gpu_that_xformers_calls_too_old_is(capability: str) -> None:
    text = die(
        "NotImplementedError: No operator found for `memory_efficient_attention_backward` with inputs:\n"
        "`fa3B@v2` is not supported because:\n    xFormers wasn't build with CUDA support\n"
        f"    requires device with capability > (8, 0) but your GPU has capability {capability} (too old)"
    )
    assert cause_of(text) == "flash-attn-arch"


# -- source trees of frameworks -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tree", "package", "module"),
    [("/workspace/sglang/python", "sglang", "sglang.srt.layers.rotary"), ("/srv/src/transformers/src", "transformers", "transformers.cache_utils"), ("/data/me/DeepSpeed", "deepspeed", "deepspeed.ops.op_builder")],
)  # fmt: skip
def test_a_framework_s_source_tree_whose_parts_do_not_fit_is_a_version_conflict(
    tree: str, package: str, module: str
) -> None:
    file = f"{tree}/{module.replace('.', '/')}.py"
    last = f"ImportError: cannot import name 'get_tile_plan' from '{module}' ({file})"
    assert (
        cause_of(
            die(last, frame(f"{tree}/{package}/runtime/core.py", "<module>", f"from {module} import get_tile_plan"))
        )
        == "version-conflict"
    )


def test_a_script_beside_a_package_of_its_own_tree_is_the_program_s() -> None:
    last = "ImportError: cannot import name 'plan' from 'megatron.core.plans' (/w/Megatron-LM/megatron/core/plans.py)"
    assert (
        cause_of(
            die(last, frame("/w/Megatron-LM/tools/convert.py", "<module>", "from megatron.core.plans import plan"))
        )
        == "not-environment"
    )


@pytest.mark.parametrize(
    ("outer", "inner", "last"),
    [("verl", "vllm", "'LLMEngine' object has no attribute 'worker_group'"), ("llamafactory", "transformers", "'Seq2SeqTrainer' object has no attribute 'legacy_sampler_hook'"), ("trl", "peft", "'LoraModel' object has no attribute 'merge_plan_of_adapter'")],
)  # fmt: skip
def test_a_package_that_another_one_drives_to_an_attribute_it_has_not(outer: str, inner: str, last: str) -> None:
    frames = (
        frame(f"{SITE}/{outer}/run.py", "step", "engine.go("),
        frame(f"{SITE}/{inner}/core.py", "go", "return self.x.y"),
    )
    assert diagnose(die(f"AttributeError: {last}", *frames)).conflict.get("package") == inner


# -- cut lines ----------------------------------------------------------------------------------------------------

WAIT = "[E ProcessGroupNCCL.cpp:737] [Rank {}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=88121, OpType=ALLGATHER, NumelIn=1048576, NumelOut=8388608, Timeout(ms)=600000) ran for 600211 milliseconds before timing out."


@pytest.mark.parametrize("cut", ["OpType=ALLG", "SeqNum=881", "NumelIn=1048", "NumelOut=83"])
def test_a_watchdog_line_that_is_cut_does_not_make_the_collectives_differ(cut: str) -> None:
    last = WAIT.format(3)
    text = "\n".join((WAIT.format(0), WAIT.format(1), last[: last.index(cut) + len(cut)]))
    assert cause_of(text) == "nccl-hang-hardware-specific"


def test_whole_watchdog_lines_still_tell_different_collectives() -> None:
    text = "\n".join((WAIT.format(0), WAIT.format(1), WAIT.format(2).replace("ALLGATHER", "BROADCAST")))
    assert cause_of(text) == "collective-mismatch"


# -- timeouts and faults of kernels -------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [1, 2, 4])
def test_a_timeout_at_the_start_is_not_peer_to_peer_without_a_word_of_it(number: int) -> None:
    text = WAIT.format(2).replace("88121", str(number))
    assert cause_of(text) == "nccl-hang-hardware-specific"
    assert cause_of(f"NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC\n{text}") == "nccl-p2p-broken"


@pytest.mark.parametrize(
    "last",
    [
        "RuntimeError: NCCL error: unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
        "torch.AcceleratorError: CUDA error: an illegal memory access was encountered",
        "RuntimeError: CUDA error: unspecified launch failure",
    ],
)
def test_a_fault_that_any_kernel_may_have_is_not_called_peer_to_peer(last: str) -> None:
    raised = die(last, frame(f"{SITE}/vllm/distributed/wrapper.py", "check", "raise RuntimeError(f'{error}')"))
    assert cause_of(raised) not in ("nccl-p2p-broken", "duplicate-gpu")


def test_a_class_with_the_name_of_its_module_is_a_conflict_of_two_packages() -> None:
    last = "AttributeError: 'torch._C._distributed_c10d.ProcessGroup' object has no attribute 'options'"
    call = frame(f"{SITE}/megatron/core/parallel_state.py", "initialize", "group.options")
    assert cause_of(die(last, frame("/srv/job/train.py", "<module>", "main()"), call)) == "version-conflict"


def test_the_host_of_another_task_or_of_a_cancelled_step_is_not_that_of_the_rank() -> None:
    lines = "".join(f"[rank{rank}]: step 3 loss 1.2\n" for rank in (1, 12))
    end = "srun: error: gpu01: tasks 0-7: Terminated\nslurmstepd: error: *** STEP 5.0 ON gpu01 CANCELLED AT 2026-01-02T03:04:05 ***\n"
    found = diagnose(f"{lines}[rank12]: torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered\n{end}")
    assert (found.rank, found.host) == (12, "")


def test_the_other_side_of_a_connection_is_not_the_place_of_the_failure() -> None:
    text = "torch.distributed.DistNetworkError: The client socket has timed out after 600000ms while trying to connect to (hostname: head-node, port: 29500)."
    assert diagnose(die(text)).host == ""


@pytest.mark.parametrize(
    "word", ["Windows fatal exception: access violation", "Segfault encountered", "received SIGSEGV"]
)
def test_a_dump_of_threads_after_a_crash_is_no_hang(word: str) -> None:
    dump = 'Current thread 0x00007f1a2b3c4d5e (most recent call first):\n  File "/srv/job/train.py", line 4 in step\n'
    assert cause_of(f"{word}\n\n{dump}") != "hang-without-error"


def test_logs_of_several_nodes_behind_each_other_keep_their_order() -> None:
    """Each node's clock is a second behind that of the one before it."""
    rows = []
    for node in range(4):
        time = f"2026-01-02T03:04:0{9 - node}"
        rows += [f"{time} INFO start"] * 8
        rows += [f"{time} {line}" for line in die("KeyError: 'text'").splitlines()]
    found = diagnose("\n".join(rows) + "\n")
    assert found.frame.get("file") == "/srv/job/train.py"


def test_a_remedy_without_its_end_is_not_quoted():
    def remedy(message: str) -> str:
        step = find_remedy(Diagnosis("unknown", exceptions=(ExceptionLink("ValueError", message, 1),)))
        return step.does if step else ""

    assert remedy("bad mode. Please pass mode='r' to\nopen_file.").endswith("Please pass mode='r' to open_file.")
    assert not remedy("bad mode. Please use one of the following:\nA\nB")
    assert not remedy("x" * 580 + ". Please use the mode")


def test_the_path_of_a_full_disk_is_that_of_the_error():
    where = frame("/home/u/train.py", "save", "file.write(data)")
    assert "path" not in diagnose(die("OSError: [Errno 28] No space left on device", where)).captures
    found = diagnose(die("OSError: [Errno 28] No space left on device: '/mnt/full/a.pt'", where))
    assert found.says.endswith(": /mnt/full/a.pt") and found.cause == "disk-full"


def test_the_type_of_the_last_exception_has_its_own_line():
    first = die("KeyError: 'a'", '  File "/home/u/train.py", line 5, in load\n    row["a"]\n')
    last = die("ValueError: bad row", '  File "/home/u/train.py", line 9, in main\n    raise ValueError\n')
    captures = diagnose(first + DURING + last).captures
    assert (captures["type"], captures["line"]) == ("ValueError", "9")


def test_an_abort_by_the_watchdog_is_not_what_ended_the_run():
    log = """OSError: You are trying to access a gated repo.
terminate called after throwing an instance of 'c10::DistBackendError'
  what():  [PG ID 0 PG GUID 0(default_pg) Rank 1] Process group watchdog thread terminated with exception: [Rank 1] Watchdog caught collective operation timeout
"""
    found = diagnose(log)
    assert (found.cause, found.confidence) == ("hub-gated-repo", 0.95)


WAITED = "[rank{}]:[E120 04:10:25.0 ProcessGroupNCCL.cpp:632] [Rank {}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=25095, OpType=ALLREDUCE, NumelIn=9, NumelOut=9, Timeout(ms)=600000) ran for 600086 milliseconds before timing out.\n"
FIRST = "Root Cause (first observed failure):\n[0]:\n  time      : 2025-01-20_04:10:30\n  host      : node-62\n  rank      : 1 (local_rank: 1)\n  exitcode  : {} (pid: 76344)\n"


@pytest.mark.parametrize(
    ("waited", "code", "cause"),
    [
        (0, 1, ""),  # rank 1 failed by itself: rank 0 only waited for it
        (0, -6, "nccl-hang-hardware-specific"),
        (1, 1, "nccl-hang-hardware-specific"),
    ],
)
def test_who_waited_for_a_rank_that_failed_by_itself_tells_no_cause(waited: int, code: int, cause: str) -> None:
    assert diagnose(WAITED.format(waited, waited) + FIRST.format(code)).cause == cause


def test_what_follows_does_not_move_the_headline_of_an_unknown_end() -> None:
    short = "loading the widget, this may take a while\n"
    alone, followed = diagnose(short), diagnose(short + WAITED.format(0, 0) + FIRST.format(1))
    assert (
        (alone.verdict, alone.says) == (followed.verdict, followed.says) == ("unknown", "the log shows no known cause")
    )
    assert alone.so != followed.so
