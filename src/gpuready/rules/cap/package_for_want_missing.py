"""The job asks for something whose package is not installed.

Some of what a framework offers lives in a package that its contract does not list: kernels of attention,
ways to quantise. Without it the framework stops where it first needs it, which may be after the model was
loaded. fp8 under accelerate needs one of three: torchao, transformer-engine or MS-AMP.

It is an error. What the contract lists is told by PKG002 and PKG003, with its version, and not again here;
what the framework does not offer is left to you. Each of these packages has wishes of its own about torch
and CUDA; check again once it is installed.
"""

from __future__ import annotations

from gpuready.model import Finding, Need
from gpuready.rules import cards, gate, job, needs, remedy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts

CODE = "CAP009"
SEVERITY = "error"
READS = remedy.READS
SIGNS = (
    {
        "says": "FlashAttention2 has been toggled on, but it cannot be used due to the following error: the package",
        "cause": "flash-attn-missing",
    },
    {
        "says": "FlashAttention3 has been toggled on, but it cannot be used due to the following error: the package",
        "cause": "flash-attn-missing",
    },
    {
        "says": "FlashAttention4 has been toggled on, but it cannot be used due to the following error: the package",
        "cause": "flash-attn-missing",
    },
    {
        "says": "has been toggled on, but it cannot be used due to the following error: you need flash_attn package version",
        "cause": "flash-attn-missing",
    },
    {"says": "Flash Attention 2 is not available", "in": "exception", "cause": "flash-attn-missing"},
    {"says": "Flash Attention 2 is not installed", "in": "exception", "cause": "flash-attn-missing"},
    {"says": "No module named 'flash_attn'", "in": "exception", "cause": "flash-attn-missing"},
    {"says": "No module named 'flash_attn.", "in": "exception", "cause": "flash-attn-missing"},
    {"says": "No module named 'flash_attn_interface'", "in": "exception", "cause": "flash-attn-missing"},
    {"says": "not found in your environment: flash_attn", "in": "exception", "cause": "flash-attn-missing"},
    {"says": "not found in your environment: {}flash_attn", "in": "exception", "cause": "flash-attn-missing"},
    {
        "says": "The 'flash-attn{}' distribution was not found and is required",
        "in": "exception",
        "cause": "flash-attn-missing",
    },
    {
        "says": "No package metadata was found for flash_attn",
        "in": "exception",
        "cause": "flash-attn-missing",
    },
    {
        "says": "No package metadata was found for flash-attn",
        "in": "exception",
        "cause": "flash-attn-missing",
    },
    {"says": "lash-attn is not installed", "in": "exception", "cause": "flash-attn-missing"},
    {"says": "flash_attn is not installed", "in": "exception", "cause": "flash-attn-missing"},
    {"says": "flash-attn package is not installed", "in": "exception", "cause": "flash-attn-missing"},
    {"says": "FlashAttention is not installed", "in": "exception", "cause": "flash-attn-missing"},
    {"says": "FlashAttention-2 is not installed", "in": "exception", "cause": "flash-attn-missing"},
    {"says": "FlashAttention2 is not installed", "in": "exception", "cause": "flash-attn-missing"},
    {"says": "lease install flash-attn", "in": "exception", "cause": "flash-attn-missing"},
    {"says": "lease install flash_attn", "in": "exception", "cause": "flash-attn-missing"},
    {"says": "Please install FlashAttention", "in": "exception", "cause": "flash-attn-missing"},
    {
        "says": "pip install flash-attn",
        "in": "exception",
        "without": ("undefined symbol",),
        "cause": "flash-attn-missing",
    },
    {"says": "flash_attn seems to be not installed", "cause": "flash-attn-missing"},
    {"says": "requires `transformer_engine` or `MS-AMP` to be installed", "cause": "missing-python-package"},
    {"says": "SageAttention is not installed", "in": "exception", "cause": "missing-python-package"},
    {"says": "ImportError: flash_attn", "cause": "flash-attn-missing"},
)
CONTRACT = {"capabilities": ({"name": "sage-attention"},)}
BROKEN = {
    "job.wants": ("sage-attention",),
    "package.sageattention": None,
    "package.torch": "2.8.0+cu128",
    "python.path": "/venv/bin/python",
}
HEALTHY = BROKEN | {"package.sageattention": "1.0.6"}

PACKAGES = {
    "sage-attention": ("sageattention",),
    "xformers": ("xformers",),
    "liger": ("liger-kernel",),
    "bnb-4bit": ("bitsandbytes",),
    "bnb-8bit": ("bitsandbytes",),
    "torchao": ("torchao",),
    "hqq": ("hqq",),
    "eetq": ("eetq",),
    "fp-quant": ("fp-quant",),
    "vllm": ("vllm",),
    "sglang": ("sglang",),
}
"""The packages that provide a want; any one of them will do."""

ON_ACCELERATE = ("transformers", "axolotl")
FP8 = ("torchao", "transformer-engine", "ms-amp")
CITE = "what the job asks for is the work of this package"


def judge(facts: Facts, contract: Contract) -> Finding | None:
    asked = _asked(facts, contract)
    if "cuda" not in contract.platforms or not asked or facts.value("package.torch") is None:
        return None  # PKG002 reports an empty environment
    missing = {word: names for word, names in asked.items() if _absent(facts, names)}
    if not missing:
        return None
    first = list(dict.fromkeys(names[0] for names in missing.values()))
    keys = list(dict.fromkeys(f"package.{name}" for names in missing.values() for name in names))
    return Finding(
        CODE,
        SEVERITY,
        f"the job asks for {cards.listed(list(missing))}, and {cards.listed(first)} is not installed",
        found=(*(facts.fact(key) for key in keys), facts.fact("job.wants")),
        needs=tuple(Need(f"package.{name}", "*", cite=CITE) for name in first),
        so="the job stops where it first needs it, perhaps after the model was loaded",
        fix=(remedy.packages(facts, contract, dict.fromkeys(first, "*")),),
    )


def _asked(facts: Facts, contract: Contract) -> dict[str, tuple[str, ...]]:
    """Map each want that the framework offers without naming a package to the packages, any of which will do."""
    wants = job.wants(facts)
    known = PACKAGES | ({"fp8": FP8} if contract.framework in ON_ACCELERATE else {})
    mine = {word: names for word, names in known.items() if word in wants and gate.offered(contract, word)}
    return {word: names for word, names in mine.items() if not _told(facts, contract, names)}


def _told(facts: Facts, contract: Contract, names: tuple[str, ...]) -> bool:
    """Return whether the contract itself asks for one of the packages here."""
    stated = [need for name in names for need in contract.wants(f"package.{name}")]
    return any(needs.surely(facts, need) for need in stated)


def _absent(facts: Facts, names: tuple[str, ...]) -> bool:
    return all(facts.value(f"package.{name}") is None for name in names)
