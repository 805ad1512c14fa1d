"""Container images: NVIDIA's by CUDA release, the frameworks' own, and what each is started with."""

from __future__ import annotations

from gpuready import versions
from gpuready.catalog import load

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def cuda_images() -> list[dict[str, Any]]:
    """The images of CUDA, the oldest release first."""
    rows: list[dict[str, Any]] = load("images")["cuda"]
    return sorted(rows, key=lambda row: versions.minor(row["cuda"]))


def own(framework: str, variant: str) -> dict[str, Any] | None:
    """The image that a framework publishes for one of its variants."""
    rows: list[dict[str, Any]] = load("images")["framework"]
    return next((r for r in rows if (r["framework"], r["variant"]) == (framework, variant)), None)


def published() -> list[dict[str, Any]]:
    """Every image that a framework publishes, with the torch and the CUDA in it."""
    rows: list[dict[str, Any]] = load("images")["framework"]
    return rows


def bare(reference: str) -> str:
    """The name of an image without its digest, and without the registry that it is taken from."""
    name = reference.partition("@")[0]
    for row in load("images")["hub"]:
        for prefix in row["prefixes"]:
            name = name.removeprefix(prefix)
    return name


def flags(framework: str) -> dict[str, Any]:
    """What a container is started with: as the framework's documentation says, else what every one needs."""
    rows: dict[str, dict[str, Any]] = {row["framework"]: row for row in load("images")["flags"]}
    return rows.get(framework) or rows[""]


def tools() -> dict[str, str]:
    """The programs that a file installs besides the plan, each with its version."""
    return {row["name"]: row["version"] for row in load("images")["tool"]}


def plain() -> dict[str, Any]:
    """The image to stand on where no GPU is planned for."""
    row: dict[str, Any] = load("images")["plain"][0]
    return row
