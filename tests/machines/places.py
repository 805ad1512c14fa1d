"""Where it runs: WSL, containers, distributions, small machines."""

from __future__ import annotations

from tests.machines.altered import DEVICE, FILE, Changes
from tests.machines.parts import (
    GIB,
    MIB,
    PCI,
    UNSAID,
    VENV,
    container,
    environment,
    gpu,
    gpus,
    no_nvidia,
    ram,
    space,
    system,
)
from tests.machines.stacks import STACK, cu126, cu128, cu130, several


def wsl2() -> Changes:
    """An RTX 4090 under WSL2: no bus, no module, /dev/dxg."""
    made = Changes().remove(PCI, "/sys/module/nvidia", "/proc/driver/nvidia", "/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm",
                            "/dev/nvidia-uvm-tools", "/dev/nvidia-caps", "/usr/local/nvidia")  # fmt: skip
    made.file("/dev/dxg", DEVICE).file("/usr/lib/wsl/lib/nvidia-smi", {**FILE, "mode": 0o755})
    made.file("/proc/version", "Linux version 6.6.87.2-microsoft-standard-WSL2 (gcc 11.2.0) #1 SMP\n")
    node = {
        "system": "Linux",
        "release": "6.6.87.2-microsoft-standard-WSL2",
        "version": "#1 SMP",
        "machine": "x86_64",
        "node": "desk",
    }
    made.say(node, "uname").say("/usr/lib/wsl/lib/libcuda.so.1", "library", "libcuda.so.1")
    made.say("/usr/lib/wsl/drivers/nv_dispi.inf_amd64/libcuda.so.1.1", "real", "/usr/lib/wsl/lib/libcuda.so.1")
    card = gpu("rtx4090", 0, persistence=True, power_limit=UNSAID)
    made.say(
        {"driver": "581.42", "cuda": "13.0", "library": "/usr/lib/wsl/lib/libnvidia-ml.so.1", "gpus": [card]}, "nvml"
    )
    return Changes(system("ubuntu24", memory=31, cpus=16), made, cu130())


def docker() -> Changes:
    """docker run without --shm-size: 64 MiB of shared memory."""
    return Changes(system("ubuntu22"), gpus(*several("h100", 8), driver="580.95.05"), container("docker"), cu130())


def podman() -> Changes:
    """podman with 16 GiB of /dev/shm and a limit of 32 GiB."""
    base = gpus(gpu("l40s", 0), driver="580.95.05")
    return Changes(system("rhel9"), base, container("podman", shm=16 * GIB, memory=32 * GIB, cpus=8), cu130())


def kubernetes() -> Changes:
    """A pod on control groups of version 1, 8 GiB for eight GPUs."""
    base = gpus(*several("a100-80", 8), driver="570.195.03", cuda="12.8")
    return Changes(system("ubuntu20"), base, container("kubernetes", memory=8 * GIB, v1=True, cpus=4), cu128())


def apptainer() -> Changes:
    """Apptainer on a cluster node: it shares the host's /dev/shm."""
    base = gpus(*several("a100-80", 4), driver="550.163.01", cuda="12.4")
    return Changes(system("rhel8"), base, container("singularity", shm=250 * GIB), cu126())


def gvisor() -> Changes:
    """A sandbox of gVisor with one GPU."""
    node = {
        "system": "Linux",
        "release": "4.4.0",
        "version": "#1 SMP Sun Jan 10 15:06:54 PST 2016",
        "machine": "x86_64",
        "node": "box",
    }
    box = (
        Changes().say(node, "uname").file("/proc/version", "Linux version 4.4.0 #1 SMP Sun Jan 10 15:06:54 PST 2016\n")
    )
    base = gpus(gpu("h100", 0), driver="580.95.05")
    for path in [
        path for path in base.files if path.startswith(("/sys", "/proc/driver"))
    ]:  # it shows neither bus nor module
        del base.files[path]
    box.remove("/sys/bus", "/sys/module", "/proc/driver")
    return Changes(system("ubuntu22"), base, container("docker", shm=8 * GIB), cu130(), box)


def ubuntu26() -> Changes:
    """Ubuntu 26.04 with Python 3.14 and gcc 15, driver 595."""
    return Changes(system("ubuntu26"), gpus(*several("h100-pcie", 2), driver="595.58.03", cuda="13.2"),
                   environment("2.13.0+cu130", "13.0", "3.14.4", **STACK))  # fmt: skip


def rhel8() -> Changes:
    """RHEL 8: glibc 2.28, the oldest that wheels of today take."""
    return Changes(system("rhel8"), gpus(*several("a100-80", 4), driver="550.163.01", cuda="12.4"), cu126())


def centos7() -> Changes:
    """CentOS 7: glibc 2.17, which torch 2.5 was the last to take."""
    return Changes(
        system("centos7"),
        gpus(*several("v100", 4), driver="535.274.02", cuda="12.2"),
        environment("2.5.1+cu121", "12.1", "3.10.12", **STACK),
    )


def alpine() -> Changes:
    """Alpine: musl, for which torch has no wheels; no torch is there."""
    return Changes(
        system("alpine", memory=32), gpus(gpu("t4", 0), driver="570.195.03", cuda="12.8"), environment(None, **STACK)
    )


def amazon2() -> Changes:
    """Amazon Linux 2: glibc 2.26."""
    return Changes(system("amazon2"), gpus(*several("v100", 8), driver="570.195.03", cuda="12.8"), cu126())


def tiny() -> Changes:
    """An H100 in a machine with 4 GiB of memory and a full disk."""
    small = Changes().file("/proc/meminfo", ram(4)).say(space(2 * GIB), "disk", "/dev/shm")
    small.say(space(50 * GIB, 200 * MIB), "disk", VENV).say(space(50 * GIB, 200 * MIB), "disk", "/home/user").say(
        space(50 * GIB, 200 * MIB), "disk", "/tmp"
    )
    return Changes(system("ubuntu24", memory=4, cpus=2), gpus(gpu("h100", 0), driver="580.95.05"), cu130(), small)


def bare() -> Changes:
    """A Debian without GPU and without torch."""
    return Changes(system("debian12", memory=16, cpus=8), no_nvidia(), environment(None))
