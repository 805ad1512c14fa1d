"""The cluster of Ray cannot place what was asked for.

Ray waits until the cluster has what an actor or a placement group asks for, and waits forever where it never will: more GPUs than all
nodes have together, or than one node has where they must lie together, nodes that did not join, or GPUs that an earlier job still holds.

Look at ray status: what is there, what is asked for, who holds it. Let the numbers of the framework (GPUs per node, nodes, tensor
parallel size) match it, or start the missing nodes. A warning that goes away while a cluster grows is no failure.
"""

from __future__ import annotations

from gpuready.rules import log_findings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts, Finding

CODE = "RUN018"
SEVERITY = "error"
READS = log_findings.READS
PATTERNS = (
    {"says": "No available node types can fulfill resource request", "as": "clue"},
    {"says": "cannot be scheduled right now", "as": "clue"},
    {"says": "The following resource request cannot be scheduled", "as": "clue"},
    "Cannot provide a placement group of",
    "The number of required GPUs exceeds the total number of available GPUs in the placement group",
    "exceeds the total number of available GPUs",
    {"says": "Total available GPUs {have} is less than total desired GPUs {want}"},
    "cannot be satisfied in this ray cluster",
    "Insufficient cluster resources to launch trial",
    "ActorUnschedulableError",
    "TaskUnschedulableError",
    "PlacementGroupSchedulingError",
    {"says": "ActorPlacementGroupRemoved", "as": "clue"},
    {"says": "This could be due to the cluster not having enough resources available", "as": "clue"},
    {"says": "Waiting for creating a placement group of specs for", "as": "clue"},
    {"says": "No available placement group", "as": "clue"},
    {"says": "Placement group creation timed out", "as": "root"},
    {"says": "Timed out waiting for placement group", "as": "root"},
    {"says": "Ray cluster does not have enough", "as": "root"},
    {"says": "The current node timed out during startup", "as": "clue"},
    {"says": "insufficient resources on cluster", "as": "clue"},
    "Cannot provide a placement group requiring",
    {"says": "placement group{}cannot be created", "in": "exception"},
    {"says": "pending placement groups", "as": "clue"},
    {"says": "pending tasks/actors", "as": "clue"},
    {"says": "Tensor parallel size may exceed available GPUs in your cluster"},
    {"says": "Demands:{...}pending placement groups", "as": "clue"},
    {"says": "The number of required {} exceeds the total number of available"},
    {"says": "exceeds total available", "in": "exception"},
    {"says": "Tensor parallel size ({tp}) exceeds available GPUs"},
    {"says": "Tensor parallel size ({tp}) exceeds available GPUs", "as": "clue"},
    {"says": "Warning: The following resource request cannot be scheduled right now", "as": "clue"},
    {"says": "You can see more details about infeasible", "as": "clue"},
    {"says": "infeasible resource requests", "as": "clue"},
    {"says": "infeasible", "as": "clue", "with": ("autoscaler", "GPU", "CPU")},
    {"says": "The actor or task with ID {} cannot be scheduled", "as": "clue"},
    {"says": "Ray does not have enough"},
    {"says": "Resource requirement{}exceeds", "in": "exception"},
    {"says": "not enough resources in the cluster", "in": "exception"},
    {"says": "Failed to place all bundles"},
    {"says": "Cannot schedule placement group"},
    {"says": "placement group is not ready", "in": "exception"},
    {"says": "GetTimeoutError", "in": "exception", "with": ("pg.ready()", "placement_group")},
    {"says": "Insufficient resources", "as": "clue"},
    {"says": "0/{} nodes are available: {} Insufficient nvidia.com/gpu", "as": "clue"},
    {"says": "Please ensure that the cluster has enough resources", "as": "clue"},
)
BROKEN, HEALTHY = log_findings.log_examples(CODE)


def judge(facts: Facts, contract: Contract) -> Finding | None:
    return log_findings.log_finding(facts, contract, CODE, SEVERITY)
