"""Options that a package refuses by their names are no fault of a release; hardware, releases and packages in the same words are not options."""

from __future__ import annotations

import pytest

from gpuready.diagnose.refused_options import names_refused_option, refuses_values
from gpuready.logs.logged_exception import LoggedException
from gpuready.workflow.diagnose import diagnose_logs

SITE = "/home/me/venv/lib/python3.12/site-packages"


def refusal(text: str) -> LoggedException:
    kind, _, message = text.partition(": ")
    return LoggedException(1, 2, 2, kind, message)


def diagnosed(last: str, package: str = "meshlib", code: str = "raise X("):
    frame = f'  File "{SITE}/{package}/trainer/config.py", line 7, in check\n    {code}\n'
    return diagnose_logs([[f"Traceback (most recent call last):\n{frame}{last}\n".encode()]], look=False)


REFUSED = (
    "ValueError: `loss_kind='x'` is not supported when `lm_head` is wrapped",
    "ValueError: --enable-a cannot be used with --enable-b, please remove one",
    "NotImplementedError: use_fused=True is incompatible with mode_of_loss",
    "RuntimeError: return_outputs=True is not supported with the fused loss",
    "ValueError: only alpha=1.0 is supported when `mode='sampled_token'`, got 0.5",
    "TypeError: `max_length` must be an integer, got a list",
)


@pytest.mark.parametrize("text", REFUSED)
def test_a_refused_option_is_the_programs_own(text):
    assert names_refused_option(refusal(text))
    assert diagnosed(text, "trl").cause == "not-environment"


@pytest.mark.parametrize(
    "text",
    [
        "ValueError: `kv_dtype=fp4` requires SM100 and is not supported on this GPU",
        "ValueError: `mesh_mode` is only supported with torch >= 2.9",
        "RuntimeError: `mesh_kernels` must be installed",
        "ImportError: `mesh_kernels` is not supported",
        "ValueError: `max_len` must be lower: not enough memory",
        "ValueError: the shape of `lm_head` must match the checkpoint",
        "ValueError: this is not supported",
    ],
)
def test_hardware_releases_packages_and_files_are_no_options(text):
    assert not names_refused_option(refusal(text))


def test_a_value_that_is_refused_speaks_of_no_release():
    assert refuses_values(refusal("ValueError: The DPOTrainer does not return outputs"))
    assert not refuses_values(refusal("ValueError: The DPOTrainer needs a newer release of it"))
    assert not refuses_values(refusal("TypeError: The DPOTrainer got another argument"))
    assert diagnosed("ValueError: The GRPOTrainer does not support returning outputs", "trl").cause == "not-environment"


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("ValueError: tail fusion requires SM100.", "ext-arch-missing"),
        ("ValueError: Module q_proj is not found, please choose from v_proj", "not-environment"),
        ("ValueError: Row-scaled NVFP4 is only supported for NVFP4 mode.", "not-environment"),
        ("RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn", "not-environment"),
        ("ValueError: Unsupported loss mode: foo. Supported modes are: bar", "not-environment"),
        ("ImportError: Failed to load mesh_kernels. unheard of", "missing-python-package"),
    ],
)
def test_what_no_pattern_knows_has_its_class(text, cause):
    assert diagnosed(text).cause == cause


def test_a_file_of_a_dataset_is_no_option():
    frame = f'  File "{SITE}/datasets/packaged_modules/ts/ts.py", line 7, in _read\n    raise ValueError(\n'
    log = f"Traceback (most recent call last):\n{frame}ValueError: File a.ts is a tree, which is not supported.\n"
    assert diagnose_logs([[log.encode()]], look=False).cause == "dataset-error"


def test_a_number_of_something_is_no_release():
    assert diagnosed("ValueError: Head dimension 64 is not supported by it.").cause != "version-conflict"
    assert diagnosed("RuntimeError: meshlib 1.64 is not supported by it.").cause == "version-conflict"
