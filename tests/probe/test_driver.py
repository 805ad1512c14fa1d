"""The driver's two halves."""

from __future__ import annotations

import pytest

from gpuready.probe import driver, gpu
from gpuready.system import AccessError
from tests.probe.fakes import BARE, Fake, by_key
from tests.probe.samples import answer, bus, machine, record

LIB = {"libcuda.so.1": "/usr/lib/x86_64-linux-gnu/libcuda.so.1"}


def look(**requested):
    return by_key(gpu.probe_gpus(Fake(**requested)))


def test_an_open_driver():
    links = {"/usr/lib/x86_64-linux-gnu/libcuda.so.1": "libcuda.so.580.95.05"}
    facts = look(files=machine(1), nvml=answer(record()), libraries=LIB, links=links)
    assert facts["driver.version"].value == "580.95.05"
    assert facts["driver.version"].source == "/sys/module/nvidia/version"
    assert facts["driver.kind"].value == "open"
    assert facts["driver.library"].value == "580.95.05"
    assert facts["driver.library"].source.endswith("libcuda.so.580.95.05")
    assert facts["driver.cuda"].value == "13.0"
    assert facts["driver.compat"].value is facts["driver.stub"].value is facts["driver.error"].value is None
    assert facts["libcuda.path"].value == LIB["libcuda.so.1"]


def test_the_banner_of_the_module_is_the_second_place():
    files = {k: v for k, v in machine(1, "535.104.05", "x86_64 Kernel Module").items() if "/sys/module" not in k}
    facts = look(files=files, nvml=answer(record()))
    assert facts["driver.version"].value == "535.104.05"
    assert facts["driver.version"].source == "/proc/driver/nvidia/version"
    assert facts["driver.kind"].value == "proprietary"


def test_nvml_is_the_third_place():
    facts = look(files=bus(1) | {"/dev/nvidia0": ""}, nvml=answer(record(), driver="550.54.15"))
    assert facts["driver.version"].value == "550.54.15"
    assert facts["driver.version"].source == "NVML"
    assert facts["driver.kind"].gap


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\n", "535.104.05"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build\n", "580.159.04"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  560.35.03  Release Build\n", "560.35.03"),
        ("GCC version:  gcc version 12.3.0 (Ubuntu 12.3.0-1ubuntu1~22.04)\n", None),
        ("", None),
    ],
)
def test_the_banner(text, version):
    assert driver.parse_proc_driver_version(text) == version


@pytest.mark.parametrize(
    ("path", "version"),
    [
        ("/lib/libcuda.so.580.95.05", "580.95.05"),
        ("/usr/local/cuda-12.8/compat/libcuda.so.570.133.20", "570.133.20"),
        ("/usr/lib/wsl/lib/libcuda.so.1.1", None),
        ("/usr/lib/aarch64-linux-gnu/nvidia/libcuda.so.1.1", None),
        ("/lib/libcuda.so.1", None),
        ("/lib/libcuda.so", None),
        ("/lib/libcuda.so.580.95.05.bak", None),
    ],
)
def test_the_version_in_a_name(path, version):
    assert driver.parse_libcuda_version(path) == version


def test_a_forward_compatible_library():
    """D24: the one that is loaded, with its path."""
    links = {"/usr/local/cuda/compat/libcuda.so.1": "libcuda.so.580.65.06"}
    facts = look(files=machine(1, "550.54.15"), nvml=answer(record()),
                 libraries={"libcuda.so.1": "/usr/local/cuda/compat/libcuda.so.1"}, links=links)  # fmt: skip
    assert facts["driver.compat"].value == "/usr/local/cuda/compat/libcuda.so.580.65.06"
    assert (facts["driver.version"].value, facts["driver.library"].value) == ("550.54.15", "580.65.06")


def test_a_stub():
    """C12: found before the driver's own library."""
    path = "/usr/local/cuda/lib64/stubs/libcuda.so.1"
    facts = look(files=machine(1), nvml=answer(record()), libraries={"libcuda.so.1": path})
    assert facts["driver.stub"].value == path
    assert facts["driver.library"].gap


def test_wsl():
    """D47: no module, no /proc/driver/nvidia; Windows lends the driver."""
    files = {**BARE, "/dev/dxg": "", "/proc/version": "Linux version 5.15.167.4-microsoft-standard-WSL2"}
    path = "/usr/lib/wsl/lib/libcuda.so.1"
    facts = look(files=files, nvml=answer(record(), driver="566.36", cuda="12.7"),
                 libraries={"libcuda.so.1": path}, links={path: "libcuda.so.1.1"})  # fmt: skip
    assert facts["driver.wsl"].value is True
    assert facts["driver.version"].value == "566.36"
    assert facts["driver.cuda"].value == "12.7"
    assert facts["driver.library"].gap
    assert facts["gpu.count"].value == 1


def test_a_container_without_its_devices():
    """The host's module shows through, the libraries and the nodes do not."""
    files = {k: v for k, v in machine(8).items() if not k.startswith("/dev/nvidia")}
    facts = look(files=files)
    assert facts["gpu.count"].gap.startswith("libnvidia-ml.so.1 not found; nvidia-smi is not on the")
    assert facts["gpu.nodes"].value == ()
    assert facts["driver.version"].value == "580.95.05"
    assert facts["driver.error"].value == 12
    assert facts["driver.library"].value is None and not facts["driver.library"].gap


def test_nodes_that_nobody_may_open():
    """D20, D21: the permissions are in the evidence."""
    facts = look(files=machine(1), modes={"/dev/nvidiactl": 0o000}, nvml={"error": 999, "says": "Unknown Error"})
    node = next(n for n in facts["gpu.nodes"].value if n["path"] == "/dev/nvidiactl")
    assert node["mode"] == "0000"
    assert (facts["driver.error"].value, facts["driver.says"].value) == (999, "Unknown Error")


def test_a_driver_that_is_not_loaded():
    """D14."""
    facts = look(files=bus(1), nvml={"error": 9, "says": "Driver Not Loaded"})
    assert facts["driver.error"].value == 9
    assert facts["driver.version"].value is None and not facts["driver.version"].gap
    assert facts["gpu.count"].gap.startswith("Driver Not Loaded")


def test_packages_of_a_driver_without_a_card():
    """D22: the libraries are there, the hardware is not."""
    facts = look(libraries=LIB, links={LIB["libcuda.so.1"]: "libcuda.so.580.95.05"})
    assert facts["gpu.count"].value == 0
    assert facts["driver.version"].value is None and not facts["driver.version"].gap
    assert facts["driver.library"].value == "580.95.05"


def test_a_loader_that_cannot_be_asked():
    class Dark(Fake):
        def _library(self, name):
            return AccessError("not recorded")

        def _libraries(self, prefix):
            return AccessError("not recorded")

    facts = by_key(gpu.probe_gpus(Dark()))
    assert facts["driver.library"].gap == facts["libcudart.path"].gap == "not recorded"


@pytest.mark.parametrize("raw", ["12.4", 12040])
def test_cuda_as_text_or_as_number(raw):
    assert look(files=machine(1), nvml=answer(record(), cuda=raw))["driver.cuda"].value == "12.4"


def test_cuda_that_the_driver_will_not_tell():
    assert (
        look(files=machine(1), nvml=answer(record(), cuda={"gap": "Not Supported"}))["driver.cuda"].gap
        == "Not Supported"
    )


@pytest.mark.parametrize("missing", ["/sys", "/dev"])
def test_folders_that_cannot_be_seen(missing):
    """D43, D44: what cannot be seen is no proof of absence."""
    files = {k: v for k, v in BARE.items() if not k.startswith(missing)}
    blocked = {"/sys": "/sys/bus/pci/devices/", "/dev": "/dev/"}[missing]
    facts = look(files=files | {blocked: AccessError("permission denied")})
    assert "permission denied" in facts["gpu.count"].gap
    assert facts["platform.name"].gap


def test_no_sys_at_all():
    facts = look(files={"/dev/null": ""})
    assert facts["gpu.count"].gap == "there is no /sys/bus/pci/devices here"
    assert facts["gpu.pci_count"].gap


def test_no_sys_but_a_node():
    """gVisor shows /dev/nvidia0 and no PCI bus: NVML is still asked."""
    facts = look(files={"/dev/nvidia0": ""}, nvml=answer(record()))
    assert facts["gpu.count"].value == 1
    assert facts["gpu.pci_count"].gap


def test_jetson():
    facts = look(files={**BARE, "/etc/nv_tegra_release": "# R36 (release)"})
    assert facts["gpu.count"].gap
    assert facts["platform.name"].value == "cuda"
