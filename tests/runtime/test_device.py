"""Devices and backends: which one a rank takes, on every platform. No test machine has them all: torch is a double here."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from gpuready.cluster import Rendezvous
from gpuready.runtime import device
from gpuready.runtime.device import DeviceUnavailable


class Module:
    """torch.cuda and its kin, as far as they are asked."""

    def __init__(self, count: int = 0, **more) -> None:
        self.count, self.current = count, None
        self.__dict__.update(more)

    def is_available(self) -> bool:
        return self.count > 0

    def device_count(self) -> int:
        return self.count

    def set_device(self, index: int) -> None:
        self.current = index

    def get_device_properties(self, index: int):
        return SimpleNamespace(uuid=f"GPU-{index}", name="x")


def torch(hip: str | None = None, mps: bool = False, built: str | None = None, **modules):
    found = SimpleNamespace(
        version=SimpleNamespace(hip=hip, cuda=built),
        backends=SimpleNamespace(mps=SimpleNamespace(is_available=lambda: mps)),
    )
    for name in (*device.DEVICE_ORDER, "cpu"):
        setattr(found, name, modules.get(name))
    return found


def at(rank: int, local: int | None = None, world: int = 8) -> Rendezvous:
    return Rendezvous(rank, world, local, address="a", port=1)


@pytest.mark.parametrize(
    ("found", "name", "backend", "taken"),
    [
        (torch(cuda=Module(8)), "cuda", "nccl", "cuda:3"),
        (torch(cuda=Module(8), hip="6.2"), "rocm", "nccl", "cuda:3"),
        (torch(npu=Module(8), cuda=Module(0)), "npu", "hccl", "npu:3"),
        (torch(xpu=Module(8)), "xpu", "xccl", "xpu:3"),
        (torch(hpu=Module(8)), "hpu", "hccl", "hpu:3"),
        (torch(mps=True), "mps", "gloo", "mps"),
        (torch(), "cpu", "gloo", "cpu"),
    ],
)
def test_every_platform(found, name, backend, taken):
    on = device.find_accelerator(found)
    assert on.platform.name == name and device.choose_backend(on, None, {}) == backend
    assert on.set_device(device.choose_device_index(on, at(3, 3), {})) == taken


def test_what_an_accelerator_tells():
    on = device.find_accelerator(torch(cuda=Module(2)))
    assert (on.device_count(), on.device_identity(1), on.device_name()) == (2, "GPU-1", "cuda")
    assert device.find_accelerator(torch()).device_identity(0) == ""


def test_a_card_without_a_uuid_is_told_by_its_place():
    module = Module(1)
    module.get_device_properties = lambda _: SimpleNamespace(pci_domain_id=0, pci_bus_id=3, pci_device_id=0)
    assert device.find_accelerator(torch(cuda=module)).device_identity(0) == "0:3:0"


@pytest.mark.parametrize(
    ("count", "local", "environ", "index"),
    [
        (8, 5, {}, 5),
        (2, 1, {"CUDA_VISIBLE_DEVICES": "6,7"}, 1),
        (1, 3, {"CUDA_VISIBLE_DEVICES": "3"}, 0),
        (1, 3, {"CUDA_VISIBLE_DEVICES": "GPU-8932f937"}, 0),
        (4, None, {}, 2),
    ],
)
def test_the_device_of_a_local_rank(count, local, environ, index):
    assert (
        device.choose_device_index(device.find_accelerator(torch(cuda=Module(count))), at(6, local), environ) == index
    )


@pytest.mark.parametrize(
    ("count", "local", "environ", "said", "code"),
    [
        (4, 4, {}, "local rank 4 needs device 4, and 4 are visible", "NET012"),
        (1, 1, {}, "local rank 1 needs device 1, and 1 is visible", "NET012"),
        (2, 3, {"CUDA_VISIBLE_DEVICES": "0,1"}, "(CUDA_VISIBLE_DEVICES='0,1')", "NET012"),
        (1, 0, {"CUDA_VISIBLE_DEVICES": "0,99"}, "names 2 devices, and 1 can be used", "GPU003"),
    ],
)
def test_no_device_for_a_local_rank(count, local, environ, said, code):
    with pytest.raises(DeviceUnavailable) as raised:
        device.choose_device_index(device.find_accelerator(torch(cuda=Module(count))), at(4, local), environ)
    assert said in str(raised.value) and raised.value.code == code and raised.value.fix


def test_a_device_that_is_asked_for():
    found = torch(cuda=Module(4), npu=Module(1))
    assert (
        device.find_accelerator(found, "npu").device_type == "npu"
        and device.find_accelerator(found, "cpu").device_type == "cpu"
    )
    assert device.choose_device_index(device.find_accelerator(found), at(0, 0), {}, "cuda:3") == 3
    with pytest.raises(DeviceUnavailable, match="'cuda:9' is asked for, and 4 are visible"):
        device.choose_device_index(device.find_accelerator(found), at(0, 0), {}, "cuda:9")
    with pytest.raises(DeviceUnavailable, match="torch has no xpu here"):
        device.find_accelerator(found, "xpu")


def test_a_gpu_that_is_named_in_vain_is_no_reason_for_the_cpu():
    for value in ("7", "GPU-0000", "3,4"):
        with pytest.raises(device.DeviceUnavailable, match="can use none of them"):
            device.note_hidden_devices(torch(built="12.8"), {"CUDA_VISIBLE_DEVICES": value})
    assert not device.note_hidden_devices(torch(built=None), {"CUDA_VISIBLE_DEVICES": "0"})


def test_all_devices_hidden_is_noted():
    assert "hides all GPUs" in device.note_hidden_devices(torch(built="12.8"), {"CUDA_VISIBLE_DEVICES": ""})
    assert "hides all GPUs" in device.note_hidden_devices(torch(built="12.8"), {"CUDA_VISIBLE_DEVICES": "-1"})
    assert not device.note_hidden_devices(torch(built="12.8"), {}) and not device.note_hidden_devices(
        torch(), {"CUDA_VISIBLE_DEVICES": ""}
    )


@pytest.mark.parametrize(
    ("asked", "backend"),
    [
        (None, "nccl"),
        ("gloo", "gloo"),
        ("composite", "cpu:gloo,cuda:nccl"),
        ("cpu:gloo,cuda:nccl", "cpu:gloo,cuda:nccl"),
    ],
)
def test_the_backend(asked, backend):
    assert (
        device.choose_backend(device.find_accelerator(torch(cuda=Module(1))), asked, {"nccl": True, "gloo": True})
        == backend
    )


def test_a_torch_that_lacks_a_backend():
    on = device.find_accelerator(torch(cuda=Module(1)))
    assert device.choose_backend(on, None, {"nccl": False}) == "gloo"
    for asked in ("nccl", "cpu:gloo,cuda:nccl", "tpu:gloo", ""):
        with pytest.raises(DeviceUnavailable, match="is not one that this torch has"):
            device.choose_backend(on, asked, {"nccl": False, "gloo": True})


@pytest.mark.parametrize(
    ("backend", "where", "part"),
    [
        ("nccl", "cuda:0", "nccl"),
        ("cpu:gloo,cuda:nccl", "cuda:1", "nccl"),
        ("cpu:gloo,cuda:nccl", "cpu", "gloo"),
        ("cpu:gloo", "cuda:0", ""),
    ],
)
def test_the_part_of_a_backend_for_a_device(backend, where, part):
    assert device.backend_of_device(backend, where) == part
