"""What a complaint is about, in words that no pattern has: a guess below 60 % that says so."""

from __future__ import annotations

import pytest

from gpuready.diagnose import NEAREST_NOTE
from gpuready.logs.topics import TopicIndex, parse_topic
from gpuready.workflow.diagnose import diagnose_logs

ROWS = [
    ("PKG001", "cudnn-mismatch", "cudnn + compiled|built + runtime|loaded"),
    ("SYS003", "host-oom-killed", "memory|ram. + kill + limit|pressure - gpu memory"),
]


def topic_of(*texts):
    found = TopicIndex(ROWS).find_topic(texts)
    return None if found is None else (found[0], found[1].cause, found[1].strength)


def test_words_in_any_order_and_any_ending():
    assert topic_of("step 3", "at runtime another cuDNN was found than it was built with") == (
        1,
        "cudnn-mismatch",
        "nearest",
    )
    assert topic_of("pressure on the node: the pod's memory was full, killing it") == (0, "host-oom-killed", "nearest")


def test_every_group_needs_a_word():
    assert topic_of("cudnn was loaded", "killed at the limit") is None


def test_a_refused_word_and_a_part_of_a_word():
    assert topic_of("killed: GPU memory over its limit") is None
    assert topic_of("killed: the frames are over the limit") is None, "ram. is no part of frames"


def test_a_topic_of_one_group_is_refused():
    with pytest.raises(ValueError, match="2 groups"):
        parse_topic("X", "x", "memory|ram")


UNSEEN = {
    "cudnn-mismatch": "RuntimeError: this program had been compiled with cuDNN 9.1, the one loaded at run time is 8.9: versions differ",
    "host-oom-killed": "agent[7]: FATAL: trainer killed, its RAM consumption went above the limit of the slot",
    "port-in-use": "FATAL: the listener cannot bind to 0.0.0.0:29500, that address is taken",
    "nccl-ib-memlock": "ERROR: registering memory with the HCA failed, locked memory is limited to 64 kB",
    "ext-arch-missing": "RuntimeError: the marlin op has at least capability 80 as its minimum, the current device is a 70",
    "slurm-time-limit": "ERROR: scheduler: the walltime of the job has expired, terminating it",
}


@pytest.mark.parametrize("cause", UNSEEN)
def test_a_complaint_in_unknown_words_has_its_class(cause):
    found = diagnose_logs([[f"starting\n{UNSEEN[cause]}\n".encode()]], look=False)
    assert found.cause == cause and found.confidence < 0.6 and NEAREST_NOTE in found.notes


NOT_GUESSED = (
    "WARNING: this kernel is below the recommended minimum, which can cause the process to hang\nloading\n",
    "could not find a GPU driver, using the CPU\n" + "step 1 loss 2.0\nstep 2 loss 1.9\n" * 9,
    "Traceback (most recent call last):\n  File \"train.py\", line 3, in <module>\n    main()\nKeyError: 'memory limit'\n",
)


@pytest.mark.parametrize("text", NOT_GUESSED)
def test_no_environment_is_guessed(text):
    assert diagnose_logs([[text.encode()]], look=False).cause in ("", "healthy", "not-environment")


def test_what_is_replaced_is_not_the_cause():
    text = "bfloat16 is not supported on this GPU. Setting float16 instead\nFoundryError: the flurb is gone\n"
    assert diagnose_logs([[text.encode()]], look=False).cause != "bf16-unsupported"
    assert (
        diagnose_logs([[b"ValueError: bfloat16 is not supported on this GPU\n"]], look=False).cause
        == "bf16-unsupported"
    )


def test_a_warning_that_is_repeated_to_the_end_is_what_the_run_waits_for():
    line = "[2026-01-18 07:59:{}7,302 W 1207 1207] accessor.cc:389: the raylet has not registered with the cluster, retrying\n"
    once, twice = line.format(1), line.format(1) + line.format(2)
    assert diagnose_logs([[twice.encode()]], look=False).cause == "rendezvous-unreachable"
    assert diagnose_logs([[once.encode()]], look=False).verdict != "cause"


def test_the_folders_of_a_path_are_no_words_of_the_complaint():
    assert topic_of("/work/built/cudnn/runtime/a/b.cc:12: it failed") is None


def test_what_is_waited_for_in_two_lines_that_alternate():
    text = "not ready endpoints: ['10.1.2.3:57487']\nserver not ready, wait 3 sec to retry\n" * 2
    assert diagnose_logs([[text.encode()]], look=False).cause == "rendezvous-unreachable"


ENGINE = 'Traceback (most recent call last):\n  File "/v/lib/python3.12/site-packages/engine/config.py", line 7, in check\n    raise X(\n{}\n'
OPTIONS = (
    "AssertionError: MXFP8 requires hidden size to be divisible by 32",
    "AssertionError: fused FP8 output not supported with alibi",
    "ValueError: the draft requires markov_rank > 0, got markov_rank=0",
    "ValueError: atomic_ does not support bf16 operands here",
    "ValueError: --enable-a is incompatible with --backend=b, please drop one of them",
    "RuntimeError: please check the counters [4] at step=4; the path is not executing",
)


@pytest.mark.parametrize("message", OPTIONS)
def test_options_that_exclude_each_other_are_no_fault_of_the_gpu_or_of_a_release(message):
    found = diagnose_logs([[ENGINE.format(message).encode()]], look=False)
    assert found.cause in ("", "not-environment") or found.confidence < 0.61, (found.cause, found.confidence)
    assert found.cause not in ("fp8-unsupported", "version-conflict")


PLATFORMS = {
    "ext-arch-missing": "ValueError: the CuteDSL MLA backend is only supported on SM100 GPUs, use another backend",
    "fp8-unsupported": "RuntimeError: MXFP8 requires SM100",
    "shm-too-small": "RuntimeError: insufficient space: 64 MiB required, 8 MiB free. Increase it with --shm-size",
    "no-gpu-visible": "RuntimeError: hl-smi not found. Ensure that the drivers are installed",
}


@pytest.mark.parametrize("cause", PLATFORMS)
def test_what_an_engine_says_of_the_platform(cause):
    assert diagnose_logs([[ENGINE.format(PLATFORMS[cause]).encode()]], look=False).cause == cause


WARNINGS = {
    "nccl-ib-link": "transport/net_ib.cc:77 NCCL WARN something new went wrong with the queue",
    "shm-too-small": "misc/shmutils.cc:12 NCCL WARN something new went wrong with the segment",
    "node-network-broken": "bootstrap.cc:12 NCCL WARN something new went wrong with the peer",
}


@pytest.mark.parametrize("cause", WARNINGS)
def test_the_module_of_nccl_that_warns_tells_the_class(cause):
    assert diagnose_logs([[f"node1:11:12 [0] {WARNINGS[cause]}\n".encode()]], look=False).cause == cause


NEIGHBOURS = [
    ("container-without-gpu", "# docker exec job nvidia-smi\nFailed to initialize NVML: Unknown Error"),
    ("no-gpu-visible", "# nvidia-smi\nFailed to initialize NVML: Unknown Error"),
    ("toolkit-too-old-for-arch", "ptxas /t/a.ptx, line 9; error : Feature 'x' requires PTX ISA .version 8.6 or later"),
    (
        "triton-kernel-failed",
        "in triton code: ptxas a.ptx, line 9; error : Feature 'x' requires .target sm_90 or higher",
    ),
    (
        "torchvision-mismatch",
        "torchvision 0.30.0 requires torch==2.15.0, but you have torch 2.14.0 which is incompatible.",
    ),
    ("disk-full", "a.LocalEntryNotFoundError: no file\nOSError: [Errno 28] No space left on device: '/cache/a'"),
    ("arch-not-in-torch-build", "RuntimeError: cublas runtime error : the GPU program failed to execute at a.cu:2"),
]


@pytest.mark.parametrize(("cause", "text"), NEIGHBOURS)
def test_causes_that_share_a_message_are_told_apart(cause, text):
    assert diagnose_logs([[f"{text}\n".encode()]], look=False).cause == cause
