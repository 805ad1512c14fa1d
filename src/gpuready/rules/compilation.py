"""Whether something is compiled on this machine, with which tools, and for which GPUs.

A build is requested by the job (``build``), or by BUILD_EXT=1 if the framework reads that variable. If a contract
only requires a toolkit, kernels are compiled on first use unless they are installed already, so a problem with the
compiler is then a warning.
"""

from typing import Any

from gpuready.catalog import cuda as toolkits
from gpuready.catalog import torch
from gpuready.model import NOT_STATED, Contract, ContractVariable, Facts, UnknownFactError, versions
from gpuready.rules import contract_needs, job_request, visible_gpus

READS = ("env.*", "toolkit.version", *contract_needs.READS)

RUNTIME_COMPILE_WANTS = ("torch-compile", "compile", "flex-attention", "liger", "fla")
"""Wants of a job that make Triton compile C code at run time."""


def build_requested(facts: Facts, contract: Contract) -> bool:
    """Return whether the job or BUILD_EXT requests a build on this machine."""
    if not _targets_cuda(facts, contract):
        return False
    return job_request.job_asks_for(facts, "build") or _build_ext_enabled(facts, contract)


def build_needed(facts: Facts, contract: Contract) -> bool:
    """Return whether a build is requested, or the contract requires a toolkit and so compiles on first use."""
    if not _targets_cuda(facts, contract):
        return False
    if job_request.job_asks_for(facts, "build"):
        return True
    required = [need for need in contract.requirements_for("toolkit.version") if need.level == "required"]
    return bool(contract_needs.needs_in_force(facts, required)) or _build_ext_enabled(facts, contract)


def build_severity(facts: Facts, contract: Contract) -> str:
    """Return error if a build is requested; otherwise the kernels may be installed already."""
    return "error" if build_requested(facts, contract) else "warning"


def compiles_at_runtime(facts: Facts) -> bool:
    """Return whether the job makes Triton compile at run time."""
    return job_request.job_asks_for(facts, *RUNTIME_COMPILE_WANTS)


def _targets_cuda(facts: Facts, contract: Contract) -> bool:
    return "cuda" in contract.platforms and not visible_gpus.has_other_accelerator(facts, contract)


def _build_ext_enabled(facts: Facts, contract: Contract) -> bool:
    if find_contract_variable(contract, "BUILD_EXT") is None:
        return False
    value = (read_build_variable(facts, "BUILD_EXT") or "").strip()
    return value.isdecimal() and int(value) == 1


def find_contract_variable(contract: Contract, name: str) -> ContractVariable | None:
    """Return what a contract says about an environment variable; None if it does not mention it."""
    return next((one for one in contract.variables if one.name == name), None)


def read_build_variable(facts: Facts, name: str) -> str | None:
    """Return the value of a variable. On a hypothetical machine only the stated variables are set."""
    fact = facts.fact(f"env.{name}")
    value = None if fact.gap == NOT_STATED else facts.value(fact.key)
    return None if value is None else str(value)


def find_toolkit_row(facts: Facts) -> dict[str, Any] | None:
    """Return the catalog row of the toolkit in use; None without a toolkit, Unknown for an unknown release."""
    toolkit = facts.value("toolkit.version")
    if toolkit is None:
        return None
    release = toolkits.find_cuda_release(str(toolkit))
    if release is None:
        gap = f"CUDA {toolkit} is not known"
        raise UnknownFactError(facts.fact("toolkit.version").replace(value=None, gap=gap))
    return release


def effective_arch_list(facts: Facts) -> str | None:
    """Return TORCH_CUDA_ARCH_LIST if it has an effect; unset, empty and ``native`` leave the choice to torch."""
    value = (read_build_variable(facts, "TORCH_CUDA_ARCH_LIST") or "").strip()
    return value if value and value != "native" else None


def parse_build_arch_list(text: str) -> dict[str, list[str]] | None:
    """Parse an architecture list; None if it contains an unknown word."""
    try:
        return torch.parse_arch_list(text)
    except ValueError:
        return None


def ignores_arch_list(contract: Contract) -> bool:
    """Return whether the framework sets the architectures itself once it sees a GPU, as ColossalAI does."""
    return contract.framework == "colossalai"


def has_other_compiler(facts: Facts) -> bool:
    """Return whether a variable selects another compiler than the probed gcc."""
    if any(facts.value_if_known(f"env.{name}") for name in ("NVCC_CCBIN", "CUDAHOSTCXX")):
        return True
    flags = " ".join(
        str(facts.value_if_known(f"env.{name}") or "") for name in ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS")
    )
    words = ("ccbin", "compiler-bindir", "allow-unsupported")
    return any(word in flags for word in words) or uses_clang(facts)


def uses_clang(facts: Facts) -> bool:
    return any("clang" in str(facts.value_if_known(f"env.{name}") or "") for name in ("CC", "CXX"))


def find_other_toolkit(facts: Facts, wanted: str = "") -> str | None:
    """Return the folder of another installed toolkit with nvcc, of the wanted major if one is named."""
    for one in facts.value_if_known("toolkit.others") or ():
        version = one.get("version")
        if not (one.get("nvcc") and version) or one.get("path") == facts.value_if_known("toolkit.path"):
            continue
        if not wanted or versions.major_version(version) == versions.major_version(wanted):
            return str(one["path"])
    return None
