"""Some variables of accelerate are left over in this shell.

## What it checks
Whether variables that ``accelerate launch`` sets for its processes (ACCELERATE_MIXED_PRECISION,
ACCELERATE_USE_FSDP, ACCELERATE_USE_DEEPSPEED, FSDP_...) are set outside a launched process. Switches are a
warning, the rest information. What the job asks for itself is not reported.

## Why it matters
Every later run reads them: the Trainer takes its default precision from them, uses the CPU
(ACCELERATE_USE_CPU), or sets up FSDP or DeepSpeed. Axolotl ignores its device map if any ACCELERATE_USE_...
is set.

## How to fix
Unset them, and configure the launcher with its arguments or its file.

## References
- transformers/training_args.py
- accelerate/state.py
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import environment_variables, job_request, job_topology, visible_gpus

CODE = "SYS022"
SEVERITY = "warning"
READS = ("env.*", "job.wants")
CONTRACT = {"framework": "transformers"}
BROKEN = {"env.names": ("ACCELERATE_USE_CPU",), "env.ACCELERATE_USE_CPU": "true"}
HEALTHY = BROKEN | {"env.ACCELERATE_USE_CPU": "false"}
FRAMEWORKS = ("transformers", "axolotl")
FALSE_WORDS = ("0", "false", "no", "off", "n", "f")
SWITCH_WANTS = {"ACCELERATE_USE_FSDP": ("fsdp", "fsdp2"), "ACCELERATE_USE_DEEPSPEED": ("deepspeed",)}
SWITCH_WANTS |= {"ACCELERATE_USE_CPU": ("cpu",)}
CITE = "transformers/training_args.py; accelerate/state.py: read from the environment of the process"


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if (
        contract.framework not in FRAMEWORKS
        or environment_variables.environment_unknown(facts)
        or job_topology.started_by_launcher(facts)
    ):
        return None
    names = [str(name) for name in facts.value("env.names") or ()]
    switches = [n for n in names if n.startswith("ACCELERATE_USE_") and _is_unrequested_switch(facts, n)]
    others = [n for n in names if _is_setting_name(n) and environment_variables.read_variable(facts, n)]
    leftovers = [*switches, *others]
    if not leftovers:
        return None
    settings = [f"{name}={environment_variables.read_variable(facts, name)}" for name in leftovers]
    return make_finding(
        f"left over from accelerate launch: {visible_gpus.join_names(settings, 4)}",
        found=tuple(facts.fact(f"env.{name}") for name in leftovers),
        needs=tuple(Requirement(f"env.{name}", "unset", level="recommended", cite=CITE) for name in leftovers),
        so=f"{contract.framework} takes device, precision or sharding from them instead of from the job",
        fix=(FixStep(f"unset {' '.join(leftovers)}"),),
        severity=SEVERITY if switches else "info",
    )


def _is_unrequested_switch(facts: Facts, name: str) -> bool:
    """Return whether a switch is on that the job does not ask for."""
    text = environment_variables.read_variable(facts, name)
    if text is None or text.lower() in FALSE_WORDS:
        return False
    return not job_request.job_asks_for(facts, *SWITCH_WANTS.get(name, ()))


def _is_setting_name(name: str) -> bool:
    return name in ("ACCELERATE_MIXED_PRECISION", "ACCELERATE_TORCH_DEVICE", "ACCELERATE_DYNAMO_BACKEND")
