"""Which jobs split their weights over the ranks, and the share that one rank holds."""

from gpuready.fit.job.records import FitJob
from gpuready.fit.tape.autograd import Tensor
from gpuready.fit.tape.torch_ops import TorchOps


def splits_weights(job: FitJob) -> bool:
    """Whether a rank holds only its shard of the weights."""
    return gathers_by_layer(job) or (job.zero == 3 and (job.shard_ranks > 1 or job.task == "train"))


def shards_on_host(job: FitJob) -> bool:
    """Whether FSDP's shards and their gradients are in host memory."""
    return gathers_by_layer(job) and job.offload == "parameters"


def new_shard(ops: TorchOps, tensor: Tensor, job: FitJob, width: int = 0) -> Tensor:
    """Allocate this rank's shard of a weight."""
    shape, width = (-(-tensor.numel // job.shard_ranks),), width or tensor.width
    if shards_on_host(job):
        return Tensor(None, shape, width)
    kind, ops.tape.kind = ops.tape.kind, "parameters"
    made = ops.new_empty(shape, width)
    ops.tape.kind = kind
    return made


def gathers_by_layer(job: FitJob) -> bool:
    """Whether weights are gathered layer by layer, by FSDP2."""
    return job.shard_ranks > 1 and job.fsdp
