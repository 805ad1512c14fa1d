"""What GPUs report of their own condition: who tells, who has no such thing, and what a bad one leaves.

A list with holes is enough to convict: what one GPU tells is known, whatever another hides. It is not enough
to acquit. These facts belong to a real machine: where nobody looked for them (a what-if, an old recording) a
rule about them does not apply.
"""

from __future__ import annotations

from gpuready.model import Step, Unknown
from gpuready.rules import cards, job

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Any

    from gpuready.model import Contract, Facts

READS = (*cards.READS, "job.wants", "job.gpus")

EXCUSES = ("not supported", "n/a", "is lost")
"""Reasons that leave nothing to judge: the GPU has no such thing, or it is lost, which GPU013 tells."""

CHIPS = ("GH200", "GB200", "GB300", "GB10", "Thor", "Orin")
"""GPUs that share a module with their processor: PCIe is not their road to it."""


def rests(facts: Facts, contract: Contract, *keys: str) -> bool:
    """Whether there is nothing to judge: another platform, facts nobody looked for, or a job for the CPU."""
    if "cuda" not in contract.platforms or any(key not in facts for key in keys):
        return True
    return job.asks(facts, "cpu")


def told(facts: Facts, key: str) -> dict[int, Any]:
    """One fact of every GPU that is shown and tells it, by index."""
    values = facts.fact(key).value or ()
    return {i: values[i] for i in cards.shown(facts) if 0 <= i < len(values) and values[i] is not None}


def settled(facts: Facts, key: str) -> None:
    """Unknown where a GPU that is shown keeps one fact from us; a GPU that has no such thing does not."""
    silent = [index for index in cards.shown(facts) if index not in told(facts, key)]
    if silent and not excused(facts, key):
        fact = facts.fact(key)
        raise Unknown(fact if fact.gap else fact.but(value=None, gap=f"not known of GPU {silent[0]}"))


def excused(facts: Facts, key: str) -> bool:
    """Whether all that is missing of a fact is missing for a reason that leaves nothing to judge."""
    reasons = facts.fact(key).gap.lower().split("; ")
    return all(any(excuse in reason for excuse in EXCUSES) for reason in reasons)


def flagged(facts: Facts, key: str) -> list[int]:
    """The GPUs that are shown and stand in a list of indices, even where others could not be asked."""
    listed = facts.fact(key).value or ()
    return [index for index in dict.fromkeys(cards.shown(facts)) if index in listed]


def stops(facts: Facts, bad: Collection[int]) -> bool:
    """Whether the job cannot do without these GPUs: none is left, or fewer than it asks for."""
    left = len(set(cards.shown(facts)) - set(bad))
    return left < (job.gpus(facts) or 1)


def without(facts: Facts, bad: Collection[int]) -> list[Step]:
    """The step that leaves these GPUs aside, where that leaves any that answers."""
    uuids = facts.fact("gpu.uuid").value or ()
    silent = [index for index, uuid in enumerate(uuids) if uuid is None]
    rest = [index for index in dict.fromkeys(cards.shown(facts)) if index not in (*bad, *silent)]
    return [Step(f"show only the others: CUDA_VISIBLE_DEVICES={cards.only(facts, rest)}")] if rest else []


def numbers(indices: Collection[int]) -> str:
    """Indices as nvidia-smi takes them after ``-i``: ``0,3``."""
    return ",".join(map(str, indices))


def named(facts: Facts, index: int, *words: str) -> bool:
    """Whether any of these words stands in the name of a GPU."""
    names = facts.known("gpu.name") or ()
    return index < len(names) and any(word in str(names[index]) for word in words)


def market(facts: Facts, index: int) -> str:
    """What a GPU is sold as: geforce, titan, workstation or datacenter; empty where nobody knows."""
    from gpuready.catalog import gpus

    names = facts.known("gpu.name") or ()
    row = gpus.find(str(names[index])) if index < len(names) else None
    return str(row["market"]) if row else ""


def contained(facts: Facts) -> bool:
    """Whether we are seen to be in a container, where the machine is only partly in sight."""
    return facts.known("os.container") not in (None, "none")
