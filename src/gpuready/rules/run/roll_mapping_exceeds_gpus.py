"""The device_mapping of ROLL names GPUs that are not there.

ROLL places each of its workers on the GPUs that device_mapping names, counted through all nodes. The list names a GPU that the
cluster does not have: more than num_nodes times num_gpus_per_node, or more than Ray was started with.

Let the lists of actor, reference, reward and rollout stay below the number of GPUs, and set num_gpus_per_node and num_nodes to what
there is. Workers may share GPUs; no list may leave the cluster.
"""

from __future__ import annotations

from gpuready.rules import log_findings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts, Finding

CODE = "RUN010"
SEVERITY = "error"
READS = log_findings.READS
PATTERNS = (
    "device_mapping used gpus are more than",
    {"says": "The Ray clusters(ray_num_nodes: {nodes}) cannot meet the required number of nodes"},
    {"says": "num_gpus {want} > available_gpu {have}"},
    {"says": "device_mapping{}is not divisible", "in": "exception"},
    {
        "says": "device_mapping",
        "in": "exception",
        "with": ("roll/distributed", "roll/configs", "allocate_placement_group", "resource_manager.py"),
    },
    {"says": "AssertionError", "in": "exception", "with": ("allocate_placement_group",), "as": "clue"},
)
BROKEN, HEALTHY = log_findings.log_examples(CODE)


def judge(facts: Facts, contract: Contract) -> Finding | None:
    return log_findings.log_finding(facts, contract, CODE, SEVERITY)
