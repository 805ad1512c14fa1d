"""Machines of other vendors."""

from __future__ import annotations

from tests.machines.altered import DEVICE, FOLDER, Changes
from tests.machines.parts import PCI, environment, no_nvidia, on_arm, system
from tests.machines.stacks import STACK, cu130


def amd(target: int, count: int, torch: str, hip: str, rocm: str) -> Changes:
    nodes = "/sys/class/kfd/kfd/topology/nodes"
    made = Changes().file("/dev/kfd", DEVICE).file("/dev/dri", FOLDER).file("/sys/module/amdgpu/version", "6.14.14\n")
    made.file(f"{nodes}/0/properties", "gfx_target_version 0\n").file("/opt/rocm/.info/version", f"{rocm}-43\n")
    for index in range(1, count + 1):
        made.file(f"{nodes}/{index}/properties", f"gfx_target_version {target}\n")
        place = f"{PCI}/0000:{0x40 + index:02x}:00.0"
        made.file(f"{place}/vendor", "0x1002\n").file(f"{place}/class", "0x120000\n")
    return Changes(
        system("ubuntu22", memory=2048),
        no_nvidia(),
        made,
        environment(torch, None, hip=hip, pytorch_triton_rocm="3.7.1", **STACK),
    )


def mi250() -> Changes:
    """4 x MI250 (8 GCDs), ROCm 6.3."""
    return amd(90010, 8, "2.7.1+rocm6.3", "6.3.42131", "6.3.4")


def mi300x() -> Changes:
    """8 x MI300X, ROCm 7.0."""
    return amd(90402, 8, "2.13.0+rocm7.0", "7.0.51831", "7.0.2")


def mi300x_cuda_torch() -> Changes:
    """MI300X with a torch of CUDA."""
    made = amd(90402, 8, "2.13.0+cu130", "", "7.0.2")
    return Changes(made, cu130())


def intel() -> Changes:
    """An Intel Data Center GPU Max with Level Zero."""
    place = f"{PCI}/0000:29:00.0"
    made = (
        Changes()
        .file(f"{place}/vendor", "0x8086\n")
        .file(f"{place}/class", "0x038000\n")
        .file(f"{place}/device", "0x0bd5\n")
    )
    made.file(f"{place}/uevent", "DRIVER=i915\nPCI_CLASS=38000\n").file("/dev/dri/renderD128", DEVICE)
    made.say("/usr/lib/x86_64-linux-gnu/libze_intel_gpu.so.1", "library", "libze_intel_gpu.so.1")
    made.say(
        "/usr/lib/x86_64-linux-gnu/libze_intel_gpu.so.1.6.33578",
        "real",
        "/usr/lib/x86_64-linux-gnu/libze_intel_gpu.so.1",
    )
    return Changes(
        system("ubuntu22", memory=512),
        no_nvidia(),
        made,
        environment("2.13.0+xpu", None, xpu="20250302", pytorch_triton_xpu="3.7.1", **STACK),
    )


def ascend() -> Changes:
    """8 x Ascend 910B on aarch64, CANN 8.2."""
    made = (
        Changes().file("/dev/davinci_manager", DEVICE).file("/usr/local/Ascend/driver/version.info", "Version=25.2.0\n")
    )
    for index in range(8):
        made.file(f"/dev/davinci{index}", DEVICE)
        place = f"{PCI}/0000:{0xC0 + index:02x}:00.0"
        made.file(f"{place}/vendor", "0x19e5\n").file(f"{place}/class", "0x120000\n")
    made.file("/usr/local/Ascend/ascend-toolkit/latest/aarch64-linux/ascend_toolkit_install.info", "version=8.2.RC1\n")
    return on_arm(system("ubuntu22", "aarch64", memory=1536, cpus=192), no_nvidia(), made,
                   environment("2.7.1", None, torch_npu="2.7.1", **STACK))  # fmt: skip


def gaudi() -> Changes:
    """8 x Gaudi 3."""
    made = Changes().file("/sys/module/habanalabs/version", "1.22.1\n")
    for index in range(8):
        made.file(f"/dev/accel/accel{index}", DEVICE)
        place = f"{PCI}/0000:{0xA0 + index:02x}:00.0"
        made.file(f"{place}/vendor", "0x1da3\n").file(f"{place}/class", "0x120000\n")
    return Changes(
        system("ubuntu22", memory=1024),
        no_nvidia(),
        made,
        environment("2.7.1", None, habana_torch_plugin="1.22.1", **STACK),
    )


def moore_threads() -> Changes:
    """Two cards of Moore Threads."""
    made = Changes().file("/sys/module/mtgpu/version", "3.1.0\n").file("/usr/local/musa/lib/libmusart.so")
    for index in range(2):
        made.file(f"/dev/mtgpu.{index}", DEVICE)
        place = f"{PCI}/0000:{0x60 + index:02x}:00.0"
        made.file(f"{place}/vendor", "0x1ed5\n").file(f"{place}/class", "0x030000\n")
    return Changes(system("ubuntu22"), no_nvidia(), made, environment("2.5.0", None, torch_musa="2.1.0", **STACK))


def apple() -> Changes:
    """A Mac with M4: no Linux, no CUDA."""
    node = {
        "system": "Darwin",
        "release": "25.1.0",
        "version": "Darwin Kernel Version 25.1.0",
        "machine": "arm64",
        "node": "mac",
    }
    made = (
        Changes()
        .say(node, "uname")
        .say(None, "libc")
        .remove("/proc", "/sys", "/etc/os-release", "/usr/lib/os-release", "/dev/shm")
    )
    ran = {"argv": ["sysctl"], "rc": 0, "out": "Apple M4 Max\n", "err": "", "seconds": 0.01, "end": "", "cut": False}
    made.say(ran, "run", ["sysctl", "-n", "machdep.cpu.brand_string"], 3.0, 1 << 20, None)
    base = system("debian12", memory=64)
    for path in [path for path in base.files if path.startswith(("/proc", "/sys", "/etc/os", "/usr/lib/os"))]:
        base.files.pop(path)
    bus = no_nvidia()
    bus.files.clear()
    return Changes(base, bus, made, environment("2.13.0", None, **STACK))
