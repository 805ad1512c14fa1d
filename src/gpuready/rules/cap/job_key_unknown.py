"""The job's file has a key that its framework does not know, and that looks like a misspelling.

## What it checks
The keys at the top level of the file of ``--config`` against those that the framework's own schema declares.
Only a key that is much like a known one is reported. A key that is like none may belong to a plugin or a newer
version, and is listed by ``gpuready check -v`` alone.

## Why it matters
A key that is not known has no effect. With ``adaptr: lora`` the whole model is trained, which takes several
times the memory, or nothing is trained as it was meant.

## How to fix
Write the key as the finding says.

## References
- axolotl, src/axolotl/utils/schemas/config.py
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding

CODE = "CAP017"
SEVERITY = "warning"
READS = ("job.unknown_keys", "job.config")
REQUIRED_FACTS = ("job.unknown_keys",)
CITE = "the schema of the framework's configuration file"
BROKEN = {"job.config": "train.yml", "job.unknown_keys": ({"key": "adaptr", "nearest": "adapter"},)}
HEALTHY = BROKEN | {"job.unknown_keys": ({"key": "my_plugin_option", "nearest": ""},)}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if "job.unknown_keys" not in facts:
        return None
    rows = [row for row in facts.value("job.unknown_keys") or () if row["nearest"]]
    if not rows:
        return None
    path = facts.value_if_known("job.config") or "the job's file"
    pairs = [f"{row['key']} ({row['nearest']}?)" for row in rows]
    return make_finding(
        f"{path} has {'a key' if len(rows) == 1 else 'keys'} that the framework does not know: {', '.join(pairs)}",
        found=(facts.fact("job.unknown_keys"),),
        needs=tuple(Requirement(f"job.{row['nearest']}", "*", level="recommended", cite=CITE) for row in rows),
        so="it has no effect, and what it was to set keeps its default",
        fix=tuple(FixStep(f"in {path}, write {row['nearest']} instead of {row['key']}") for row in rows),
    )
