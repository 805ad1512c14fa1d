"""The machine does not meet another requirement of the framework.

## What it checks
Every requirement of the framework that has no rule of its own: the architecture, the kernel, main memory and
others. A required one is an error, a recommended one a warning, an optional one information.

## Why it matters
The framework may refuse this machine or fail on it. This rule makes sure that no line of them is
ignored.

## How to fix
The finding names the fact that was found and the requirement. Change the machine accordingly, or use another.

## References
- The framework's requirements, with their citations in the finding
"""

from gpuready.catalog.releases import find_release, list_releases
from gpuready.contracts.want import describe_want
from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.model.facts import HARDWARE_FACTS
from gpuready.rules import contract_needs, visible_gpus

CODE = "SYS004"
SEVERITY = "error"
READS = ("*",)
CONTRACT = {"needs": ({"key": "memory.total", "want": ">=64GB", "cite": "installation guide"},)}
BROKEN = {"memory.total": 16_000_000_000}
HEALTHY = {"memory.total": 128_000_000_000}

OTHER_RULES_KEYS = (
    "gpu.capability",
    "gpu.memory",
    "driver.version",
    "toolkit.version",
    "toolkit.nvcc",
    "torch.build",
    "torch.cuda",
    "cudnn.version",
    "nccl.version",
    "python.version",
    "disk.free",
    "system.shm",
    "os.system",
)
OTHER_RULES_FAMILIES = ("package.", "compiler.", "can.", "log.", "fit.", "fleet.")
"""Keys and families of needs that have a rule of their own."""

TORCH_FAMILIES = ("torch.",)
"""Facts that exist only with a CUDA build of torch."""


def judge(facts: Facts, contract: Contract) -> Finding | None:
    derived = [
        need
        for need in contract_needs.unmet_needs(facts, _remaining_needs(contract))
        if _follows_from_other_rule(facts, need)
    ]
    failed = contract_needs.unmet_needs(facts, [need for need in _remaining_needs(contract) if need not in derived])
    if not failed:
        return None
    keys = list(dict.fromkeys(need.key for need in failed))
    return make_finding(
        f"requirement of {contract.framework} not met: {visible_gpus.join_names([_describe_need(facts, n) for n in failed])}",
        found=tuple(facts.fact(key) for key in keys),
        needs=tuple(failed),
        so=f"{contract.framework} may refuse this machine or fail on it",
        fix=_need_steps(contract, failed, facts.value_if_known("os.arch")),
        severity=contract_needs.worst_need_severity(failed),
    )


def _describe_need(facts: Facts, need: Requirement) -> str:
    """``os.arch is aarch64, not x86_64 (wheels of vllm 0.8.5 on PyPI)``; a measured number is told by its line."""
    value = facts.value_if_known(need.key)
    return f"{need.key} is {value}, not {need.want} ({need.cite})" if isinstance(value, str) else need.key


def _remaining_needs(contract: Contract) -> list[Requirement]:
    return [n for n in contract.needs if n.key not in OTHER_RULES_KEYS and not n.key.startswith(OTHER_RULES_FAMILIES)]


def _follows_from_other_rule(facts: Facts, need: Requirement) -> bool:
    """Return whether a need fails only because of what another rule reports: no GPU, or no torch with CUDA."""
    if need.key == "gpu.count":
        return not facts.value("gpu.count")
    return (
        need.key.startswith(TORCH_FAMILIES)
        and not facts.value(need.key)
        and contract_needs.peek_fact(facts, "torch.cuda") is None
    )


def _need_steps(contract: Contract, failed: list[Requirement], arch: object) -> tuple[FixStep, ...]:
    does = "; ".join(f"{need.key} must be {describe_want(need.want)}" for need in failed)
    own = FixStep(does, safety="elsewhere" if any(need.key in HARDWARE_FACTS for need in failed) else "manual")
    name = contract.distribution or contract.framework
    known = ((version, (find_release(name, version) or ("", {}))[1]) for version in list_releases(name))
    first = next((version for version, row in known if arch in row.get("machines", ())), "")
    if "os.arch" not in (need.key for need in failed) or not first:
        return (own,)
    return (FixStep(f"take {name} {first} or newer, which has wheels for {arch}"), own)
