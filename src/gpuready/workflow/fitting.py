"""``gpuready fit``: how much GPU memory a job needs, where it fits, and the smallest change that makes it fit."""

from __future__ import annotations

from gpuready import system
from gpuready.fit import H200, Job, Undecided, places, predict
from gpuready.fitted import Fitted, Largest, Place, Proposal
from gpuready.model import Fact, Step
from gpuready.workflow import looking, stating
from gpuready.workflow.refusal import Refused, refusing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from gpuready.diagnosed import Diagnosis
    from gpuready.fit import Fit
    from gpuready.fit.reading import Stated
    from gpuready.fit.search import Prophet
    from gpuready.model import Facts

NO_GPU = "there is no NVIDIA GPU here to judge; --on NAME names one, such as --on h100"
FIELDS = {"micro-batch": "micro_batch", "seq": "seq"}
"""What ``--max`` takes, and the field of a Job that it sets."""
SAID = tuple(field for field in Job._fields if field != "model")
"""Fields of a job other than its model."""


def fit(
    arguments: Sequence[str],
    flags: Mapping[str, Any] | None = None,
    *,
    on: str | None = None,
    every: bool = False,
    largest: str | None = None,
    search: bool = True,
    trace: bool = False,
    python: str | None = None,
) -> Fitted:
    """Predict the memory of a model and files that describe a job; ``flags`` are fields of a Job and come last.

    With ``trace`` the layers come from the target's own torch, run on its meta device.
    """
    given = _ordered(flags or {})
    label, stated = refusing(stating.read, arguments, given)
    machine = _places(on, every)
    job, stated = stating.job_of(stated, machine)
    answer = _begun(label, stated, job).but(notes=(*stating.idle(job, given), *stated.notes))
    ask = _prophet(trace, python)
    search = search and not trace
    try:
        if largest is not None:
            return _largest(answer, job, FIELDS[largest], machine, ask)
        command = (*arguments, *(("--on", on) if on else ()))
        return _whole(answer, job, machine, ask, every, search, command, given)
    except Undecided as open:
        return answer.but(places=tuple(machine), why=str(open))
    except ValueError as bad:
        raise Refused(f"{label}: {bad}") from None


def _begun(label: str, stated: Stated, job: Job) -> Fitted:
    """Return a result with the question, and nothing yet of the memory."""
    plain = stating.plain(job)
    return Fitted(
        label, stated.kind, plain, stated.said, unmodelled=stated.unmodelled, lessened=stated.lessened
    )


def _prophet(trace: bool = False, python: str | None = None) -> Prophet:
    from gpuready.fit.search import Prophet

    if not trace:
        return Prophet(predict)
    from gpuready.workflow.tracing import Tracer

    return Prophet(Tracer(python))


def _ordered(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Sort flags by the order of a Job's fields, so that the result does not depend on the order given."""
    place = {field: n for n, field in enumerate(SAID)}
    return dict(sorted(flags.items(), key=lambda row: place.get(row[0], len(place))))


# -- the GPUs -------------------------------------------------------------------------------------------------


def _places(on: str | None, every: bool) -> list[Place]:
    """Return the GPUs of a named or recorded machine, or of this one."""
    if on is None and every:
        return []
    part = None if on is None or stating.is_file(on) else places.slice_of(on)
    if on is not None and part is not None:
        return places.sliced(_places(part[0], False), part[1], on)
    if on is not None:
        found = places.of_facts(looking.start(on, None, {}, None)[0]())
        if not found:
            raise Refused(f"--on {on}: that machine shows no NVIDIA GPU")
        return found
    if not looking.signs_of_a_gpu():
        return []
    from gpuready import probe

    door = system.Live()
    gpu = [look for look in probe.looks(door) if look[0] == "gpu"]
    return places.of_facts(refusing(probe.gather, door, system.together(door, gpu)))


# -- for check and diagnose -----------------------------------------------------------------------------------


def needed(config: str, facts: Facts, on: str | None = None) -> list[Fact]:
    """Return what the job of a file needs of these GPUs, as a fact; empty where that is uncertain."""
    machine = places.of_facts(facts)
    try:
        _, stated = stating.read([config], {})
        job, stated = stating.job_of(stated, machine)
        if not machine or stated.lessened:
            return []
        fits = [(place, predict(job, places.card(place))) for place in machine]
    except (
        ValueError,
        Refused,
    ):  # the file says too little, or something that is not modelled
        return []
    rows = tuple(
        {
            "gpus": place.indexes,
            "name": place.name,
            "needs": fit.minimum + fit.overhead[0],
            "has": place.room[1],
            "moment": fit.peak_at[0],
        }
        | ({"on": on} if on else {})
        for place, fit in fits
    )
    return [Fact("job.fit", rows, config, "stated")]


def mended(found: Diagnosis, config: str, on: str | None = None) -> Diagnosis:
    """Add to a diagnosed OOM the exact change: the job of a file, judged on the log's GPU."""
    if found.code != "MEM001" or found.verdict != "cause":
        return found
    label, stated = refusing(stating.read, [config], {})
    machine = _places(on, False) if on is not None else _told(found)
    job, stated = stating.job_of(stated, machine)
    answer = _begun(label, stated, job)
    try:
        answer = _whole(
            answer, job, machine, _prophet(), False, True, (config, *(("--on", on) if on else ())), {}
        )
    except ValueError as open:
        return found.but(notes=(*found.notes, f"{config}: {open}"))
    steps = [Step(_exactly(one), one.run, "safe", note=f"costs: {one.costs}") for one in answer.proposals]
    needs = (answer.minimum or 0) + answer.overhead[1]
    note = f"{config} needs {needs / 2**30:.1f} GiB of a GPU at its peak, by gpuready fit"
    return found.but(fix=(*steps, *found.fix), notes=(*found.notes, note))


def _exactly(one: Proposal) -> str:
    return f"{one.says}: {'; '.join(one.settings)}" if one.settings else one.says


def _told(found: Diagnosis) -> list[Place]:
    """Return the GPU with the memory that the error message states; its model is unknown."""
    words = str(found.captures.get("total", "")).split()
    units = {"GiB": 1 << 30, "MiB": 1 << 20, "GB": 1 << 30, "MB": 1 << 20}
    try:
        size = int(float(words[0]) * units[words[1]])
    except (IndexError, KeyError, ValueError, OverflowError):
        return _places(None, False)
    return [Place("the GPU of the log", "9.0", (size, size), source="log")]


# -- the result -----------------------------------------------------------------------------------------------


def _whole(
    answer: Fitted,
    job: Job,
    machine: Sequence[Place],
    ask: Prophet,
    every: bool,
    search: bool,
    command: tuple[str, ...],
    given: Mapping[str, Any],
) -> Fitted:
    open = answer.unmodelled, answer.lessened
    shown = [places.judged(place, _asked(ask, job, place), *open) for place in machine]
    taken = _worst(shown) or Place(H200.name, H200.capability, (H200.memory, H200.memory))
    answer = _peaked(answer, _asked(ask, job, taken)).but(places=tuple(shown))
    if every or not shown:
        answer = answer.but(gpus=_catalogue(job, ask, open), why="" if every else NO_GPU)
    if not search or not shown or answer.verdict == "fits":
        return answer
    return answer.but(proposals=_proposals(job, taken, ask, answer, command, given, len(taken.indexes)))


def _asked(ask: Prophet, job: Job, place: Place) -> Fit:
    """Return the prediction, or raise the predictor's reason why there is none."""
    fit = ask(job, place)
    return fit if fit is not None else ask.reason(job, place)


def _worst(shown: Sequence[Place]) -> Place | None:
    return min(shown, key=lambda place: place.room[0] - place.needs[1], default=None)


def _peaked(answer: Fitted, fit: Fit) -> Fitted:
    parts = dict(fit.parts)
    rounded = fit.peak_allocated - sum(parts.values())
    if rounded > 0:  # the allocator gives out whole blocks
        parts["rounding of blocks"] = rounded
    return answer.but(
        peak_allocated=fit.peak_allocated,
        peak_reserved=fit.peak_reserved,
        peak_device=fit.peak_device,
        minimum=fit.minimum,
        overhead=tuple(fit.overhead),
        parts=parts,
        phases=dict(fit.phases),
        stacks={phase: dict(parts) for phase, parts in fit.stacks.items()},
        peak_at=tuple(fit.peak_at),
        notes=tuple(dict.fromkeys((*answer.notes, *fit.notes))),
    )


def _catalogue(job: Job, ask: Prophet, open: tuple[Sequence[str], Sequence[str]]) -> tuple[Place, ...]:
    """Judge every GPU of the catalogue.

    Kernels and overheads depend on the generation; generations with equal peaks share the search for the minimum.
    """
    every = places.catalogue()
    first = {place.capability.partition(".")[0]: place for place in reversed(every)}
    quick = {generation: ask(job, place, False) for generation, place in first.items()}
    whole: dict[tuple[int, int], Fit | None] = {}
    judged = []
    for place in every:
        fit = quick[place.capability.partition(".")[0]]
        if fit is None:
            judged.append(place)
            continue
        alike = fit.peak_allocated, fit.peak_reserved
        if alike not in whole:
            whole[alike] = ask(job, place)
        least = whole[alike]
        fit = fit if least is None else fit.but(minimum=least.minimum)
        judged.append(places.judged(place, fit, *open))
    return tuple(judged)


def _proposals(
    job: Job,
    place: Place,
    ask: Prophet,
    answer: Fitted,
    command: tuple[str, ...],
    given: Mapping[str, Any],
    gpus: int,
) -> tuple[Proposal, ...]:
    from gpuready.fit.proposals import settings, words
    from gpuready.fit.search import changes, smallest, summary

    told = []
    for rank, steps, other, fit in smallest(job, place, ask, gpus, answer.unmodelled):
        says, costs = summary(steps, job, other)
        differs = changes(job, other)
        run = ("gpuready", "fit", *command, *words(dict(given) | dict(differs)))
        told.append(
            Proposal(
                says,
                costs,
                round(rank, 2),
                differs,
                settings(answer.kind, differs, job.fsdp),
                run,
                places.judged(place, fit).verdict,
                fit.peak_allocated,
                fit.peak_reserved,
                fit.peak_device,
                fit.minimum,
            )
        )
    return tuple(told)


def _largest(answer: Fitted, job: Job, field: str, machine: Sequence[Place], ask: Prophet) -> Fitted:
    if not machine:
        raise Refused("--max needs a GPU, and there is none here: name one with --on, such as --on h100")
    from gpuready.fit.search import largest

    open = answer.unmodelled, answer.lessened
    judged = [places.judged(place, _asked(ask, job, place), *open) for place in machine]
    place = _worst(judged)
    assert place is not None
    most = job.model.get("n_positions") if field == "seq" else 0
    value, fit, fails = largest(job, field, place, ask, most if isinstance(most, int) else 0)
    if value:
        job = job.but(**{field: value})
        answer = answer.but(job=stating.plain(job))
    fit = fit or _asked(ask, job, place)
    judged = [places.judged(one, _asked(ask, job, one), *open) for one in machine]
    verdict = "fits" if value and not answer.unmodelled else "undecided" if value else judged[0].verdict
    found = Largest(field, value, verdict, fit.peak_device if value else 0, fails)
    return _peaked(answer, fit).but(places=tuple(judged), largest=found)
