"""The driver: with torch, with its own library, with the framework, and silent."""

from __future__ import annotations

import pytest

from gpuready import rules
from gpuready.model import Fact, Finding, UnknownFactError
from tests.rules.worlds import H100, contract, facts, judged, need, outcome

# -- DRV001 -------------------------------------------------------------------------------------------


def pair(driver, cuda, **more):
    return H100 | {"driver.version": driver, "driver.library": driver, "torch.cuda": cuda} | more


@pytest.mark.parametrize(
    "driver, cuda",
    [("535.104.05", "12.8"), ("525.60.13", "12.9"), ("580.65.06", "13.2"), ("610.10", "11.8"), ("450.80.02", "11.8")],
)
def test_minor_version_compatibility_is_no_conflict(driver, cuda):
    assert judged("DRV001", pair(driver, cuda)) is None


@pytest.mark.parametrize("driver, cuda", [("550.144.03", "13.0"), ("470.256.02", "12.1"), ("575.51.03", "13.2")])
def test_below_the_floor_of_the_major(driver, cuda):
    found = judged("DRV001", pair(driver, cuda))
    assert found.severity == "error" and found.needs[0].key == "driver.version" and found.needs[0].cite


def test_the_fix_is_a_build_for_an_older_cuda_or_a_newer_driver():
    found = judged("DRV001", pair("550.144.03", "13.0", **{"package.torch": "2.12.1+cu130"}))
    assert found.fix[0].does == "install torch 2.12.1 built for cu126"
    assert found.fix[1].does == "install driver 580.65.06 or newer and reboot" and found.fix[1].note == "needs root"


def test_no_build_is_proposed_where_the_contract_takes_none():
    agreed = contract(need("torch.cuda", ">=13.0"))
    assert judged("DRV001", pair("550.144.03", "13.0"), agreed).fix[0].note == "needs root"


def test_cuda_compat_counts():
    compat = {"driver.compat": "/usr/local/cuda/compat/libcuda.so.1"}
    assert judged("DRV001", pair("535.104.05", "13.0", **compat)) is None


def test_a_cuda_that_the_catalogue_does_not_know_is_unknown():
    assert isinstance(judged("DRV001", pair("580.95.05", "29.0")), UnknownFactError)


@pytest.mark.parametrize("values", [{"gpu.count": 0}, {"torch.cuda": None}, {"driver.version": None}])
def test_nothing_to_compare(values):
    assert judged("DRV001", H100 | values) is None


@pytest.mark.parametrize("key", ["gpu_count", "torch_cuda", "driver_version"])
def test_a_half_that_nobody_saw(key):
    assert isinstance(judged("DRV001", H100, **{key: "denied"}), UnknownFactError)


# -- DRV002 -------------------------------------------------------------------------------------------


def test_error_18_is_proof_enough():
    found = judged("DRV002", H100 | {"driver.error": 18}, driver_library="unreadable", driver_version="no file")
    assert isinstance(found, Finding)


def test_leading_zeros_do_not_make_a_difference():
    assert judged("DRV002", H100 | {"driver.version": "580.95.05", "driver.library": "580.95.5"}) is None


def test_a_compat_libcuda_and_wsl_differ_on_purpose():
    differ = H100 | {"driver.version": "535.104.05", "driver.library": "580.65.06"}
    assert isinstance(judged("DRV002", differ), Finding)
    assert judged("DRV002", differ | {"driver.compat": "/usr/local/cuda/compat/libcuda.so"}) is None
    assert judged("DRV002", differ | {"driver.wsl": True}) is None


def test_an_nvml_that_answers_settles_a_library_without_a_version_in_its_name():
    assert judged("DRV002", H100, driver_library="its name carries no version") is None
    silent = judged("DRV002", H100, driver_library="no version", gpu_count="NVML hung")
    assert isinstance(silent, UnknownFactError)


def test_in_a_container_the_image_is_at_fault():
    differ = H100 | {"driver.version": "535.104.05", "driver.library": "550.54.14"}
    assert "image" in judged("DRV002", differ | {"os.container": "docker"}).fix[0].does
    assert "reboot" in judged("DRV002", differ).fix[0].does


def test_no_driver_or_no_library_is_told_elsewhere():
    assert judged("DRV002", H100 | {"driver.version": None}) is None
    assert judged("DRV002", H100 | {"driver.library": None}) is None


# -- DRV003 -------------------------------------------------------------------------------------------


def test_a_driver_floor_by_level():
    old = H100 | {"driver.version": "470.256.02"}
    assert judged("DRV003", old) is None
    assert judged("DRV003", old, contract(need("driver.version", ">=525"))).severity == "error"
    softer = contract(need("driver.version", ">=525", level="recommended"))
    assert judged("DRV003", old, softer).severity == "warning"
    assert judged("DRV003", H100 | {"driver.version": None}, contract(need("driver.version", ">=525"))) is None


def test_a_driver_need_under_a_condition():
    agreed = contract(need("driver.version", ">=550.40.07", when="gpus>1"))
    old = H100 | {"driver.version": "535.104.05"}
    assert judged("DRV003", old, agreed) is None
    assert isinstance(judged("DRV003", old | {"gpu.count": 2}, agreed), Finding)


# -- DRV004 -------------------------------------------------------------------------------------------

SILENT = {
    "driver.error": None,
    "driver.says": None,
    "driver.version": "580.95.05",
    "gpu.pci_count": 1,
    "gpu.nodes": H100["gpu.nodes"],
    "libcuda.path": "/usr/lib/libcuda.so.1",
    "os.container": None,
}


def test_a_card_on_the_bus_and_no_module():
    found = judged("DRV004", SILENT | {"driver.version": None, "gpu.nodes": ()})
    assert found.says == "the driver does not answer: no kernel module is loaded"
    assert found.fix[0].note == "needs root"


def test_a_container_without_devices():
    found = judged("DRV004", SILENT | {"gpu.nodes": (), "os.container": "docker", "driver.error": 12})
    assert "container has no GPU devices" in found.says and "--gpus all" in found.fix[0].does


def test_a_driver_that_is_only_supposed_is_taken_to_answer():
    silent = facts(SILENT | {"gpu.nodes": (), "os.container": "docker", "driver.error": 12})
    stated = silent.with_facts(Fact("driver.version", "580.95.05", "--driver", "stated"))
    assert [outcome(rules.load_rule("DRV004"), one, contract()) is None for one in (silent, stated)] == [False, True]


def test_devices_without_libraries():
    bare = SILENT | {"driver.error": 12, "libcuda.path": None}
    assert "libraries are not installed" in judged("DRV004", bare).says
    assert "in the container" in judged("DRV004", bare | {"os.container": "podman"}).says


def test_nvml_missing_alone_does_no_harm():
    assert judged("DRV004", SILENT | {"driver.error": 12}) is None


def test_permission_and_unknown_errors():
    assert "no permission" in judged("DRV004", SILENT | {"driver.error": 4}).says
    lost = judged("DRV004", SILENT | {"driver.error": 999, "os.container": "docker"})
    assert "NVML error 999" in lost.says and "restart the container" in lost.fix[0].does
    assert "dmesg" in judged("DRV004", SILENT | {"driver.error": 999}).fix[0].does


def test_a_mismatch_is_told_by_the_other_rule():
    assert judged("DRV004", SILENT | {"driver.error": 18}) is None


def test_a_machine_without_any_sign_is_told_by_gpu001():
    nothing = SILENT | {"gpu.pci_count": 0, "gpu.nodes": (), "driver.version": None, "libcuda.path": None}
    assert judged("DRV004", nothing) is None


def test_the_driver_of_a_whole_machine_is_well():
    assert judged("DRV004", H100) is None and judged("DRV005", H100) is None


# -- DRV005 -------------------------------------------------------------------------------------------


def test_the_folder_of_the_stub_is_named():
    found = judged("DRV005", H100 | {"driver.stub": "/usr/local/cuda/lib64/stubs/libcuda.so.1"})
    assert found.fix[0].does == "remove /usr/local/cuda/lib64/stubs from LD_LIBRARY_PATH"
