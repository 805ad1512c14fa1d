"""Accelerators of other vendors, from what their drivers make."""

from __future__ import annotations

import pytest

from gpuready.model import Fact
from gpuready.probe import accelerators, optional_probes
from gpuready.probe.accelerators import format_gfx_name
from gpuready.probe.device_detection import detect_devices
from gpuready.system import RunResult
from tests.probe.fakes import BARE, DENIED, Fake, by_key

PCI = "/sys/bus/pci/devices"
CANN = "/usr/local/Ascend/ascend-toolkit/latest"
KFD = "/sys/class/kfd/kfd/topology/nodes"
GAUDI = {f"{PCI}/0000:19:00.0/vendor": "0x1da3\n", f"{PCI}/0000:19:00.0/class": "0x120000\n"}
NONE = {"vendor": None, "count": 0, "name": None, "driver": None, "runtime": None}


def looked(files, **requested):
    """The facts by the last part of their keys, through the door that decides whether to look at all."""
    host = Fake(files, **requested)
    facts = optional_probes._accelerator_facts(host, detect_devices(host))
    assert tuple(f.key for f in facts) == accelerators.KEYS
    by_key(facts)
    return {f.key.partition(".")[2]: f for f in facts}


def values(files, **requested):
    return {name: fact.value for name, fact in looked(files, **requested).items()}


def test_a_machine_without_any():
    assert values(BARE) == NONE
    assert all(not fact.gap for fact in looked(BARE).values())


def test_nothing_is_loaded_where_there_is_none(monkeypatch):
    monkeypatch.setattr(accelerators, "probe_accelerators", lambda *_: pytest.fail("nobody asked for it"))
    assert values(BARE) == NONE


def test_a_machine_that_cannot_be_seen():
    assert "permission denied" in looked({f"{PCI}/": DENIED})["vendor"].gap


# -- AMD


@pytest.mark.parametrize(
    ("target", "name"),
    [
        (90402, "gfx942"),
        (90010, "gfx90a"),
        (90500, "gfx950"),
        (90008, "gfx908"),
        (110000, "gfx1100"),
        (110501, "gfx1151"),
        (120001, "gfx1201"),
        (100300, "gfx1030"),
    ],
)
def test_gfx_names(target, name):
    assert format_gfx_name(target) == name


def amd(*targets):
    text = "cpu_cores_count 0\nsimd_count 304\nvendor_id 4098\ngfx_target_version {}\ndevice_id 29857\n"
    nodes = {f"{KFD}/{n}/properties": text.format(target) for n, target in enumerate((0, *targets))}
    return BARE | nodes | {"/dev/kfd": "", "/dev/dri/renderD128": ""}


def test_amd():
    files = amd(90402, 90402) | {"/sys/module/amdgpu/version": "6.10.5\n", "/opt/rocm/.info/version": "6.4.1-83\n"}
    found = looked(files)
    assert {name: fact.value for name, fact in found.items()} == {
        "vendor": "amd",
        "count": 2,
        "name": ("gfx942", "gfx942"),
        "driver": "amdgpu 6.10.5",
        "runtime": "rocm 6.4.1",
    }
    assert found["driver"].source == "/sys/module/amdgpu/version"
    assert found["runtime"].source == "/opt/rocm/.info/version"
    assert found["name"].source == KFD


def test_amd_with_the_driver_of_the_kernel_and_no_rocm():
    found = values(amd(110000) | {"/sys/module/amdgpu/parameters/x": ""})
    assert (found["driver"], found["runtime"]) == ("amdgpu", None)


def test_amd_without_a_gpu_that_computes():
    assert values(amd())["count"] == 0


def test_amd_that_is_denied():
    files = amd(90402) | {f"{KFD}/1/properties": DENIED}
    assert looked(files)["count"].gap == "permission denied"


def test_properties_that_are_nonsense():
    assert values(amd("many") | {f"{KFD}/9/properties": "gfx_target_version\n"})["count"] == 0


# -- the others


def test_huawei():
    files = BARE | {"/dev/davinci0": "", "/dev/davinci1": "", "/dev/davinci_manager": ""} | {
        "/usr/local/Ascend/driver/version.info": "Version=25.0.rc1\nascendhal_version=7.35\n",
        f"{CANN}/x86_64-linux/ascend_toolkit_install.info": "version=8.1.RC1\n",
    }  # fmt: skip
    found = looked(files)
    assert (found["vendor"].value, found["count"].value) == ("huawei", 2)
    assert (found["driver"].value, found["runtime"].value) == ("25.0.rc1", "cann 8.1.RC1")
    assert found["name"].value is None and "npu-smi" in found["name"].gap


def test_huawei_with_its_toolkit_elsewhere():
    files = BARE | {"/dev/davinci0": "", "/opt/cann/x86_64-linux/ascend_toolkit_install.info": "version=9.0\n"}
    assert values(files, env={"ASCEND_TOOLKIT_HOME": "/opt/cann/"})["runtime"] == "cann 9.0"
    assert values(files)["runtime"] is None


def test_habana_by_the_bus():
    files = BARE | GAUDI | {"/sys/module/habanalabs/version": "1.17.0\n", "/dev/accel/accel0": ""}
    found = looked(files, libraries={"libhlml.so": "/usr/lib/habanalabs/libhlml.so"})
    assert (found["vendor"].value, found["count"].value) == ("habana", 1)
    assert found["driver"].value == "habanalabs 1.17.0"
    assert found["runtime"].value == "/usr/lib/habanalabs/libhlml.so"
    assert found["name"].gap


def test_habana_by_its_device_files_and_its_module():
    files = BARE | {f"/dev/hl{n}": "" for n in range(8)} | {"/dev/hl_controlD0": ""}
    assert values(files)["vendor"] is None, "the name alone proves nothing"
    found = values(files | {"/sys/module/habanalabs/parameters": ""})
    assert (found["vendor"], found["count"], found["driver"]) == ("habana", 8, "habanalabs")


def test_an_accel_folder_may_belong_to_anybody():
    assert values(BARE | {"/dev/accel/accel0": ""}) == NONE


def test_moore_threads():
    files = BARE | {"/dev/mtgpu.0": "", "/dev/mtgpu.1": "", "/usr/local/musa/bin/mcc": ""}
    found = values(files)
    assert (found["vendor"], found["count"], found["runtime"]) == ("mthreads", 2, "/usr/local/musa")


def intel(address, driver="xe", device="0x56c0"):
    words = {"vendor": "0x8086", "class": "0x038000", "device": device, "uevent": f"DRIVER={driver}"}
    return {f"{PCI}/{address}/{file}": f"{word}\n" for file, word in words.items()} | {"/dev/dri/card0": ""}


def test_an_intel_card():
    path = "/usr/lib/x86_64-linux-gnu/libze_intel_gpu.so.1"
    links = {path: "libze_intel_gpu.so.1.6.31294"}
    found = looked(intel("0000:4b:00.0"), libraries={"libze_intel_gpu.so.1": path}, links=links)
    assert {name: fact.value for name, fact in found.items()} == {
        "vendor": "intel",
        "count": 1,
        "name": ("8086:56c0",),
        "driver": "xe",
        "runtime": "level-zero 1.6.31294",
    }
    assert found["driver"].source == f"{PCI}/0000:4b:00.0/uevent"


def test_an_intel_card_without_its_runtime():
    found = values(intel("0000:4b:00.0", "i915"))
    assert (found["vendor"], found["runtime"]) == ("intel", None)


def test_the_graphics_of_a_processor_compute_only_with_level_zero():
    own = intel("0000:00:02.0", "i915", "0x46a6")
    assert values(own) == NONE
    assert values(own, libraries={"libze_intel_gpu.so.1": "/x/libze_intel_gpu.so.1"})["count"] == 1


@pytest.mark.parametrize("driver", ["vfio-pci", "", "nvidia"])
def test_an_intel_card_that_another_driver_has(driver):
    assert values(intel("0000:4b:00.0", driver)) == NONE


def test_an_intel_card_without_device_files():
    files = intel("0000:4b:00.0")
    del files["/dev/dri/card0"]
    assert values(files) == NONE


def mac(ran):
    uname = {"system": "Darwin", "machine": "arm64", "release": "24.0", "version": "", "node": "mac"}
    runs = {"sysctl -n machdep.cpu.brand_string": ran}
    return looked({"/dev/null": ""}, uname=uname, runs=runs)


def test_apple():
    found = mac("Apple M3 Max\n")
    assert (found["vendor"].value, found["count"].value, found["name"].value) == ("apple", 1, ("Apple M3 Max",))
    assert found["driver"].value == "metal"


def test_apple_that_does_not_say_its_name():
    found = mac(RunResult(("sysctl",), 1))
    assert found["count"].value == 1
    assert found["name"].value is None and found["name"].gap == "sysctl ended with 1"


def test_an_intel_mac_has_none():
    uname = {"system": "Darwin", "machine": "x86_64", "release": "", "version": "", "node": ""}
    assert values({"/dev/null": ""}, uname=uname) == NONE


# -- together with others


def test_nvidia_is_told_elsewhere():
    nvidia = {f"{PCI}/0000:1b:00.0/vendor": "0x10de\n", f"{PCI}/0000:1b:00.0/class": "0x030200\n"}
    assert values(nvidia | {"/dev/nvidia0": ""}) == NONE
    both = nvidia | {"/dev/nvidia0": ""} | amd(90402)
    assert values(both)["vendor"] == "amd"


def test_dev_that_cannot_be_listed():
    assert looked(GAUDI | {"/dev/": DENIED})["vendor"].gap == "permission denied"


def test_a_look_that_stumbles_loses_its_own_facts(monkeypatch):
    monkeypatch.setattr(accelerators, "probe_accelerators", lambda *_: 1 / 0)
    found = looked(GAUDI)
    assert "ZeroDivisionError" in found["vendor"].gap
    assert isinstance(found["count"], Fact) and found["count"].value is None


def test_a_driver_or_runtime_that_cannot_be_seen_is_a_gap_of_its_own():
    found = looked(amd(90402) | {"/sys/module/amdgpu": DENIED, "/opt/rocm/.info/version": DENIED})
    assert found["count"].value == 1
    assert found["driver"].gap == found["runtime"].gap == "permission denied"
    found = looked(BARE | GAUDI, libraries={"libhlml.so": DENIED})
    assert found["runtime"].gap == "permission denied" and found["count"].value == 1
    found = looked(BARE | {"/dev/davinci0": "", "/usr/local/Ascend/driver/version.info": DENIED})
    assert found["driver"].gap == "permission denied" and found["runtime"].gap == ""
