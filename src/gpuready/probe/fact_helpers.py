"""Make facts: a value with its source, or a gap with its reason. The keys of the optional probes."""

from collections.abc import Callable, Iterable
from typing import Any

from gpuready.model import Fact
from gpuready.system import AccessError, HostAccess


def read_fact(key: str, source: str, read: Callable[..., Any], *args: Any) -> Fact:
    """Return the fact that a reader gives, or its gap on AccessError."""
    try:
        return Fact(key, read(*args), source)
    except AccessError as error:
        return Fact(key, None, source, gap=str(error))


def gap_facts(keys: Iterable[str], reason: str, source: str = "") -> list[Fact]:
    """Facts that could not be read, all for one reason."""
    return [Fact(key, None, source, gap=reason) for key in keys]


def absent_facts(keys: Iterable[str], source: str) -> list[Fact]:
    """Facts that were looked for and do not exist."""
    return [Fact(key, None, source) for key in keys]


def read_if_present(read: Callable[..., Any], *args: Any, default: Any = None) -> Any:
    """Return what a reader gives, or ``default`` on AccessError: for optional evidence."""
    try:
        return read(*args)
    except AccessError:
        return default


def leading_version(text: str) -> str | None:
    """Return the version at the start of a text: ``6.8.0-45-generic`` -> ``6.8.0``."""
    bare = text[: len(text) - len(text.lstrip("0123456789."))]
    return ".".join(part for part in bare.split(".") if part) or None


DRIVER_PATHS = ("/sys/module/nvidia", "/proc/driver/nvidia", "/dev/nvidiactl", "/dev/dxg")


def is_driver_loaded(host: HostAccess) -> bool:
    """Whether an NVIDIA driver seems to be loaded: only then can NVML calls hang."""
    return any(read_if_present(host.stat_path, path, default=True) for path in DRIVER_PATHS)


PACKAGES = (
    "python.version", "python.path", "python.prefix", "python.kind", "python.chosen_by", "python.site", "python.packages",
    "python.half_installed", "python.duplicates", "python.shadowed", "python.requires", "python.disk_free",
    "python.managed",
)  # fmt: skip
TORCH = (
    "torch.version", "torch.build", "torch.cuda", "torch.hip", "torch.xpu", "torch.arch", "torch.abi",
    "torch.path", "torch.broken", "cudnn.version", "nccl.version",
)  # fmt: skip
NETWORK = ("net.interfaces", "net.interface", "net.ib", "net.peermem", "net.hostname_address")
FABRIC = ("fabric.switches", "fabric.manager")
NUMA = ("gpu.numa",)
ACCELERATORS = (
    "accelerator.vendor",
    "accelerator.count",
    "accelerator.name",
    "accelerator.driver",
    "accelerator.runtime",
)
LIBRARIES = ("libcudnn.path", "libnccl.path", "library.shadowed")
LINKAGE = ("extension.linked",)
IMPORTS = ("import.damage", "import.hidden", "import.looked")
EXTENSIONS = (
    "apex", "auto-gptq", "bitsandbytes", "causal-conv1d", "colossalai", "deepspeed", "fbgemm-gpu",
    "fbgemm-gpu-genai", "flash-attn", "flash-attn-3", "mamba-ssm", "sgl-kernel", "torchao", "torchaudio",
    "torchvision", "transformer-engine", "vllm", "xformers",
)  # fmt: skip
"""The distributions covered by extension.linked."""

WORKSPACE = (
    "python.headers", "tmp.path", "tmp.exists", "tmp.noexec", "tmp.free", "disk.kind", "hub.writable",
    "path.unsafe", "clock.year", "user.root",
)  # fmt: skip
CACHES = ("cache.extensions", "cache.locks", "cache.inductor")
KERNEL = ("kernel.xids",)

GPUS = (*NUMA, *FABRIC, *ACCELERATORS)
TARGET = (*LIBRARIES, *LINKAGE)
WORKSPACE_AND_LOGS = (*WORKSPACE, *CACHES, *KERNEL)
