"""Disk space that an environment needs: exact if the wheels are local, else estimated."""

from __future__ import annotations

from collections.abc import Sequence

from gpuready.model import Record
from gpuready.model.plan import LockedPackage, Plan
from gpuready.system import file_contents
from gpuready.system.archive_members import unpacked_wheel_size

UNPACK_FACTOR = 3.0
"""Unpacked size of a wheel as a multiple of its size: 1.6 for CUDA libraries, 4 for Python sources."""

TYPICAL_PACKAGE = (2 << 20, 80)
"""Bytes and files of an unknown distribution: the mean of 186 packages of an environment of ROLL without its 22 largest."""

TORCH_SIZES = {"cpu": (670 << 20, 12_500), "cuda": (1_640 << 20, 13_000), "cuda13": (960 << 20, 12_500)}
AARCH64_TORCH_SIZES = {"cpu": (480 << 20, 12_000), "cuda13": (880 << 20, 12_400)}
"""Where it is another size on aarch64: 352 MiB of torch 2.5.1 and 550 of 2.13 for the CPU, 829 to 1,011 of 2.11 to 2.15 for CUDA 13."""

LARGE_PACKAGES = {
    "av": 101, "bitsandbytes": 150, "botocore": 27, "cupy": 219, "decord2": 72, "flashinfer-cubin": 1_500, "flashinfer-python": 60,
    "fonttools": 22, "gradio": 155, "grpcio": 17, "llvmlite": 165, "lm-eval": 67, "matplotlib": 23, "mistral-common": 36, "modelscope": 21, "numba": 25, "numpy": 61,
    "nvidia-cublas": 829, "nvidia-cuda-cupti": 42, "nvidia-cuda-nvrtc": 211, "nvidia-cuda-runtime": 4, "nvidia-cudnn": 1_004,
    "nvidia-cufft": 280, "nvidia-cufile": 3, "nvidia-curand": 132, "nvidia-cusolver": 386, "nvidia-cusparse": 370,
    "nvidia-cusparselt": 431, "nvidia-cutlass-dsl-libs-base": 200, "nvidia-nccl": 409, "nvidia-nvjitlink": 89,
    "nvidia-nvshmem": 200, "nvidia-nvtx": 1, "oci": 243, "onnxruntime": 50, "opencv-python": 160, "opencv-python-headless": 140, "pandas": 40,
    "pillow": 18, "plotly": 42, "polars-runtime-32": 130, "pyarrow": 163, "ray": 165, "scikit-learn": 45, "scipy": 115, "sglang-kernel": 900,
    "sglang-router": 88, "sympy": 25, "tilelang": 300, "torchao": 30, "torchaudio": 8, "torchvision": 25, "transformers": 50,
    "triton": 540, "vllm": 1_300, "wandb": 53, "xformers": 13,
}  # fmt: skip
"""MiB of large distributions, unpacked, without the -cu12 or -cu13 of their name; measured beside torch 2.5, 2.8 and 2.13;
those of vllm, flashinfer and sglang-kernel are estimates."""

CUDA_13_PACKAGES = {
    "nvidia-cublas": 661, "nvidia-cuda-nvrtc": 99, "nvidia-cudnn": 750, "nvidia-cufft": 271, "nvidia-cusolver": 256, "nvidia-cusparse": 167,
    "nvidia-cusparselt": 261, "nvidia-nccl": 227, "nvidia-nvshmem": 135, "triton": 780,
}  # fmt: skip
"""MiB of those that are another size for CUDA 13, the mean of torch 2.12 (13.0) and 2.15 (13.2): it has no code for GPUs before Turing."""

AARCH64_PACKAGES = {"bitsandbytes": 76}
"""MiB of those that are another size for aarch64: code for fewer GPUs."""

LARGE_PACKAGE_FILES = 300

OVERHEAD = (64 << 20, 2_000)
"""The environment itself, its byte-code and the journal."""


class SpaceEstimate(Record):
    """Bytes and files that an install needs, and how many of its packages were estimated."""

    size: int
    files: int
    estimated: int = 0
    packages: int = 0

    @property
    def how_measured(self) -> str:
        if not self.estimated:
            return "measured in the wheels"
        return f"{self.estimated} of {self.packages} packages estimated"


def estimate_space(plan: Plan, folders: Sequence[str]) -> SpaceEstimate:
    """Return the unpacked size of a plan's rows."""
    size, files, estimated = *OVERHEAD, 0
    for row in plan.lock:
        exact = _measure_wheel(row, folders)
        more = exact or _estimate_row(row, plan)
        size, files = size + more[0], files + more[1]
        estimated += exact is None
    return SpaceEstimate(size, files, estimated, len(plan.lock))


def _measure_wheel(row: LockedPackage, folders: Sequence[str]) -> tuple[int, int] | None:
    origin = row.origin.removeprefix("file://")
    if origin.endswith(".whl"):
        return unpacked_wheel_size(origin)
    start = f"{_normalize_wheel_name(row.name)}-{row.version.lower()}-"
    for folder in folders:
        for name in file_contents.list_names_or_empty(folder):
            if name.endswith(".whl") and _normalize_wheel_name(name).startswith(_normalize_wheel_name(start)):
                return unpacked_wheel_size(f"{folder}/{name}")
    return None


def _normalize_wheel_name(name: str) -> str:
    return name.lower().replace("-", "_").replace(".", "_").replace("%2b", "+")


def _estimate_row(row: LockedPackage, plan: Plan) -> tuple[int, int]:
    if row.size:
        return int(row.size * UNPACK_FACTOR), TYPICAL_PACKAGE[1]
    is_cuda_13 = (plan.cuda or plan.torch.rpartition("+cu")[2]).startswith("13")
    is_aarch64 = plan.platform.startswith("aarch64")
    if row.name == "torch":
        kind = "cuda13" if is_cuda_13 else "cuda" if plan.cuda or "+cu" in plan.torch else "cpu"
        return (TORCH_SIZES | AARCH64_TORCH_SIZES if is_aarch64 else TORCH_SIZES)[kind]
    name, _, build = row.name.rpartition("-cu")
    plain = name if build.rstrip("x").isdigit() else row.name
    sizes = LARGE_PACKAGES | (CUDA_13_PACKAGES if is_cuda_13 else {}) | (AARCH64_PACKAGES if is_aarch64 else {})
    large = sizes.get(plain)
    return (large << 20, LARGE_PACKAGE_FILES) if large else TYPICAL_PACKAGE


def explain_shortage(estimate: SpaceEstimate, folder: str, cache: str = "") -> str:
    """Return why it will not fit, in a sentence; empty if it will. The cache counts if it is on another disk."""
    here = file_contents.free_disk_space(folder)
    if here["free"] < estimate.size:
        return _format_shortage(
            f"{format_size(estimate.size)} are needed", f"{format_size(here['free'])} are free", folder, estimate
        )
    if 0 <= here["inodes"] < estimate.files:
        return _format_shortage(
            f"{estimate.files} files are needed", f"room for {here['inodes']} is left", folder, estimate
        )
    if cache:
        other = file_contents.free_disk_space(cache)
        if other["disk"] != here["disk"] and other["free"] < estimate.size:
            free = f"{format_size(other['free'])} are free"
            return _format_shortage(f"{format_size(estimate.size)} are needed in uv's cache", free, cache, estimate)
    return ""


def _format_shortage(needed: str, available: str, where: str, estimate: SpaceEstimate) -> str:
    return f"{needed} ({estimate.how_measured}) and {available} on the disk of {where}: free some, or choose another folder"


def format_size(count: int) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 1 << 30 else f"{max(count >> 20, 0)} MiB"
