"""Some variables of accelerate are left over in this shell.

``accelerate launch`` tells its processes what to do through variables: ACCELERATE_MIXED_PRECISION,
ACCELERATE_USE_FSDP, ACCELERATE_USE_DEEPSPEED, FSDP_... Left over in a shell, from a script that exports
them or from a copied job, they speak to every later run: the Trainer takes its default precision from them,
goes to the CPU (ACCELERATE_USE_CPU), or sets up FSDP and DeepSpeed that nobody asked for. Axolotl gives up
its device map as soon as any ACCELERATE_USE_... is set.

It is a warning for the switches, and a line of information for the rest. Nothing is said inside a launched
process, where they belong, nor of what the job asks for itself. Unset them, and give the launcher its
arguments or its file.
"""

from __future__ import annotations

from gpuready.model import Finding, Need, Step
from gpuready.rules import cards, job, nodes, shell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts

CODE = "SYS022"
SEVERITY = "warning"
READS = ("env.*", "job.wants")
SIGNS = ()
CONTRACT = {"framework": "transformers"}
BROKEN = {"env.names": ("ACCELERATE_USE_CPU",), "env.ACCELERATE_USE_CPU": "true"}
HEALTHY = BROKEN | {"env.ACCELERATE_USE_CPU": "false"}
FRAMEWORKS = ("transformers", "axolotl")
OFF = ("0", "false", "no", "off", "n", "f")
ASKED = {"ACCELERATE_USE_FSDP": ("fsdp", "fsdp2"), "ACCELERATE_USE_DEEPSPEED": ("deepspeed",)}
ASKED |= {"ACCELERATE_USE_CPU": ("cpu",)}
CITE = "transformers/training_args.py; accelerate/state.py: read from the environment of the process"


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if contract.framework not in FRAMEWORKS or shell.unseen(facts) or nodes.launched(facts):
        return None
    names = [str(name) for name in facts.value("env.names") or ()]
    switches = [n for n in names if n.startswith("ACCELERATE_USE_") and _speaks(facts, n)]
    rest = [n for n in names if _shapes(n) and shell.value(facts, n)]
    left = [*switches, *rest]
    if not left:
        return None
    said = [f"{name}={shell.value(facts, name)}" for name in left]
    return Finding(
        CODE,
        SEVERITY if switches else "info",
        f"left over from accelerate launch: {cards.listed(said, 4)}",
        found=tuple(facts.fact(f"env.{name}") for name in left),
        needs=tuple(Need(f"env.{name}", "unset", level="recommended", cite=CITE) for name in left),
        so=f"{contract.framework} takes device, precision or sharding from them, whatever the job says",
        fix=(Step(f"unset {' '.join(left)}"),),
    )


def _speaks(facts: Facts, name: str) -> bool:
    """Return whether a switch is on that the job does not ask for."""
    text = shell.value(facts, name)
    if text is None or text.lower() in OFF:
        return False
    return not job.asks(facts, *ASKED.get(name, ()))


def _shapes(name: str) -> bool:
    return name in ("ACCELERATE_MIXED_PRECISION", "ACCELERATE_TORCH_DEVICE", "ACCELERATE_DYNAMO_BACKEND")
