"""The installed torchvision or torchaudio belongs to another torch.

## What it checks
The installed torchvision and torchaudio against the releases made for this torch. torchvision for another
minor release of torch is an error, for another patch release a warning, as is torchaudio. From 0.29.1 on
torchvision only needs torch 2.14 or newer. Nightlies and own builds are not checked.

## Why it matters
torchvision loads without its operators: ``operator torchvision::nms does not exist``. transformers imports it
wherever images may occur, so the message appears far from its cause.

## How to fix
Install the releases for this torch, or remove the package if nothing needs it.

## References
- Metadata of the torchvision and torchaudio wheels
- torchvision README, version table
"""

from gpuready.catalog import torch as catalogue
from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding, versions
from gpuready.rules import fix_steps, torch_compatibility, visible_gpus

CODE = "PKG019"
SEVERITY = "error"
READS = torch_compatibility.READS
BROKEN = {"torch.version": "2.8.0+cu128", "package.torchvision": "0.21.0+cu124", "package.torchaudio": None}
HEALTHY = BROKEN | {"package.torchvision": "0.23.0+cu128"}
UNPINNED_SINCE = ("0.29.1", "2.14.0")
"""The first torchvision that does not pin torch, and the torch it requires."""

LAST_WITH_TORCHAUDIO = "2.11.0"
"""The last torch with a matching torchaudio; little is known of later combinations."""


def judge(facts: Facts, contract: Contract) -> Finding | None:
    torch = torch_compatibility.installed_torch_release(facts)
    row = catalogue.find_torch_release(torch) if torch else None
    if torch is None or row is None:
        return None
    mismatched = {
        name: distance for name in ("torchvision", "torchaudio") if (distance := _release_distance(facts, name, torch))
    }
    if not mismatched:
        return None
    wanted = {name: f"=={row[name]}" for name in mismatched}
    names = [f"{name} {facts.value(f'package.{name}')}" for name in mismatched]
    return make_finding(
        f"made for another torch than {torch}: {visible_gpus.join_names(names)}",
        found=tuple(facts.fact(key) for key in (*(f"package.{name}" for name in mismatched), "torch.version")),
        needs=tuple(Requirement(f"package.{n}", want, cite=str(row["source"])) for n, want in wanted.items()),
        so="its operators are missing, and imports fail: torchvision::nms does not exist",
        fix=(_install_pair_step(facts, wanted),),
        severity=torch_compatibility.soften_for_conda(
            facts, SEVERITY if mismatched.get("torchvision") == "minor" else "warning"
        ),
    )


def _release_distance(facts: Facts, name: str, torch: str) -> str | None:
    """Return how far the torch an installed package is made for is from this one: minor, patch, or None if equal."""
    installed = str(facts.value(f"package.{name}") or "").partition("+")[0]
    if versions.parse_plain_release(installed) is None or _is_unpinned(name, installed, torch):
        return None
    pairs = [one for one in catalogue.list_torch_releases() if _is_paired_release(one, name, installed)]
    if not pairs or any(versions.compare_versions(one, torch) == 0 for one in pairs):
        return None
    near = any(versions.major_minor(one) == versions.major_minor(torch) for one in pairs)
    return "patch" if near else "minor"


def _is_unpinned(name: str, installed: str, torch: str) -> bool:
    if name == "torchaudio":
        return versions.compare_versions(torch, LAST_WITH_TORCHAUDIO) > 0
    return (
        versions.compare_versions(installed, UNPINNED_SINCE[0]) >= 0
        and versions.compare_versions(torch, UNPINNED_SINCE[1]) >= 0
    )


def _is_paired_release(torch: str, name: str, installed: str) -> bool:
    pair = (catalogue.find_torch_release(torch) or {}).get(name)
    return bool(pair) and versions.compare_versions(str(pair), installed) == 0


def _install_pair_step(facts: Facts, wanted: dict[str, str]) -> FixStep:
    variant = catalogue.parse_torch_version(str(facts.value("torch.version")))[1]
    backend = ("--torch-backend", variant) if variant else ()
    words = [f"{name}{want}" for name, want in wanted.items()]
    return fix_steps.install_step(facts, f"install {visible_gpus.join_names(words)}", *backend, *words)
