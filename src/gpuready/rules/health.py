"""What GPUs report about their own condition: which report it, which lack it, and what remains without a bad one.

An incomplete list is enough to find a fault, since what one GPU reports is known whatever another hides. It is not
enough to rule a fault out. These facts belong to a real machine: if they were not probed (a what-if, an old
recording), a rule about them does not apply.
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
"""Gaps that leave nothing to judge: the GPU lacks the feature, or it is lost, which GPU013 reports."""

CHIPS = ("GH200", "GB200", "GB300", "GB10", "Thor", "Orin")
"""GPUs on one module with their processor: PCIe is not their link to it."""


def rests(facts: Facts, contract: Contract, *keys: str) -> bool:
    """Return whether there is nothing to judge: another platform, facts not probed, or a job for the CPU."""
    if "cuda" not in contract.platforms or any(key not in facts for key in keys):
        return True
    return job.asks(facts, "cpu")


def told(facts: Facts, key: str) -> dict[int, Any]:
    """Return one fact of every visible GPU that reports it, by index."""
    values = facts.fact(key).value or ()
    return {i: values[i] for i in cards.shown(facts) if 0 <= i < len(values) and values[i] is not None}


def settled(facts: Facts, key: str) -> None:
    """Raise Unknown if a visible GPU does not report a fact; a GPU that lacks the feature is excused."""
    silent = [index for index in cards.shown(facts) if index not in told(facts, key)]
    if silent and not excused(facts, key):
        fact = facts.fact(key)
        raise Unknown(fact if fact.gap else fact.but(value=None, gap=f"not known of GPU {silent[0]}"))


def excused(facts: Facts, key: str) -> bool:
    """Return whether every gap of a fact leaves nothing to judge."""
    reasons = facts.fact(key).gap.lower().split("; ")
    return all(any(excuse in reason for excuse in EXCUSES) for reason in reasons)


def flagged(facts: Facts, key: str) -> list[int]:
    """Return the visible GPUs in a list of indices, even if others could not be queried."""
    listed = facts.fact(key).value or ()
    return [index for index in dict.fromkeys(cards.shown(facts)) if index in listed]


def stops(facts: Facts, bad: Collection[int]) -> bool:
    """Return whether the job cannot run without these GPUs: none is left, or fewer than it asks for."""
    left = len(set(cards.shown(facts)) - set(bad))
    return left < (job.gpus(facts) or 1)


def without(facts: Facts, bad: Collection[int]) -> list[Step]:
    """Return the step that hides these GPUs, if any GPU that answers is left."""
    uuids = facts.fact("gpu.uuid").value or ()
    silent = [index for index, uuid in enumerate(uuids) if uuid is None]
    rest = [index for index in dict.fromkeys(cards.shown(facts)) if index not in (*bad, *silent)]
    return [Step(f"show only the others: CUDA_VISIBLE_DEVICES={cards.only(facts, rest)}")] if rest else []


def numbers(indices: Collection[int]) -> str:
    """Return indices as nvidia-smi accepts them after ``-i``: ``0,3``."""
    return ",".join(map(str, indices))


def named(facts: Facts, index: int, *words: str) -> bool:
    """Return whether a GPU's name contains any of these words."""
    names = facts.known("gpu.name") or ()
    return index < len(names) and any(word in str(names[index]) for word in words)


def market(facts: Facts, index: int) -> str:
    """Return the market of a GPU: geforce, titan, workstation or datacenter; empty if unknown."""
    from gpuready.catalog import gpus

    names = facts.known("gpu.name") or ()
    row = gpus.find(str(names[index])) if index < len(names) else None
    return str(row["market"]) if row else ""


def contained(facts: Facts) -> bool:
    """Return whether this is known to be a container, where the machine is only partly visible."""
    return facts.known("os.container") not in (None, "none")
