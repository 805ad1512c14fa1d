"""CUDA drops some entries of CUDA_VISIBLE_DEVICES in silence.

CUDA reads the list from the left and stops at the first entry that names no GPU of this machine. What
follows is dropped too, good entries among them: ``0,99,1`` shows one GPU, not two. No message is given, the
job simply runs on fewer GPUs, and a launcher that was told to start one process for each entry fails later
with ``invalid device ordinal``.

Correct the list, or unset the variable. GPUs are named by index (from 0, in the order that CUDA_DEVICE_ORDER
sets) or by UUID; one list cannot mix the two.
"""

from __future__ import annotations

from gpuready.model import Finding, Need, Step
from gpuready.rules import cards, job
from gpuready.rules.gpu.visibility_hides_gpus import nearest, quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts

CODE = "GPU003"
SEVERITY = "error"
READS = ("gpu.count", "visibility.cuda", "gpu.uuid", "job.wants")
SIGNS = ()
BROKEN = {
    "gpu.count": 1,
    "visibility.cuda": {
        "value": "0,99",
        "shown": (0,),
        "ignored": ("99",),
        "why": "'99' is no GPU of this machine",
    },
    "gpu.uuid": ("GPU-5b7a0f6e-1",),
}
HEALTHY = {
    "gpu.count": 1,
    "visibility.cuda": {
        "value": "0",
        "shown": (0,),
        "ignored": (),
        "why": "CUDA_VISIBLE_DEVICES names 1 of 1",
    },
    "gpu.uuid": ("GPU-5b7a0f6e-1",),
}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if "cuda" not in contract.platforms or job.asks(facts, "cpu") or not facts.value("gpu.count"):
        return None
    table = facts.value("visibility.cuda")
    if not table or not table.get("ignored") or not table.get("shown"):
        return None
    dropped = cards.listed([quoted(entry) for entry in table["ignored"]])
    shown = len(table["shown"])
    return Finding(
        CODE,
        SEVERITY,
        f"some entries of CUDA_VISIBLE_DEVICES (value {quoted(table.get('value'))}) are dropped: {dropped}",
        found=(facts.fact("visibility.cuda"), facts.fact("gpu.count"), facts.fact("gpu.uuid")),
        needs=(Need("visibility.cuda", "*", cite="CUDA C++ Programming Guide, CUDA environment variables"),),
        so=f"{table.get('why')}: the job sees {shown} of the {shown + len(table['ignored'])} that are named",
        fix=(
            Step(f"keep the entries that count: CUDA_VISIBLE_DEVICES={cards.only(facts, table['shown'])}"),
            nearest(facts, table),
        ),
    )
