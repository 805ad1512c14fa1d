"""The cluster of Ray cannot place what was asked for.

Ray waits until the cluster has what an actor or a placement group asks for, and waits forever where it never will: more GPUs than all
nodes have together, or than one node has where they must lie together, nodes that did not join, or GPUs that an earlier job still holds.

Look at ray status: what is there, what is asked for, who holds it. Let the numbers of the framework (GPUs per node, nodes, tensor
parallel size) match it, or start the missing nodes. A warning that goes away while a cluster grows is no failure.
"""

from __future__ import annotations

from tarmac.rules import told

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tarmac.model import Contract, Facts, Finding

CODE = "RUN018"
SEVERITY = "error"
READS = told.READS
SIGNS = (
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
)
BROKEN, HEALTHY = told.examples(CODE)


def judge(facts: Facts, contract: Contract) -> Finding | None:
    return told.finding(facts, contract, CODE, SEVERITY)
