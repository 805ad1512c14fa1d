"""InfiniBand, NVLink and the path between GPUs."""

from __future__ import annotations

import pytest

from gpuready.model import Finding, UnknownFactError
from tests.rules.networks import APART, TRAINER, cards
from tests.rules.worlds import contract, env, judged

# -- NET004 -------------------------------------------------------------------------------------------


def ports(*states, layer="InfiniBand"):
    return {"net.ib": {f"mlx5_{i}/1": {"state": s, "link_layer": layer} for i, s in enumerate(states)}}


def test_ports_of_infiniband():
    found = judged("NET004", APART | ports("init", "down"))
    assert found.severity == "warning" and found.says.startswith("no port of InfiniBand is active")
    some = judged("NET004", APART | ports("active", "down"))
    assert some.says == "not every port of InfiniBand is active: mlx5_1/1 (down)"
    assert judged("NET004", env() | ports("down")).severity == "info", "spare, as far as one machine goes"


@pytest.mark.parametrize("values", [ports("active"), ports("down", layer="Ethernet"), ports(), ports(None)])
def test_ports_that_are_no_case(values):
    assert judged("NET004", APART | values) is None


# -- NET005 -------------------------------------------------------------------------------------------

COPIES = APART | ports("active") | {"net.peermem": False, "os.kernel": "5.4.0", "driver.kind": "open", "gpu.count": 8}


@pytest.mark.parametrize(
    "values, reported",
    [
        ({}, True),
        ({"os.kernel": "6.8.0"}, False),
        ({"os.kernel": "6.8.0", "driver.kind": "proprietary"}, True),
        ({"os.kernel": "5.12.0"}, False),
        ({"net.peermem": True}, False),
        ({"gpu.count": 0}, False),
        (ports("down"), False),
        ({"job.wants": ()} | env(), False),
    ],
)
def test_the_path_from_card_to_gpu(values, reported):
    found = judged("NET005", COPIES | values)
    assert (found.severity if found else None) == ("warning" if reported else None)


def test_an_unknown_path():
    assert isinstance(judged("NET005", COPIES, net_peermem="no /sys"), UnknownFactError)
    assert judged("NET005", COPIES, contract(platforms=["rocm"])) is None


# -- NET010 -------------------------------------------------------------------------------------------


def test_nvlink_that_is_switched_off():
    linked = cards(2, **{"gpu.nvlink": (18, 18)})
    found = judged("NET010", linked | env(NCCL_P2P_DISABLE="1"))
    assert found.severity == "warning" and found.says.endswith("NVLink")
    assert judged("NET010", linked | env(NCCL_P2P_DISABLE="0")) is None
    assert judged("NET010", linked | {"gpu.visible": (0,)} | env(NCCL_P2P_DISABLE="1")) is None
    assert judged("NET010", cards(2, **{"gpu.nvlink": (0, 0)}) | env(NCCL_P2P_DISABLE="1")) is None


def test_cards_that_have_no_nvlink_or_do_not_tell():
    two = cards(2) | env(NCCL_P2P_DISABLE="1")
    assert judged("NET010", two, gpu_nvlink="GPU 0: not supported; GPU 1: not supported") is None
    assert isinstance(judged("NET010", two, gpu_nvlink="no permission"), UnknownFactError)


def test_infiniband_that_is_switched_off():
    wide = cards(2) | APART | ports("active") | env(NCCL_IB_DISABLE="1")
    assert judged("NET010", wide).says.endswith("InfiniBand")
    assert judged("NET010", wide | {"job.wants": ()}) is None
    assert judged("NET010", wide | ports("down")) is None
    assert judged("NET010", wide | ports("active", layer="Ethernet")) is None
    both = wide | {"gpu.nvlink": (18, 18)} | env(NCCL_IB_DISABLE="1", NCCL_P2P_DISABLE="1")
    assert judged("NET010", both).says.endswith("NVLink and InfiniBand")


# -- NET011 -------------------------------------------------------------------------------------------

ADA = cards(2, "NVIDIA GeForce RTX 4090", **{"driver.version": "535.104.05"}) | env()


def test_several_rtx_40_with_an_old_driver():
    found = judged("NET011", ADA, TRAINER)
    assert found.severity == "warning" and "535.104.05" in found.says
    assert judged("NET011", ADA | env(LOCAL_RANK="0"), TRAINER).severity == "error"
    assert judged("NET011", ADA, contract(framework="colossalai")) is None


@pytest.mark.parametrize(
    "values",
    [
        {"driver.version": "550.40.07"},
        {"driver.version": "580.95.05"},
        {"driver.version": None},
        {"gpu.count": 1, "gpu.visible": (0,), "gpu.name": ("NVIDIA GeForce RTX 4090",)},
        {"gpu.name": ("NVIDIA GeForce RTX 3090",) * 2},
        env(NCCL_P2P_DISABLE="1", NCCL_IB_DISABLE="1"),
    ],
)
def test_rtx_40_that_accelerate_takes(values):
    assert judged("NET011", ADA | values, TRAINER) is None


def test_one_switch_is_not_enough():
    assert isinstance(judged("NET011", ADA | env(NCCL_P2P_DISABLE="1"), TRAINER), Finding)
