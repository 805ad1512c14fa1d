"""Seeds: the same for all ranks at the start, separate streams on request, states to save and restore."""

from __future__ import annotations

import random

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

LARGEST = 2**63 - 1
WORKSPACE = ("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
"""Without it cuBLAS may sum in another order each time, and torch refuses deterministic mode."""


def checked(seed: object) -> int:
    """Return the seed if all generators accept it; ValueError otherwise."""
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed <= LARGEST:
        raise ValueError(f"the seed is {seed!r}: it must be a whole number from 0 to 2**63 - 1")
    return seed


def drawn() -> int:
    """Return a random seed, for a job without one."""
    return random.SystemRandom().getrandbits(31)


def derive(seed: int, name: str, *parts: object) -> int:
    """Return the seed of a stream: a hash, so that neighbouring ranks and names are independent."""
    import hashlib

    text = "\0".join(map(str, ("gpuready", seed, name, *parts)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def everywhere(seed: int) -> None:
    """Seed Python, numpy and torch, including all of torch's devices."""
    import torch

    random.seed(seed)
    numpy = _numpy()
    if numpy is not None:
        numpy.random.seed(seed % 2**32)
    torch.manual_seed(seed)
    for module in _devices(torch):
        if hasattr(module, "manual_seed_all"):
            module.manual_seed_all(seed)


def generator(seed: int, device: str = "cpu") -> Any:
    import torch

    return torch.Generator(device=device).manual_seed(seed)


def deterministic(environ: Any) -> None:
    """Use deterministic kernels only, and no autotuning."""
    import torch

    environ.setdefault(*WORKSPACE)
    torch.use_deterministic_algorithms(True)
    cudnn = getattr(torch.backends, "cudnn", None)
    if cudnn is not None:
        cudnn.deterministic, cudnn.benchmark = True, False


# -- states -------------------------------------------------------------------------------------------------


def state() -> dict[str, Any]:
    """Return the states of all generators of this process, to be saved with a checkpoint."""
    import torch

    found: dict[str, Any] = {"python": random.getstate(), "torch": torch.get_rng_state()}
    numpy = _numpy()
    if numpy is not None:
        found["numpy"] = numpy.random.get_state()
    for module in _devices(torch):
        name = module.__name__.rpartition(".")[2]
        if hasattr(module, "get_rng_state_all"):
            found[name] = module.get_rng_state_all()
        elif hasattr(module, "get_rng_state"):
            found[name] = [module.get_rng_state()]
    return found


def restore(saved: Mapping[str, Any]) -> None:
    """Restore what ``save_rng_state`` returned; ValueError if a saved generator is not here."""
    import torch

    random.setstate(_tuples(saved["python"]))
    torch.set_rng_state(saved["torch"])
    numpy = _numpy()
    if "numpy" in saved and numpy is not None:
        numpy.random.set_state(saved["numpy"])
    here = {module.__name__.rpartition(".")[2]: module for module in _devices(torch)}
    for name in saved.keys() - {"python", "torch", "numpy"}:
        if name not in here or len(saved[name]) > here[name].device_count():
            raise ValueError(f"the saved state is of {len(saved[name])} {name} devices, which are not here")
        if hasattr(here[name], "set_rng_state_all"):
            here[name].set_rng_state_all(saved[name])
        else:
            here[name].set_rng_state(saved[name][0])


class Streams:
    """Named streams for code that uses the global generators: each continues where it was left."""

    def __init__(self, seeds: Mapping[str, int]) -> None:
        self._seeds = dict(seeds)
        self._states: dict[str, dict[str, Any]] = {}

    def add(self, name: str, seed: int) -> None:
        if name in self._seeds:
            raise ValueError(f"there is a stream called {name!r} already")
        self._seeds[name] = checked(seed)

    def using(self, name: str) -> Any:
        """Return a context in which every global generator is that of the stream."""
        import contextlib

        if name not in self._seeds:
            raise ValueError(
                f"no stream is called {name!r}: there are {', '.join(sorted(self._seeds)) or 'none'}"
            )

        @contextlib.contextmanager
        def inside() -> Iterator[None]:
            outside = state()
            if name in self._states:
                restore(self._states[name])
            else:
                everywhere(self._seeds[name])
            try:
                yield
            finally:
                self._states[name] = state()
                restore(outside)

        return inside()

    def state(self) -> dict[str, Any]:
        return {"seeds": dict(self._seeds), "states": dict(self._states)}

    def restore(self, saved: Mapping[str, Any]) -> None:
        self._seeds, self._states = dict(saved["seeds"]), dict(saved["states"])


def _numpy() -> Any:
    """Return numpy if it is installed; torch has imported it then."""
    try:
        import numpy
    except ImportError:
        return None
    return numpy


def _devices(torch: Any) -> list[Any]:
    """Return the device modules in use: querying others would initialise them."""
    found = [getattr(torch, name, None) for name in ("cuda", "npu", "xpu", "hpu", "mps")]
    return [m for m in found if m is not None and _in_use(m)]


def _in_use(module: Any) -> bool:
    asked = getattr(module, "is_initialized", None)
    if asked is not None:
        return bool(asked())
    available = getattr(module, "is_available", None)
    return bool(available is not None and available())


def _tuples(value: Any) -> Any:
    """Convert lists to tuples: Python's state comes back from JSON and torch.load with lists."""
    return tuple(_tuples(one) for one in value) if isinstance(value, (list, tuple)) else value
