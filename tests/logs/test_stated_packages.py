"""Packages and releases that a line asks for, in the words of any package; and lines that ask for neither."""

from __future__ import annotations

import pytest

from gpuready.logs.log_lines import LogLine
from gpuready.logs.stated_packages import find_asked_packages


def asked(text: str) -> list[str]:
    return [words for _, words in find_asked_packages([LogLine(1, text)])]


@pytest.mark.parametrize(
    ("text", "package"),
    [
        ("ImportError: Sharding requires meshlib >= 0.16.4, please update it", "meshlib"),
        ("RuntimeError: Meshlib version must be 2.5 or higher. Current version: 2.4.0", "Meshlib"),
        ("ImportError: meshlib >= 1.2.3 is required, but 1.0.0 is installed.", "meshlib"),
        ("ValueError: this option is only supported with meshlib>=2.9.0.dev", "meshlib"),
        ("ImportError: needs meshlib>=1.2 version, but you are using meshlib version 1.1.0", "meshlib"),
        ("RuntimeError: please downgrade to meshlib==4.57.3", "meshlib"),
        ("RuntimeError: could not find it. Please upgrade unsloth_zoo.", "unsloth_zoo"),
        ("ValueError: Please use meshlib version >= 0.15.0 to load it", "meshlib"),
        ("AssertionError: Please use meshlib 1.8 or greater to enable it", "meshlib"),
        ("AssertionError: only supported with meshlib 2.3.0 and above.", "meshlib"),
        ("RuntimeError: PyTorch 2.6 or higher is required to use it.", "PyTorch"),
        ("ImportError: You have torch = 2.2.0 but meshlib = 2.1.0. Please install meshlib < 0.0.24 for it.", "meshlib"),
        ("AssertionError: grouped_mm not there. Install meshlib 2.10+.", "meshlib"),
        ("RuntimeError: it requires Mesh Engine >= 2.14.0 (needs ops.Grouped)", "Mesh-Engine"),
        ("RuntimeError: meshlib version 4.50.1 exceeds version 4.43.4!", "meshlib"),
        ("RuntimeError: it is not supported in your version of meshlib. (2.0)", "meshlib"),
        ("AssertionError: APIs that are not available in this meshlib build.", "meshlib"),
    ],
)
def test_another_release_is_asked_for(text, package):
    assert asked(text) == [f"another release of {package} is asked for"]


@pytest.mark.parametrize(
    ("text", "package"),
    [
        ("ImportError: `meshlib` was not found on your system. Please ensure that it is installed", "meshlib"),
        ("ValueError: meshlib was selected, but it is not installed on this machine.", "meshlib"),
        ("Exception: When `x` is set, it requires Meshlib to be installed.", "Meshlib"),
        ("ImportError: Using the backend requires installation of meshlib.", "meshlib"),
        ("ValueError: Ensure Meshlib packages are installed.", "Meshlib"),
        ("ModuleNotFoundError: meshlib does not seem to be installed or it can't be imported.", "meshlib"),
        ("ImportError: the function requires the 'meshlib' package for it.", "meshlib"),
        ("RuntimeError: meshlib backend is not available. Please install the package to use it", "meshlib"),
        ("RuntimeError: mode=mesh but mesh_lib is not importable; install it", "mesh_lib"),
        ("AssertionError: Triton is required for this kernel, which is not there", "Triton"),
        ("ImportError: meshlib >= 0.17.1 is required to use it. Install it with: pip install meshlib", "meshlib"),
    ],
)
def test_a_package_is_asked_for(text, package):
    assert asked(text) == [f"the package {package} is asked for"]


@pytest.mark.parametrize(
    "text",
    [
        "AssertionError: fp8_ds_mla requires kv_lora_rank == 512",
        "ValueError: not supported with data_parallel_size > 1",
        "ValueError: dtype must be in ['fp32', 'bf16'] but found torch.float16",
        "RuntimeError: requires CUDA >= 12.4",
        "RuntimeError: this requires Python >= 3.10",
        "RuntimeError: needs driver version 550.1",
        "ValueError: Please update your config.",
        "ValueError: temperature 0.5 or higher is recommended",
        "RuntimeError: requires ROCm 7.1+.",
        "ValueError: mesh_mode requires the grouped module of the model",
        "OSError: it requires a shared library of the system",
        "ValueError: please use dropout >= 0.1 here",
        "INFO: all parameters found, nothing needed",
    ],
)
def test_options_and_the_toolkit_are_no_packages(text):
    assert asked(text) == []
