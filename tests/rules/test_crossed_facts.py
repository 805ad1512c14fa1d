"""Facts that were never crossed: Triton's assembler and the GPU, accelerate and the kernel."""

from __future__ import annotations

import pytest

from tests.rules.worlds import H100, contract, judged, need

COMPILED = H100 | {"job.wants": ("torch-compile",), "package.triton": None}


def world(capability, torch, **more):
    return COMPILED | {"gpu.capability": (capability,), "torch.version": torch, "package.torch": torch, **more}


@pytest.mark.parametrize(
    ("capability", "torch", "fits"),
    [
        ("9.0", "2.4.0+cu124", True),
        ("10.0", "2.6.0+cu126", False),
        ("10.0", "2.7.0+cu128", True),
        ("12.0", "2.8.0+cu128", True),
        ("10.3", "2.9.1+cu130", False),
        ("12.1", "2.9.0+cu130", False),
        ("12.1", "2.10.0+cu130", True),
        ("7.0", "2.8.0+cu126", True),
    ],
)
def test_the_assembler_of_triton_knows_the_gpu_or_not(capability, torch, fits):
    assert (judged("BLD018", world(capability, torch)) is None) == fits


def test_an_installed_triton_counts_before_the_pin_of_torch_and_a_named_ptxas_before_both():
    old = world("12.1", "2.12.0+cu130") | {"package.triton": "3.5.0"}
    assert judged("BLD018", old).code == "BLD018"
    assert judged("BLD018", old | {"env.TRITON_PTXAS_PATH": "/usr/local/cuda/bin/ptxas"}) is None


def test_it_matters_where_something_is_compiled():
    quiet = world("12.1", "2.9.0+cu130") | {"job.wants": ()}
    assert judged("BLD018", quiet) is None
    assert judged("BLD018", quiet, contract(framework="vllm")) is not None


@pytest.mark.parametrize(("kernel", "fits"), [("5.4.0", False), ("4.18.0", False), ("5.5.0", True), ("6.8.0", True)])
def test_the_kernel_that_accelerate_recommends(kernel, fits):
    brings = contract(need("package.accelerate", ">=1.0"))
    found = judged("SYS031", H100 | {"os.kernel": kernel}, brings)
    assert (found is None) == fits and (fits or found.severity == "warning")
    assert judged("SYS031", H100 | {"os.kernel": "4.18.0", "package.accelerate": None}, contract()) is None
