"""Whose frame is the innermost: only the user's own code, data and options make a failure the program's own."""

from __future__ import annotations

import pytest

from gpuready.diagnose.origin import find_origin, package_of_frame
from gpuready.logs.logged_exception import LoggedException, StackFrame
from gpuready.workflow.diagnose import diagnose_logs

SITE = "/home/me/venv/lib/python3.12/site-packages"
OWN = "/home/me/train.py"


def traceback(last: str, *files: str) -> str:
    frames = "".join(f'  File "{file}", line {10 + i}, in step\n    call()\n' for i, file in enumerate(files))
    return f"Traceback (most recent call last):\n{frames}{last}\n"


def found(last: str, *files: str):
    return diagnose_logs([[traceback(last, *files).encode()]], look=False)


@pytest.mark.parametrize(
    ("file", "package"),
    [
        (f"{SITE}/vllm/v1/engine/core.py", "vllm"),
        ("C:\\Users\\me\\venv\\Lib\\site-packages\\trl\\trainer\\sft_trainer.py", "trl"),
        ("/opt/vllm/vllm/engine/core.py", "vllm"),
        ("/mnt/work/axolotl/src/axolotl/cli/train.py", "axolotl"),
        ("/data/LLaMA-Factory/src/llamafactory/train/tuner.py", "llamafactory"),
        ("/sgl-workspace/sglang/python/sglang/srt/server.py", "sglang"),
        ("/home/me/.cache/huggingface/modules/transformers_modules/org/model/modeling.py", "transformers_modules"),
        ("/usr/lib/python3.12/json/decoder.py", ""),
        ("<frozen importlib._bootstrap>", ""),
        ("/home/me/venv/bin/vllm", ""),
        (OWN, "user"),
        ("/home/me/vllm/train.py", "user"),
        ("train.py", "user"),
        (".../transformers/trainer.py", "transformers"),
        ("/.../lib/trl/trainer/sft_trainer.py", "trl"),
        ("vllm/engine/core.py", "vllm"),
        (".../project/train.py", "user"),
    ],
)
def test_the_package_of_a_file(file, package):
    assert package_of_frame(StackFrame(file, 1)) == package


@pytest.mark.parametrize(
    ("type_", "message", "file", "kind"),
    [
        ("RuntimeError", "CUDA error: unknown error", OWN, "driver"),
        ("RuntimeError", "PassManager::run failed", f"{SITE}/triton/compiler/compiler.py", "compiler"),
        ("torch._inductor.exc.InductorError", "x", f"{SITE}/torch/nn/modules/module.py", "compiler"),
        ("huggingface_hub.errors.HfHubHTTPError", "500", f"{SITE}/transformers/utils/hub.py", "hub"),
        ("requests.exceptions.ReadTimeout", "x", f"{SITE}/requests/adapters.py", "network"),
        ("ImportError", "libfoo.so.2: cannot open shared object file", f"{SITE}/foo/__init__.py", "extension"),
        ("RuntimeError", "x", f"{SITE}/torch/nn/functional.py", "torch"),
        ("KeyError", "'x'", f"{SITE}/vllm/model.py", "package"),
        ("KeyError", "'x'", OWN, "user"),
        ("SomeError", "x", "", "unknown"),
    ],
)
def test_the_kind_of_an_origin(type_, message, file, kind):
    frames = (StackFrame(file, 3),) if file else ()
    assert find_origin(LoggedException(1, 2, 2, type_, message, frames=frames)).kind == kind


@pytest.mark.parametrize(
    ("last", "files"),
    [
        ("KeyError: 'labels'", [OWN]),
        ("json.decoder.JSONDecodeError: Expecting value: line 1", [OWN, "/usr/lib/python3.12/json/decoder.py"]),
        ("RuntimeError: mat1 and mat2 shapes cannot be multiplied (8x32 and 64x128)", [OWN, f"{SITE}/torch/nn/linear.py"]),
        ("ValueError: num_epochs must be above 0", [f"{SITE}/axolotl/cli/train.py", f"{SITE}/axolotl/config.py"]),
        ("IndexError: index out of range in self", [OWN, f"{SITE}/transformers/trainer.py", f"{SITE}/torch/nn/functional.py"]),
        ("AssertionError: the length of prompts and rewards differs", [f"{SITE}/verl/trainer/ppo.py"]),
    ],
)  # fmt: skip
def test_code_data_and_options_of_the_user_are_the_programs_own(last, files):
    one = found(last, *files)
    assert one.cause == "not-environment" and one.origin


@pytest.mark.parametrize(
    ("last", "files", "origin"),
    [
        ("KeyError: 'w2_weight'", [f"{SITE}/vllm/cli/main.py", f"{SITE}/vllm/models/loader.py"], "vllm"),
        ("AssertionError", [f"{SITE}/vllm/v1/core.py"], "vllm"),
        ("RuntimeError: the frobnicator is upset", [f"{SITE}/deepspeed/engine.py"], "deepspeed"),
        ("NameError: name 'x' is not defined", [OWN, f"{SITE}/unsloth/models/llama.py"], "unsloth"),
        ("ValueError: foo needs another driver than this one", [f"{SITE}/foo/check.py"], "foo"),
    ],
)
def test_an_unknown_exception_elsewhere_is_no_cause_and_its_origin_is_told(last, files, origin):
    one = found(last, *files)
    assert (one.verdict, one.cause, one.exit) == ("unknown", "", 3)
    assert one.origin.startswith(origin)


def test_letter_case_makes_no_difference():
    assert found("KEYERROR: 'labels'".lower(), OWN).cause in ("not-environment", "")
    assert find_origin(LoggedException(1, 2, 2, "acceleratorerror", "x")).kind == "driver"


def test_what_was_being_handled_yields_to_the_exception_that_ended_the_process():
    handled = traceback("KeyError: 'fast'", OWN)
    text = f"{handled}\nDuring handling of the above exception, another exception occurred:\n\n"
    one = diagnose_logs(
        [[(text + traceback("RuntimeError: the frobnicator is upset", f"{SITE}/frob/a.py")).encode()]], look=False
    )
    assert (one.verdict, one.origin.partition(",")[0]) == ("unknown", "frob")
