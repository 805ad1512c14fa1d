"""bf16 and fp8 on GPUs that have them and on those that do not."""

from __future__ import annotations

import pytest

from gpuready.model import UnknownFactError
from tests.rules.worlds import H100, contract, judged, need, several

# -- CAP001, CAP002 -----------------------------------------------------------------------------------

V100 = H100 | {"gpu.name": ("Tesla V100-SXM2-16GB",), "gpu.capability": ("7.0",)}
A100 = H100 | {"gpu.name": ("NVIDIA A100",), "gpu.capability": ("8.0",)}
ADA = H100 | {"gpu.name": ("NVIDIA L40S",), "gpu.capability": ("8.9",)}
OFFERS = {"capabilities": [{"name": "bf16", "gate": "bf16"}, {"name": "fp8", "gate": "fp8_scaled_mm"}]}


@pytest.mark.parametrize("word", ["bf16", "BF16", "bfloat16"])
def test_bf16_on_a_v100_is_emulated(word):
    found = judged("CAP001", V100 | {"job.wants": (word,)})
    assert found.severity == "error"
    assert found.says == "bf16 is only emulated on the GPU (Tesla V100-SXM2-16GB, 7.0)"


def test_not_asked_for_it_is_information_where_the_framework_offers_it():
    assert judged("CAP001", V100, contract(**OFFERS)).severity == "info"
    assert judged("CAP001", V100) is None
    assert judged("CAP001", A100 | {"job.wants": ("bf16",)}, contract(**OFFERS)) is None
    assert judged("CAP001", V100 | {"job.wants": ("fp16",)}) is None


def test_unseen_gpus_hold_nothing_back_unless_asked():
    assert judged("CAP001", V100, contract(**OFFERS), gpu_capability="gone") is None
    assert isinstance(judged("CAP001", V100 | {"job.wants": ("bf16",)}, gpu_capability="gone"), UnknownFactError)


def test_of_mixed_gpus_the_old_one_is_named():
    mixed = H100 | several(2) | {"gpu.name": ("NVIDIA H100", "Tesla T4"), "gpu.capability": ("9.0", "7.5")}
    found = judged("CAP001", mixed | {"job.wants": ("bf16",)})
    assert found.says == "bf16 is only emulated on GPU 1 (Tesla T4, 7.5)"


def test_fp8_begins_with_ada():
    asked = {"job.wants": ("fp8",)}
    assert judged("CAP002", A100 | asked).severity == "error"
    assert judged("CAP002", ADA | asked) is None
    assert judged("CAP002", A100, contract(**OFFERS)).severity == "info"


def test_a_contract_may_ask_for_more():
    agreed = contract(need("gpu.capability", ">=9.0", when="wants=fp8,platform=cuda"), **OFFERS)
    found = judged("CAP002", ADA | {"job.wants": ("fp8",)}, agreed)
    assert found.severity == "error" and "9.0 or newer" in found.fix[1].does and len(found.needs) == 2
    assert judged("CAP002", ADA, agreed).severity == "info"
    assert judged("CAP002", H100 | {"job.wants": ("fp8",)}, agreed) is None


def test_a_framework_that_goes_on_without_it_is_not_stopped():
    """vLLM keeps the weights in fp8 below 8.9, accelerate computes in fp16: both only recommend such GPUs."""
    asked, floor = A100 | {"job.wants": ("fp8",)}, need("gpu.capability", ">=8.9", when="wants=fp8")
    assert judged("CAP002", asked, contract(floor | {"level": "recommended"}, **OFFERS)).severity == "warning"
    assert judged("CAP002", asked, contract(floor, **OFFERS)).severity == "error"


def test_no_gpu_lacks_nothing():
    nothing = H100 | {"gpu.count": 0, "gpu.visible": (), "job.wants": ("bf16", "fp8")}
    assert judged("CAP001", nothing) is None and judged("CAP002", nothing) is None
