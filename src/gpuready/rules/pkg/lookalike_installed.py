"""A package is installed that only looks like the one that is meant.

Some names on the package index belong to somebody else. ``roll`` there is a web framework, and so is what
``pip install roll`` brings in the place of Alibaba's ROLL; ``mcore-adapter`` is a stranger's,
``flash-attn-3`` an empty place-holder, ``colossalai-nightly`` a build that has stood still for a long time.
ROLL and its adapter are installed from their checkout. ROLL's own distribution is called roll too, so the
name alone proves nothing: the web framework is known by its version or by what its metadata asks for.

It is an error where the contract or the job needs the package, else a warning; packages that the contract
does not name are left alone. An old ``pynvml`` beside ``nvidia-ml-py``, both with a module of that name, is
a line of information. Remove the stranger, and install the real one as the contract says.
"""

from __future__ import annotations

from gpuready import versions
from gpuready.catalog import packages as catalogue
from gpuready.model import Finding, Need, Step
from gpuready.rules import cards, fits, needs, remedy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuready.model import Contract, Facts

CODE = "PKG009"
SEVERITY = "error"
READS = fits.READS
SIGNS = ()
CONTRACT = {"framework": "roll", "distribution": "roll"}
BROKEN = {"package.roll": "0.13.4"}
HEALTHY = {"package.roll": "0.3.0", "package.pynvml": None}
WEB = ("autoroutes", "biscuits", "multifruits")
"""Dependencies of the web framework called roll, none of which Alibaba's ROLL has."""


def judge(facts: Facts, contract: Contract) -> Finding | None:
    found = {name: row for name in _names(contract) if (row := _strange(facts, name))}
    if not found:
        return _nvml(facts)
    names = [f"{name} {facts.value(f'package.{name}')}" for name in found]
    return Finding(
        CODE,
        fits.graver(_weight(facts, contract, name) for name in found),
        f"not what it seems: {cards.listed(names)}",
        found=tuple(facts.fact(f"package.{name}") for name in found),
        needs=tuple(
            Need(f"package.{n}", str(row["wanted"]), cite=str(row["source"])) for n, row in found.items()
        ),
        so="imports find another program under the same name, or nothing at all",
        fix=(
            _removed(facts, list(found)),
            Step("then install the real one, from its checkout or repository"),
        ),
    )


def _names(contract: Contract) -> list[str]:
    own = contract.distribution or contract.framework
    named = [need.key.removeprefix("package.") for need in contract.wants("package.*")]
    return [n for n in dict.fromkeys([own, f"{own}-nightly", *named]) if catalogue.lookalike(n)]


def _strange(facts: Facts, name: str) -> dict[str, Any] | None:
    """Return the catalog row if the package installed under a name is the lookalike."""
    installed, row = facts.value(f"package.{name}"), catalogue.lookalike(name)
    if installed is None or row is None:
        return None
    same = versions.is_version(str(installed)) and versions.compare(str(installed), row["version"]) == 0
    return row if same or (name == "roll" and _web(facts)) else None


def _web(facts: Facts) -> bool:
    own = (facts.known("python.requires") or {}).get("roll") or {}
    return any(str(line).lower().startswith(WEB) for line in own.get("requires_dist") or ())


def _weight(facts: Facts, contract: Contract, name: str) -> str:
    return "error" if name == contract.distribution else fits.weight(facts, contract, name)


def _removed(facts: Facts, names: list[str]) -> Step:
    path = facts.known("python.path")
    where = ("--python", str(path)) if path else ()
    return Step(f"remove {cards.listed(names)}", ("uv", "pip", "uninstall", *where, *names), "ask")


def _nvml(facts: Facts) -> Finding | None:
    """Report old pynvml: from 12 on it wraps nvidia-ml-py; before, both install the same module."""
    old, new = (needs.glimpse(facts, f"package.{name}") for name in ("pynvml", "nvidia-ml-py"))
    if not old or not new or not versions.is_version(old) or versions.major(old) >= 12:
        return None
    return Finding(
        CODE,
        "info",
        f"pynvml {old} lies over the module of nvidia-ml-py",
        found=(facts.fact("package.pynvml"), facts.fact("package.nvidia-ml-py")),
        needs=(
            Need("package.nvidia-ml-py", "*", cite="torch/cuda/__init__.py: install nvidia-ml-py instead"),
        ),
        so="torch warns at import, and what asks NVML finds the older module",
        fix=(
            _removed(facts, ["pynvml"]),
            remedy.install(facts, "install nvidia-ml-py anew", "--reinstall", "nvidia-ml-py"),
        ),
    )
