"""A package is half installed, or installed twice.

An install that was killed leaves a package without its metadata, a torch without its version file, or a
folder that pip had renamed to ``~orch`` and never removed. Two dist-info folders of one package are what is
left when an upgrade did not finish, or when two installers worked in one environment: nobody can say which
version the files are, and the two may be mixed.

What is half there is an error; what is there twice, or left over, a warning. Installers trust the metadata
and may call such an environment satisfied, so install the package anew by force. If several are hit, a fresh
environment is quicker and surer. Only packages that the contract names are looked at.
"""

from __future__ import annotations

from gpuready.model import Finding, Need, Step
from gpuready.rules import cards, remedy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts

CODE = "PKG006"
SEVERITY = "error"
READS = ("python.half_installed", "python.duplicates", "torch.broken", "python.path")
SIGNS = ({"says": "Ignoring invalid distribution", "as": "trace"},)
BROKEN = {
    "python.half_installed": ("torch-2.8.0.dist-info",),
    "python.duplicates": (),
    "torch.broken": None,
    "python.path": "/venv/bin/python",
}
HEALTHY = BROKEN | {"python.half_installed": ("left_pad-1.0.dist-info",)}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    mine = _named(contract)
    entries = [str(entry) for entry in facts.value("python.half_installed") or ()]
    half = sorted({_name(entry) for entry in entries if not entry.startswith("~")} & mine)
    left = sorted({name for entry in entries for name in mine if _is_left_of(entry, name)})
    twice = sorted({str(row["name"]) for row in facts.value("python.duplicates") or ()} & mine)
    if facts.value("torch.broken"):
        half = sorted({*half, "torch"})
    if not (half or left or twice):
        return None
    names = list(dict.fromkeys([*half, *twice, *left]))
    return Finding(
        CODE,
        SEVERITY if half else "warning",
        _says(half, twice, left),
        found=tuple(
            facts.fact(key) for key in ("python.half_installed", "python.duplicates", "torch.broken")
        ),
        needs=tuple(
            Need(f"package.{name}", "*", cite="one whole copy: its files and its metadata") for name in names
        ),
        so="imports fail or mix two versions, and installers call it satisfied",
        fix=(_anew(facts, names), Step("make a fresh environment, if there are several")),
    )


def _named(contract: Contract) -> set[str]:
    names = {need.key.removeprefix("package.") for need in contract.wants("package.*")}
    return names | {"torch", contract.distribution} - {""}


def _name(entry: str) -> str:
    """Return ``flash-attn`` for ``flash_attn-2.8.3.dist-info``."""
    return entry.partition("-")[0].lower().replace("_", "-").replace(".", "-")


def _is_left_of(entry: str, name: str) -> bool:
    """Return whether an entry is what pip left of a package: ``~orch`` of torch, also as ``~~rch``."""
    rest = _name(entry)
    bare = rest.lstrip("~")
    return rest.startswith("~") and len(bare) > 1 and len(rest) == len(name) and name.endswith(bare)


def _says(half: list[str], twice: list[str], left: list[str]) -> str:
    parts = [("half installed", half), ("installed twice", twice), ("left over from an install", left)]
    return "; ".join(f"{what}: {cards.listed(names)}" for what, names in parts if names)


def _anew(facts: Facts, names: list[str]) -> Step:
    return remedy.install(facts, f"install {cards.listed(names)} anew", "--reinstall", *names)
