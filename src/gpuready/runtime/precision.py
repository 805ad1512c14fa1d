"""Which precisions and attention kernels a GPU supports, by the catalogue's gates and the contract's.

A capability is text (``9.0``) or torch's pair; None means no GPU.
"""

from collections.abc import Mapping

from gpuready.catalog import gpus
from gpuready.contracts import want as wanting
from gpuready.model import Contract, Requirement

ComputeCapability = str | tuple[int, int] | None


HALF_DTYPES = ("fp16", "float16", "bf16", "bfloat16")
PER_TENSOR, PER_BLOCK = "per-tensor", "per-block"


def sm_string(capability: ComputeCapability) -> str | None:
    """Return the architecture name: ``9.0`` -> ``sm_90``; None without a GPU."""
    text = _capability_text(capability)
    return None if text is None else "sm_" + text.replace(".", "")


def supports_feature(feature: str, capability: ComputeCapability, contract: Contract | None = None) -> bool:
    """Whether GPUs of this capability have a feature natively, and the contract allows it.

    Emulation does not count. Without a GPU nothing is supported. ValueError for an unknown feature.
    """
    text = _capability_text(capability)
    if text is None:
        return False
    own, _ = gpus.check_feature_support(feature, text)
    return own and all(wanting.value_meets_want(need.want, text) for need in _capability_needs(feature, contract))


def mixed_precision(capability: ComputeCapability) -> str:
    """Return the training precision: bf16 from Ampere on, fp16 on older GPUs, ``no`` without one."""
    return next((name for name in ("bf16", "fp16") if supports_feature(name, capability)), "no")


def best_attention(
    capability: ComputeCapability, installed: Mapping[str, str], dtype: str, contract: Contract | None = None
) -> tuple[str, str]:
    """Return the fastest usable attention, with the reason: flash-attn, xformers, sdpa or eager.

    ``installed`` maps packages to versions; ``dtype`` is that of the weights (``bf16``, ``fp32`` …).
    """
    short = dtype.removeprefix("torch.")
    reasons: list[str] = []
    for name in ("flash-attn", "xformers"):
        why = _why_unusable(name, capability, installed, short, contract)
        if not why:
            return name, "; ".join([*reasons, f"{name} {installed[name]} serves {_describe_capability(capability)}"])
        reasons.append(f"{name}: {why}")
    if capability is None or supports_feature("sdpa_efficient", capability):
        return "sdpa", "; ".join([*reasons, "torch's own attention needs no package"])
    return "eager", "; ".join([*reasons, f"sdpa: torch has no kernel for {_describe_capability(capability)}"])


def fp8_recipe(moe: bool) -> tuple[str, ...]:
    """Return how ROLL scales fp8 weights: per tensor or per block; mixtures of experts per block only."""
    return (PER_BLOCK,) if moe else (PER_TENSOR, PER_BLOCK)


def _why_unusable(
    name: str, capability: ComputeCapability, installed: Mapping[str, str], dtype: str, contract: Contract | None
) -> str:
    """Return why an attention package cannot be used; empty if it can."""
    if name not in installed:
        return "not installed"
    if not supports_feature(name, capability, contract):
        return f"not for {_describe_capability(capability)}"
    if name == "flash-attn" and dtype not in HALF_DTYPES:
        return f"takes fp16 and bf16, not {dtype}"
    pins = [need.want for need in _package_needs(name, contract)]
    if not all(wanting.value_meets_want(pin, installed[name]) for pin in pins):
        return f"{installed[name]} is outside {' and '.join(pins)}"
    return ""


def _capability_needs(feature: str, contract: Contract | None) -> list[Requirement]:
    """Return the contract's own capability needs for a feature."""
    row = gpus.find_feature(feature) or {}
    names = {_normalize_word(name) for name in (feature, row.get("id", ""), *row.get("aliases", ()))}
    rows = contract.requirements_for("gpu.capability") if contract else ()
    return [need for need in rows if names & _wanted_features(need)]


def _package_needs(package: str, contract: Contract | None) -> list[Requirement]:
    """Return the contract's needs on a package that the job wants; other conditions are ignored."""
    rows = contract.requirements_for(f"package.{package}") if contract else ()
    return [need for need in rows if not need.when or need.when == f"wants={package}"]


def _wanted_features(need: Requirement) -> set[str]:
    """Return the wants that activate a need: ``wants=bf16|fp16`` -> bf16, fp16."""
    conditions = [atom.partition("=")[2] for atom in need.when.split(",") if atom.strip().startswith("wants=")]
    return {_normalize_word(word) for words in conditions for word in words.split("|")}


def _normalize_word(name: str) -> str:
    return name.strip().lower().replace("_", "-")


def _capability_text(capability: ComputeCapability) -> str | None:
    return capability if capability is None or isinstance(capability, str) else ".".join(map(str, capability))


def _describe_capability(capability: ComputeCapability) -> str:
    text = _capability_text(capability)
    return "a machine without a GPU" if text is None else f"compute capability {text}"
