"""Lists to choose from, for pages and tools: GPUs, models, torch builds, drivers, systems."""

from collections.abc import Callable
from itertools import chain
from typing import Any

from gpuready import contracts, rules
from gpuready.catalog import cuda, gpus, load_catalog, proofs, systems, torch
from gpuready.fit.job import gpu_candidates


def gpu_list() -> list[dict[str, Any]]:
    """Return every GPU of the catalogue by a name that ``--on`` accepts, the largest first; sizes in bytes."""
    rows = []
    for row in load_catalog("gpus")["gpu"]:
        long = row["name"].casefold().removeprefix("nvidia ").replace(" ", "-")
        name = next(
            (name for name in (gpu_candidates.gpu_from_row(row).short, long) if gpus.find_gpu(name) is row), None
        )
        if name is not None:  # else the name is another card's, and cannot be used
            rows.append(
                {
                    "on": name.casefold().replace(" ", "-"),
                    "name": row["name"],
                    "capability": row["compute_capability"],
                    "memory": int(row["vram_gib"] * 2**30),
                    "market": row.get("market", ""),
                }
            )
    return sorted(rows, key=lambda row: (-row["memory"], row["name"]))


def model_list() -> list[dict[str, Any]]:
    """Return every model of the catalogue, and its number of parameters."""
    rows = load_catalog("models")["model"]
    return [{"name": row["name"], "parameters": row["parameters"]} for row in rows]


def torch_list() -> list[str]:
    """Return every torch build that ``--torch`` accepts, newest first."""
    every = [build for version in torch.list_torch_releases() for build in torch.list_torch_builds(version)]
    return [f"{build.version}+{build.variant}" for build in reversed(every)]


def driver_list() -> list[str]:
    """Return the drivers that CUDA releases name, newest first."""
    return sorted(
        set(cuda.list_release_drivers()), key=lambda text: [int(part) for part in text.split(".")], reverse=True
    )


CHOICES: dict[str, Callable[[], list[Any]]] = {
    "gpus": gpu_list,
    "models": model_list,
    "torches": torch_list,
    "drivers": driver_list,
    "systems": systems.list_systems,
}
"""What a page offers to choose from."""


def _list_provable() -> list[str]:
    every = contracts.list_frameworks(), proofs.list_proof_capabilities(), (row.name for row in proofs.list_proofs())
    return list(dict.fromkeys(chain(*every)))


_NAMES: dict[str, Callable[[], list[str]]] = {
    "frameworks": contracts.list_frameworks,
    "gpus": lambda: [row["on"] for row in gpu_list()],
    "models": lambda: [row["name"] for row in model_list()],
    "codes": rules.list_codes,
    "torch": torch_list,
    "proofs": _list_provable,
}
NAME_KINDS = tuple(_NAMES)


def list_completion_names(kind: str) -> list[str]:
    """Return every name of a kind."""
    return _NAMES[kind]()
