"""A worker of Ray was killed for want of memory.

Ray watches the memory of each node and, when 95 % of it is used, kills the worker that it can start again best; where the kernel or
the limit of the container is faster, the worker simply disappears and Ray reports a connection that ended. Actors that each load
the weights, a large object store and offloaded optimisers add up on one node.

Give the node or the container more memory, start fewer workers per node, lower the object store, or move the threshold
(RAY_memory_usage_threshold). Without Ray the same death is MEM003.
"""

from __future__ import annotations

from gpuready.rules import log_findings
from gpuready.rules.mem.host_memory_below_weights import RAY_MARKERS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts, Finding

CODE = "MEM007"
SEVERITY = "error"
READS = log_findings.READS
PATTERNS = (
    "Task was killed due to the node running low on memory",
    "killed due to the node running low on memory",
    "which exceeds the memory usage threshold of",
    {
        "says": "Workers (tasks / actors) killed due to memory pressure (OOM)",
        "without": (": 0 Workers (tasks / actors) killed",),
    },
    "ray.exceptions.OutOfMemoryError",
    "RayOutOfMemoryError",
    "More than 95% of the memory on node",
    {"says": "have been OOM Killed", "also": RAY_MARKERS},
    {"says": "OOMKilled", "also": RAY_MARKERS},
    {"says": "Out of memory: Killed process {pid} ({name})", "in": "kernel", "also": RAY_MARKERS},
    {"says": "Memory cgroup out of memory: Killed process {pid} ({name})", "in": "kernel", "also": RAY_MARKERS},
    {"says": "oom-kill event", "also": RAY_MARKERS},
    {"says": "oom_kill event", "also": RAY_MARKERS},
    {
        "says": "Worker exit type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits with a connection error code 2. End of file",
        "as": "clue",
    },
    {"says": "The process is killed by SIGKILL by OOM killer due to high memory usage", "as": "clue"},
    {"says": "Worker exit type: NODE_OUT_OF_MEMORY", "as": "root"},
    {"says": "A worker died or was killed while executing a task by an unexpected system error", "as": "clue"},
)
BROKEN, HEALTHY = log_findings.log_examples(CODE)


def judge(facts: Facts, contract: Contract) -> Finding | None:
    return log_findings.log_finding(facts, contract, CODE, SEVERITY)
