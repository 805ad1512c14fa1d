"""The memory of the host, and what passes through it."""

from __future__ import annotations

import pytest

from gpuready.model import Finding, UnknownFactError
from tests.rules.worlds import H100, contract, judged

GB, GIB, TIB = 10**9, 1 << 30, 1 << 40


def job(parameters, *wants, **more):
    values = {"job.parameters": parameters, "job.wants": wants, "memory.limit": None, "memory.total": TIB}
    return H100 | values | more


@pytest.mark.parametrize(
    "wants, amount, reported",
    [
        (("bf16",), 64 * GIB, True),
        (("bf16",), 256 * GIB, False),
        (("fp32",), 256 * GIB, True),
        (("bnb-4bit",), 64 * GIB, False),
        (("bnb-4bit",), 24 * GIB, True),
        (("gptq",), GIB, False),
    ],
)
@pytest.mark.parametrize("key", ["memory.limit", "memory.total"])
def test_weights_against_the_memory_of_the_host(key, wants, amount, reported):
    found = judged("MEM003", job(70 * GB, *wants, **{key: amount}))
    assert (found is not None) is reported
    if reported:
        assert found.severity == "warning" and found.needs[0].key == key, "weights can be read piece by piece"


def test_the_limit_of_the_container_comes_first():
    found = judged("MEM003", job(70 * GB, "bf16", **{"memory.limit": 64 * GIB, "memory.total": 100 * GIB}))
    assert found.says == "the memory limit here is 69 GB, but the model's weights need 140 GB"
    machine = judged("MEM003", job(70 * GB, "bf16", **{"memory.total": 64 * GIB}))
    assert machine.says.startswith("the memory of this machine is 69 GB")


@pytest.mark.parametrize("more", [{"job.device_map": "auto"}, {"job.wants": ("bf16", "device-map")}])
def test_a_device_map_reads_piece_by_piece(more):
    assert judged("MEM003", job(70 * GB, "bf16", **{"memory.limit": GIB}) | more) is None


def test_a_model_that_was_not_stated():
    assert judged("MEM003", H100 | {"memory.limit": GIB, "job.wants": ("bf16",)}) is None


def test_what_cannot_be_seen():
    small = job(70 * GB, "bf16", **{"memory.limit": 64 * GIB})
    assert isinstance(judged("MEM003", small, memory_total="no /proc"), Finding), "the limit is proof enough"
    assert isinstance(judged("MEM003", job(70 * GB, "bf16"), memory_limit="no cgroup here"), UnknownFactError)
    assert isinstance(judged("MEM003", job(70 * GB, "bf16"), memory_total="no /proc"), UnknownFactError)


def test_nobody_looked_at_the_memory():
    stated = {"job.parameters": 70 * GB, "job.wants": ("bf16",)}
    assert judged("MEM003", stated) is None
    assert isinstance(judged("MEM003", stated | {"memory.total": GIB}), Finding), "as --ram states it"


def test_another_platform():
    assert judged("MEM003", job(70 * GB, "bf16", **{"memory.limit": GIB}), contract(platforms=["rocm"])) is None
