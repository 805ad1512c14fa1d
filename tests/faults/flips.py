"""A healthy machine at the door, and for each rule one fault that is injected there: files, variables, programs, the driver's answers.

Nothing here names a fact: the probes look through the door, and what they make of it is judged as by ``tarmac check``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tarmac import system, workflow
from tarmac.system import live
from tests.faults.bench import SITE, Machine
from tests.probe.samples import answer, information, record
from tests.probe.test_rest_network import trie

GIB = 1 << 30
X86 = {"system": "Linux", "machine": "x86_64", "version": "#1 SMP"}
"""The patient is the same wherever the tests run: wheels of torch differ from one machine to another."""

ROUTE = "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n{0} 0000000A 00000000 0001 0 0 0 00FFFFFF 0 0 0\n"


class Door(live.Live):
    """The door onto a machine made of files; NVML, limits and disks answer what they are told to."""

    def __init__(self, patient: Patient):
        super().__init__(str(patient.machine.root), patient.machine.variables)
        self.patient = patient

    def _nvml(self, deadline: float = 20.0) -> Any:
        return self.patient.nvml

    def _run(self, argv: Any, deadline: float, limit: int, changes: Any) -> Any:
        return super()._run(argv, min(deadline, 1.0), limit, changes)

    def _disk(self, path: str) -> Any:
        return self.patient.disk

    def _limits(self) -> Any:
        return {**super()._limits(), **self.patient.limits}

    def ask(self, verb: str, *args: Any) -> Any:
        told = self.patient.answers.get(verb)
        return told if told is not None and verb in self.patient.answers else super().ask(verb, *args)


class Patient:
    """One H100 that is well, with transformers; a fault changes something of it."""

    def __init__(self, folder: Path):
        self.machine = Machine(folder)
        self.nvml: dict[str, Any] = answer(record())
        self.disk = {"free": 1 << 41, "total": 1 << 42, "free_inodes": 1 << 20}
        self.limits: dict[str, Any] = {}
        self.answers: dict[str, Any] = {"uname": {**X86, "release": os.uname().release}}
        self.asked: dict[str, Any] = {}
        self.frameworks = ["transformers"]
        for name in ("nvcc", "nvidia-smi"):
            self.machine.gone(f"/usr/bin/{name}")

    # -- what a fault may change ------------------------------------------------------------------------

    def gpu(self, **changes: Any) -> None:
        self.nvml = answer(record(**changes))

    def gpus(self, *each: dict[str, Any]) -> None:
        self.machine.gpus(len(each))
        self.nvml = answer(*(record(index, **changes) for index, changes in enumerate(each)))

    def driver(self, version: str, cuda: str = "12.2", **changes: Any) -> None:
        self.machine.gpus(1, version)
        self.machine.gone("/usr/bin/nvidia-smi")
        self.nvml = answer(record(**changes), driver=version, cuda=cuda)

    def undriven(self, name: str, version: str) -> None:
        """A GPU that the module knows by its name and the driver does not open."""
        self.driver(version)
        for path, text in information(0, name).items():
            self.machine.file(path, text)
        self.nvml = {"error": 9, "says": "driver not loaded"}
        self.machine.program("nvidia-smi", "echo 'No devices were found'; exit 6")

    def interface(self, name: str, up: bool = True) -> None:
        at = f"/sys/class/net/{name}"
        self.machine.file(f"{at}/flags", "0x1003\n" if up else "0x1002\n")
        self.machine.file(f"{at}/operstate", "up\n" if up else "down\n")
        self.machine.file(f"{at}/type", "1\n")
        self.machine.folder_at(f"{at}/device")
        self.machine.file("/proc/net/fib_trie", trie("127.0.0.1", "10.0.0.7"))
        self.machine.file("/proc/net/route", ROUTE.format("eth0"))
        self.machine.file("/proc/net/if_inet6", "")

    def infiniband(self, state: str) -> None:
        at = "/sys/class/infiniband/mlx5_0/ports/1"
        self.machine.file(f"{at}/state", f"{state}\n")
        self.machine.file(f"{at}/link_layer", "InfiniBand\n")
        self.machine.file(f"{at}/rate", "400 Gb/sec (4X NDR)\n")
        self.wants("multi-node")

    def set(self, **variables: str) -> None:
        self.machine.variables.update(variables)

    def package(self, name: str, version: str, *requires: str) -> None:
        """Another version of a distribution, in the place of the one that is there."""
        site = Path(f"{self.machine.root}{SITE}")
        stem = name.replace("-", "_")
        for found in site.glob(f"{stem}-*.dist-info"):
            self.machine.gone(f"{SITE}/{found.name}")
        self.machine.packages(f"{stem}-{version}")
        if requires:
            lines = "".join(f"Requires-Dist: {line}\n" for line in requires)
            text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{lines}"
            self.machine.file(f"{SITE}/{stem}-{version}.dist-info/METADATA", text)

    def torch(self, version: str, cuda: str | None) -> None:
        self.package("torch", version)
        text = f"__version__ = {version!r}\ndebug = False\ncuda = {cuda!r}\nhip = None\nxpu = None\n"
        self.machine.file(f"{SITE}/torch/version.py", text)

    def toolkit(self, version: str, at: str = "/usr/local/cuda") -> None:
        plain = ".".join(version.split(".")[:2])
        self.machine.file(
            f"{at}/version.json",
            json.dumps({"cuda": {"version": version}, "cuda_nvcc": {"version": version}}),
        )
        text = (
            f"nvcc: NVIDIA (R) Cuda compiler driver\\nCuda compilation tools, release {plain}, V{version}\\n"
        )
        self.machine.program("nvcc", f"printf '{text}'", f"{at}/bin")
        self.set(CUDA_HOME=at)

    def contract(self, *needs: str, more: str = "") -> None:
        rows = "".join(f'[[needs]]\n{need}\nlevel = "required"\ncite = "a test"\n' for need in needs)
        head = 'framework = "kite"\nversion = "1.0"\ndistribution = "torch"\norigin = "a test"\nplatforms = ["cuda"]\n'
        path = self.machine.folder / "kite.toml"
        path.write_text(head + rows + more)
        self.asked["contract"] = str(path)
        self.frameworks = []

    def wants(self, *words: str) -> None:
        self.asked["wants"] = ",".join(words)

    # -- what is seen -----------------------------------------------------------------------------------

    def codes(self, monkeypatch: Any) -> set[str]:
        """The codes of what a check of this machine finds."""
        monkeypatch.setattr(system, "Live", lambda *_: Door(self))
        os.chdir(self.machine.home)
        reports = workflow.check(self.frameworks, **self.asked)
        return {finding.code for report in reports for finding in report.findings}


Fault = Callable[[Patient], Any]
FAULTS: dict[str, Fault] = {}


def fault(*codes: str) -> Callable[[Fault], Fault]:
    def noted(inject: Fault) -> Fault:
        FAULTS.update(dict.fromkeys(codes, inject))
        return inject

    return noted


def simple(code: str, inject: Fault) -> None:
    FAULTS[code] = inject


# -- GPUs and their driver -----------------------------------------------------------------------------------

simple("GPU002", lambda p: p.set(CUDA_VISIBLE_DEVICES="-1"))
simple("GPU003", lambda p: p.set(CUDA_VISIBLE_DEVICES="0,99"))
simple("GPU004", lambda p: p.gpu(name="Tesla K80", capability="3.7"))
simple(
    "GPU006", lambda p: p.gpu(mode="exclusive_process", processes=[{"pid": 7, "used": GIB, "name": "python"}])
)
simple("GPU007", lambda p: p.gpu(mig=True))
simple("GPU008", lambda p: p.gpu(ecc_errors=7))
simple("GPU009", lambda p: p.gpu(remap_pending=True))
simple("GPU010", lambda p: p.gpu(pcie_width=4))
simple("GPU011", lambda p: p.gpu(throttle=["hw_thermal_slowdown"]))
simple("GPU012", lambda p: p.gpu(power_limit=200.0))
simple("GPU016", lambda p: p.gpus({}, {"name": "NVIDIA A100-SXM4-80GB", "capability": "8.0"}))
simple("GPU017", lambda p: (p.machine.file("/.dockerenv"), p.machine.gone("/dev/nvidia-uvm")))
simple("DRV001", lambda p: p.driver("470.256.02", "11.4"))
simple("DRV002", lambda p: p.machine.libcuda("570.86.10"))
simple("DRV008", lambda p: p.undriven("NVIDIA GeForce RTX 5090", "550.144.03"))
simple("DRV013", lambda p: p.gpus(*[{"persistence": False}] * 8))
simple(
    "MEM002",
    lambda p: p.gpu(
        memory_free=GIB, memory_used=79 * GIB, processes=[{"pid": 7, "used": 78 * GIB, "name": "python"}]
    ),
)


@fault("GPU001")
def no_gpu(p: Patient) -> None:
    for path in Path(f"{p.machine.root}/sys/bus/pci/devices").iterdir():
        p.machine.gone(f"/sys/bus/pci/devices/{path.name}")
    for name in (
        "/sys/module/nvidia",
        "/proc/driver/nvidia",
        "/dev/nvidiactl",
        "/dev/nvidia-uvm",
        "/dev/nvidia0",
    ):
        p.machine.gone(name)
    p.nvml = {"error": 9, "says": "driver not loaded"}


@fault("GPU005")
def below_the_floor(p: Patient) -> None:
    p.gpu(name="Tesla P100-PCIE-16GB", capability="6.0")
    p.contract('key = "gpu.capability"\nwant = ">=8.0"')


@fault("GPU013")
def lost(p: Patient) -> None:
    p.gpus({}, {})
    p.nvml = answer(record(), {"index": 1, "pci": "00000000:14:00.0", "error": 15, "gap": "GPU is lost"})


simple("GPU014", lambda p: p.machine.gpus(2))


@fault("GPU015")
def more_ranks_than_gpus(p: Patient) -> None:
    p.machine.file("/job.yml", "num_gpus_per_node: 8\n")
    p.asked.update(config="/job.yml")


@fault("DRV003")
def driver_below_the_contract(p: Patient) -> None:
    p.contract('key = "driver.version"\nwant = ">=590"')


@fault("DRV004")
def silent(p: Patient) -> None:
    p.nvml = {"error": 999, "says": "unknown error"}
    p.machine.program("nvidia-smi", "echo 'Failed to initialize NVML: Unknown Error'; exit 255")


@fault("DRV005")
def stub(p: Patient) -> None:
    p.machine.gone("/usr/lib/libcuda.so.1")
    p.toolkit("12.6.20")
    p.machine.libcuda("12.6", "/usr/local/cuda/lib64/stubs")
    p.set(LD_LIBRARY_PATH="/usr/local/cuda/lib64/stubs")


@fault("DRV006")
def toolkit_newer_than_driver(p: Patient) -> None:
    p.driver("550.144.03", "12.4")
    p.machine.gone(f"{SITE}/torch", f"{SITE}/torch-2.13.0+cu126.dist-info")
    p.toolkit("13.0.48")
    p.wants("build")


simple("DRV007", lambda p: p.undriven("Tesla V100-SXM2-16GB", "590.48.01"))


def closed_module(p: Patient) -> None:
    text = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Release Build  (builder@)\n"
    p.machine.file("/proc/driver/nvidia/version", text)


@fault("DRV009")
def closed_module_for_a_new_gpu(p: Patient) -> None:
    p.undriven("NVIDIA GeForce RTX 5090", "580.95.05")
    closed_module(p)


@fault("DRV010")
def no_fabric_manager(p: Patient) -> None:
    p.gpus(*[{}] * 8)
    for index in range(4):
        folder = f"/sys/bus/pci/devices/0000:{index + 0xC0:02x}:00.0"
        p.machine.file(f"{folder}/vendor", "0x10de\n")
        p.machine.file(f"{folder}/class", "0x068000\n")
        p.machine.file(f"/dev/nvidia-nvswitch{index}", mode=0o666)
    p.machine.program("nv-fabricmanager", "exit 0")
    p.machine.file("/proc/2/comm", "kthreadd\n")


@fault("DRV011")
def compat_library(p: Patient) -> None:
    p.driver("470.256.02", "11.4")
    p.machine.libcuda("560.35.05", "/usr/local/cuda/compat")
    p.set(LD_LIBRARY_PATH="/usr/local/cuda/compat")


# -- building ------------------------------------------------------------------------------------------------


@fault("BLD001")
def toolkit_of_another_major(p: Patient) -> None:
    p.toolkit("11.8.89")
    p.wants("build")


@fault("BLD002")
def toolkit_of_another_minor(p: Patient) -> None:
    p.toolkit("12.1.66")
    p.wants("build")


@fault("BLD003")
def ninja_too_old(p: Patient) -> None:
    p.contract('key = "compiler.ninja"\nwant = ">=9.0"')


@fault("BLD004")
def nvcc_too_old_for_the_gpu(p: Patient) -> None:
    p.gpu(name="NVIDIA GeForce RTX 5090", capability="12.0")
    p.torch("2.8.0+cu128", "12.8")
    p.toolkit("12.4.99")
    p.wants("build")


@fault("BLD005")
def gcc_too_new(p: Patient) -> None:
    p.toolkit("12.1.66")
    p.machine.program("gcc", "echo 15.1.0")
    p.machine.program("g++", "echo 15.1.0")
    p.wants("build")


simple("BLD006", lambda p: p.wants("build"))
simple("BLD007", lambda p: (p.toolkit("12.6.20"), p.set(CUDA_HOME="/opt/nowhere"), p.wants("build")))
simple("BLD009", lambda p: (p.toolkit("12.6.20"), p.set(TORCH_CUDA_ARCH_LIST="7.0"), p.wants("build")))
simple("BLD010", lambda p: (p.toolkit("12.6.20"), p.set(TORCH_CUDA_ARCH_LIST="99.9"), p.wants("build")))
simple(
    "BLD011",
    lambda p: (
        p.toolkit("12.6.20"),
        p.machine.gone("/usr/bin/gcc", "/usr/bin/g++", "/usr/bin/ninja"),
        p.wants("build"),
    ),
)
simple("BLD012", lambda p: (p.toolkit("12.6.20"), p.wants("build")))
simple("BLD013", lambda p: (p.set(TMPDIR="/gone"), p.toolkit("12.6.20"), p.wants("build")))
simple("BLD014", lambda p: (p.set(MAX_JOBS="512"), p.toolkit("12.6.20"), p.wants("build")))


@fault("BLD015")
def stale_lock(p: Patient) -> None:
    at = p.machine.file("/home/ada/.cache/torch_extensions/py312_cu126/own/lock")
    os.utime(at, (1_000_000_000, 1_000_000_000))
    p.wants("build")


simple("BLD016", lambda p: (p.set(FORCE_CUDA="0"), setattr(p, "frameworks", ["colossalai"])))
simple(
    "BLD008",
    lambda p: (p.machine.gone(f"{SITE}/torch", f"{SITE}/torch-2.13.0+cu126.dist-info"), p.wants("build")),
)
simple("BLD017", lambda p: (p.set(BUILD_EXT="yes"), setattr(p, "frameworks", ["colossalai"])))

# -- packages ------------------------------------------------------------------------------------------------

simple("PKG001", lambda p: p.torch("2.13.0+cpu", None))
simple("PKG002", lambda p: p.machine.gone(f"{SITE}/transformers-5.22.0.dist-info"))
simple("PKG003", lambda p: p.package("tokenizers", "0.10.0"))
simple("PKG004", lambda p: p.machine.file("/venv/pyvenv.cfg", "home = /usr/bin\nversion = 3.7.4\n"))
simple("PKG005", lambda p: (p.machine.gone(f"{SITE}/accelerate-1.12.0.dist-info"), p.wants("device-map")))
simple("PKG006", lambda p: p.machine.gone(f"{SITE}/tokenizers-0.23.1.dist-info/METADATA"))
simple("PKG007", lambda p: p.contract('key = "torch.cuda"\nwant = ">=13.0"'))
simple("PKG008", lambda p: setattr(p, "frameworks", ["vllm", "sglang"]))
simple("PKG009", lambda p: (p.machine.packages("roll-0.13.4"), setattr(p, "frameworks", ["roll"])))
simple(
    "PKG012",
    lambda p: (
        p.torch("2.9.1+cu128", "12.8"),
        p.package("flash-attn", "2.8.3+cu12torch2.8cxx11abitrue"),
        p.wants("flash-attn"),
    ),
)
simple("PKG013", lambda p: p.package("xformers", "0.0.20"))
simple("PKG014", lambda p: p.package("bitsandbytes", "0.37.0"))
simple("PKG018", lambda p: p.package("triton", "2.0.0"))
simple("PKG019", lambda p: (p.torch("2.8.0+cu128", "12.8"), p.package("torchvision", "0.21.0+cu124")))
simple("PKG020", lambda p: p.machine.file(f"{p.machine.home}/random.py", "x = 1\n"))
simple("PKG021", lambda p: (p.torch("2.1.0+cu121", "12.1"), p.package("numpy", "2.2.6")))
simple("PKG022", lambda p: p.machine.packages("nvidia_cublas_cu12-12.6.4.1", "nvidia_cublas_cu11-11.10.3.66"))
simple(
    "PKG023",
    lambda p: (p.torch("2.10.0+cu128", "12.8"), p.package("vllm", "0.11.2", "torch==2.9.0"), p.wants("vllm")),
)
simple("PKG024", lambda p: setattr(p, "frameworks", ["roll:torch260-vllm"]))
simple(
    "PKG015",
    lambda p: (
        p.contract('key = "cudnn.version"\nwant = ">=99.0"'),
        p.machine.packages("nvidia_cudnn_cu12-9.5.1.17"),
    ),
)
simple(
    "PKG016",
    lambda p: (
        p.contract('key = "nccl.version"\nwant = ">=99.0"'),
        p.machine.packages("nvidia_nccl_cu12-2.21.5"),
    ),
)

# -- the system around ---------------------------------------------------------------------------------------

simple("SYS002", lambda p: p.disk.update(free=GIB))
simple("SYS003", lambda p: p.contract('key = "os.system"\nwant = "windows"'))
simple("SYS004", lambda p: p.contract('key = "os.arch"\nwant = "riscv64"'))
simple("SYS006", lambda p: p.limits.update(nofile=64))
simple("SYS010", lambda p: p.set(HF_HUB_OFFLINE="1"))
simple(
    "SYS012",
    lambda p: (p.set(PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True"), p.torch("2.13.0+cu126", "12.6")),
)
simple("SYS013", lambda p: p.set(PYTORCH_ALLOC_CONF="expandable_segment:Yes"))
simple("SYS018", lambda p: p.set(CUDA_LAUNCH_BLOCKING="1"))
simple(
    "SYS019", lambda p: (p.machine.folder_at("/opt/open").chmod(0o777), p.set(PATH="/opt/open:/usr/bin:/bin"))
)
simple(
    "SYS021",
    lambda p: p.machine.file(
        "/var/log/kern.log",
        "Nov 15 10:00:00 here kernel: [ 1.0] NVRM: Xid (PCI:0000:04:00): 79, pid=1, GPU has fallen off the bus.\n",
    ),
)
simple("SYS022", lambda p: p.set(ACCELERATE_USE_FSDP="true"))

# -- network and variables of a job --------------------------------------------------------------------------

simple("NET001", lambda p: (p.interface("enp1s0"), p.set(NCCL_SOCKET_IFNAME="eth77"), p.wants("multi-gpu")))
simple(
    "NET006",
    lambda p: p.set(RANK="5", WORLD_SIZE="2", LOCAL_RANK="0", MASTER_ADDR="10.0.0.1", MASTER_PORT="29500"),
)
simple(
    "NET007",
    lambda p: p.set(RANK="0", WORLD_SIZE="2", LOCAL_RANK="0", MASTER_ADDR="10.0.0.1", MASTER_PORT="99999"),
)
simple("NET010", lambda p: (p.gpus({}, {}), p.set(NCCL_P2P_DISABLE="1")))
simple(
    "NET012",
    lambda p: p.set(
        RANK="0",
        WORLD_SIZE="8",
        LOCAL_RANK="0",
        LOCAL_WORLD_SIZE="8",
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT="29500",
    ),
)

# -- what the job asks for -----------------------------------------------------------------------------------


def old_gpu(name: str, capability: str, *words: str) -> Fault:
    def inject(p: Patient) -> None:
        p.gpu(name=name, capability=capability, memory_total=16 * GIB, memory_free=15 * GIB)
        p.wants(*words)

    return inject


simple("CAP001", old_gpu("Tesla V100-SXM2-16GB", "7.0", "bf16"))
simple("CAP002", old_gpu("NVIDIA A100-SXM4-80GB", "8.0", "fp8"))
simple("CAP003", old_gpu("Tesla P40", "6.1", "fp16"))
simple("CAP004", lambda p: (old_gpu("Tesla T4", "7.5", "tf32")(p), setattr(p, "frameworks", ["axolotl"])))
simple(
    "CAP005", lambda p: (old_gpu("Tesla T4", "7.5", "flash-attn")(p), setattr(p, "frameworks", ["axolotl"]))
)
simple("CAP006", old_gpu("NVIDIA GeForce GTX 980", "5.2", "bnb-4bit"))
simple("CAP007", old_gpu("Tesla P100-PCIE-16GB", "6.0", "torch-compile"))
simple(
    "CAP008",
    lambda p: (p.package("xformers", "0.0.33.post2"), old_gpu("Tesla V100-SXM2-16GB", "7.0", "xformers")(p)),
)
simple("CAP009", lambda p: p.wants("fp8", "moe"))
simple("CAP010", lambda p: (p.wants("fp8", "moe"), setattr(p, "frameworks", ["roll"])))
simple("CAP011", lambda p: p.wants("bf16", "fp16"))
simple(
    "SYS020",
    lambda p: (
        os.chown(p.machine.folder_at("/tmp/torchinductor_ada"), 4242, 4242),
        p.set(USER="ada"),
        p.wants("torch-compile"),
    ),
)
simple("SYS007", lambda p: (p.infiniband("4: ACTIVE"), p.limits.update(memlock=8 << 20)))
simple(
    "SYS014",
    lambda p: (
        p.torch("2.8.0+cu128", "12.8"),
        p.package("vllm", "0.10.2"),
        p.set(PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True"),
        p.wants("vllm"),
    ),
)
simple("SYS015", lambda p: (p.set(MODEL_DOWNLOAD_TYPE="huggingface"), setattr(p, "frameworks", ["roll"])))
simple("SYS016", lambda p: (p.set(CUDA_DEVICE_MAX_CONNECTIONS="8"), setattr(p, "frameworks", ["colossalai"])))
simple(
    "SYS017",
    lambda p: (
        p.contract(more='[[variables]]\nname = "CUDA_DEVICE_MAX_CONNECTIONS"\naccess = "set"\nvalue = "4"\n'),
        setattr(p, "frameworks", ["colossalai"]),
    ),
)
simple("SYS011", lambda p: p.answers.update(wall=1000.0))
simple("SYS001", lambda p: (p.machine.file("/.dockerenv"), p.disk.update(free=64 << 20, total=64 << 20)))
simple("SYS008", lambda p: p.machine.file("/home/ada/.cache/huggingface", "no folder"))
simple("SYS009", lambda p: (p.disk.update(free=50 * 10**9), p.asked.update(model="70b"), p.wants("bf16")))
simple(
    "NET002",
    lambda p: (
        p.interface("eth0"),
        p.interface("ib0", up=False),
        p.set(NCCL_SOCKET_IFNAME="ib0"),
        p.wants("multi-node"),
    ),
)
simple("NET004", lambda p: p.infiniband("2: INIT"))
simple(
    "NET005",
    lambda p: (
        p.infiniband("4: ACTIVE"),
        p.answers.update(
            uname={"system": "Linux", "release": "5.4.0", "machine": "x86_64", "node": "here", "version": ""}
        ),
        closed_module(p),
    ),
)
simple(
    "NET008",
    lambda p: p.set(
        RANK="0",
        WORLD_SIZE="16",
        LOCAL_RANK="0",
        LOCAL_WORLD_SIZE="8",
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT="29500",
    ),
)
simple(
    "NET009",
    lambda p: (
        p.machine.file("/etc/hosts", "127.0.0.1 localhost\n127.0.1.1 here\n"),
        p.answers.update(
            uname={"system": "Linux", "release": "6.8.0", "machine": "x86_64", "node": "here", "version": ""}
        ),
        p.wants("multi-node"),
    ),
)
simple(
    "MEM003",
    lambda p: (
        p.machine.file("/sys/fs/cgroup/memory.max", f"{64 * GIB}\n"),
        p.asked.update(model="70b"),
        p.wants("bf16"),
    ),
)
simple(
    "DRV012",
    lambda p: (
        p.machine.file("/dev/dxg", mode=0o666),
        p.machine.file("/proc/version", "Linux version 5.15.90.1-microsoft-standard-WSL2\n"),
        p.answers.update(
            uname={
                "system": "Linux",
                "release": "5.15.90.1-microsoft-standard-WSL2",
                "machine": "x86_64",
                "node": "here",
                "version": "",
            }
        ),
    ),
)


@fault("NET011")
def two_rtx_4090_under_an_old_driver(p: Patient) -> None:
    p.gpus(
        {"name": "NVIDIA GeForce RTX 4090", "capability": "8.9"},
        {"name": "NVIDIA GeForce RTX 4090", "capability": "8.9"},
    )
    p.machine.gpus(2, "535.104.05")
    p.machine.gone("/usr/bin/nvidia-smi")
    p.nvml = answer(*p.nvml["gpus"], driver="535.104.05", cuda="12.2")


def container(p: Patient, text: str, **what_if: str) -> None:
    p.machine.file("/Dockerfile", text)
    p.asked.update(dockerfile="/Dockerfile", on="h100", what_if=what_if)


simple(
    "DRV014",
    lambda p: container(
        p, "FROM nvidia/cuda:13.0.1-runtime-ubuntu22.04\nRUN pip install transformers\n", driver="470.42.01"
    ),
)

simple(
    "MEM001",
    lambda p: (
        p.gpu(name="Tesla T4", capability="7.5", memory_total=16 * GIB, memory_free=15 * GIB),
        p.asked.update(model="70b"),
    ),
)


COMPOSE = (
    "services:\n  train:\n    image: nvidia/cuda:12.6.3-runtime-ubuntu22.04\n    command: python train.py\n"
)


@fault("GPU023")
def compose_without_gpus(p: Patient) -> None:
    p.machine.file("/compose.yml", COMPOSE)
    p.asked.update(dockerfile="/compose.yml", on="h100", what_if={"driver": "580.95.05"})


@fault("SYS005")
def an_old_libc(p: Patient) -> None:
    p.machine.gone(f"{SITE}/torch", f"{SITE}/torch-2.13.0+cu126.dist-info")
    p.answers.update(libc="2.17")
    p.contract('key = "package.torch"\nwant = ">=2.13.0"')


@fault("MEM008")
def a_job_too_large(p: Patient) -> None:
    job = "base_model: meta-llama/Llama-3.1-8B\nmicro_batch_size: 8\nsequence_len: 8192\noptimizer: adamw_torch\nbf16: true\n"
    p.machine.file("/job.yml", job)
    p.frameworks = ["axolotl"]
    p.asked.update(config="/job.yml")


@fault("NET003")
def only_the_bridge_of_docker(p: Patient) -> None:
    p.interface("docker0")
    p.machine.gone("/sys/class/net/docker0/device")
    p.machine.folder_at("/sys/class/net/docker0/bridge")
    p.machine.file("/proc/net/route", ROUTE.format("docker0"))
    p.wants("multi-node")


# -- what no look of a check can see -------------------------------------------------------------------------

_JUDGED, _PAIRS = "tests/fleet/test_judged.py::test_", "tests/fleet/test_pairs.py::test_"
_DRIFT = f"{_JUDGED}g04_drift_in_any_facet_is_found_on_exactly_the_nodes_that_have_it"
_SMALL = f"{_JUDGED}a_clock_that_is_off_and_shared_memory_that_is_small"
ELSEWHERE = {
    "GPU021": "tests/prove/test_bench_judged.py::test_clocks_locked_low",
    "GPU022": "tests/prove/test_bench_judged.py::test_what_breaks_on_a_gpu_is_not_ready",
    "CAP016": "tests/prove/test_real.py::test_without_a_gpu_a_gpu_proof_is_absent_and_not_ready",
    "CAP013": "tests/prove/test_fold.py::test_c13_what_the_kernel_says_of_the_gpu_is_attached_to_what_broke_on_it",
    "CAP014": "tests/prove/test_runner.py::test_an_import_that_segfaults",
    "CAP015": "tests/prove/test_runner.py::test_an_import_that_hangs_shows_where",
    "FLT001": f"{_JUDGED}g01_dead_and_hung_nodes_are_named_apart_and_the_rest_is_complete",
    **dict.fromkeys(("FLT002", "FLT003", "FLT004", "FLT005", "FLT008"), _DRIFT),
    "FLT006": f"{_JUDGED}g05_an_upgrade_half_way_is_a_split_and_nobody_is_broken",
    "FLT007": f"{_JUDGED}a_node_that_lost_its_gpus_is_no_kind_of_its_own",
    **dict.fromkeys(("FLT009", "FLT010"), _SMALL),
    "FLT011": f"{_JUDGED}g08_a_node_eight_percent_slower_is_found_in_noise_and_nobody_else_is",
    "FLT012": f"{_JUDGED}g09_two_nodes_with_one_gpu_are_a_conflict",
    "FLT013": f"{_JUDGED}g07_a_check_that_fails_on_a_third_of_the_nodes_is_itself_in_question",
    "FLT014": f"{_JUDGED}g16_a_node_that_changes_its_mind_is_listed_and_the_worse_counts",
    "FLT015": f"{_JUDGED}a_check_that_fails_where_the_driver_differs_is_believed",
    "FLT016": f"{_PAIRS}two_rounds_are_exact_for_faults_that_always_show",
    "FLT017": f"{_PAIRS}links_are_links",
}
"""Rules that a proof, a measurement or a fleet wakes, and the test that injects a fault there."""

ALONE = ("PKG010", "PKG011", "PKG017", "CAP012")
"""Rules that only their own examples flip (tests/rules/test_ledger.py): nothing is injected for them yet."""
