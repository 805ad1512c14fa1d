"""Whether something is compiled on this machine, with which tools, and for which GPUs.

A build is requested by the job (``build``), or by BUILD_EXT=1 if the framework reads that variable. If a contract
only requires a toolkit, kernels are compiled on first use unless they are installed already, so a problem with the
compiler is then a warning.
"""

from __future__ import annotations

from gpuready import versions
from gpuready.catalog import architectures
from gpuready.catalog import cuda as toolkits
from gpuready.model import NOT_STATED, Unknown
from gpuready.rules import cards, job, needs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuready.model import Contract, Facts, Variable

READS = ("env.*", "toolkit.version", *needs.READS)

ON_THE_SPOT = ("torch-compile", "compile", "flex-attention", "liger", "fla")
"""Wants of a job that make Triton compile C code at run time."""


def asked(facts: Facts, contract: Contract) -> bool:
    """Return whether the job or BUILD_EXT requests a build on this machine."""
    if not _for_cuda(facts, contract):
        return False
    return job.asks(facts, "build") or _build_ext(facts, contract)


def due(facts: Facts, contract: Contract) -> bool:
    """Return whether a build is requested, or the contract requires a toolkit and so compiles on first use."""
    if not _for_cuda(facts, contract):
        return False
    if job.asks(facts, "build"):
        return True
    required = [need for need in contract.wants("toolkit.version") if need.level == "required"]
    return bool(needs.in_force(facts, required)) or _build_ext(facts, contract)


def severity(facts: Facts, contract: Contract) -> str:
    """Return error if a build is requested; otherwise the kernels may be installed already."""
    return "error" if asked(facts, contract) else "warning"


def on_the_spot(facts: Facts) -> bool:
    """Return whether the job makes Triton compile at run time."""
    return job.asks(facts, *ON_THE_SPOT)


def _for_cuda(facts: Facts, contract: Contract) -> bool:
    return "cuda" in contract.platforms and not cards.elsewhere(facts, contract)


def _build_ext(facts: Facts, contract: Contract) -> bool:
    if variable(contract, "BUILD_EXT") is None:
        return False
    value = (setting(facts, "BUILD_EXT") or "").strip()
    return value.isdecimal() and int(value) == 1


def variable(contract: Contract, name: str) -> Variable | None:
    """Return what a contract says about an environment variable; None if it does not mention it."""
    return next((one for one in contract.variables if one.name == name), None)


def setting(facts: Facts, name: str) -> str | None:
    """Return the value of a variable. On a hypothetical machine only the stated variables are set."""
    fact = facts.fact(f"env.{name}")
    value = None if fact.gap == NOT_STATED else facts.value(fact.key)
    return None if value is None else str(value)


def row(facts: Facts) -> dict[str, Any] | None:
    """Return the catalog row of the toolkit in use; None without a toolkit, Unknown for an unknown release."""
    toolkit = facts.value("toolkit.version")
    if toolkit is None:
        return None
    found = toolkits.release(str(toolkit))
    if found is None:
        gap = f"the catalogue does not know CUDA {toolkit}"
        raise Unknown(facts.fact("toolkit.version").but(value=None, gap=gap))
    return found


def listed(facts: Facts) -> str | None:
    """Return TORCH_CUDA_ARCH_LIST if it has an effect; unset, empty and ``native`` leave the choice to torch."""
    value = (setting(facts, "TORCH_CUDA_ARCH_LIST") or "").strip()
    return value if value and value != "native" else None


def entries(text: str) -> dict[str, list[str]] | None:
    """Parse an architecture list; None if it contains an unknown word."""
    try:
        return architectures.entries(text)
    except ValueError:
        return None


def ignores_list(contract: Contract) -> bool:
    """Return whether the framework sets the architectures itself once it sees a GPU, as ColossalAI does."""
    return contract.framework == "colossalai"


def other_compiler(facts: Facts) -> bool:
    """Return whether a variable selects another compiler than the probed gcc."""
    if any(facts.known(f"env.{name}") for name in ("NVCC_CCBIN", "CUDAHOSTCXX")):
        return True
    flags = " ".join(
        str(facts.known(f"env.{name}") or "") for name in ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS")
    )
    words = ("ccbin", "compiler-bindir", "allow-unsupported")
    return any(word in flags for word in words) or clang(facts)


def clang(facts: Facts) -> bool:
    return any("clang" in str(facts.known(f"env.{name}") or "") for name in ("CC", "CXX"))


def home(facts: Facts, wanted: str = "") -> str | None:
    """Return the folder of another installed toolkit with nvcc, of the wanted major if one is given."""
    for one in facts.known("toolkit.others") or ():
        version = one.get("version")
        if not (one.get("nvcc") and version) or one.get("path") == facts.known("toolkit.path"):
            continue
        if not wanted or versions.major(version) == versions.major(wanted):
            return str(one["path"])
    return None
