"""Fact keys of the modules in ``optional_probes``, known without importing them because gaps need them too."""

from __future__ import annotations

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
