"""An installed package has the name of the required one but is another project.

## What it checks
Whether a package is the wrong project under the right name: ``roll`` on the package index is a web framework,
not Alibaba's ROLL; ``mcore-adapter`` is an unrelated project, ``flash-attn-3`` an empty placeholder,
``colossalai-nightly`` an abandoned build. ROLL's own distribution is also called roll, so its version and
metadata decide. It is an error if the framework or the job needs the package, else a warning. An old
``pynvml`` beside ``nvidia-ml-py`` is information.

## Why it matters
Imports find another program, or nothing.

## How to fix
Remove the wrong package and install the right one as the framework says. ROLL and its adapter are installed
from their checkout.

## References
- Metadata of the packages on the package index
"""

from typing import Any

from gpuready.catalog import packages as catalogue
from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding, versions
from gpuready.rules import contract_needs, fix_steps, torch_compatibility, visible_gpus

CODE = "PKG009"
SEVERITY = "error"
READS = torch_compatibility.READS
CONTRACT = {"framework": "roll", "distribution": "roll"}
BROKEN = {"package.roll": "0.13.4"}
HEALTHY = {"package.roll": "0.3.0", "package.pynvml": None}
WEB_DEPENDENCIES = ("autoroutes", "biscuits", "multifruits")
"""Dependencies of the web framework called roll, none of which Alibaba's ROLL has."""


def judge(facts: Facts, contract: Contract) -> Finding | None:
    lookalikes = {name: row for name in _lookalike_names(contract) if (row := _installed_lookalike(facts, name))}
    if not lookalikes:
        return _pynvml_finding(facts)
    names = [f"{name} {facts.value(f'package.{name}')}" for name in lookalikes]
    return make_finding(
        f"wrong project under this name: {visible_gpus.join_names(names)}",
        found=tuple(facts.fact(f"package.{name}") for name in lookalikes),
        needs=tuple(
            Requirement(f"package.{n}", str(row["wanted"]), cite=str(row["source"])) for n, row in lookalikes.items()
        ),
        so="imports find another program, or nothing",
        fix=(
            _uninstall_step(facts, list(lookalikes)),
            FixStep("then install the right one from its checkout or repository"),
        ),
        severity=torch_compatibility.worst_severity(_lookalike_severity(facts, contract, name) for name in lookalikes),
    )


def _lookalike_names(contract: Contract) -> list[str]:
    own = contract.distribution or contract.framework
    named = [need.key.removeprefix("package.") for need in contract.requirements_for("package.*")]
    return [n for n in dict.fromkeys([own, f"{own}-nightly", *named]) if catalogue.find_lookalike(n)]


def _installed_lookalike(facts: Facts, name: str) -> dict[str, Any] | None:
    """Return the catalog row if the package installed under a name is the lookalike."""
    installed, row = facts.value(f"package.{name}"), catalogue.find_lookalike(name)
    if installed is None or row is None:
        return None
    same = versions.is_version(str(installed)) and versions.compare_versions(str(installed), row["version"]) == 0
    return row if same or (name == "roll" and _is_web_framework(facts)) else None


def _is_web_framework(facts: Facts) -> bool:
    own = (facts.value_if_known("python.requires") or {}).get("roll") or {}
    return any(str(line).lower().startswith(WEB_DEPENDENCIES) for line in own.get("requires_dist") or ())


def _lookalike_severity(facts: Facts, contract: Contract, name: str) -> str:
    return "error" if name == contract.distribution else torch_compatibility.package_severity(facts, contract, name)


def _uninstall_step(facts: Facts, names: list[str]) -> FixStep:
    return fix_steps.uninstall_step(facts, f"remove {visible_gpus.join_names(names)}", *names)


def _pynvml_finding(facts: Facts) -> Finding | None:
    """Report old pynvml: from 12 on it wraps nvidia-ml-py; before, both install the same module."""
    old, new = (contract_needs.peek_fact(facts, f"package.{name}") for name in ("pynvml", "nvidia-ml-py"))
    if not old or not new or not versions.is_version(old) or versions.major_version(old) >= 12:
        return None
    return make_finding(
        f"pynvml {old} overwrites the module of nvidia-ml-py",
        found=(facts.fact("package.pynvml"), facts.fact("package.nvidia-ml-py")),
        needs=(Requirement("package.nvidia-ml-py", "*", cite="torch/cuda/__init__.py: install nvidia-ml-py instead"),),
        so="torch warns at import, and NVML calls use the older module",
        fix=(
            _uninstall_step(facts, ["pynvml"]),
            fix_steps.reinstall_step(facts, "reinstall nvidia-ml-py", "nvidia-ml-py"),
        ),
        severity="info",
    )
