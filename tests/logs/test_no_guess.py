"""No cause is guessed: where no pattern matches the error, the answer is that none is known, with the error and its origin."""

from __future__ import annotations

import pytest

from tests.logs.answers import diagnose

SITE = "/home/me/venv/lib/python3.12/site-packages"
FRAME = 'Traceback (most recent call last):\n  File "{}", line 7, in check\n    raise X(\n{}\n'


UNSEEN = (
    "RuntimeError: this program had been compiled with cuDNN 9.1, the one loaded at run time is 8.9: versions differ",
    "agent[7]: FATAL: trainer killed, its RAM consumption went above the limit of the slot",
    "FATAL: the listener cannot bind to 0.0.0.0:29500, that address is taken",
    "ERROR: scheduler: the walltime of the job has expired, terminating it",
    "RuntimeError: The NVIDIA driver on your system is too o",
    "node1:11:12 [0] transport/net_ib.cc:77 NCCL WARN something new went wrong with the queue",
)


@pytest.mark.parametrize("line", UNSEEN)
def test_words_that_no_pattern_has_are_quoted_and_name_no_cause(line):
    found = diagnose(f"starting\n{line}\n")
    assert (found.verdict, found.cause, found.exit) == ("unknown", "", 3)
    assert found.evidence[0].text == line


PLACES = {
    "torch/_inductor/codecache.py": "a compiler (torch)",
    "urllib3/response.py": "the network (urllib3)",
    "setuptools/command/build_ext.py": "the package manager (setuptools)",
    "huggingface_hub/file_download.py": "the model hub (huggingface_hub)",
    "datasets/arrow_writer.py": "datasets",
}


@pytest.mark.parametrize("file", PLACES)
def test_the_place_of_an_unknown_error_is_told_and_names_no_cause(file):
    found = diagnose(FRAME.format(f"{SITE}/{file}", "RuntimeError: unheard of"))
    assert (found.verdict, found.cause, found.exit) == ("unknown", "", 3)
    assert found.origin == f"{PLACES[file]}, {SITE}/{file}, line 7"


REFUSED = (
    "RuntimeError: return_outputs=True is not supported with the fused loss",
    "RuntimeError: the sizes must be divisible by 32",
    "TypeError: `max_length` must be an integer, got a list",
)


@pytest.mark.parametrize("last", REFUSED)
def test_words_of_a_package_do_not_make_an_error_the_user_s(last):
    assert diagnose(FRAME.format(f"{SITE}/engine/config.py", last)).verdict == "unknown"


def test_a_quotation_without_a_stack_names_no_owner():
    found = diagnose("TypeError: SomeEngine.__init__() got an unexpected keyword argument 'offload'\n")
    assert (found.verdict, found.cause) == ("unknown", "")


MODULE = f'  File "{SITE}/torch/nn/modules/module.py", line 9, in __getattr__\n    raise AttributeError(\n'


@pytest.mark.parametrize(("attribute", "cause"), [("fc2", "not-environment"), ("_take_cache", "")])
def test_an_attribute_that_a_base_class_may_have_had_is_not_called_the_user_s(attribute, cause):
    own = (
        f'Traceback (most recent call last):\n  File "/home/me/run.py", line 3, in step\n    x = self.{attribute}(x)\n'
    )
    found = diagnose(f"{own}{MODULE}AttributeError: 'MyNet' object has no attribute '{attribute}'\n")
    assert found.cause == cause


NOT_GUESSED = (
    "WARNING: this kernel is below the recommended minimum, which can cause the process to hang\nloading\n",
    "could not find a GPU driver, using the CPU\n" + "step 1 loss 2.0\nstep 2 loss 1.9\n" * 9,
    "Traceback (most recent call last):\n  File \"train.py\", line 3, in <module>\n    main()\nKeyError: 'memory limit'\n",
)


@pytest.mark.parametrize("text", NOT_GUESSED)
def test_no_environment_is_guessed(text):
    assert diagnose(text).cause in ("", "healthy", "not-environment")


def test_what_is_replaced_is_not_the_cause():
    text = "bfloat16 is not supported on this GPU. Setting float16 instead\nFoundryError: the flurb is gone\n"
    assert diagnose(text).cause != "bf16-unsupported"
    assert diagnose("ValueError: bfloat16 is not supported on this GPU\n").cause == "bf16-unsupported"


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
    found = diagnose(FRAME.format(f"{SITE}/engine/config.py", message))
    assert found.cause in ("", "not-environment") or found.confidence < 0.61, (found.cause, found.confidence)
    assert found.cause not in ("fp8-unsupported", "version-conflict")


PLATFORMS = {
    "ext-arch-missing": "ValueError: the CuteDSL MLA backend is only supported on SM100 GPUs, use another backend",
    "fp8-unsupported": "RuntimeError: MXFP8 requires SM100",
}


@pytest.mark.parametrize("cause", PLATFORMS)
def test_what_an_engine_says_of_the_platform(cause):
    assert diagnose(FRAME.format(f"{SITE}/engine/config.py", PLATFORMS[cause])).cause == cause


NEIGHBOURS = [
    ("container-lost-gpu", "# docker exec job nvidia-smi\nFailed to initialize NVML: Unknown Error"),
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
    ("triton-kernel-failed", "RuntimeError: Triton Error [XPU]:  Code: 7, Message: invalid argument"),
    ("arch-not-in-torch-build", "RuntimeError: cublas runtime error : the GPU program failed to execute at a.cu:2"),
]


@pytest.mark.parametrize(("cause", "text"), NEIGHBOURS)
def test_causes_that_share_a_message_are_told_apart(cause, text):
    assert diagnose(f"{text}\n").cause == cause
