"""``tarmac fit``: what a job will hold of a GPU, where it fits, and the smallest change that makes it fit."""

from __future__ import annotations

from tarmac import system
from tarmac.fit import H200, Job, Undecided, configs, files, models, places, predict
from tarmac.fit.reading import Stated, shown
from tarmac.fitted import Fitted, Largest, Place, Proposal
from tarmac.model import Fact, Step
from tarmac.workflow import looking
from tarmac.workflow.refusal import Refused, named, refusing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from tarmac.diagnosed import Diagnosis
    from tarmac.fit import Fit
    from tarmac.fit.search import Prophet
    from tarmac.model import Facts

FILES = (".json", ".yml", ".yaml", ".py")
NO_GPU = "there is no NVIDIA GPU here to judge; --on NAME names one, such as --on h100"
FIELDS = {"micro-batch": "micro_batch", "seq": "seq"}
"""What ``--max`` takes, and the field of a Job that it is."""
LAUNCHED = ("axolotl", "llama-factory", "trainer", "accelerate", "colossalai")
"""Kinds of files whose launchers take every GPU that is there."""
SAID = tuple(field for field in Job._fields if field != "model")
"""What may be said of a job beside its model."""


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
    """The answer for a model and files that describe a job; ``flags`` are fields of a Job and come last.

    With ``trace`` the layers are not taken from here: the patient's own torch plays them on its meta device.
    """
    given = _ordered(flags or {})
    label, stated = refusing(_stated, arguments, given)
    machine = _places(on, every)
    job, stated = _job(stated, machine)
    answer = Fitted(
        label,
        stated.kind,
        _plain(job),
        stated.said,
        unmodelled=stated.unmodelled,
        lessened=stated.lessened,
        notes=(*_idle(job, given), *stated.notes),
    )
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


def _prophet(trace: bool = False, python: str | None = None) -> Prophet:
    from tarmac.fit.search import Prophet
    from tarmac.workflow.tracing import Tracer

    return Prophet(Tracer(python) if trace else predict)


def _ordered(flags: Mapping[str, Any]) -> dict[str, Any]:
    """What was said, in the order of a Job's fields: the answer is the same in whatever order it was said."""
    place = {field: n for n, field in enumerate(SAID)}
    return dict(sorted(flags.items(), key=lambda row: place.get(row[0], len(place))))


# -- the job --------------------------------------------------------------------------------------------------


def _stated(arguments: Sequence[str], given: Mapping[str, Any]) -> tuple[str, Stated]:
    """What the files, the name of a model and the flags say together."""
    words = [word for word in arguments if not _is_file(word)]
    if not all(word.strip() for word in arguments):
        raise ValueError("a model's name or a file is empty: write it, as in tarmac fit llama-3.1-8b")
    if len(words) > 1:
        raise ValueError(f"one job has one model, and {' and '.join(map(shown, words))} are two")
    several = [one for word in arguments if _is_file(word) for one in files.opened(word, _text)]
    several += [Stated("model", word, word, said={"model": word}) for word in words]  # comes before a file's
    whole = files.merged(
        [*several, Stated("flags", fields=given, said=dict.fromkeys(given, "the command line"))]
    )
    if not whole.model:
        named = next((one.path for one in several), "")
        raise ValueError(f"{named} names no model: write it too, as in tarmac fit llama-3.1-8b {named}")
    label, own = _model(whole.model, whole.path, whole.said.get("model", ""))
    if "quant" in whole.fields:  # what is asked for comes before the checkpoint
        own = own.but(fields={})
    assert not isinstance(own.model, str)
    whole = files.merged([own, whole]).but(kind=whole.kind, path=whole.path, model=own.model)
    fields = dict(whole.fields)
    if given.get("fsdp") or given.get("zero"):  # one takes the place of the other that a file asks for
        fields |= {"zero": given.get("zero", 0), "fsdp": given.get("fsdp", False)}
    notes = list(whole.notes) + configs.loaded(fields, whole.said, own.model)
    if "seq" not in fields and whole.kind not in ("flags", "model"):
        notes.append("how long a sequence is nobody states: counted as 2048 tokens (--seq N)")
    return label, whole.but(fields=fields, notes=tuple(notes))


def _is_file(word: str) -> bool:
    return word.endswith(FILES)


def _text(path: str) -> str | None:
    try:
        text = named().read(path, files.LARGEST + 1)
    except system.Blind as blind:
        raise ValueError(f"{path} cannot be read: {blind}") from None
    return text


def _model(model: str | Mapping[str, Any], beside: str, said: str) -> tuple[str, Stated]:
    """The name to show and what the config.json of a model says: itself, of a folder, or of a name that is known."""
    if not isinstance(model, str):
        return said.rpartition("/")[2] if said else "config.json", configs.opened(model, said)
    folder = beside.rpartition("/")[0]
    for path in dict.fromkeys(
        (model, f"{folder}/{model}" if folder and not model.startswith("/") else model)
    ):
        where = f"{path.rstrip('/')}/config.json"
        text = _text(where)
        if text is not None:
            return model.rstrip("/").rpartition("/")[2], configs.opened(files.decoded(text, where), where)
    config = models.known(model)
    if config is None:
        if model.startswith(("/", ".", "~")):
            raise ValueError(f"{shown(model)} is no folder with a config.json, and no file of a job")
        near = models.nearest(model)
        hint = f" (nearest: {', '.join(near)})" if near else ""
        raise ValueError(
            f"no model is known as {shown(model)}{hint}: give its config.json, or the folder that it is in"
        )
    quantised = configs.by_name(model, model)
    return model, (quantised or Stated("model", model)).but(model=config)


def _job(stated: Stated, machine: Sequence[Place]) -> tuple[Job, Stated]:
    fields, said = dict(stated.fields), dict(stated.said)
    sharded = fields.get("zero") or fields.get("fsdp") or fields.get("tensor_parallel", 1) > 1
    count = sum(len(place.indexes) for place in machine)
    notes = list(stated.notes)
    if "world" not in fields and (sharded or (stated.kind in LAUNCHED and count > 1)):
        fields["world"] = max(count, 1)
        said["world"] = "the GPUs of the machine"
        if count < 2:
            notes.append(
                "how many GPUs share the job is not stated: counted as one, so nothing is shared (--world N)"
            )
    split = fields.get("tensor_parallel", 1)
    if split > fields.get("world", 1):
        fields["world"] = split
    job = refusing(lambda: Job(dict(stated.model), **fields).checked())  # type: ignore[arg-type]
    _positions(job)
    return job, stated.but(fields=fields, said=said, notes=tuple(notes))


def _positions(job: Job) -> None:
    """Learned positions are a table: what is longer than it cannot run."""
    most = job.model.get("n_positions")
    if isinstance(most, int) and job.seq > most > 0:
        raise Refused(f"the model has {most} positions: --seq {job.seq} is beyond them")


ADAPTER = ("lora_r", "lora_targets", "lora_dtype")
GENERATION = ("new_tokens", "cache")
TRAINING = ("optimizer", "checkpointing", "accumulation", "loss", "keep_outputs", "dpo")


def _idle(job: Job, given: Mapping[str, Any]) -> list[str]:
    """Flags that have no bearing on this job: a reader should not believe that they were counted."""
    from tarmac.fit.proposals import words

    off: list[tuple[tuple[str, ...], str]] = []
    if job.task == "generate":
        off.append((TRAINING, "is of training, and this is generation"))
    else:
        off.append((GENERATION, "is of generation, and this is training (--task generate)"))
    if job.method == "full":
        off.append((ADAPTER, "is of an adapter, and there is none (--method lora)"))
    if job.offload == "activations" and job.checkpointing == "none":
        off.append((("offload",), "moves what checkpointing keeps, and it is off (--gradient-checkpointing)"))
    return [
        f"{words({field: given[field]})[0].partition('=')[0]} {why}: it changes nothing"
        for several, why in off
        for field in several
        if given.get(field)
    ]


def _plain(job: Job) -> dict[str, Any]:
    return {name: value for name, value in job.to_json().items() if name != "model"}


# -- the GPUs -------------------------------------------------------------------------------------------------


def _places(on: str | None, every: bool) -> list[Place]:
    """The GPUs of a machine that is named or recorded, or those that are here."""
    if on is None and every:
        return []
    part = None if on is None or _is_file(on) else places.slice_of(on)
    if on is not None and part is not None:
        return places.sliced(_places(part[0], False), part[1], on)
    if on is not None:
        found = places.of_facts(looking.start(on, None, {}, None)[0]())
        if not found:
            raise Refused(f"--on {on}: that machine shows no NVIDIA GPU")
        return found
    if not looking.signs_of_a_gpu():
        return []
    from tarmac import probe

    door = system.Live()
    gpu = [look for look in probe.looks(door) if look[0] == "gpu"]
    return places.of_facts(refusing(probe.gather, door, system.together(door, gpu)))


# -- for check and diagnose -----------------------------------------------------------------------------------


def needed(config: str, facts: Facts) -> list[Fact]:
    """What the job of a file needs of the GPUs of these facts, as a fact; none where that cannot be said for sure."""
    machine = places.of_facts(facts)
    try:
        _, stated = _stated([config], {})
        job, stated = _job(stated, machine)
        if not machine or stated.lessened:
            return []
        fits = [(place, predict(job, places.card(place))) for place in machine]
    except (
        ValueError,
        Refused,
    ):  # the file says too little, or what nobody models: nothing to hold against a GPU
        return []
    rows = tuple(
        {
            "gpus": place.indexes,
            "name": place.name,
            "needs": fit.minimum + fit.overhead[0],
            "has": place.room[1],
            "moment": fit.peak_at[0],
        }
        for place, fit in fits
    )
    return [Fact("job.fit", rows, config, "stated")]


def mended(found: Diagnosis, config: str, on: str | None = None) -> Diagnosis:
    """A diagnosis of an OOM with the exact change: the job of a file, judged on the GPU that the log tells of."""
    if found.code != "MEM001" or found.verdict != "cause":
        return found
    label, stated = refusing(_stated, [config], {})
    machine = _places(on, False) if on is not None else _told(found)
    job, stated = _job(stated, machine)
    answer = Fitted(
        label, stated.kind, _plain(job), stated.said, unmodelled=stated.unmodelled, lessened=stated.lessened
    )
    try:
        answer = _whole(
            answer, job, machine, _prophet(), False, True, (config, *(("--on", on) if on else ())), {}
        )
    except ValueError as open:
        return found.but(notes=(*found.notes, f"{config}: {open}"))
    steps = [Step(_exactly(one), one.run, "safe", note=f"costs: {one.costs}") for one in answer.proposals]
    needs = (answer.minimum or 0) + answer.overhead[1]
    note = f"{config} needs {needs / 2**30:.1f} GiB of a GPU at its peak, by tarmac fit"
    return found.but(fix=(*steps, *found.fix), notes=(*found.notes, note))


def _exactly(one: Proposal) -> str:
    return f"{one.says}: {'; '.join(one.settings)}" if one.settings else one.says


def _told(found: Diagnosis) -> list[Place]:
    """The GPU as the message of the error tells it: its memory; what it is called is not there."""
    words = str(found.captures.get("total", "")).split()
    units = {"GiB": 1 << 30, "MiB": 1 << 20, "GB": 1 << 30, "MB": 1 << 20}
    try:
        size = int(float(words[0]) * units[words[1]])
    except (IndexError, KeyError, ValueError, OverflowError):
        return _places(None, False)
    return [Place("the GPU of the log", "9.0", (size, size), source="log")]


# -- the answer -----------------------------------------------------------------------------------------------


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
    """The prediction, or the engine's own reason why there is none."""
    fit = ask(job, place)
    return fit if fit is not None else ask.reason(job, place)


def _worst(shown: Sequence[Place]) -> Place | None:
    return min(shown, key=lambda place: place.room[0] - place.needs[1], default=None)


def _peaked(answer: Fitted, fit: Fit) -> Fitted:
    parts = dict(fit.parts)
    rounded = fit.peak_allocated - sum(parts.values())
    if rounded > 0:  # a block that is a little too large is given whole
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
    """Every GPU of the catalogue, judged. Kernels and overheads go by the generation; generations on which the job runs

    alike share the search for its minimum.
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
    from tarmac.fit.proposals import settings, words
    from tarmac.fit.search import changes, smallest, summary

    told = []
    for rank, steps, other, fit in smallest(job, place, ask, gpus, answer.unmodelled):
        says, costs = summary(steps, job, other)
        differs = changes(job, other)
        run = ("tarmac", "fit", *command, *words(dict(given) | dict(differs)))
        told.append(
            Proposal(
                says,
                costs,
                rank,
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
    from tarmac.fit.search import largest

    open = answer.unmodelled, answer.lessened
    judged = [places.judged(place, _asked(ask, job, place), *open) for place in machine]
    place = _worst(judged)
    assert place is not None
    most = job.model.get("n_positions") if field == "seq" else 0
    value, fit, fails = largest(job, field, place, ask, most if isinstance(most, int) else 0)
    if value:
        job = job.but(**{field: value})
        answer = answer.but(job=_plain(job))
    fit = fit or _asked(ask, job, place)
    judged = [places.judged(one, _asked(ask, job, one), *open) for one in machine]
    verdict = "fits" if value and not answer.unmodelled else "undecided" if value else judged[0].verdict
    found = Largest(field, value, verdict, fit.peak_device if value else 0, fails)
    return _peaked(answer, fit).but(places=tuple(judged), largest=found)
