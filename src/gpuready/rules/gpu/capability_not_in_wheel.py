"""The torch wheel has no code for a GPU of this machine.

A build of torch carries machine code for a list of architectures (``sm_80``, ``sm_90`` …). Code for ``sm_Xy``
runs on every GPU of the same major X whose minor is y or higher: an RTX 4090 (8.9) is at home on ``sm_86``,
and needs no ``sm_89``. Code of another major never runs. PTX (``compute_90``) can be compiled by the driver
for newer GPUs, but hardly any published build of torch carries it. Integrated (Tegra) GPUs stand outside
this rule in builds of CUDA before 13.2.

``torch.cuda.is_available()`` stays True on such a GPU and memory can be had; the first kernel then fails with
``no kernel image is available``. New GPUs meet it with an old torch; old ones (Volta, Pascal) with a new one,
whose default build has dropped them while a build for an older CUDA may still have them.

The way out is another build of torch, where the contract's pins leave one; or, on a machine with different
GPUs, to show only those that are covered.
"""

from __future__ import annotations

from gpuready.catalog import cuda as toolkits
from gpuready.catalog import torch as catalogue
from gpuready.model import Finding, Need, Step
from gpuready.rules import cards, remedy
from gpuready.rules.heard import COMPILED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuready.model import Contract, Facts

CODE = "GPU004"
SEVERITY = "error"
READS = (*cards.READS, "gpu.capability", "torch.cuda", "torch.arch", *remedy.READS)
SIGNS = (
    {"says": "no kernel image is available for execution on the device", "without": COMPILED},
    "is not compatible with the current PyTorch installation",
    "PyTorch no longer supports this GPU because it is too old",
    {
        "says": "no kernel image is available for execution on the device",
        "with": COMPILED,
        "also": ("is not compatible with the current PyTorch",),
    },
    {"says": "invalid value for --gpu-architecture (-arch)", "in": "exception"},
    {"says": "nvrtc: error: invalid value for --gpu-architecture"},
    {"says": "CUDA error: invalid device function", "without": COMPILED, "as": "clue"},
)
BROKEN = {
    "gpu.count": 1,
    "gpu.visible": (0,),
    "gpu.name": ("NVIDIA GeForce RTX 5090",),
    "gpu.capability": ("12.0",),
    "torch.cuda": "12.4",
    "torch.arch": ("sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90"),
}
HEALTHY = BROKEN | {"gpu.name": ("NVIDIA GeForce RTX 4090",), "gpu.capability": ("8.9",)}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if "cuda" not in contract.platforms or not cards.shown(facts):
        return None
    built_for = facts.value("torch.cuda")
    if built_for is None:
        return None
    listed = facts.value("torch.arch")
    if not listed:
        return None
    capabilities = cards.each(facts, "gpu.capability")
    bare = {i: c for i, c in capabilities.items() if not catalogue.covers(listed, c, built_for)[0]}
    return _finding(facts, contract, bare, capabilities) if bare else None


def _finding(facts: Facts, contract: Contract, bare: dict[int, Any], every: dict[int, Any]) -> Finding:
    cite = str(toolkits.rule("cubin_compat")["source"])
    wanted = dict.fromkeys("sm_" + str(c).replace(".", "") for c in bare.values())
    return Finding(
        CODE,
        SEVERITY,
        f"torch has no code for {cards.called(facts, bare, bare)}",
        found=tuple(facts.fact(key) for key in ("gpu.capability", "torch.arch", "torch.cuda")),
        needs=tuple(Need("torch.arch", arch, cite=cite) for arch in wanted),
        so="the first kernel fails there: no kernel image is available, though is_available() may be True",
        fix=tuple(_ways_out(facts, contract, bare, every)),
    )


def _ways_out(facts: Facts, contract: Contract, bare: dict[int, Any], every: dict[int, Any]) -> list[Step]:
    build = remedy.another_torch(facts, contract)
    steps = [build] if build else [Step(_nothing(facts, contract, bare))]
    covered = [index for index in every if index not in bare]
    if covered:
        steps.append(Step(f"show only the others: CUDA_VISIBLE_DEVICES={cards.only(facts, covered)}"))
    return steps


def _nothing(facts: Facts, contract: Contract, bare: dict[int, Any]) -> str:
    pins = " and ".join(remedy.pins_on(facts, contract, "package.torch"))
    inside = f" within {pins}" if pins else ""
    capabilities = cards.listed(sorted(set(map(str, bare.values()))))
    nothing = f"no torch{inside} that runs here has code for {capabilities}"
    return f"use another GPU or another version of {contract.framework}: {nothing}"
