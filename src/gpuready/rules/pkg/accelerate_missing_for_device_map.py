"""The job uses a device map, and accelerate is missing or too old.

## What it checks
Whether accelerate is installed in the version that transformers needs, if the job uses ``device_map`` or
loads with bitsandbytes, which uses a device map itself.

## Why it matters
``device_map="auto"`` and similar values spread a model over GPUs, CPU and disk. transformers leaves this to
accelerate, and stops with an ImportError if the package is absent or too old.

## How to fix
Install accelerate. It has no CUDA code and works with every torch that the framework supports.

## References
- transformers documentation, from_pretrained: device_map
"""

from gpuready.contracts import when as conditions
from gpuready.model import Contract, Facts, Finding, Requirement, make_finding
from gpuready.rules import contract_needs, fix_steps, job_request

CODE = "PKG005"
SEVERITY = "error"
READS = ("python.path", *contract_needs.READS)
REQUIRED_FACTS = ("job.wants", "job.device_map")
BROKEN = {"job.device_map": "auto", "package.accelerate": None, "python.path": "/venv/bin/python"}
HEALTHY = {"job.device_map": "auto", "package.accelerate": "1.15.0", "python.path": "/venv/bin/python"}
CITE = "transformers, from_pretrained: device_map needs accelerate"


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if not job_request.uses_device_map(facts):
        return None
    key = "package.accelerate"
    required = [
        n.replace(level="required")
        for n in contract.requirements_for(key)
        if conditions.certainly_applies(n.when, facts) or "device-map" in n.when
    ]
    failed = [
        n
        for n in required or [Requirement(key, "*", cite=CITE)]
        if not contract_needs.value_meets_need(facts, n, facts.value(key))
    ]
    if not failed:
        return None
    present = facts.value(key)
    pins = ",".join(dict.fromkeys(n.want for n in failed if n.want != "*")) or "*"
    wanted = fix_steps.format_requirement("accelerate", pins)
    return make_finding(
        "a device map needs accelerate, which is " + (f"too old ({present})" if present else "not installed"),
        found=(facts.fact(key), *(facts.fact(k) for k in ("job.device_map", "job.wants") if k in facts)),
        needs=tuple(failed),
        so="loading the model stops with an ImportError",
        fix=(fix_steps.install_step(facts, f"install {wanted}", wanted),),
    )
