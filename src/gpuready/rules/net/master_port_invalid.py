"""The variable MASTER_PORT is not a valid port.

## What it checks
Whether MASTER_PORT is a number from 1 to 65535. It is an error if the variables of a rank are set too, and
for ROLL, which always reads it. Otherwise it is a warning, because torchrun sets the variable itself.

## Why it matters
Text raises a ValueError. With 0, any port is chosen and the other ranks cannot find it. In Kubernetes a
service named ``master`` sets MASTER_PORT=tcp://10.0.0.1:80 in every pod.

## How to fix
Set a free port above 1024, such as 29500. In Kubernetes rename the service, or set ``enableServiceLinks:
false``.

## References
- torch.distributed, environment variable initialization
- Kubernetes documentation, service environment variables
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import environment_variables, job_topology

CODE = "NET007"
SEVERITY = "error"
READS = ("env.*",)
REQUIRED_FACTS = job_topology.RANK_FACTS
BROKEN = {"env.names": ("MASTER_PORT", "RANK"), "env.MASTER_PORT": "99999", "env.RANK": "0"}
HEALTHY = BROKEN | {"env.MASTER_PORT": "29500"}
LAST = 65535


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if environment_variables.environment_unknown(facts):
        return None
    text = environment_variables.read_variable(facts, "MASTER_PORT")
    if text is None or 1 <= (environment_variables.parse_integer(text) or 0) <= LAST:
        return None
    used = job_topology.started_by_launcher(facts) or contract.framework in job_topology.NODE_RANK_FRAMEWORKS
    return make_finding(
        f"the value of MASTER_PORT, {environment_variables.quote_value(text)}, is not a port",
        found=(facts.fact("env.MASTER_PORT"),),
        needs=(
            Requirement(
                "env.MASTER_PORT", ">=1,<=65535", cite="torch.distributed, environment variable initialization"
            ),
        ),
        so="the ranks cannot connect: they stop with a ValueError or wait until the timeout",
        fix=(FixStep("set MASTER_PORT to a free port, such as 29500, or leave it to the launcher"),),
        severity=SEVERITY if used else "warning",
    )
