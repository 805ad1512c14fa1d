"""The job asks for kernels that Triton cannot make for these GPUs.

torch.compile, flex attention and the Liger kernels are written in Triton, a compiler for GPUs from Volta
(compute capability 7.0) on. On Pascal and older it refuses: ``which is too old to be supported by the
triton GPU compiler``. With errors suppressed, torch falls back to running without compilation, and nothing
is gained.

It is an error when the job asks for one of them. Leave compilation out (``torch_compile: false``,
TORCHDYNAMO_DISABLE=1), and take ``sdpa`` for flex attention. Everything else runs on such a GPU as far as
torch still has code for it, which GPU004 tells.
"""

from __future__ import annotations

from gpuready import versions
from gpuready.model import Finding, Step
from gpuready.rules import cards, gate, job, wanted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuready.model import Contract, Facts

CODE = "CAP007"
SEVERITY = "error"
READS = wanted.READS
SIGNS = (
    {
        "says": "which is too old to be supported by the triton GPU compiler",
        "cause": "arch-not-in-torch-build",
    },
    {"says": "Triton only supports devices of CUDA Capability", "cause": "arch-not-in-torch-build"},
)
BROKEN = {
    "job.wants": ("torch-compile",),
    "gpu.count": 1,
    "gpu.visible": (0,),
    "gpu.name": ("Tesla P100-PCIE-16GB",),
    "gpu.capability": ("6.0",),
}
HEALTHY = BROKEN | {"gpu.name": ("Tesla V100-PCIE-16GB",), "gpu.capability": ("7.0",)}
FLOOR = "7.0"


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if "cuda" not in contract.platforms:
        return None
    asked = [name for name in ("torch_compile", "liger") if gate.asked(facts, name)]
    words = [name.replace("_", "-") for name in asked]
    words += ["flex-attention"] if job.asks(facts, "flex-attention") else []
    old = _old(facts) if words else {}
    if not old:
        return None
    return Finding(
        CODE,
        SEVERITY,
        f"{cards.listed(words)} needs Triton, which does not support {cards.called(facts, old, old)}",
        found=(facts.fact("gpu.capability"), facts.fact("gpu.name")),
        needs=(wanted.need("torch_compile"),),
        so="the job stops when the first kernel is compiled",
        fix=(Step(f"leave out {cards.listed(words)}"), Step("use GPUs of compute capability 7.0 or newer")),
    )


def _old(facts: Facts) -> dict[int, Any]:
    every = cards.each(facts, "gpu.capability")
    return {index: c for index, c in every.items() if versions.compare(str(c), FLOOR) < 0}
