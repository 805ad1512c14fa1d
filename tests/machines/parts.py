"""The parts that derived machines are put together from: GPUs, drivers, systems, containers, environments."""

from __future__ import annotations

import json
from typing import Any

from gpuready.system.recording import query_key
from tests.machines.altered import DEVICE, FILE, FOLDER, Changes, tape

MIB, GIB = 1 << 20, 1 << 30
PCI = "/sys/bus/pci/devices"
VENV = "/opt/torch/.venv"
UNSAID: dict[str, Any] = {"gap": "Not Supported"}

# name, MiB as nvidia-smi tells them, capability, PCIe, watts, NVLinks, ECC
GPUS: dict[str, tuple[str, int, str, int, int, int, bool | None]] = {
    "v100": ("Tesla V100-SXM2-16GB", 16384, "7.0", 3, 300, 6, True),
    "t4": ("Tesla T4", 15360, "7.5", 3, 70, 0, True),
    "a100-40": ("NVIDIA A100-SXM4-40GB", 40960, "8.0", 4, 400, 12, True),
    "a100-80": ("NVIDIA A100-SXM4-80GB", 81920, "8.0", 4, 400, 12, True),
    "a10g": ("NVIDIA A10G", 23028, "8.6", 4, 300, 0, True),
    "l4": ("NVIDIA L4", 23034, "8.9", 4, 72, 0, True),
    "l40s": ("NVIDIA L40S", 46068, "8.9", 4, 350, 0, True),
    "p100": ("Tesla P100-PCIE-16GB", 16384, "6.0", 3, 250, 0, True),
    "rtx3090": ("NVIDIA GeForce RTX 3090", 24576, "8.6", 4, 350, 0, None),
    "rtx4090": ("NVIDIA GeForce RTX 4090", 24564, "8.9", 4, 450, 0, None),
    "rtx5090": ("NVIDIA GeForce RTX 5090", 32607, "12.0", 5, 575, 0, None),
    "gtx1080ti": ("NVIDIA GeForce GTX 1080 Ti", 11264, "6.1", 3, 250, 0, None),
    "h100-pcie": ("NVIDIA H100 PCIe", 81559, "9.0", 5, 350, 0, True),
    "h100": ("NVIDIA H100 80GB HBM3", 81559, "9.0", 5, 700, 18, True),
    "h200": ("NVIDIA H200", 143771, "9.0", 5, 700, 18, True),
    "b200": ("NVIDIA B200", 183359, "10.0", 5, 1000, 18, True),
    "gb200": ("NVIDIA GB200", 189471, "10.0", 6, 1200, 18, True),
    "gh200": ("NVIDIA GH200 480GB", 97871, "9.0", 5, 900, 0, True),
    "gb10": ("NVIDIA GB10", 0, "12.1", 1, 0, 0, None),
}


def gpu(kind: str, index: int, **changed: Any) -> dict[str, Any]:
    """What NVML says of one GPU: the recorded H200's answer with another card's values."""
    name, mib, capability, pcie, watts, links, ecc = GPUS[kind]
    total = mib * MIB
    memory: dict[str, Any] = {"memory_total": total, "memory_free": total - 500 * MIB, "memory_used": 500 * MIB}
    if not mib:  # GB10 shares its memory with the processor, and NVML has no figure for it
        memory = dict.fromkeys(memory, UNSAID)
    old = {"remap_pending": UNSAID, "remap_failure": UNSAID} if capability < "8" or ecc is None else {}
    return {
        **tape()[query_key("nvml")]["gpus"][0],
        **memory,
        **old,
        "index": index,
        "pci": f"00000000:{0x10 + index:02x}:00.0",
        "name": name,
        "uuid": f"GPU-00000000-0000-0000-0000-{index:012d}",
        "capability": capability,
        "mig": False
        if kind in ("a100-40", "a100-80", "h100", "h100-pcie", "h200", "b200", "gb200", "gh200")
        else UNSAID,
        "ecc": UNSAID if ecc is None else ecc,
        "ecc_errors": UNSAID if ecc is None else 0,
        "pcie_gen": pcie,
        "pcie_gen_max": pcie,
        "power_limit": float(watts) if watts else UNSAID,
        "power_limit_default": float(watts) if watts else UNSAID,
        "nvlink": links or UNSAID,
        "minor": index,
        **changed,
    }


def gpus(*cards: dict[str, Any], driver: str = "580.95.05", cuda: str = "13.0", switches: int = 0) -> Changes:
    """GPUs on the bus, in /dev and with the driver, and the driver itself."""
    made = Changes().remove(PCI, "/dev/nvidia0", "/dev/nvidia-caps", "/run/nvidia-fabricmanager")
    made.remove("/usr/local/nvidia", "/sys/module/nvidia_peermem")
    for card in cards:
        place = f"{PCI}/{str(card['pci'])[4:]}"
        made.file(f"{place}/vendor", "0x10de\n").file(f"{place}/class", "0x030200\n").file(f"{place}/numa_node", "0\n")
        made.file(f"/dev/nvidia{card['index']}", DEVICE)
    for index in range(switches):
        place = f"{PCI}/0000:{0x90 + index:02x}:00.0"
        made.file(f"{place}/vendor", "0x10de\n").file(f"{place}/class", "0x068000\n")
        made.file(f"/dev/nvidia-nvswitch{index}", DEVICE)
    return Changes(made, drivers(driver, cuda, list(cards)))


def drivers(version: str, cuda: str, cards: list[dict[str, Any]] | None = None, library: str = "") -> Changes:
    """The driver: module, banner, library. ``library``: the version of libcuda where it is another."""
    word = "x86_64  Kernel Module" if int(version.partition(".")[0]) < 560 else "Open Kernel Module for x86_64"
    banner = f"NVRM version: NVIDIA UNIX {word}  {version}  Release Build\n"
    made = Changes().file("/proc/driver/nvidia/version", banner).file("/sys/module/nvidia/version", f"{version}\n")
    path = "/usr/lib/x86_64-linux-gnu/libcuda.so.1"
    made.say(path, "library", "libcuda.so.1")
    made.say(f"/usr/lib/x86_64-linux-gnu/libcuda.so.{library or version}", "real", path)
    if cards is not None:
        answer = {"driver": version, "cuda": cuda, "library": "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"}
        made.say({**answer, "gpus": cards}, "nvml")
    return made


def no_nvidia() -> Changes:
    """A machine that never had an NVIDIA driver."""
    made = Changes().remove(
        PCI, "/sys/module/nvidia", "/proc/driver/nvidia", "/usr/local/nvidia", "/dev/nvidia0", "/dev/nvidiactl",
        "/dev/nvidia-caps", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools",
    )  # fmt: skip
    made.file(f"{PCI}/0000:00:00.0/vendor", "0x8086\n").file(f"{PCI}/0000:00:00.0/class", "0x060000\n")
    return made.say(None, "library", "libcuda.so.1").say({"error": None, "says": "libnvidia-ml.so.1 not found"}, "nvml")


def fabric_manager(runs: bool, switches: bool = True) -> Changes:
    made = Changes().file("/proc/2/comm", "kthreadd\n").say(["1", "2", "900"], "list", "/proc")
    made.file("/usr/bin/nv-fabricmanager", {**FILE, "mode": 0o755})
    if runs:
        made.file("/run/nvidia-fabricmanager/nv-fabricmanager.pid", "900\n")
        made.file("/proc/900/comm", "nv-fabricmanager"[:15] + "\n")
    return made


def xid(*lines: str) -> Changes:
    return Changes().say(list(lines), "lines", "/dev/kmsg", ["NVRM: Xid ("])


# -- the system -----------------------------------------------------------------------------------------

SYSTEMS = {
    "ubuntu20": ("ubuntu", "20.04", "Ubuntu 20.04.6 LTS", "2.31", "5.15.0-105-generic", "9.4.0"),
    "ubuntu22": ("ubuntu", "22.04", "Ubuntu 22.04.5 LTS", "2.35", "6.8.0-60-generic", "11.4.0"),
    "ubuntu24": ("ubuntu", "24.04", "Ubuntu 24.04.3 LTS", "2.39", "6.14.0-33-generic", "13.3.0"),
    "ubuntu26": ("ubuntu", "26.04", "Ubuntu 26.04 LTS", "2.43", "7.0.0-14-generic", "15.2.0"),
    "debian12": ("debian", "12", "Debian GNU/Linux 12 (bookworm)", "2.36", "6.1.0-32-amd64", "12.2.0"),
    "debian13": ("debian", "13", "Debian GNU/Linux 13 (trixie)", "2.41", "6.12.41-amd64", "14.2.0"),
    "rhel8": ("rhel", "8.10", "Red Hat Enterprise Linux 8.10 (Ootpa)", "2.28", "4.18.0-553.el8_10.x86_64", "8.5.0"),
    "rhel9": ("rhel", "9.6", "Red Hat Enterprise Linux 9.6 (Plow)", "2.34", "5.14.0-570.el9_6.x86_64", "11.5.0"),
    "centos7": ("centos", "7", "CentOS Linux 7 (Core)", "2.17", "3.10.0-1160.el7.x86_64", "4.8.5"),
    "alpine": ("alpine", "3.22.1", "Alpine Linux v3.22", None, "6.12.30-0-virt", "14.2.0"),
    "amazon2023": ("amzn", "2023", "Amazon Linux 2023.8", "2.34", "6.1.141-155.222.amzn2023.x86_64", "11.5.0"),
    "amazon2": ("amzn", "2", "Amazon Linux 2", "2.26", "5.10.238-231.953.amzn2.x86_64", "7.3.1"),
    "sles15": ("sles", "15.6", "SUSE Linux Enterprise Server 15 SP6", "2.38", "6.4.0-150600.23-default", "7.5.0"),
}  # fmt: skip


def system(name: str, arch: str = "x86_64", memory: int = 512, cpus: int = 64) -> Changes:
    """A plain host: distribution, kernel, C library, compiler, memory; no container, no limits of a group."""
    ident, version, pretty, libc, kernel, gcc = SYSTEMS[name]
    text = f'PRETTY_NAME="{pretty}"\nVERSION_ID="{version}"\nID={ident}\n'
    made = Changes().file("/etc/os-release", text).file("/usr/lib/os-release", text)
    release = kernel.replace("x86_64", arch).replace("amd64", {"aarch64": "arm64"}.get(arch, "amd64"))
    node = {"system": "Linux", "release": release, "version": "#1 SMP", "machine": arch, "node": "node"}
    made.say(node, "uname").say(libc, "libc").say({"online": cpus, "usable": cpus}, "cpus")
    made.file("/proc/version", f"Linux version {release} (gcc {gcc}) #1 SMP\n")
    made.remove("/.dockerenv", "/sys/fs/cgroup/process_api")
    made.file("/proc/self/cgroup", "0::/user.slice/user-1000.slice/session-1.scope\n")
    made.file("/sys/fs/cgroup/user.slice/user-1000.slice/session-1.scope/memory.max", "max\n")
    made.file("/proc/meminfo", ram(memory)).say(space(memory * GIB // 2), "disk", "/dev/shm")
    made.say({"nofile": 1048576, "memlock": -1, "nproc": 2062450, "stack": 8388608}, "limits")
    made.remove("/opt/gcc").env(**dict.fromkeys(tape()[query_key("environ")]))
    made.env(CC=None, CXX=None, LD_LIBRARY_PATH=None, CUDA_HOME=None, HOME="/home/user", LANG="C.UTF-8",
             PATH=f"{VENV}/bin:/usr/local/bin:/usr/bin:/bin")  # fmt: skip
    for name in ("ninja", "cmake"):
        made.say(None, "which", name)
    made.say({"uid": 1000, "name": "user"}, "user").file("/home/user", {**FOLDER, "uid": 1000})
    made.remove("/usr/local/cuda", "/usr/local/cuda-13", "/usr/local/cuda-13.0").say({}, "libraries", "libcudart.so")
    return Changes(made, compiler(gcc))


def on_arm(*parts: Changes) -> Changes:
    """The same with drivers and libraries for aarch64."""
    made = Changes(*parts)
    made.answers = json.loads(json.dumps(made.answers).replace("x86_64", "aarch64"))
    made.files = json.loads(json.dumps(made.files).replace("x86_64", "aarch64"))
    return made


def ram(gib: float) -> str:
    kib = int(gib * MIB)
    return f"MemTotal:       {kib} kB\nMemFree:        {kib * 9 // 10} kB\nMemAvailable:   {kib * 95 // 100} kB\nSwapTotal:      0 kB\n"


def space(size: int, free: int | None = None) -> dict[str, int]:
    return {"free": size if free is None else free, "total": size, "free_inodes": 1000000}


def compiler(version: str | None) -> Changes:
    made = Changes()
    for name, path in (
        ("gcc", "/usr/bin/gcc"),
        ("g++", "/usr/bin/g++"),
        ("cc", "/usr/bin/cc"),
        ("c++", "/usr/bin/c++"),
    ):
        made.say(path if version else None, "which", name)
        made.say(path, "real", path)
        ran = {"argv": [path], "rc": 0, "out": f"{version}\n", "err": "", "seconds": 0.002, "end": "", "cut": False}
        made.say(ran, "run", [path, "-dumpfullversion", "-dumpversion"], 3.0, 1 << 20, None)
    return made


def toolkit(version: str) -> Changes:
    """A CUDA toolkit at /usr/local/cuda."""
    text = f'{{"cuda": {{"name": "CUDA SDK", "version": "{version}"}}, "cuda_nvcc": {{"name": "CUDA NVCC", "version": "{version}"}}}}'
    made = Changes().file("/usr/local/cuda/version.json", text)
    made.file("/usr/local/cuda/bin/nvcc", {**FILE, "mode": 0o755}).file("/usr/local/cuda", FOLDER)
    return made.say("/usr/local/cuda", "real", "/usr/local/cuda").env(CUDA_HOME="/usr/local/cuda")


def container(kind: str, *, shm: int = 64 * MIB, memory: int | None = None, v1: bool = False, cpus: int = 0) -> Changes:
    """Inside a container: its sign, its /dev/shm, and the limits of its control group."""
    made = Changes().say(space(shm), "disk", "/dev/shm")
    sign = {"docker": "/.dockerenv", "podman": "/run/.containerenv"}.get(kind)
    if sign:
        made.file(sign)
    if kind == "kubernetes":
        made.env(KUBERNETES_SERVICE_HOST="10.96.0.1", KUBERNETES_SERVICE_PORT="443")
    if kind == "singularity":
        made.env(APPTAINER_CONTAINER="/images/torch.sif").file("/.singularity.d/env", "")
    made.file("/proc/2/comm", "python\n").remove("/sys/fs/cgroup/user.slice")
    made.env(NVIDIA_VISIBLE_DEVICES="all")
    root = "/sys/fs/cgroup"
    if v1:
        made.remove(root).file("/proc/self/cgroup", "5:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n")
        made.file(f"{root}/memory/memory.limit_in_bytes", f"{memory or (1 << 63) - 4096}\n")
        made.file(f"{root}/memory/memory.usage_in_bytes", "1073741824\n").file(
            f"{root}/memory/memory.stat", "total_inactive_file 0\n"
        )
        made.file(f"{root}/cpu/cpu.cfs_quota_us", f"{cpus * 100000 or -1}\n").file(
            f"{root}/cpu/cpu.cfs_period_us", "100000\n"
        )
        return made
    made.file("/proc/self/cgroup", "0::/\n").file(f"{root}/memory.max", f"{memory or 'max'}\n")
    made.file(f"{root}/memory.current", "1073741824\n").file(f"{root}/memory.stat", "inactive_file 0\n")
    return made.file(f"{root}/cpu.max", f"{cpus * 100000 or 'max'} 100000\n")


# -- the environment ------------------------------------------------------------------------------------

CU12 = {
    "cuda_runtime": ("libcudart.so.12",), "cublas": ("libcublas.so.12", "libcublasLt.so.12"), "cudnn": ("libcudnn.so.9",),
    "nccl": ("libnccl.so.2",), "cusparse": ("libcusparse.so.12",), "cufft": ("libcufft.so.11",), "curand": ("libcurand.so.10",),
    "cuda_nvrtc": ("libnvrtc.so.12",), "nvjitlink": ("libnvJitLink.so.12",), "cuda_cupti": ("libcupti.so.12",),
}  # fmt: skip
CU13 = {
    "cudnn": ("libcudnn.so.9",), "nccl": ("libnccl.so.2",), "nvshmem": ("libnvshmem_host.so.3",), "cusparselt": ("libcusparseLt.so.0",),
    "cu13": ("libcudart.so.13", "libcublas.so.13", "libcublasLt.so.13", "libcusparse.so.12", "libcufft.so.12", "libcurand.so.10",
             "libnvrtc.so.13", "libnvJitLink.so.13", "libcupti.so.13"),
}  # fmt: skip
CU11 = {
    "cuda_runtime": ("libcudart.so.11.0",),
    "cublas": ("libcublas.so.11",),
    "cudnn": ("libcudnn.so.8",),
    "nccl": ("libnccl.so.2",),
}
TRITON = {"2.13.0": "3.7.1", "2.9.1": "3.5.1", "2.7.1": "3.3.1", "2.5.1": "3.1.0", "2.1.2": "2.1.0"}
"""The triton that each torch is made for."""
LIBTORCH = ("libc10.so", "libc10_cuda.so", "libtorch.so", "libtorch_cpu.so", "libtorch_cuda.so", "libtorch_global_deps.so",
            "libtorch_python.so", "libgomp.so.1")  # fmt: skip
ERROR = "_ZN3c105ErrorC1ENS_14SourceLocationE"
STRING = {True: "NSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE", False: "Ss"}


def environment(torch: str | None = "2.11.0+cu130", cuda: str | None = "13.0", python: str = "3.12.3", *,
                arch: str | None = None, abi: bool = True, hip: str | None = None, xpu: str | None = None,
                base: str = "/usr", headers: bool = True, **packages: str) -> Changes:  # fmt: skip
    """A virtual environment at VENV with torch and these packages (underscores in their names are hyphens)."""
    minor = ".".join(python.split(".")[:2])
    site = f"{VENV}/lib/python{minor}/site-packages"
    made = Changes().remove(VENV).env(VIRTUAL_ENV=VENV)
    settings = (
        f"home = {base}/bin\nimplementation = CPython\nversion_info = {python}\ninclude-system-site-packages = false\n"
    )
    made.file(f"{VENV}/pyvenv.cfg", settings).file(f"{VENV}/bin/python", {**FILE, "mode": 0o755})
    made.say(site, "real", site).say(space(500 * GIB), "disk", VENV)
    if headers:
        made.file(f"{base}/include/python{minor}/Python.h")
    made_for = TRITON.get((torch or "").partition("+")[0]) if cuda else None
    own = {name: version for name, version in packages.items() if name != "triton"} | (
        {"triton": made_for} if made_for else {}
    )
    for name, version in own.items():
        install(made, site, name, version)
    return _torch(made, site, torch, cuda, arch, abi, hip, xpu) if torch else made


def install(made: Changes, site: str, name: str, version: str) -> Changes:
    if name == "bitsandbytes":  # it carries a library for every CUDA
        for cuda in ("118", "121", "124", "126", "128", "129", "130"):
            made.file(f"{site}/bitsandbytes/libbitsandbytes_cuda{cuda}.so")
    place = f"{site}/{name}-{version}.dist-info"
    return made.file(
        f"{place}/METADATA", f"Metadata-Version: 2.4\nName: {name.replace('_', '-')}\nVersion: {version}\n"
    )


def _torch(made: Changes, site: str, torch: str, cuda: str | None, arch: str | None, abi: bool, hip: str | None,
           xpu: str | None) -> Changes:  # fmt: skip
    install(made, site, "torch", torch)
    words = {"__version__": torch, "cuda": cuda, "hip": hip, "xpu": xpu}
    made.file(f"{site}/torch/version.py", "".join(f"{name} = {value!r}\n" for name, value in words.items()))
    made.say([ERROR + STRING[abi]], "elf_text", f"{site}/torch/lib/libc10.so", ".dynstr",
             ["_ZN3c1010IndexErrorC1E", "_ZN3c105ErrorC1E"])  # fmt: skip
    for name in LIBTORCH:
        made.file(f"{site}/torch/lib/{name}")
    if not cuda:
        return made
    major = cuda.partition(".")[0]
    wheels = {"13": CU13, "11": CU11}.get(major, CU12)
    for folder, names in wheels.items():
        for name in names:
            made.file(f"{site}/nvidia/{folder}/lib/{name}")
    needed = [
        name for names in wheels.values() for name in names if not name.startswith(("libnvJit", "libnvrtc", "libcupti"))
    ]
    path = ":".join([*(f"$ORIGIN/../../nvidia/{folder}/lib" for folder in wheels), "$ORIGIN"])
    for name, asks in (("libtorch_global_deps.so", needed[:1]), ("libtorch_cuda.so", needed)):
        header = {"needed": [*asks, "libc.so.6"], "soname": name, "runpath": path, "rpath": True, "machine": "x86_64"}
        made.say(header, "elf", f"{site}/torch/lib/{name}")
    if arch:
        made.say([arch], "elf_text", f"{site}/torch/lib/libtorch_python.so", ".rodata", ["sm_"])
    if major == "11":  # the wheels of torch for CUDA 11 carry their libraries themselves
        return made
    install(made, site, f"nvidia_nccl_cu{major}", "2.27.5")
    return install(made, site, f"nvidia_cudnn_cu{major}", "9.13.0.50")
