"""The run's own error stays what is told, whatever follows from it; what both of two causes would log is told as both."""

from __future__ import annotations

import pytest

from gpuready.catalog import causes, cuda
from tests.logs.answers import diagnose

SITE = "/home/me/venv/lib/python3.12/site-packages"
RAISED = f"""Traceback (most recent call last):
  File "{SITE}/weaver/loom.py", line 31, in tighten
    raise LoomError("the warp has seven loose threads")
"""
OWN = (
    ("", "FATAL: the loom of plane 4 is out of thread"),
    ("", "error: the shuttle cannot open its frame"),
    (RAISED, "weaver.loom.LoomError: the warp has seven loose threads"),
)
WATCHDOG = """[rank0]:[E402 07:08:09.100 ProcessGroupNCCL.cpp:629] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=31, OpType=ALLREDUCE, NumelIn=64, NumelOut=64, Timeout(ms)=600000) ran for 600030 milliseconds before timing out.
[rank0]:[E402 07:08:09.100 ProcessGroupNCCL.cpp:695] To avoid data inconsistency, we are taking the entire process down.
"""
AFTER = {
    "watchdog": WATCHDOG,
    "abort": f"{WATCHDOG}terminate called after throwing an instance of 'c10::DistBackendError'\n  what():  [Rank 0] Watchdog caught collective operation timeout\nFatal Python error: Aborted\n",
    "torchrun": "E0402 07:08:10.000 9 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: 1) local_rank: 0 (pid: 11) of binary: /usr/bin/python\ntorch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n",
}
STEPS = "".join(f"step {n} loss {9 - n / 1000:.3f}\n" for n in range(2500))


@pytest.mark.parametrize("before", ["", STEPS], ids=["short", "long"])
@pytest.mark.parametrize("after", AFTER)
@pytest.mark.parametrize(("frames", "last"), OWN)
def test_an_unknown_error_is_quoted_with_the_same_headline_whatever_follows_from_it(frames, last, after, before):
    alone, found = diagnose(f"{before}{frames}{last}\n"), diagnose(f"{before}{frames}{last}\n{AFTER[after]}")
    assert (found.verdict, found.cause, found.says) == ("unknown", "", alone.says)
    assert found.evidence[0].text == alone.evidence[0].text == last


def test_a_watchdog_that_names_no_collective_is_no_cause_and_one_that_does_is_a_guess():
    silent = (
        "[rank0]:[E402 07:08:09.100 ProcessGroupNCCL.cpp:695] [Rank 0] Some NCCL operations have failed or timed out.\n"
    )
    assert diagnose(f"step 7 loss 2.5\n{silent}").verdict == "unknown"
    assert 0 < diagnose(f"step 7 loss 2.5\n{WATCHDOG}").confidence < 0.6


# -- what a run survived ------------------------------------------------------------------------------------------

WAITED = (
    "srun: Job step creation temporarily disabled, retrying (Requested nodes are busy)\nsrun: Step created for StepId=70.1\n",
    "srun: error: Unable to confirm allocation for job 72: Socket timed out on send/recv operation\nsrun: job 72 has been allocated resources\n",
    "sbatch: error: Batch job submission failed: Requested partition configuration not available now\nsalloc: Granted job allocation 71\n",
)


@pytest.mark.parametrize("waited", WAITED)
def test_an_allocation_that_was_granted_in_the_end_is_no_cause(waited):
    assert diagnose(f"{waited}{STEPS[:300]}Training completed\n").verdict == "healthy"
    failed = diagnose(f"{waited}{RAISED}{OWN[2][1]}\n")
    assert (failed.verdict, failed.evidence[0].text) == ("unknown", OWN[2][1])


def test_an_allocation_that_was_never_granted_is_the_cause():
    for refused, is_sure in (("Unable to allocate resources", True), ("Unable to create step for job 73", False)):
        found = diagnose(f"srun: error: {refused}: Requested nodes are busy\n")
        assert (found.cause, found.confidence >= 0.8) == ("no-free-gpu", is_sure)  # other steps may hold the job's GPUs


SERVED = (
    "INFO:     Application startup complete.\nINFO:     Uvicorn running on http://0.0.0.0:9000 (Press CTRL+C to quit)\n"
)
CLOSED = (
    "INFO:     Shutting down\nINFO:     Waiting for application shutdown.\nINFO:     Application shutdown complete.\n"
)


@pytest.mark.parametrize("stopped", ["", "^C", "^C\n"])
def test_a_server_that_was_stopped_and_shut_down_is_healthy(stopped):
    assert diagnose(f"{SERVED}{stopped}{CLOSED}INFO:     Finished server process [77]\n").verdict == "healthy"


def test_a_server_that_failed_before_it_shut_down_is_not_healthy():
    text = f"{SERVED}ERROR:    the engine is gone\n^C{CLOSED}INFO:     Finished server process [77]\n"
    assert diagnose(text).verdict == "unknown"


# -- one message, several causes ----------------------------------------------------------------------------------

REFUSED = "nvcc fatal   : Unsupported gpu architecture 'compute_{}'\nninja: build stopped: subcommand failed.\n"


@pytest.mark.parametrize(
    ("arch", "release", "cause"),
    [
        ("70", "13.0", "arch-dropped-by-toolkit"),
        ("35", "12.1", "arch-dropped-by-toolkit"),
        ("120a", "11.8", "toolkit-too-old-for-arch"),
        ("90", "11.7", "toolkit-too-old-for-arch"),
    ],
)
@pytest.mark.parametrize(
    "said", ["Cuda compilation tools, release {0}, V{0}.40", "/usr/local/cuda-{0}/bin/nvcc -c a.cu"]
)
def test_the_releases_of_cuda_tell_a_dropped_architecture_from_one_to_come(arch, release, cause, said):
    found = diagnose(f"{said.format(release)}\n{REFUSED.format(arch)}")
    assert found.cause == cause and f"nvcc {release} " in found.says
    assert found.confidence >= 0.8 and any("toolkit" in step.does for step in found.fix)


def test_without_a_release_of_nvcc_both_are_told_and_neither_is_sure():
    found = diagnose(REFUSED.format("35"))
    assert found.confidence < 0.8 and "arch-dropped-by-toolkit" in [other.cause for other in found.alternatives]
    never_dropped = diagnose(REFUSED.format("120"))
    assert "arch-dropped-by-toolkit" not in [
        never_dropped.cause,
        *(other.cause for other in never_dropped.alternatives),
    ]


def test_no_release_is_blamed_for_an_architecture_that_it_has():
    assert cuda.judge_missing_target("8.0", "12.4") == "" and cuda.judge_missing_target("8.0", "99.9") == ""


HEADER = "safetensors_rust.SafetensorError: Error while deserializing header: "


@pytest.mark.parametrize(
    ("words", "cause", "is_sure"),
    [
        ("HeaderTooLarge", "corrupt-or-lfs-weights", True),
        ("InvalidHeaderLength", "corrupt-or-lfs-weights", True),
        ("incomplete metadata, file not fully covered", "corrupt-or-lfs-weights", True),
        ("unknown variant `F4`, expected one of `BOOL`, `U8`", "safetensors-too-old", True),
        ("InvalidHeaderDeserialization", "corrupt-or-lfs-weights", False),
    ],
)
def test_a_header_of_safetensors_is_damaged_or_too_new(words, cause, is_sure):
    found = diagnose(f"{HEADER}{words}\n")
    assert (found.cause, found.confidence >= 0.8) == (cause, is_sure)
    assert is_sure or [other.cause for other in found.alternatives] == ["safetensors-too-old"]


# -- what the headline says ---------------------------------------------------------------------------------------


def fingerprint(number: int, operation: str, shape: str) -> str:
    return f"CollectiveFingerPrint(SequenceNumber={number}, OpType={operation}{shape and f', TensorShape=[{shape}], TensorDtypes=Float, TensorDeviceTypes=TensorOptions(dtype=float (default), device=cuda)'})"


def mismatch(one: tuple[int, str, str], other: tuple[int, str, str], aspects: str) -> str:
    words = (
        f"Rank 2 is running collective: {fingerprint(*one)}, but Rank 5 is running collective: {fingerprint(*other)}"
    )
    return f"RuntimeError: Detected mismatch between collectives on ranks. {words}.Collectives differ in the following aspects: {aspects}\n"


@pytest.mark.parametrize(
    ("text", "cause", "told"),
    [
        (
            mismatch((3, "ALLGATHER", "6, 4"), (3, "ALLGATHER", "9, 4"), "\t Tensor Tensor shapes: 6, 4vs 9, 4"),
            "collective-shapes",
            "ALLGATHER, rank 2 has [6, 4], rank 5 [9, 4]",
        ),
        (
            mismatch((3, "BARRIER", ""), (3, "ALLGATHER", "9, 4"), "\t Op type: BARRIERvs ALLGATHER"),
            "collective-mismatch",
            "rank 2 is in BARRIER, rank 5 in ALLGATHER",
        ),
        (
            mismatch((3, "ALLGATHER", "9"), (4, "ALLGATHER", "9"), "\t Sequence number: 3vs 4"),
            "collective-mismatch",
            "rank 2 is in SequenceNumber=3, OpType=ALLGATHER, rank 5 in SequenceNumber=4, OpType=ALLGATHER",
        ),
    ],
)
def test_collectives_of_other_shapes_are_another_case_than_other_collectives(text, cause, told):
    found = diagnose(text)
    assert found.cause == cause and found.says.endswith(told)


ORDINAL = "torch.AcceleratorError: CUDA error: invalid device ordinal\n"


@pytest.mark.parametrize("option", ["--gpus-per-task=1", "--gpu-bind=single:1", "CUDA_VISIBLE_DEVICES=5"])
def test_a_launcher_that_narrows_the_view_is_named_where_a_gpu_is_not_there(option):
    found = diagnose(f"+ env {option} python train.py\n{ORDINAL}")
    assert option in found.says and "device 0" in found.fix[0].does
    assert "from 0" not in diagnose(f"+ env CUDA_VISIBLE_DEVICES=0,1,2,3 python train.py\n{ORDINAL}").says


@pytest.mark.parametrize("need", ["GLIBCXX_3.4.32", "CXXABI_1.3.15", "GCC_13.0.0"])
def test_the_version_that_a_binary_needs_is_named_as_the_log_has_it(need):
    found = diagnose(
        f"ImportError: /lib/libstdc++.so.6: version `{need}' not found (required by {SITE}/weaver/_c.so)\n"
    )
    assert found.says.endswith(f": {need}")


@pytest.mark.parametrize(
    "words",
    [
        "The server socket has failed to bind to [::]:29511 (errno: 98 - Address already in use).",
        "The server socket has failed to listen on 0.0.0.0:29511 (errno: 98 - Address already in use).",
        "[Errno 98] error while attempting to bind on address ('::', 29511, 0, 0): address already in use",
    ],
)
def test_a_port_is_named_without_its_address(words):
    assert diagnose(f"RuntimeError: {words}\n").says.endswith("in use: 29511")


@pytest.mark.parametrize(
    "words",
    [
        "srun: error: n4: task 2: Illegal instruction (core dumped)",
        "E0402 07:08:10.000 9 api.py:869] failed (exitcode: -4) local_rank: 0 (pid: 11) of binary: /usr/bin/python",
        "subprocess.CalledProcessError: Command '['python', 'a.py']' died with <Signals.SIGILL: 4>.",
    ],
)
def test_signal_4_is_an_instruction_that_the_cpu_does_not_have(words):
    found = diagnose(f"{words}\n")
    assert found.cause == "cpu-instruction-missing" and 0.6 <= found.confidence < 0.8


MISMATCHED = "Installed CUDA version {} does not match the version torch was compiled with {}, unable to compile\n"


def test_only_releases_stand_in_the_headline_of_two_cudas():
    words = "the CUDA toolkit and torch's CUDA have different versions"
    assert diagnose(f"Exception: {MISMATCHED.format('12.2', '13.0')}").says == f"{words}: 12.2 and 13.0"
    assert diagnose(f"Exception: {MISMATCHED.format('%s', '%s')}").says == words


@pytest.mark.parametrize("value", ["run.log 2>&1", "$(hostname)", "a && b", "%s"])
def test_a_piece_of_a_shell_is_no_name(value):
    assert causes.fill_captures("the disk is full[: {path}]", {"path": value}) == "the disk is full"
    assert causes.fill_captures("the disk is full[: {path}]", {"path": "/data/a>b"}) == "the disk is full: /data/a>b"


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("python3 tools/weave.py --lr 3 --out here", ": python3 tools/weave.py was killed"),
        ("./weave --threads 9", ": ./weave was killed"),
        ('"$PYTHON" "$@"', ""),
        ("LEVEL=3 python weave.py", ""),
    ],
)
def test_a_killed_command_is_named_by_its_program(command, name):
    assert (
        diagnose(f"run.sh: line 7: 4242 Killed                  {command}\n").says
        == f"the host ran out of memory{name}"
    )


def test_what_stops_a_build_follows_from_the_compilers_error():
    found = diagnose(f"{REFUSED.format('103')}\nmake: *** [Makefile:10: drv] Error 1\n")
    assert (found.cause, found.confidence) == ("toolkit-too-old-for-arch", 0.95)


@pytest.mark.parametrize(
    ("where", "symbol", "is_mixed"),
    [
        ("torch/lib/libwarp.so", "_ZN2at6EmptyE", False),
        ("torch/lib/libc10_woven.so", "_ZTIN3c104TypeE", True),
        ("torch/_C.cpython-99.so", "_ZN5torch3jit5ValueE", True),
        ("torch/_C.so", "_ZN3MPI8Datatype4FreeEv", False),  # not torch's: another library is not loaded
        ("weave/_C.so", "_ZN5torch3jit5ValueE", False),
    ],
)
def test_two_builds_of_torch_are_told_from_an_extension_of_another_one(where, symbol, is_mixed):
    found = diagnose(f"ImportError: {SITE}/{where}: undefined symbol: {symbol}\n")
    assert found.cause == "ext-abi-mismatch"
    assert ("two builds of torch are mixed" in found.says) == is_mixed == ("remove every build" in str(found.fix))


@pytest.mark.parametrize(
    ("words", "cause", "is_sure"),
    [
        ("RuntimeError: Rank 3 is running inconsistent collective: Print(OpType=ALLGATHER, TensorShape=[4])", "collective-mismatch", False),
        ("MisconfigurationException: You requested gpu: [0, 1]\n But your machine only has: [0]", "invalid-device-ordinal", False),
        ("[ 7.1] NVRM: The NVIDIA probe routine was not called for 3 device(s).", "driver-not-loaded", False),
        ("RuntimeError: Version mismatch: The cluster was started with:\n    Ray: 2.9.3\n    Python: 3.10.13", "ray-version-incompatible", True),
        ("Could not load library libcusolver.so.99. Error: libcusolver.so.99: cannot open shared object file: No such file", "cuda-library-missing", True),
        ("RuntimeError: Weaver required to use loom.", "missing-python-package", False),
    ],
)  # fmt: skip
def test_a_cause_is_sure_where_its_words_leave_no_other(words, cause, is_sure):
    found = diagnose(f"{words}\n")
    assert (found.cause, found.confidence >= 0.8) == (cause, is_sure)


@pytest.mark.parametrize(
    ("owner", "name", "says"),
    [
        ("", "auto_select_gpus", "Trainer(auto_select_gpus) left pytorch_lightning in 2.0"),
        ("", "process_position", "Trainer(process_position) left pytorch_lightning in 1.7"),
        ("", "warp", ""),
        ("WeaverForCausalLM.", "load_in_4bit", ""),
        ("MistralForCausalLM.", "warp", ""),
        (
            "MistralForCausalLM.",
            "load_in_4bit",
            "MistralForCausalLM(load_in_4bit) is not in the installed transformers",
        ),
    ],
)
def test_an_argument_that_only_one_class_ever_had_names_it_but_not_for_sure(owner, name, says):
    found = diagnose(f"TypeError: {owner}__init__() got an unexpected keyword argument '{name}'\n")
    assert (found.cause == "version-conflict") == bool(says) and says in found.says
    assert found.confidence < 0.8


def test_a_proxy_that_refuses_is_named_before_the_hub():
    words = "HTTPSConnectionPool(host='huggingface.co', port=443): Max retries exceeded with url: /a"
    refused = diagnose(
        f"requests.exceptions.ProxyError: {words} (Caused by ProxyError('Unable to connect to proxy', x))\n"
    )
    assert "through the proxy" in refused.says and "HTTPS_PROXY" in refused.fix[0].does
    plain = diagnose(f"requests.exceptions.ConnectionError: {words} (Caused by x)\n")
    assert "through the proxy" not in plain.says and plain.fix[0].does.startswith("download the files")


@pytest.mark.parametrize(
    "words",
    ["cuda failed with error 2 out of memory. use CUDA_LAUNCH_BLOCKING=1", "error CUDA error: out of memory (a.cc:4)"],
)
def test_a_program_that_is_not_pythons_states_that_the_gpu_has_no_memory(words):
    found = diagnose(f"{words}\n")
    assert (found.cause, found.confidence) == ("cuda-oom", 0.95)


STEPS = "".join(f"{{'loss': {3 - n / 9:.4f}, 'grad_norm': 0.5, 'epoch': 0.{n}}}\n" for n in range(9))


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        ("RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU", "no-gpu-visible"),
        ("[extension] Compiling or loading the JIT-built warp kernel during runtime now", "jit-build-stuck"),
        ("HIP error: invalid device function", "arch-not-in-torch-build"),
        ("Error: Download process was signaled to shutdown with signal 7", "shm-too-small"),
    ],
)  # fmt: skip
def test_what_stands_around_a_cause_does_not_decide_it(words, cause):
    after = 'Traceback (most recent call last):\n  File "/usr/lib/python3/torch/distributed/run.py", line 8, in main\n    run(args)\n'
    after += "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n" + FIRST
    for text in (words, f"{STEPS}{words}", f"{words}\n{after}", f"{STEPS}{words}\n{after}"):
        assert diagnose(f"{text}\n").cause == cause


FIRST = "Root Cause (first observed failure):\n[0]:\n  rank      : 1 (local_rank: 1)\n  exitcode  : 1 (pid: 76344)\n"


def test_the_missing_file_of_cudnn_is_installed_first():
    found = diagnose(
        "Could not load library libcudnn_warp.so.8. Error: libcudnn_warp.so.8: cannot open shared object file: No such file\n"
    )
    assert found.cause == "cudnn-mismatch" and "libcudnn_warp.so.8" in found.fix[0].does


def test_watchdogs_that_wait_in_different_collectives_are_no_proof_of_a_mismatch():
    lines = "[rank{0}]: [Rank {0}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={1}, OpType=ALLREDUCE, NumelIn=9, NumelOut=9) ran\n"
    found = diagnose(lines.format(0, 51) + lines.format(1, 93))
    assert found.cause == "collective-mismatch" and found.confidence < 0.8
