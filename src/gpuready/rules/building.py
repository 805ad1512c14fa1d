"""Whether something is compiled here, with what, and for which GPUs.

A build is asked for by the job (``build``), or by BUILD_EXT=1 where the framework reads that variable.
Where a contract only requires a toolkit, kernels are compiled on first use unless they are there already:
what would stop the compiler is then a warning.
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
"""What the job may ask for that makes Triton compile a piece of C when it runs."""


def asked(facts: Facts, contract: Contract) -> bool:
    """Whether somebody asks for a build on this machine."""
    if not _for_cuda(facts, contract):
        return False
    return job.asks(facts, "build") or _build_ext(facts, contract)


def due(facts: Facts, contract: Contract) -> bool:
    """Whether a build is asked for, or the contract requires a toolkit: then it compiles on first use."""
    if not _for_cuda(facts, contract):
        return False
    if job.asks(facts, "build"):
        return True
    required = [need for need in contract.wants("toolkit.version") if need.level == "required"]
    return bool(needs.in_force(facts, required)) or _build_ext(facts, contract)


def severity(facts: Facts, contract: Contract) -> str:
    """An error where a build is asked for; elsewhere the kernels may be there already."""
    return "error" if asked(facts, contract) else "warning"


def on_the_spot(facts: Facts) -> bool:
    """Whether the job makes Triton compile when it runs."""
    return job.asks(facts, *ON_THE_SPOT)


def _for_cuda(facts: Facts, contract: Contract) -> bool:
    return "cuda" in contract.platforms and not cards.elsewhere(facts, contract)


def _build_ext(facts: Facts, contract: Contract) -> bool:
    if variable(contract, "BUILD_EXT") is None:
        return False
    value = (setting(facts, "BUILD_EXT") or "").strip()
    return value.isdecimal() and int(value) == 1


def variable(contract: Contract, name: str) -> Variable | None:
    """What a contract says of an environment variable; None where it does not read it."""
    return next((one for one in contract.variables if one.name == name), None)


def setting(facts: Facts, name: str) -> str | None:
    """The value of a variable. A machine that is only imagined has those that are stated, and no others."""
    fact = facts.fact(f"env.{name}")
    value = None if fact.gap == NOT_STATED else facts.value(fact.key)
    return None if value is None else str(value)


def row(facts: Facts) -> dict[str, Any] | None:
    """What the catalogue knows of the toolkit that is used; None without one, Unknown for an unknown one."""
    toolkit = facts.value("toolkit.version")
    if toolkit is None:
        return None
    found = toolkits.release(str(toolkit))
    if found is None:
        gap = f"the catalogue does not know CUDA {toolkit}"
        raise Unknown(facts.fact("toolkit.version").but(value=None, gap=gap))
    return found


def listed(facts: Facts) -> str | None:
    """The value of TORCH_CUDA_ARCH_LIST where it decides; unset, empty and ``native`` leave it to torch."""
    value = (setting(facts, "TORCH_CUDA_ARCH_LIST") or "").strip()
    return value if value and value != "native" else None


def entries(text: str) -> dict[str, list[str]] | None:
    """The words of such a list, each with what it stands for; None where a word is not understood."""
    try:
        return architectures.entries(text)
    except ValueError:
        return None


def ignores_list(contract: Contract) -> bool:
    """Whether a framework sets the architectures itself as soon as it sees a GPU: ColossalAI does."""
    return contract.framework == "colossalai"


def other_compiler(facts: Facts) -> bool:
    """Whether a variable gives the build another compiler than the gcc that was looked at."""
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
    """The folder of another toolkit with nvcc that is here, of the wanted major where one is named."""
    for one in facts.known("toolkit.others") or ():
        version = one.get("version")
        if not (one.get("nvcc") and version) or one.get("path") == facts.known("toolkit.path"):
            continue
        if not wanted or versions.major(version) == versions.major(wanted):
            return str(one["path"])
    return None
