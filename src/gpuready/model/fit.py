"""Records of a ``gpuready fit`` result: a GPU with its verdict, a change that would fit, and the whole. All in
bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuready.model.record import Record, field


class TimePrediction(Record):
    """How long a step takes on one GPU, or the first and every later token; seconds everywhere."""

    step_seconds: float | None = None
    prefill_seconds: float | None = None
    decode_seconds: float | None = None  # one token of the whole batch
    tokens_per_second: float = 0.0  # of all GPUs of the job
    mfu: float | None = None  # operations of the model a second, as a share of the GPU's peak
    bound_by: str = ""  # matmul, memory, launches, host or communication
    range: tuple[float, float] = (0.0, 0.0)  # of the step, or of a later token
    parts: Mapping[str, float] = field(default_factory=dict)
    source: str = ""  # what the rates of the GPU come from
    notes: tuple[str, ...] = ()
    steps: int | None = None  # of the whole run, where the job states them
    run_seconds: float | None = None
    run_range: tuple[float, float] | None = None  # where samples are packed and their length is not known exactly


def format_time_span(seconds: float) -> str:
    """``41.2 ms``, ``3.4 s``, ``12 min``, ``5 h 10 min``, ``3 days 4 h``"""
    if seconds < 1:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 120:
        return f"{seconds:.3g} s"
    minutes = round(seconds / 60)
    if minutes < 120:
        return f"{minutes} min"
    hours, rest = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {rest} min"
    return f"{hours // 24} days {hours % 24} h"


EXIT_CODES = {"fits": 0, "does not fit": 1, "undecided": 3}
FITS_BY_VERDICT = {"fits": True, "does not fit": False, "undecided": None}


class GpuCandidate(Record):
    """GPUs of one kind, and the verdict on each. ``memory`` is what a process can use of one: at least, at most."""

    name: str
    capability: str
    memory: tuple[int, int]
    held: int = 0  # used by other processes
    indexes: tuple[int, ...] = (0,)
    source: str = ""
    needs: tuple[int, int] = (0, 0)  # minimum memory needed: at least, at most
    peak: int = 0  # expected in nvidia-smi when memory is not scarce
    verdict: str = "undecided"
    short: str = ""  # a name that --on accepts
    seconds: float | None = None  # of a step, or of one later token
    tokens_per_second: float | None = None
    usd: float | None = None  # of the run at the user's price; of 1,000 steps or tokens where its length is not known

    @property
    def available_memory(self) -> tuple[int, int]:
        """Memory of one GPU that is left for the job: at least, at most."""
        low, high = (max(size - self.held, 0) for size in self.memory)
        return low, high


class Proposal(Record):
    """A verified change that fits. ``rank`` orders by what it costs the user, cheapest first."""

    says: str
    costs: str
    rank: float
    changes: Mapping[str, Any]  # field -> its new value
    settings: tuple[str, ...]  # the change as settings of the file, or as flags
    run: tuple[str, ...]  # the command that reproduces it
    verdict: str
    peak_allocated: int = 0
    peak_reserved: int = 0
    peak_device: int = 0
    minimum: int = 0
    step_seconds: float | None = None
    time_ratio: float | None = None  # how much longer the same tokens take than without the change


class LargestFit(Record):
    """The largest value of one field that fits; 0 if none does."""

    field: str
    value: int
    verdict: str
    peak_device: int = 0
    fails: int = 0  # the smallest value known not to fit


class ServingFit(Record):
    """The memory of an inference engine on one GPU. Pairs are estimates: at least, at most."""

    engine: str
    fraction: float  # share of the GPU's memory that the engine uses
    budget: tuple[int, int]  # that share of the GPU
    weights: int
    activations: tuple[int, int]
    graphs: tuple[int, int]
    reserve: tuple[int, int]
    pool: tuple[int, int]  # what is left for the KV cache
    token_bytes: int  # of the KV cache for one token
    tokens: tuple[int, int]
    context: int  # tokens of the longest sequence that is asked for
    context_bytes: int  # of the KV cache for one such sequence
    largest_context: tuple[int, int]
    sequences: tuple[int, int]  # such sequences at once
    max_sequences: int  # the engine's own limit
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    wanted: int = 1  # sequences at once that are asked for

    @property
    def verdict(self) -> str:
        """Whether one sequence of the context, and as many as wanted, find room in the pool."""
        if self.wanted > self.max_sequences:
            return "does not fit"
        need = self.context_bytes * self.wanted
        return "fits" if need <= self.pool[0] else "does not fit" if need > self.pool[1] else "undecided"


class PhaseMemory(Record):
    """What one GPU holds in a phase of an iteration: at least, at most."""

    phase: str
    roles: Mapping[str, tuple[int, int]]
    working: tuple[str, ...]  # roles that work in it; the others wait
    total: tuple[int, int]


class GpuTimeline(Record):
    """The phases of an iteration on GPUs that have the same roles."""

    gpus: tuple[int, ...]
    phases: tuple[PhaseMemory, ...]
    peak: str  # the phase with the most memory
    needs: tuple[int, int]
    verdict: str


class CodeLine(Record):
    """Memory that is live at the peak, by the line of the user's code that asked for it."""

    where: str  # train.py:41
    code: str
    bytes: int


class FitResult(Record):
    """A job's peak, where it fits, and what to change where it does not. ``why`` says why nothing can be decided."""

    model: str
    kind: str  # source: flags, axolotl, trainer, …
    job: Mapping[str, Any]
    said: Mapping[str, str]  # field -> where it was set; missing fields are defaults
    peak_allocated: int | None = None
    peak_reserved: int | None = None
    peak_device: int | None = None
    minimum: int | None = None
    overhead: tuple[int, int] = (0, 0)
    parts: Mapping[str, int] = field(default_factory=dict)
    phases: Mapping[str, int] = field(default_factory=dict)
    stacks: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # phase -> memory live at its peak, by kind
    peak_at: tuple[str, str] = ("", "")
    places: tuple[GpuCandidate, ...] = ()
    gpus: tuple[GpuCandidate, ...] = ()  # GPUs of the catalogue, if requested
    proposals: tuple[Proposal, ...] = ()
    largest: LargestFit | None = None
    unmodelled: tuple[str, ...] = ()  # features that may need more and are not counted: rule out "fits"
    lessened: tuple[str, ...] = ()  # features that need less than counted: rule out "does not fit"
    notes: tuple[str, ...] = ()
    why: str = ""
    smallest_gpu: GpuCandidate | None = None  # of the catalogue, where the GPUs at hand are too small
    unknown_keys: tuple[str, ...] = ()  # keys of the job's file that its framework does not declare
    serving: ServingFit | None = None  # where the question is serving
    timeline: tuple[GpuTimeline, ...] = ()  # where several roles share GPUs
    time: TimePrediction | None = None  # on the GPU that decides
    lines: tuple[CodeLine, ...] = ()  # of a script that was run, the largest first
    traceback: str = ""  # of a script that failed
    machine: str = ""  # whose GPUs: "--on h100", "this machine"
    judged_by: str = ""  # what of ours: the templates of a release, its trace, its run of a script
    versions: Mapping[str, str] = field(default_factory=dict)  # of the environment that was looked at

    @property
    def verdict(self) -> str:
        """Verdict on the GPUs that the job would use: as many as it has ranks, lowest index first."""
        if self.why:
            return "undecided"
        if self.largest is not None:
            return self.largest.verdict
        if self.timeline:
            return self._timeline_verdict()
        if self.gpus and not self.places:
            return _best_verdict(place.verdict for place in self.gpus)
        return _worst_verdict([place.verdict for place in self._used_gpus()])

    def _timeline_verdict(self) -> str:
        worst = _worst_verdict([one.verdict for one in self.timeline])
        gap = self.unmodelled if worst == "fits" else self.lessened if worst == "does not fit" else ()
        return "undecided" if gap else worst

    def _used_gpus(self) -> list[GpuCandidate]:
        ranked = sorted((index, place) for place in self.places for index in place.indexes) if self.places else []
        return [place for _, place in ranked[: int(self.job.get("world", 1))]]

    @property
    def fits(self) -> bool | None:
        return FITS_BY_VERDICT[self.verdict]

    @property
    def exit(self) -> int:
        return EXIT_CODES[self.verdict]


def _worst_verdict(verdicts: Any) -> str:
    return min(verdicts, key=("does not fit", "undecided", "fits").index, default="undecided")


def _best_verdict(verdicts: Any) -> str:
    return min(verdicts, key=("fits", "undecided", "does not fit").index, default="undecided")
