"""A variable is set to something that the framework does not take.

Some environment variables take one of a few words, and the contract lists them. Another word is refused
with an error, passed over with a warning, or, worst, silently read as something else. Case counts, and so
do blanks in between.

It is a warning, and tells what is set and what may stand there. Only variables that the framework reads are
looked at; what it sets itself it sets right. Variables of a condition that does not hold here are passed
over.
"""

from __future__ import annotations

from gpuready.model import Finding, Need, Step
from gpuready.rules import cards, shell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts, Variable

CODE = "SYS015"
SEVERITY = "warning"
READS = shell.READS
SIGNS = (
    {"says": "Unknown option TRANSFORMERS_VERBOSITY=", "as": "trace"},
    {"says": "Unknown model_download_type:", "in": "exception", "cause": "not-environment"},
)
CONTRACT = {
    "variables": (
        {
            "name": "MODEL_DOWNLOAD_TYPE",
            "access": "read and set",
            "allowed": ("MODELSCOPE", "HUGGINGFACE_HUB"),
            "cite": "checkpoint_manager.py:74",
        },
    )
}
BROKEN = {"env.names": ("MODEL_DOWNLOAD_TYPE",), "env.MODEL_DOWNLOAD_TYPE": "huggingface"}
HEALTHY = BROKEN | {"env.MODEL_DOWNLOAD_TYPE": "HUGGINGFACE_HUB"}
TOLD_ELSEWHERE = ("BUILD_EXT",)
"""Variables that have a rule of their own."""


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if shell.unseen(facts):
        return None
    wrong = [variable for variable in _read(facts, contract) if _is_wrong(facts, variable)]
    if not wrong:
        return None
    return Finding(
        CODE,
        SEVERITY,
        f"set to what {contract.framework} does not take: {cards.listed([v.name for v in wrong])}",
        found=tuple(facts.fact(f"env.{variable.name}") for variable in wrong),
        needs=tuple(
            Need(f"env.{v.name}", "|".join(v.allowed), level="recommended", cite=v.cite) for v in wrong
        ),
        so=f"{contract.framework} refuses the value, or goes on as if it were not set",
        fix=tuple(Step(f"set {v.name} to {' or '.join(v.allowed)}, or unset it") for v in wrong),
    )


def _read(facts: Facts, contract: Contract) -> list[Variable]:
    own = [v for v in shell.in_force(facts, contract) if v.allowed and "read" in v.access]
    return [variable for variable in own if variable.name not in TOLD_ELSEWHERE]


def _is_wrong(facts: Facts, variable: Variable) -> bool:
    value = shell.value(facts, variable.name)
    return value is not None and value not in variable.allowed
