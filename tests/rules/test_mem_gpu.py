"""The memory of the GPUs: what a job takes of it, and what others hold."""

from __future__ import annotations

import pytest

from gpuready.model import Finding, UnknownFactError
from tests.rules.worlds import GB, GIB, H100, contract, judged, need, several

# -- MEM001 -------------------------------------------------------------------------------------------


def job(parameters, *wants, **more):
    return H100 | {"job.parameters": parameters, "job.wants": wants, "job.device_map": None} | more


@pytest.mark.parametrize(
    "parameters, wants, fits",
    [
        (70e9, ("bf16",), False),
        (70e9, ("fp16",), False),
        (70e9, ("8bit",), True),
        (70e9, ("qlora", "bf16"), True),
        (30e9, ("fp32",), False),
        (30e9, ("bf16",), True),
        (40e9, (), True),
        (45e9, (), False),
        (400e9, ("4bit",), False),
        (300e9, ("2bit",), True),
        (400e9, ("gptq",), True),
    ],
)
def test_weights_alone_against_80_gb(parameters, wants, fits):
    found = judged("MEM001", job(int(parameters), *wants))
    assert (found is None) is fits
    if found:
        assert found.severity == "error" and found.needs[0].key == "gpu.memory"


def test_fp16_and_bf16_take_the_same_bytes():
    needs = [judged("MEM001", job(70 * GB, precision)).needs[0].want for precision in ("fp16", "bf16")]
    assert needs == [">=140.0GB"] * 2


def test_all_gpus_together_count_and_no_more_than_are_asked_for():
    assert judged("MEM001", job(70 * GB, "bf16") | several(2)) is None
    assert isinstance(judged("MEM001", job(70 * GB, "bf16", **{"job.gpus": 1}) | several(2)), Finding)


def test_weights_that_may_lie_elsewhere():
    assert judged("MEM001", job(70 * GB, "bf16", "cpu-offload")) is None
    assert judged("MEM001", job(70 * GB, "bf16", **{"job.device_map": "auto"})) is None
    assert judged("MEM001", job(70 * GB, "bf16", **{"job.gpus": 16})) is None


def test_a_floor_is_information_until_the_job_is_stated():
    agreed = contract(need("gpu.memory", ">=16GB"))
    small = several(1, 8 * GIB)
    assert judged("MEM001", H100 | small, agreed).severity == "info"
    assert judged("MEM001", job(GB, "bf16") | small, agreed).severity == "error"
    assert judged("MEM001", H100 | several(1, 24 * GIB), agreed) is None


@pytest.mark.parametrize("level, severity", [("required", "error"), ("recommended", "warning")])
def test_a_floor_for_a_class_of_models(level, severity):
    agreed = contract(need("gpu.memory", ">=24GB", when="model>=7b", level=level))
    small = several(1, 16 * GIB)
    assert judged("MEM001", job(7 * GB, "4bit") | small, agreed).severity == severity
    assert judged("MEM001", job(3 * GB, "4bit") | small, agreed) is None
    assert judged("MEM001", H100 | small, agreed) is None


@pytest.mark.parametrize("mib", [16384, 16160, 15360, 15109])
def test_a_card_counts_by_the_number_on_its_box(mib):
    """A T4 is sold with 16 GB and shows 15109 MiB where ECC is on."""
    agreed = contract(need("gpu.memory", ">=16GB", when="model>=7b"))
    assert judged("MEM001", job(7 * GB, "4bit") | several(1, mib << 20), agreed) is None


def test_unseen_memory():
    assert isinstance(judged("MEM001", job(7 * GB, "bf16"), gpu_memory="not supported"), UnknownFactError)
    assert judged("MEM001", H100, contract(need("gpu.memory", ">=16GB")), gpu_memory="not supported") is None


def test_nothing_stated_and_nothing_asked():
    assert judged("MEM001", {}) is None


# -- MEM002 -------------------------------------------------------------------------------------------

TOTAL = H100["gpu.memory"][0]


def held(used, *rows, **more):
    return H100 | {"gpu.free": (TOTAL - used,), "gpu.processes": rows} | more


def row(pid, used, gpu=0, user="ada", command="python train.py"):
    return {"gpu": gpu, "pid": pid, "used": used, "user": user, "command": command}


def test_a_holder_is_named():
    found = judged("MEM002", held(40 * GIB, row(4711, 39 * GIB)))
    assert found.severity == "warning" and "40.0 GiB" in found.says
    assert "process 4711 of ada (python train.py) on GPU 0, 39936 MiB" in found.so


def test_a_holder_that_cannot_be_seen():
    assert "40960 MiB used by processes not visible here" in judged("MEM002", held(40 * GIB)).so
    shared = judged("MEM002", held(40 * GIB, row(4711, 10 * GIB))).so
    assert "process 4711" in shared and "30720 MiB used by processes not visible here" in shared
    nameless = judged("MEM002", held(40 * GIB, row(4711, None, user=None, command=None))).so
    assert "process 4711 on GPU 0" in nameless and "not visible" not in nameless
    unseen = judged("MEM002", held(40 * GIB), gpu_processes="no permission").so
    assert "not visible here" in unseen


@pytest.mark.parametrize("used", [0, 600 << 20, GIB, 4 * GB])
def test_what_the_driver_keeps_is_nobodys(used):
    assert judged("MEM002", held(used)) is None


def test_a_small_card_with_a_desktop():
    small = several(1, 8 * GIB, free=7 * GIB + (200 << 20))
    assert judged("MEM002", H100 | small) is None
    assert isinstance(judged("MEM002", H100 | several(1, 8 * GIB, free=6 * GIB)), Finding)


def test_an_error_where_the_stated_model_no_longer_fits():
    values = held(60 * GIB, row(1, 60 * GIB)) | {"job.parameters": 30 * GB, "job.wants": ("bf16",)}
    found = judged("MEM002", values)
    assert found.severity == "error" and found.needs[0].want == ">=60.0GB"
    assert judged("MEM002", values | {"job.parameters": 7 * GB}).severity == "warning"
    assert judged("MEM002", values | {"job.parameters": 70 * GB}).severity == "warning", "MEM001 tells that"
    assert judged("MEM002", values | {"job.device_map": "auto"}).severity == "warning"


def test_an_empty_gpu_is_proposed():
    two = several(2) | {"gpu.free": (TOTAL, GIB), "gpu.uuid": ("GPU-a", "GPU-b"), "gpu.processes": ()}
    found = judged("MEM002", H100 | two)
    assert "GPU 1 (GPU, " in found.says and found.fix[0].does.endswith("CUDA_VISIBLE_DEVICES=GPU-a")
    assert judged("MEM002", H100 | two | {"gpu.visible": (0,)}) is None
