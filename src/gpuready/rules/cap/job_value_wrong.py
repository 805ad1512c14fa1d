"""The job's file has a value that its framework does not take.

## What it checks
The values at the top level of the file of ``--config`` against the types that the framework's own schema
declares: true or false, numbers, text, lists, mappings. A number or a switch in quotes is accepted, as the
framework accepts it.

## Why it matters
The framework refuses the file when it starts, after the job has waited for its GPUs.

## How to fix
Write a value of the type in the finding.

## References
- axolotl, src/axolotl/utils/schemas/config.py
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding

CODE = "CAP018"
SEVERITY = "error"
READS = ("job.wrong_values", "job.config")
REQUIRED_FACTS = ("job.wrong_values",)
CITE = "the schema of the framework's configuration file"
_ROW = {"key": "micro_batch_size", "takes": "a whole number", "found": "'two'"}
BROKEN = {"job.config": "train.yml", "job.wrong_values": (_ROW,)}
HEALTHY = BROKEN | {"job.wrong_values": ()}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if "job.wrong_values" not in facts:
        return None
    rows = facts.value("job.wrong_values") or ()
    if not rows:
        return None
    path = facts.value_if_known("job.config") or "the job's file"
    wrong = [f"{row['key']} takes {row['takes']}, not {row['found']}" for row in rows]
    return make_finding(
        f"{path}: {'; '.join(wrong)}",
        found=(facts.fact("job.wrong_values"),),
        needs=tuple(Requirement(f"job.{row['key']}", row["takes"], cite=CITE) for row in rows),
        so="the framework refuses the file when it starts",
        fix=tuple(FixStep(f"in {path}, set {row['key']} to {row['takes']}") for row in rows),
    )
