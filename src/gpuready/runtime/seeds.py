"""Seeds: the same for all ranks at the start, and a generator per stream."""

import hashlib
import random
from typing import Any

MAX_SEED = 2**63 - 1
CUBLAS_WORKSPACE = ("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
"""Without it cuBLAS may sum in another order each time, and torch refuses deterministic mode."""


def validate_seed(seed: object) -> int:
    """Return the seed if all generators accept it; ValueError otherwise."""
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed <= MAX_SEED:
        raise ValueError(f"the seed is {seed!r}: it must be a whole number from 0 to 2**63 - 1")
    return seed


def draw_seed() -> int:
    """Return a random seed, for a job without one."""
    return random.SystemRandom().getrandbits(31)


def derive_seed(seed: int, name: str, *parts: object) -> int:
    """Return the seed of a stream: a hash, so that neighbouring ranks and names are independent."""
    text = "\0".join(map(str, ("gpuready", seed, name, *parts)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def seed_everything(seed: int) -> None:
    """Seed Python, numpy and torch, including all of torch's devices."""
    import torch

    random.seed(seed)
    numpy = _import_numpy()
    if numpy is not None:
        numpy.random.seed(seed % 2**32)
    torch.manual_seed(seed)
    for module in _device_modules(torch):
        if hasattr(module, "manual_seed_all"):
            module.manual_seed_all(seed)


def make_generator(seed: int, device: str = "cpu") -> Any:
    import torch

    return torch.Generator(device=device).manual_seed(seed)


def enable_determinism(environ: Any) -> None:
    """Use deterministic kernels only, and no autotuning."""
    import torch

    environ.setdefault(*CUBLAS_WORKSPACE)
    torch.use_deterministic_algorithms(True)
    cudnn = getattr(torch.backends, "cudnn", None)
    if cudnn is not None:
        cudnn.deterministic, cudnn.benchmark = True, False


def _import_numpy() -> Any:
    """Return numpy if it is installed; torch has imported it then."""
    try:
        import numpy
    except ImportError:
        return None
    return numpy


def _device_modules(torch: Any) -> list[Any]:
    """Return the device modules in use: querying others would initialise them."""
    modules = [getattr(torch, name, None) for name in ("cuda", "npu", "xpu", "hpu", "mps")]
    return [m for m in modules if m is not None and _is_in_use(m)]


def _is_in_use(module: Any) -> bool:
    is_initialized = getattr(module, "is_initialized", None)
    if is_initialized is not None:
        return bool(is_initialized())
    available = getattr(module, "is_available", None)
    return bool(available is not None and available())
