"""A GPU became slower, and the job with it.

The run goes on, and from one step to the next it is slower, and stays so. In synchronous training the slowest GPU sets the pace of
all: one that became hot, lost a power limit or a link, corrects memory all the time, or shares its node with something else, costs as
much as if all had slowed down.

Find it by timing the same work on every rank (a matrix product, nccl-tests), and look at clocks, temperatures and throttle reasons
(nvidia-smi -q -d PERFORMANCE). A slow step or two, or a pause for a checkpoint, is no case of this.
"""

from __future__ import annotations

from gpuready.rules import log_findings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts, Finding

CODE = "GPU019"
SEVERITY = "error"
READS = log_findings.READS
PATTERNS = (
    {"says": "derived: throughput fell by {percent} % and stayed there", "in": "derived"},
    {"says": "STRAGGLER DETECTION WARNING"},
    {"says": "have worse relative performance"},
    {"says": "have worse individual performance"},
    {"says": "is a straggler", "as": "clue"},
    {"says": "HW Slowdown : Active", "as": "clue"},
    {"says": "HW Thermal Slowdown : Active", "as": "clue"},
    {"says": "HW Power Brake Slowdown : Active", "as": "clue"},
    {"says": "clocks event due to thermal violation", "as": "clue"},
    {"says": "clock throttling due to", "as": "clue"},
    {"says": "thermal violation", "as": "clue"},
    {"says": "DCGM_FR_CLOCK_THROTTLE", "as": "clue"},
    {"says": "DCGM_FR_THERMAL_VIOLATIONS", "as": "clue"},
    {"says": "Thermal violations totaling", "as": "clue"},
    {"says": "SW Thermal Slowdown : Active", "as": "clue"},
    {"says": "Package temperature above threshold", "as": "clue"},
    {"says": "Clocks Throttle Reasons{...}HW Slowdown : Active", "as": "clue"},
)
BROKEN, HEALTHY = log_findings.log_examples(CODE)


def judge(facts: Facts, contract: Contract) -> Finding | None:
    return log_findings.log_finding(facts, contract, CODE, SEVERITY)
