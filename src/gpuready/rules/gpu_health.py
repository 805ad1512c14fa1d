"""What GPUs report about their own condition: which report it, which lack it, and what remains without a bad one.

An incomplete list is enough to find a fault, since what one GPU reports is known whatever another hides. It is not
enough to rule a fault out. These facts belong to a real machine: if they were not probed (a what-if, an old
recording), a rule about them does not apply.
"""

from collections.abc import Collection
from typing import Any

from gpuready.catalog import gpus
from gpuready.model import Contract, Facts, FixStep, UnknownFactError
from gpuready.rules import job_request, visible_gpus

READS = (*visible_gpus.READS, "job.wants", "job.gpus")

EXCUSED_GAPS = ("not supported", "n/a", "is lost")
"""Gaps that leave nothing to judge: the GPU lacks the feature, or it is lost, which GPU013 reports."""

MODULE_GPUS = ("GH200", "GB200", "GB300", "GB10", "Thor", "Orin")
"""GPUs on one module with their processor: PCIe is not their link to it."""


def is_not_applicable(facts: Facts, contract: Contract, *keys: str) -> bool:
    """Return whether there is nothing to judge: another platform, facts not probed, or a job for the CPU."""
    if "cuda" not in contract.platforms or any(key not in facts for key in keys):
        return True
    return job_request.job_asks_for(facts, "cpu")


def reported_values(facts: Facts, key: str) -> dict[int, Any]:
    """Return one fact of every visible GPU that reports it, by index."""
    values = facts.fact(key).value or ()
    return {
        i: values[i] for i in visible_gpus.list_visible_gpus(facts) if 0 <= i < len(values) and values[i] is not None
    }


def require_reported(facts: Facts, key: str) -> None:
    """Raise Unknown if a visible GPU does not report a fact; a GPU that lacks the feature is excused."""
    silent = [index for index in visible_gpus.list_visible_gpus(facts) if index not in reported_values(facts, key)]
    if silent and not is_gap_excused(facts, key):
        fact = facts.fact(key)
        raise UnknownFactError(fact if fact.gap else fact.replace(value=None, gap=f"unknown for GPU {silent[0]}"))


def is_gap_excused(facts: Facts, key: str) -> bool:
    """Return whether every gap of a fact leaves nothing to judge."""
    reasons = facts.fact(key).gap.lower().split("; ")
    return all(any(excuse in reason for excuse in EXCUSED_GAPS) for reason in reasons)


def flagged_gpus(facts: Facts, key: str) -> list[int]:
    """Return the visible GPUs in a list of indices, even if others could not be queried."""
    listed = facts.fact(key).value or ()
    return [index for index in dict.fromkeys(visible_gpus.list_visible_gpus(facts)) if index in listed]


def leaves_too_few_gpus(facts: Facts, bad: Collection[int]) -> bool:
    """Return whether the job cannot run without these GPUs: none is left, or fewer than it asks for."""
    remaining = len(set(visible_gpus.list_visible_gpus(facts)) - set(bad))
    return remaining < (job_request.job_gpu_count(facts) or 1)


def hide_gpus_steps(facts: Facts, bad: Collection[int]) -> list[FixStep]:
    """Return the step that hides these GPUs, if any GPU that answers is left."""
    uuids = facts.fact("gpu.uuid").value or ()
    silent = [index for index, uuid in enumerate(uuids) if uuid is None]
    usable = [index for index in dict.fromkeys(visible_gpus.list_visible_gpus(facts)) if index not in (*bad, *silent)]
    return (
        [FixStep(f"show only the other GPUs: CUDA_VISIBLE_DEVICES={visible_gpus.visible_devices_value(facts, usable)}")]
        if usable
        else []
    )


def join_indices(indices: Collection[int]) -> str:
    """Return indices as nvidia-smi accepts them after ``-i``: ``0,3``."""
    return ",".join(map(str, indices))


def gpu_name_contains(facts: Facts, index: int, *words: str) -> bool:
    """Return whether a GPU's name contains any of these words."""
    names = facts.value_if_known("gpu.name") or ()
    return index < len(names) and any(word in str(names[index]) for word in words)


def gpu_market(facts: Facts, index: int) -> str:
    """Return the market of a GPU: geforce, titan, workstation or datacenter; empty if unknown."""
    names = facts.value_if_known("gpu.name") or ()
    row = gpus.find_gpu(str(names[index])) if index < len(names) else None
    return str(row["market"]) if row else ""


def has_only_consumer_gpus(facts: Facts) -> bool:
    """Return whether every visible GPU is known to be one that cuda-compat does not support."""
    visible = facts.value_if_known("gpu.visible") or ()
    return bool(visible) and all(gpu_market(facts, index) in ("geforce", "titan") for index in visible)


def is_in_container(facts: Facts) -> bool:
    """Return whether this is known to be a container, where the machine is only partly visible."""
    return facts.value_if_known("os.container") not in (None, "none")
