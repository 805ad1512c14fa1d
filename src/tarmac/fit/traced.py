"""A prediction from a trace of the patient's own torch, for a model whose layers are not known here.

The trace (scripts/trace.py) gives the births and deaths of forward and backward; the optimizer, clipping and the workspaces
of cuBLAS are played between them as for every other model.
"""

from __future__ import annotations

from tarmac.fit.job import Undecided
from tarmac.fit.ops import Ops
from tarmac.fit.optimizers import Optimizer
from tarmac.fit.prediction import fitted
from tarmac.fit.tensor import Memory, Tape, Tensor
from tarmac.fit.training import workspace_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from tarmac.fit.job import Card, Fit, Job

STEPS = 2
LARGEST = 4_000_000  # events that are believed
NOTE = (
    "traced with {versions} on the meta device: attention is counted as one fused kernel, and gradients that torch adds in "
    "place are counted twice"
)


def asked(job: Job, card: Card) -> dict[str, Any]:
    """What the script is told; Undecided for a job that a trace cannot play."""
    unlike = {
        "method": "full", "task": "train", "loss": "plain", "padded": False, "dpo": False, "autocast": "", "zero": 0,
        "fsdp": False, "tensor_parallel": 1, "offload": "", "accumulation": 1, "loop": "plain",
    }  # fmt: skip
    wrong = [name for name, value in unlike.items() if getattr(job, name) != value]
    if job.precision.startswith("amp"):
        wrong.append("precision")
    if wrong:
        raise Undecided(
            f"a trace plays plain training in full; it does not know this job's {', '.join(sorted(wrong))}"
        )
    return {
        "config": dict(job.model), "micro_batch": job.micro_batch, "seq": job.seq, "precision": job.precision,
        "attention": "eager" if job.attention == "eager" else "sdpa", "checkpointing": job.checkpointing,
        "keep_outputs": job.keep_outputs, "steps": STEPS, "fused": job.attention != "eager" and int(card.capability.split(".")[0]) >= 8,
    }  # fmt: skip


def predict(job: Job, card: Card, trace: Mapping[str, Any], search: bool = True) -> Fit:
    """The fit of a traced job."""
    fit = fitted(job, card, tape(job, card, trace), search)
    versions = ", ".join(f"{name} {version}" for name, version in sorted(trace["versions"].items()))
    return fit.but(notes=(*fit.notes, NOTE.format(versions=versions)))


def tape(job: Job, card: Card, trace: Mapping[str, Any]) -> Tape:
    """The events of the trace with what torch does not show there."""
    made = Tape()
    ops = Ops(made, workspace=workspace_of(card))
    parameters = [ops_free(tuple(shape), width) for shape, width in trace["parameters"]]
    optimizer = Optimizer(ops, job.optimizer, parameters, [])
    born: dict[int, Memory] = {}
    workspaces: list[Tensor] = []
    made.kind = "parameters"
    births = 0
    for event in trace["events"]:
        if isinstance(event, str):
            _phase(event, made, ops, optimizer, job, workspaces)
        elif event >= 0:
            born[births] = Memory(made, event)
            births += 1
        else:
            born.pop(~event, None)
    made.events = made.events[:]
    return made


def ops_free(shape: tuple[int, ...], width: int) -> Tensor:
    """A parameter whose memory the trace already has; its gradient is there for the norm."""
    one = Tensor(None, shape, width)
    one.grad = Tensor(None, shape, width)
    return one


def _phase(name: str, made: Tape, ops: Ops, optimizer: Optimizer, job: Job, workspaces: list[Tensor]) -> None:
    """The end of a phase, and what follows it that the trace does not know."""
    if name.startswith("step"):
        if job.clip:
            optimizer.clip()
        made.mark(f"clip{name[4:]}")
        optimizer.step()
        made.mark(f"opt{name[4:]}")
        return
    made.mark(name)
    made.kind = "activations"
    if name in ("build", "fwd0"):  # one cuBLAS handle for each of the two threads
        made.kind = "workspaces"
        workspaces.append(ops.scratch(ops.workspace))
        made.kind = "activations"


def checked(found: Any) -> dict[str, Any]:
    """A trace as it came from another process, believed only in its form; ValueError otherwise."""
    if not isinstance(found, dict) or not all(isinstance(found.get(k), t) for k, t in FORM.items()):
        raise ValueError("the trace is not one")
    births = 0
    for event in found["events"]:
        if (
            isinstance(event, bool)
            or not isinstance(event, (int, str))
            or (isinstance(event, int) and ~event >= births)
        ):
            raise ValueError("the trace frees what was never born")
        births += isinstance(event, int) and event >= 0
    if len(found["events"]) > LARGEST or not births:
        raise ValueError("the trace is empty, or too long")
    for one in found["parameters"]:
        shape, width = one if isinstance(one, list) and len(one) == 2 else (None, 0)
        if (
            not isinstance(shape, list)
            or width not in (1, 2, 4, 8)
            or not all(isinstance(n, int) and n >= 0 for n in shape)
        ):
            raise ValueError("the trace has a parameter without a shape")
    return found


FORM = {"events": list, "parameters": list, "versions": dict}
