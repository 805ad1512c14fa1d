"""Container images: NVIDIA's by CUDA release, those of frameworks, and the flags to start them with."""

from collections.abc import Sequence
from typing import Any

from gpuready.catalog import load_catalog
from gpuready.model import versions


def list_cuda_images() -> list[dict[str, Any]]:
    """Return the CUDA images, oldest release first."""
    rows: list[dict[str, Any]] = load_catalog("images")["cuda"]
    return sorted(rows, key=lambda row: versions.major_minor(row["cuda"]))


def find_framework_image(framework: str, variant: str) -> dict[str, Any] | None:
    """Return the image that a framework publishes for one of its variants."""
    rows: list[dict[str, Any]] = load_catalog("images")["framework"]
    return next((r for r in rows if (r["framework"], r["variant"]) == (framework, variant)), None)


def list_framework_images() -> list[dict[str, Any]]:
    """Return every image published by a framework, with its torch and CUDA."""
    rows: list[dict[str, Any]] = load_catalog("images")["framework"]
    return rows


def find_platform_image(framework: str, platform: str, gpus: Sequence[str], version: str = "") -> dict[str, Any] | None:
    """Return what a framework publishes for another platform than CUDA and these GPUs, with its ``image`` and tag, and its ``release`` if known.

    ``version``: the asked one; None where no image of it is known.
    """
    rows = [r for r in load_catalog("images")["platform"] if (r["framework"], r["platform"]) == (framework, platform)]
    for row in rows:
        tag = _platform_tag(row, version)
        if tag and gpus and all(any(name in str(gpu).upper() for name in row["gpus"]) for gpu in gpus):
            release = next((one for one, its_tag in row.get("tags", {}).items() if its_tag == tag), version)
            return {**row, "image": f"{row['image']}:{tag}", "release": release}
    return None


def has_platform_image(framework: str, platform: str) -> bool:
    """Whether a framework publishes any image for another platform than CUDA."""
    rows = load_catalog("images")["platform"]
    return any((row["framework"], row["platform"]) == (framework, platform) for row in rows)


def _platform_tag(row: dict[str, Any], version: str) -> str:
    """Return the tag of an image for a version; that of the newest where none is asked for."""
    if not version:
        return str(row["newest"])
    if "tags" in row:
        return str(row["tags"].get(version, ""))
    return row["tag"].format(version=version) if versions.satisfies_specifier(version, row["versions"]) else ""


def find_base_image(name: str, version: str) -> dict[str, Any]:
    """Return what the catalogue knows of an image at a release, with its CUDA; empty if unknown."""
    for row in load_catalog("images")["base"]:
        if row["image"] == name and _release_in_row(row, version):
            known: dict[str, Any] = dict(row)
            return known | ({"cuda": row["cudas"][version]} if version in row.get("cudas", {}) else {})
    return {}


def _release_in_row(row: dict[str, Any], version: str) -> bool:
    if "since" not in row:
        return True
    if versions.parse_plain_release(version) is None or versions.compare_versions(version, row["since"]) < 0:
        return False
    return "before" not in row or versions.compare_versions(version, row["before"]) < 0


def strip_image_registry(reference: str) -> str:
    """Return an image name without its digest and registry."""
    name = reference.partition("@")[0]
    for row in load_catalog("images")["hub"]:
        for prefix in row["prefixes"]:
            name = name.removeprefix(prefix)
    return name


def container_flags(framework: str) -> dict[str, Any]:
    """Return the flags from the framework's documentation, else the flags every container needs."""
    rows: dict[str, dict[str, Any]] = {row["framework"]: row for row in load_catalog("images")["flags"]}
    return rows.get(framework) or rows[""]


def list_image_tools() -> dict[str, str]:
    """Return the programs that an image file installs besides the plan, with their versions."""
    return {row["name"]: row["version"] for row in load_catalog("images")["tool"]}


def cpu_base_image() -> dict[str, Any]:
    """Return the base image to use if no GPU is planned for."""
    row: dict[str, Any] = load_catalog("images")["plain"][0]
    return row
