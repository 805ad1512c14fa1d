"""Communication of several ranks: its time, and how much of it stands beside the computation."""

from __future__ import annotations

from collections.abc import Mapping

from gpuready.fit.job.records import FitJob
from gpuready.fit.time.device_speed import NODE_LINK, DeviceSpeed

GPUS_PER_NODE = 8
LATENCY = 25e-6  # seconds of one collective inside of a node
LAST_SHARE = 0.04  # of the gradients: the last bucket, which nothing is left to hide


def exposed_communication(
    job: FitJob, weights: int, gradients: int, layers: int, spent: Mapping[str, float], speed: DeviceSpeed
) -> float:
    """Return the seconds of a step in which the GPU waits for other ranks.

    ``weights`` and ``gradients`` are the bytes of the whole model and of what is trained, ``spent`` the seconds of
    the forward and backward passes, which run at the same time.
    """
    if job.world == 1:
        return 0.0
    ranks, link = job.world // job.tensor_parallel, link_rate(job, speed)
    around = (ranks - 1) / ranks / link
    backward = spent.get("bwd", 0.0)
    waiting = tensor_parallel_seconds(job, layers, speed)
    if ranks == 1:
        return waiting
    if job.fsdp or job.zero == 3:
        gather = weights * around + layers * LATENCY
        forward = max(0.0, gather - spent.get("fwd", 0.0))
        again = gather if job.reshard or job.zero == 3 else 0.0
        return waiting + forward + max(0.0, again + gradients * around + layers * LATENCY - backward)
    reduce = 2 * gradients * around + layers * LATENCY
    last = LAST_SHARE * reduce
    if job.zero:  # shards of the weights come back after the step
        return waiting + max(last, reduce - backward) + weights * around
    return waiting + max(last, reduce - backward)


def tensor_parallel_seconds(job: FitJob, layers: int, speed: DeviceSpeed) -> float:
    """Return the seconds of the sums after attention and MLP of each layer, both ways: nothing hides them."""
    if job.tensor_parallel == 1:
        return 0.0
    hidden = int(job.model.get("hidden_size") or job.model.get("n_embd") or 4096)
    moved = job.micro_batch * job.seq * hidden * 2
    ring = 2 * (job.tensor_parallel - 1) / job.tensor_parallel
    passes = 4 if job.task == "train" else 2
    return passes * layers * (LATENCY + ring * moved / speed.link) * max(1, job.accumulation)


def link_rate(job: FitJob, speed: DeviceSpeed) -> float:
    """Return the bytes a second of the slowest link that a collective of all ranks crosses."""
    return speed.link if job.world <= GPUS_PER_NODE else min(speed.link, NODE_LINK)
