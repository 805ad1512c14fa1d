"""Words of several causes are no certainty, what the message asks for is the remedy, and a reason stands before its usual cause."""

from __future__ import annotations

import pytest

from gpuready.diagnose.version_conflict import VersionConflict, check_direction
from gpuready.model.diagnosis import Diagnosis, ExceptionLink
from gpuready.workflow.diagnosis_fixes import find_remedy
from tests.logs.answers import diagnose

FRAME = 'Traceback (most recent call last):\n  File "/v/lib/python3.12/site-packages/{}/x.py", line 3, in f\n    y()\n'
OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB of which 387.12 MiB is free. "
    "Including non-PyTorch memory, this process has 78.70 GiB memory in use. Of the allocated memory {} is allocated by PyTorch, and {} is "
    "reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True."
)


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("RuntimeError: Found no NVIDIA driver on your system.", "container-without-gpu"),
        ("+ docker run image\nFailed to initialize NVML: Unknown Error", "no-gpu-visible"),
    ],
)
def test_what_has_several_causes_is_below_certainty_with_what_decides(text, other):
    found = diagnose(text)
    assert found.confidence < 0.8 and not found.fix
    assert other in [one.cause for one in found.alternatives]
    assert any("nvidia-smi" in note for note in found.notes)


@pytest.mark.parametrize(
    "text",
    [
        "RuntimeError: CUDA error: invalid device ordinal",
        "RuntimeError: CUDA error (10): invalid device ordinal",  # as CUDA before 10.1 numbers it
        "Loaded runtime CuDNN library: 8.0.5 but source was compiled with: 8.1.0.",
        "RuntimeError: Error(s) in loading state_dict for Net:\n\tsize mismatch for fc.weight: copying a param with shape torch.Size([9, 2])"
        " from checkpoint, the shape in current model is torch.Size([3, 2]).",
    ],
)
def test_a_message_that_states_the_cause_itself_is_certain_with_its_fix(text):
    found = diagnose(text)
    assert found.confidence >= 0.8 and found.fix


def test_a_warning_that_states_the_cause_is_certain_where_nothing_else_ended_the_run():
    said = "NVIDIA X with CUDA capability sm_86 is not compatible with the current PyTorch installation.\n"
    assert diagnose(said).confidence >= 0.8
    other = diagnose(
        f"{said}Traceback (most recent call last):\n  File \"t.py\", line 3, in <module>\n    f()\nKeyError: 'text'\n"
    )
    assert other.cause != "arch-not-in-torch-build" or other.confidence < 0.8


def test_a_name_that_an_installed_package_lacks_is_certain_and_no_unknown_package_gets_into_a_command():
    error = "ImportError: cannot import name 'cached_path' from 'transformers' (/v/lib/python3.12/site-packages/transformers/__init__.py)"
    for package, is_run in (("diffusers", True), ("evil_pkg", False)):
        found = diagnose(FRAME.format(package) + error)
        assert found.confidence >= 0.8 and package in f"{found.says} {found.conflict}"
        assert any("diffusers" in step.run for step in found.fix) == is_run
        assert not any("evil" in word for step in found.fix for word in step.run)


def test_the_system_s_answer_comes_before_the_usual_cause():
    denied = "c++: error: could not create '/shared/x.o': Permission denied\n"
    for text in (
        f"{denied}RuntimeError: Error building extension 'adam'",
        f"RuntimeError: Error building extension 'adam'\n{denied}",
    ):
        assert diagnose(text).cause == "cache-permission"


def test_a_line_that_calls_itself_no_error_is_no_certainty():
    calm = "bin D:\\envs\\a\\lib\\site-packages\\bitsandbytes\\libbitsandbytes_cpu.so\n"
    assert 0 < diagnose(calm).confidence < 0.8
    denied = "h:27:27 [0] include/shm.h:27 NCCL WARN Call to shm_open failed : Permission denied\n"
    made = (
        "h:27:27 [0] include/shm.h:48 NCCL WARN Error while creating shared memory segment nccl-shm-1 (size 4460544)\n"
    )
    found = diagnose(f"{denied}{made}RuntimeError: NCCL error in x.cpp:290, unhandled system error")
    assert found.cause == "cache-permission" and "/dev/shm" in found.fix[0].does


@pytest.mark.parametrize(
    "words",
    [
        "this adapter requires the peft library version >= 0.12.0, found 0.9",
        "peft>=0.12.0 is required here",
        "we now require users to upgrade peft to at least v0.12.0 in order to load it",
    ],
)
def test_a_release_that_the_message_asks_for_is_the_remedy(words):
    found = diagnose(FRAME.format("transformers") + f"ImportError: {words}\n")
    assert found.fix[0].run[-1] == "peft>=0.12.0"
    assert not any("python" in one.run[-1:] for one in diagnose("ImportError: requires Python >= 3.12").fix)


def test_a_symbol_that_came_and_went_has_both_directions_until_the_release_is_known():
    found = VersionConflict("lib", "user", "name", "between", "1.5", "2.0")
    assert not check_direction(found, "").is_directed and check_direction(found, "2.1").is_directed
    assert check_direction(found, "1.4").is_directed and not check_direction(found, "1.7").direction


def test_fragmentation_is_told_last_and_only_where_it_would_be_enough():
    few, many = (diagnose(OOM.format(*sizes)).fix for sizes in (("77.10 GiB", "200.00 MiB"), ("70.10 GiB", "7.20 GiB")))
    assert "gpuready fit" in few[0].does and not any("expandable" in step.does for step in few)
    assert "gpuready fit" in many[0].does and "expandable_segments" in many[-1].does


@pytest.mark.parametrize(
    ("message", "is_remedy"),
    [
        ("It failed. Set ENGINE_MODE=0 to use the old engine.", True),
        ("It failed. The mode is read via the ENGINE_MODE environment variable.", False),
        ("It failed. Please check that there is a driver.", False),
        ("It failed. Either the package is not installed or it is too old.", False),
        ("It failed. The flag overrides the check. Use at your own risk.", False),
        ("It failed. Set ENGINE_MODE=1 to use the new engine.", False),
    ],
)
def test_only_what_can_be_done_and_is_not_done_yet_is_a_remedy(message, is_remedy):
    unknown = Diagnosis("unknown", exceptions=(ExceptionLink("ValueError", message, 1),))
    assert bool(find_remedy(unknown, "started with ENGINE_MODE=1")) is is_remedy


def test_no_python_is_advised_that_the_message_does_not_ask_for():
    found = diagnose(
        "ERROR: Could not find a version that satisfies the requirement torch==1.9.0 (from versions: 2.0.0, 2.1.0)"
    )
    assert not any(
        "1.9" in text or "3.12" in text
        for text in (found.says, *(word for s in found.fix for word in (s.does, *s.run)))
    )


USERS = 'Traceback (most recent call last):\n  File "/srv/job/train.py", line 9, in main\n    {}\n{}\n'
PACKAGES = FRAME.format("lib").replace("y()", "block(x, scale=lora_scale)")
PIP = "ERROR: Could not find a version that satisfies the requirement torch=={} (from versions: {})\n"


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("(RuntimeError: expected scalar type Half but found Float)", "dtype-mismatch"),
        (
            "RuntimeError: Expected all tensors to be on the same device, but found at least two devices, cpu and cuda:0!",
            "mixed-devices",
        ),
        ("ValueError: BuilderConfig 'nl' not found. Available: ['default']", "dataset-error"),
        ("KeyError: \"Column text not in the dataset. Current columns in the dataset: ['body']\"", "dataset-error"),
        (
            "Exception: kern with minimum required version 0.2.5 is not installed. Please reinstall the latest.",
            "missing-python-package",
        ),
        ("ModuleNotFoundError: No module named 'transformers.tokenization_utils_base'", "version-conflict"),
        (PACKAGES + "TypeError: forward() got an unexpected keyword argument 'scale'", "version-conflict"),
        (PIP.format("1.8.1", "1.13.0, 1.13.1, 2.0.0, 2.8.0"), "python-version-unsupported"),
        (PIP.format("1.9.0+cu102", "1.4.0, 1.5.0, 1.9.0, 1.9.1"), "package-resolution"),
        (USERS.format("assert n % size == 0", "AssertionError: 7 is not a multiple of 2"), "not-environment"),
        (USERS.format('raise ValueError(f"{path}")', "ValueError: nothing to read in data/x"), "not-environment"),
        (USERS.format("c = yaml.safe_load(f)", "yaml.scanner.ScannerError: a value is not allowed"), "not-environment"),
    ],
)
def test_what_the_ending_message_states_is_certain(text, cause):
    found = diagnose(text)
    assert (found.cause, found.confidence >= 0.8) == (cause, True), (found.cause, found.confidence)


@pytest.mark.parametrize(
    "text",
    [
        PIP.format("1.8.1", "0.1.2, 0.1.2.post1"),
        PIP.format("1.15.0", "1.4.0, 1.5.0, 1.6.0"),
        USERS.format('raise ValueError("the driver is too old")', "ValueError: the driver is too old"),
        FRAME.format("lib") + "TypeError: forward() got an unexpected keyword argument 'scale'",
    ],
)
def test_what_may_have_another_reason_is_not(text):
    assert diagnose(text).confidence < 0.8


@pytest.mark.parametrize(
    "end",
    ["^C", "exit code: 1", "Process finished with exit code -1073741819", "GGML_ASSERT: x.cu:5: false", "训练失败"],
)
def test_a_run_that_ends_with_a_complaint_of_any_kind_is_not_healthy(end):
    steps = "".join(f"{{'loss': {2 - i / 50:.2f}, 'epoch': {i / 100:.2f}}}\n" for i in range(40))
    assert diagnose(steps).verdict == "healthy" != diagnose(f"{steps}{end}\n").verdict
    assert diagnose(f"{steps}exit code: 0\n").verdict == "healthy"


@pytest.mark.parametrize(
    ("text", "cause", "sure"),
    [
        ("_pickle.UnpicklingError: invalid load key, 'v'.", "corrupt-or-lfs-weights", True),
        ("_pickle.UnpicklingError: invalid load key, '\\x1a'.", "corrupt-or-lfs-weights", False),
        ("ModuleNotFoundError: No module named 'numba.decorators'", "version-conflict", True),
        (
            USERS.format("x.eval()", "AttributeError: 'NoneType' object has no attribute 'eval'"),
            "not-environment",
            False,
        ),
        (
            FRAME.format("transformers") + "TypeError: DPOTrainer.log() takes 2 positional arguments but 3 were given",
            "trl-api-change",
            True,
        ),
        (
            "nvidia-container-cli: initialization error: nvml error: driver/library version mismatch: unknown\n"
            "Error: failed to start containers: llama\n",
            "driver-library-mismatch",
            True,
        ),
    ],
)
def test_how_sure_a_message_is(text, cause, sure):
    found = diagnose(text)
    assert (found.cause, found.confidence >= 0.8) == (cause, sure), (found.cause, found.confidence)


def test_an_engine_that_refuses_what_it_lists_is_broken_itself():
    words = "ValueError: Model architectures ['{}'] are not supported for now. Supported architectures: ['LlamaForCausalLM']"
    assert diagnose(words.format("NewForCausalLM")).cause == "transformers-too-old"
    assert diagnose(words.format("LlamaForCausalLM")).cause != "transformers-too-old"


PYDANTIC = (
    '  File "/v/lib/python3.10/site-packages/pydantic/_internal/_model_construction.py", line 2, in __getattr__\n'
)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (
            f"Traceback (most recent call last):\n{PYDANTIC}    raise A(b)\nAttributeError: __config__",
            "version-conflict",
        ),
        ("Exception: data did not match any variant of untagged enum ModelWrapper at line 1", "version-conflict"),
        ("ValueError: Expected input batch_size (32) to match target batch_size (64).", "not-environment"),
        ("AttributeError: 'Namespace' object has no attribute 'weights'", "not-environment"),
        ("a.b.MisconfigurationException: No 'test_dataloader()' method defined.", "not-environment"),
        (
            "ImportError: /v/xformers/flash_attn_3/_C.so: undefined symbol: _ZN3c104cuda9SetDeviceEab",
            "ext-abi-mismatch",
        ),
    ],
)
def test_whose_the_refusal_is(text, cause):
    found = diagnose(text)
    assert (found.cause, found.confidence >= 0.8) == (cause, True), (found.cause, found.confidence)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("ray.exceptions.RaySystemError: System error: No module named 'transformers_modules'", ""),
        ("wandb.errors.errors.Error: Please install tensorboard package", "missing-python-package"),
        (FRAME.format("peft") + "AttributeError: 'torch.dtype' object has no attribute 'itemsize'", ""),
    ],
)
def test_names_that_no_index_has_are_not_installed(text, cause):
    found = diagnose(text)
    assert found.cause == cause
    assert not any("transformers_modules" in word for step in found.fix for word in step.run)


def test_every_bound_that_a_message_asks_for_is_in_the_command():
    asked = "transformers>=4.45.0,<=4.51.3,!=4.46.0"
    found = diagnose(f"ImportError: {asked} is required for a normal functioning of this module, but found 4.52.4.")
    assert found.fix[0].run[-1] == asked


def test_a_device_side_assert_leads_to_labels_and_ids():
    found = diagnose(USERS.format("total += loss.item()", "RuntimeError: CUDA error: device-side assert triggered"))
    assert found.cause == "not-environment" and "out of range" in found.fix[0].does
