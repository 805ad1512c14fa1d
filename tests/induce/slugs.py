"""The causes that a log can be given, by the names that diagnose uses for them."""

from __future__ import annotations

SLUGS = {
    "arch-not-in-torch-build", "bf16-unsupported", "bnb-cuda-setup", "bnb-triton-mismatch",
    "bnb-windows-unsupported", "build-isolation", "cache-permission", "checkpoint-mismatch", "collective-mismatch",
    "corrupt-or-lfs-weights", "cuda-compat-lib-conflict", "cuda-home-missing", "cuda-oom",
    "cuda-oom-in-nccl", "cudnn-mismatch", "dataset-error", "deepspeed-torch-mismatch", "device-map-vs-ddp", "disk-full",
    "driver-library-mismatch", "driver-too-old", "dtype-mismatch", "duplicate-gpu",
    "ecc-row-remap-pending", "ecc-uncorrectable", "ext-abi-mismatch", "ext-arch-missing",
    "fabric-manager-down", "flash-attn-abi", "flash-attn-arch", "flash-attn-missing", "fork-after-cuda",
    "fp16-overflow", "fp16-unscale", "fp8-unsupported", "fsdp-mixed-dtype", "glibc-too-old",
    "glibcxx-too-old", "gpu-degraded", "gpu-fallen-off-bus", "gpu-hardware-fault", "gpu-memory-busy",
    "healthy", "hf-hub-version", "host-compiler-unsupported", "host-oom-killed", "hub-gated-repo",
    "hub-ssl-verify", "hub-unreachable", "invalid-device-ordinal", "jit-build-stuck",
    "launcher-env-missing", "launcher-local-rank-arg", "launcher-slurm-env", "loss-diverged", "missing-python-package",
    "mixed-devices", "nccl-hang-hardware-specific", "nccl-ib-link", "nccl-ib-memlock",
    "nccl-lib-mismatch", "nccl-p2p-broken", "nccl-socket-ifname", "no-gpu-visible", "node-network-broken",
    "not-environment", "numpy2-abi", "nvjitlink-mismatch", "nvlink-error", "package-resolution", "peft-accelerate-version",
    "ranks-with-other-models", "read-only-file-system", "pinned-host-memory", "port-in-use", "program-port-in-use", "ranks-missing",
    "python-headers-missing", "python-version-unsupported",
    "quantized-model-moved", "ray-host-oom", "ray-resources-pending", "ray-version-incompatible",
    "ray-visible-devices", "rendezvous-unreachable", "roll-device-mapping", "shm-too-small",
    "sighup-terminal-closed", "slurm-time-limit", "stopped-by-user", "te-torch-compile", "timeout-slow-preprocess",
    "too-many-open-files", "toolkit-too-old-for-arch", "toolkit-torch-mismatch", "torch-cpu-only",
    "torch26-weights-only", "torchvision-mismatch", "transformers-too-old", "triton-libcuda-missing",
    "triton-ptxas-too-old", "trl-api-change", "vllm-kv-cache-memory", "windows-unsupported",
}  # fmt: skip
