"""Shared memory, disks, the system, and the contract's own needs."""

from __future__ import annotations

import pytest

from gpuready.model import UnknownFactError
from tests.rules.worlds import GB, GIB, H100, contract, judged, need

# -- SYS001 -------------------------------------------------------------------------------------------


def test_small_shared_memory_in_a_container_is_a_warning():
    found = judged("SYS001", H100 | {"os.container": "docker", "system.shm": 64 << 20})
    assert found.severity == "warning" and "--shm-size" in found.fix[0].does
    assert judged("SYS001", H100 | {"os.container": "docker", "system.shm": GIB}) is None


@pytest.mark.parametrize("container", [None, "none"])
def test_outside_containers_only_a_contract_asks(container):
    bare = H100 | {"os.container": container, "system.shm": 64 << 20}
    assert judged("SYS001", bare) is None
    assert judged("SYS001", bare, contract(need("system.shm", ">=10GB"))).severity == "error"


@pytest.mark.parametrize("container, way", [("kubernetes", "emptyDir"), ("podman", "--shm-size"), (None, "remount")])
def test_more_of_it_is_had_in_another_way_everywhere(container, way):
    small = H100 | {"os.container": container, "system.shm": 64 << 20}
    assert way in judged("SYS001", small, contract(need("system.shm", ">=10GB"))).fix[0].does


def test_a_contract_for_one_kind_of_container_leaves_the_usual_floor_to_others():
    agreed = contract(need("system.shm", ">=10GB", when="os.container=docker|podman", level="recommended"))
    small = H100 | {"system.shm": 2 * GIB}
    assert judged("SYS001", small | {"os.container": "podman"}, agreed).needs[0].want == ">=10GB"
    assert judged("SYS001", small | {"os.container": "kubernetes"}, agreed) is None
    tiny = H100 | {"os.container": "kubernetes", "system.shm": 64 << 20}
    assert judged("SYS001", tiny, agreed).needs[0].want == ">=1GiB"


def test_no_shared_memory_at_all_is_not_small():
    assert judged("SYS001", H100 | {"os.container": "docker", "system.shm": None}) is None


# -- SYS002 -------------------------------------------------------------------------------------------


def test_the_usual_floor_of_the_disk():
    assert judged("SYS002", H100 | {"disk.free": 9 * GB}).severity == "warning"
    assert judged("SYS002", H100 | {"disk.free": 11 * GB}) is None


@pytest.mark.parametrize("level, severity", [("required", "error"), ("recommended", "warning")])
def test_the_contracts_floor_of_the_disk(level, severity):
    agreed = contract(need("disk.free", ">=50GB", level=level))
    assert judged("SYS002", H100 | {"disk.free": 49 * GB}, agreed).severity == severity
    assert judged("SYS002", H100 | {"disk.free": 50 * GB}, agreed) is None


def test_an_unseen_disk():
    assert judged("SYS002", H100, disk_free="statvfs failed") is None
    required = contract(need("disk.free", ">=50GB"))
    assert isinstance(judged("SYS002", H100, required, disk_free="statvfs failed"), UnknownFactError)


# -- SYS003 -------------------------------------------------------------------------------------------


def test_windows_and_wsl():
    agreed = contract(need("os.system", "linux"))
    found = judged("SYS003", H100 | {"os.system": "windows"}, agreed)
    assert found.says == "demo does not run on windows" and "WSL" in found.fix[0].does
    assert judged("SYS003", H100 | {"os.system": "linux", "os.wsl": True}, agreed) is None


def test_alternatives_of_systems():
    agreed = contract(need("os.system", "linux|darwin"))
    assert judged("SYS003", {"os.system": "darwin", "gpu.count": 0}, agreed) is None
    assert judged("SYS003", H100 | {"os.system": "darwin"}, agreed).severity == "error", "no CUDA there"
    assert judged("SYS003", H100 | {"os.system": "windows"}) is None


# -- SYS004 -------------------------------------------------------------------------------------------


def test_every_other_need_is_judged():
    agreed = contract(
        need("os.arch", "x86_64"),
        need("os.kernel", ">=5.15", level="recommended"),
        need("torch.abi", "true"),
        need("gpu.count", ">=2"),
        need("disk.rotational", "false", level="recommended"),
    )
    poor = {"os.arch": "aarch64", "os.kernel": "5.4.0", "torch.abi": False, "disk.rotational": True}
    found = judged("SYS004", H100 | poor, agreed)
    assert found.severity == "error" and len(found.needs) == 5
    assert "os.kernel must be >= 5.15" in found.fix[0].does
    rich = {"gpu.count": 2, "gpu.visible": (0, 1), "os.kernel": "6.8.0-45-generic"}
    assert judged("SYS004", H100 | rich, agreed) is None


def test_what_follows_from_something_else_is_not_told_twice():
    agreed = contract(need("torch.abi", "true"), need("nccl.version", ">=99"), need("gpu.count", ">=1"))
    bare = {"torch.cuda": None, "torch.abi": None, "gpu.count": 0}
    assert judged("SYS004", H100 | bare, agreed) is None


def test_what_has_a_rule_of_its_own_is_left_to_it():
    agreed = contract(need("package.nothing", "*"), need("disk.free", ">=1TB"), need("gpu.memory", ">=1TB"))
    assert judged("SYS004", H100 | {"disk.free": 0}, agreed) is None
