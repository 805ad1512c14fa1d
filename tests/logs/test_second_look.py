"""What a message contradicts itself, or what only follows, is neither sure nor the cause; and no first step goes beyond what is shown."""

from __future__ import annotations

import pytest

from gpuready.workflow.diagnose import diagnose_logs

SITE = "/opt/env/lib/python3.11/site-packages"
TRAINING = "".join(f"step {n} loss 2.{n:03}\n" for n in range(90))
WATCHDOGS = "".join(
    f"[rank{r}]:[E301 10:00:0{r}.5 ProcessGroupNCCL.cpp:616] [Rank {r}] Watchdog caught collective operation timeout: "
    f"WorkNCCL(SeqNum=812, OpType=ALLREDUCE, NumelIn=64, NumelOut=64, Timeout(ms)=600000) ran for 600071 milliseconds\n"
    for r in (1, 2, 3)
)


def diagnose(text: str):
    return diagnose_logs([[f"{text}\n".encode()]], look=False)


NAMELESS = [
    "RuntimeError: the flurb has no more rows",
    "remote process exited or there was a network error",
    "the server stops with exit code 139",
    "Process finished with exit code 139 (interrupted by signal 11: SIGSEGV)",
    f'Traceback (most recent call last):\n  File "{SITE}/some/part.py", line 3, in load\n    from .other import thing',
    "my notes: `ValueError: could not convert the row` and then nothing more",
]


@pytest.mark.parametrize("text", NAMELESS)
def test_watchdogs_after_a_failure_without_a_known_cause_name_none(text):
    behind = diagnose(f"{TRAINING}{text}\n{WATCHDOGS}")
    assert (diagnose(text).verdict, behind.verdict, behind.cause) == ("unknown", "unknown", "")


def test_watchdogs_alone_are_a_hang():
    assert diagnose(TRAINING + WATCHDOGS).cause == "nccl-hang-hardware-specific"


ROW = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {}. GPU 0 has a total capacity of 31.50 GiB of which 1.00 GiB is free. Including non-PyTorch memory, this process has 30.20 GiB memory in use."
UNSURE = [
    (
        "_pickle.UnpicklingError: Weights only load failed. In PyTorch 2.6, we changed the default value of the `weights_only` argument. "
        "Re-running `torch.load` with `weights_only` set to `False` will likely succeed. WeightsUnpickler error: Unsupported operand 118",
        "torch26-weights-only",
    ),
    ("ModuleNotFoundError: No module named 'mpi4py'", "launcher-env-missing"),
    ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", "driver-not-loaded"),
    ("RuntimeError: Failed to infer device type", "torch-cpu-only"),
]


@pytest.mark.parametrize(("text", "other"), UNSURE)
def test_what_has_two_readings_is_not_sure_and_lists_the_other(text, other):
    found = diagnose(text)
    assert found.confidence < 0.8
    assert other in (found.cause, *(one.cause for one in found.alternatives))


def test_the_way_out_that_a_refusal_names_itself_is_quoted():
    assert "Re-running" in diagnose(UNSURE[0][0]).fix[0].does


@pytest.mark.parametrize(("wanted", "cause"), [("900.00 GiB", "cuda-oom-absurd"), ("9.00 GiB", "cuda-oom")])
def test_a_request_of_many_times_the_card_is_no_job_that_is_a_little_too_large(wanted, cause):
    assert diagnose(ROW.format(wanted)).cause == cause


@pytest.mark.parametrize(
    ("module", "cause"), [("fastnorm_cuda", "extension-not-built"), ("fastnorm", "missing-python-package")]
)
def test_a_compiled_part_is_no_package(module, cause):
    text = f'Traceback (most recent call last):\n  File "{SITE}/fastmix/norm.py", line 3, in <module>\n    importlib.import_module("{module}")\n'
    assert diagnose(f"{text}ModuleNotFoundError: No module named '{module}'").cause == cause


def test_a_library_that_does_not_find_nvcc_is_not_sure_to_lack_it():
    assert diagnose("RuntimeError: Could not find nvcc").confidence < 0.8


@pytest.mark.parametrize("folder", ["/home/me/.cache/torch_extensions/py311_cu126/ops", f"{SITE}/ops"])
def test_what_a_program_built_itself_is_deleted_first(folder):
    found = diagnose(f"ImportError: {folder}/ops.so: undefined symbol: _ZN3c104cuda9SetDeviceEab")
    assert (found.cause, found.fix[0].does.startswith("delete")) == ("ext-abi-mismatch", ".cache" in folder)


LISTED = [
    ("Fatal Python error: Segmentation fault", "version-conflict"),
    ("Process finished with exit code 139 (interrupted by signal 11: SIGSEGV)", "gpu-hardware-fault"),
    ("RuntimeError: NCCL error: remote process exited or there was a network error", "nccl-socket-ifname"),
    ("Step failed: `RuntimeError: CUDA error: an illegal memory access was encountered`", "ext-abi-mismatch"),
]


@pytest.mark.parametrize(("text", "listed"), LISTED)
def test_a_symptom_of_many_causes_lists_them_and_is_at_most_a_guess(text, listed):
    found = diagnose(text)
    assert found.confidence < 0.6 and listed in [one.cause for one in found.alternatives]


def test_a_server_that_has_started_is_well():
    assert diagnose("INFO:     Started server process [1]\nall services are running on port 80").verdict == "healthy"


def test_a_capture_keeps_no_quote():
    text = "ImportError: /lib/libstdc++.so.6: undefined symbol: foo, version GLIBCXX_3.4.30'"
    assert diagnose(text).captures["need"] == "GLIBCXX_3.4.30"


def test_a_script_relies_on_nothing_that_no_frame_shows():
    error = f"ImportError: cannot import name 'AdamW' from 'transformers' ({SITE}/transformers/__init__.py)"
    frame = 'Traceback (most recent call last):\n  File "/home/me/run.py", line 3, in <module>\n    from transformers import AdamW\n'
    assert "your script" in diagnose(frame + error).says and "your script" not in diagnose(error).says


BROKEN = [
    "NVIDIA-SMI has failed because it couldn't communicate\nwith the NVIDIA driver. Make sure that the latest\nNVIDIA driver is installed and running.",
    "CUDA initialization: CUDA unknown error - this may be due to an\nincorrectly set up environment, e.g. changing env variable\n"
    "CUDA_VISIBLE_DEVICES after program start. Setting the available\ndevices to be zero.",
]


@pytest.mark.parametrize("text", BROKEN)
def test_a_message_broken_between_words_is_read_alike_before_and_behind_a_training(text):
    one, behind = diagnose(text), diagnose(f"{TRAINING}{text}\n{WATCHDOGS}")
    assert (one.verdict, one.cause) == (behind.verdict, behind.cause)


@pytest.mark.parametrize(("owner", "cause"), [("DynamicCache", "version-conflict"), ("Trainer", ""), ("MyNet", "")])
def test_a_line_without_its_stack_names_a_package_only_by_a_class_of_its_own(owner, cause):
    found = diagnose(f"AttributeError: '{owner}' object has no attribute 'some_old_name'")
    assert (found.cause, found.confidence < 0.8) == (cause, True)


def test_what_nccl_says_calmly_is_no_error():
    found = diagnose("worker 3 | a:1:1 NCCL INFO NET/Plugin: Failed to find ncclNetPlugin_v9 symbol.\nloading the rows")
    assert "errors" not in found.says


@pytest.mark.parametrize(
    ("error", "cause", "confidence"),
    [
        ("RuntimeError: cuDNN version incompatibility: PyTorch was compiled  against (9, 1, 0) but found runtime version (8, 9, 2).", "cudnn-mismatch", 0.95),
        ("RuntimeError: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED", "cudnn-mismatch", 0.7),
        ("RuntimeError: [gloo/transport/tcp/device.cc:84] ifa != nullptr. Unable to find address for: eth9", "nccl-socket-ifname", 0.95),
        ("ImportError: libGL.so.1: cannot open shared object file: No such file or directory", "missing-system-library", 0.95),
        ("ImportError: libquux.so.3: cannot open shared object file: No such file or directory", "missing-system-library", 0.7),
    ],
)  # fmt: skip
def test_words_that_state_the_cause_by_themselves_are_sure_where_others_of_a_broad_cause_are_not(
    error, cause, confidence
):
    log = f'Traceback (most recent call last):\n  File "/home/u/train.py", line 12, in <module>\n    main()\n{error}\n'
    found = diagnose(log)
    assert (found.cause, found.confidence) == (cause, confidence)
