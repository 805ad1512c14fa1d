"""``gpuready fit``: how much GPU memory a job needs, where it fits, and the smallest change that makes it fit."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gpuready import __version__, probe, system
from gpuready.fit import H200, FitJob, FitPrediction, FitUndecided, predict_memory
from gpuready.fit.job import gpu_candidates
from gpuready.fit.job.records import UnknownLayers
from gpuready.fit.search.change_search import (
    CachedPredictor,
    describe_change,
    diff_jobs,
    find_cheapest_changes,
    find_largest_value,
)
from gpuready.fit.search.tuning_steps import format_file_settings, format_job_flags
from gpuready.jobs.config_reader import JobSettings
from gpuready.jobs.job_files import JobFile
from gpuready.model import Fact, Facts, FixStep
from gpuready.model.diagnosis import Diagnosis
from gpuready.model.fit import FitResult, GpuCandidate, LargestFit, Proposal
from gpuready.model.sizes import parse_size
from gpuready.workflow import job_spec, machine_facts
from gpuready.workflow.fit_roles import fit_roles
from gpuready.workflow.fit_time import RunClock, add_times
from gpuready.workflow.fit_trace import Tracer
from gpuready.workflow.logged_job import name_logged_gpu
from gpuready.workflow.refusal import Refused, call_or_refuse
from gpuready.workflow.trace_environment import provide_trace_python

NO_GPU = "there is no NVIDIA GPU here to judge; --on NAME names one, and --gpus judges every GPU that is known"
NO_GPU_HOLDS_IT = "no GPU of the catalogue is large enough for it as it is"
MAX_FIELDS = {"micro-batch": "micro_batch", "seq": "seq"}
"""What ``--max`` takes, and the field of a Job that it sets."""
SMALL_SHARE = 0.005
"""What would need less than this share more is not mentioned."""
AGREEMENT = 0.75
"""A prediction below this share of what a log shows does not describe the run of the log."""
TEMPLATES = f"the templates of gpuready {__version__} (transformers 5.17)"
TRACE_JUDGE, SCRIPT_JUDGE = (f"a {what} by gpuready {__version__}" for what in ("trace", "run"))
"""What judges a job."""
JOB_FIELDS = tuple(field for field in FitJob._fields if field != "model")
"""Fields of a job other than its model."""


def fit_job(
    arguments: Sequence[str],
    flags: Mapping[str, Any] | None = None,
    *,
    on: str | None = None,
    every: bool = False,
    largest: str | None = None,
    search: bool = True,
    trace: bool = False,
    python: str | None = None,
    download: bool = False,
    show_progress: Callable[..., None] = lambda *_: None,
    clock: RunClock | None = None,
    agree: Callable[[str], bool] | None = None,
) -> FitResult:
    """Predict the memory of a model and files that describe a job; ``flags`` are fields of a Job and come last.

    With ``trace`` the layers come from the target's own torch, run on its meta device. ``download`` fetches the
    config of a model that is not known, and nothing else. Layers that no template has are traced in an environment of
    our own, if it was made before or ``agree`` lets it be made.
    """
    job_flags = _order_flags(flags or {})
    label, spec = call_or_refuse(job_spec.read_job, arguments, job_flags, download)
    machine = find_gpus(on, every)
    job, spec = job_spec.make_fit_job(spec, machine)
    result = _start_answer(label, spec, job).replace(notes=(*job_spec.unused_flag_notes(job, job_flags), *spec.notes))
    result = result.replace(machine=name_machine(on), judged_by=TRACE_JUDGE if trace else TEMPLATES)
    folder = next((word for word in arguments if not job_spec.is_job_file(word)), "")
    tracer = Tracer(python, folder) if trace else None
    predictor = _make_predictor(tracer)
    search = search and not trace
    try:
        if largest is not None:
            return _find_largest(result, job, MAX_FIELDS[largest], machine, predictor)
        command = (*arguments, *(("--on", on) if on else ()))
        if _has_several_roles(spec) and machine and not trace:
            return fit_roles(result, spec, machine, predictor)
        result = _complete_answer(result, job, machine, predictor, every, search, command, job_flags, show_progress)
        if clock is None:
            return result
        return add_times(result, job, clock.with_length_of(spec).with_tapes_of(tracer))
    except UnknownLayers as unknown:
        if agree is None or python is not None or largest is not None or _has_several_roles(spec):
            return result.replace(places=tuple(machine), why=str(unknown))
        own, says = provide_trace_python(agree, show_progress)
        if not own:
            return result.replace(places=tuple(machine), why=str(unknown), notes=(*result.notes, says))
        again = fit_job(arguments, flags, on=on, every=every, trace=True, python=own, download=download, clock=clock)
        return again.replace(notes=(*again.notes, says))
    except FitUndecided as undecided:
        return result.replace(places=tuple(machine), why=str(undecided))
    except ValueError as error:
        raise Refused(f"{label}: {error}") from None


def _has_several_roles(spec: JobSettings) -> bool:
    """Whether the job has more phases than a training step, shares its GPUs with other roles, or runs in Megatron."""
    return len(spec.roles) > 1 or any(len(role.phases) > 1 or role.is_megatron for role in spec.roles)


def _start_answer(label: str, spec: JobSettings, job: FitJob) -> FitResult:
    """Return a result with the question, and nothing yet of the memory."""
    plain = job_spec.job_without_model(job)
    result = FitResult(label, spec.kind, plain, spec.said)
    return result.replace(unmodelled=spec.unmodelled, lessened=spec.lessened, unknown_keys=spec.unknown_keys)


def _make_predictor(tracer: Tracer | None = None) -> CachedPredictor:
    return CachedPredictor(predict_memory) if tracer is None else CachedPredictor(tracer, traced=True)


def _order_flags(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Sort flags by the order of a Job's fields, so that the result does not depend on their order."""
    place = {field: n for n, field in enumerate(JOB_FIELDS)}
    return dict(sorted(flags.items(), key=lambda row: place.get(row[0], len(place))))


def name_machine(on: str | None) -> str:
    return "this machine" if on is None else f"--on {on}"


# -- the GPUs -------------------------------------------------------------------------------------------------


def find_gpus(on: str | None, every: bool) -> list[GpuCandidate]:
    """Return the GPUs of a named or recorded machine, or of this one."""
    if on is None and every:
        return []
    if on is not None:
        found = gpu_candidates.gpus_from_facts(machine_facts.start_probing(on, None, {}, None)[0]())
        if not found:
            raise Refused(f"--on {on}: that machine shows no NVIDIA GPU, and fit models the memory of no other")
        return found
    if not machine_facts.has_gpu_driver():
        return []
    host = system.ReadOnlyHost()
    gpu = [look for look in probe.list_probes(host) if look[0] == "gpu"]
    return gpu_candidates.gpus_from_facts(call_or_refuse(probe.assemble_host_facts, host, system.run_probes(host, gpu)))


# -- for check and diagnose -----------------------------------------------------------------------------------


def fit_facts(file: JobFile, facts: Facts, on: str | None = None) -> list[Fact]:
    """Return what the job of a file needs of these GPUs, as a fact; empty where that is uncertain."""
    machine = gpu_candidates.gpus_from_facts(facts)
    try:
        _, spec = job_spec.merge_job([file], [], {})
        job, spec = job_spec.make_fit_job(spec, machine)
        if not machine or spec.lessened:
            return []
        fits = [(place, predict_memory(job, gpu_candidates.to_gpu_card(place))) for place in machine]
    except (ValueError, Refused):  # the file says too little, or something that is not modelled
        return []
    rows = tuple(
        {
            "gpus": place.indexes,
            "name": place.name,
            "needs": fit.minimum + fit.overhead[0],
            "has": place.available_memory[1],
            "moment": fit.peak_at[0],
        }
        | ({"on": on} if on else {})
        for place, fit in fits
    )
    return [Fact("job.fit", rows, file.path, "stated")]


def require_job_file(config: str) -> None:
    """Refused where a file describes no job."""
    call_or_refuse(job_spec.read_job, [config], {})


def add_memory_fix(diagnosis: Diagnosis, config: str, on: str | None = None) -> Diagnosis:
    """Add to a diagnosed OOM the exact change: the job of a file, judged on the log's GPU."""
    if diagnosis.code != "MEM001" or diagnosis.verdict != "cause":
        return diagnosis
    label, spec = call_or_refuse(job_spec.read_job, [config], {})
    machine = find_gpus(on, False) if on is not None else _gpu_from_log(diagnosis)
    job, spec = job_spec.make_fit_job(spec, machine)
    result = _start_answer(label, spec, job)
    words = (config, *(("--on", on) if on else name_logged_gpu(diagnosis)))
    try:
        result = _complete_answer(result, job, machine, _make_predictor(), False, True, words, {})
    except ValueError as error:
        return diagnosis.replace(notes=(*diagnosis.notes, f"{config}: {error}"))
    steps = [FixStep(_describe_proposal(one), one.run, "safe", note=f"costs: {one.costs}") for one in result.proposals]
    steps = steps or [FixStep("see what takes the memory, and try other settings", ("gpuready", "fit", *words), "safe")]
    needs = (result.minimum or 0) + result.overhead[1]
    note = f"{config} needs {needs / 2**30:.1f} GiB of a GPU at its peak, by gpuready fit"
    note += "" if on or not words[1:] else f"; {words[-1]} has the memory of the GPU in the log, and --on names another"
    logged = _memory_in_log(diagnosis)
    if needs < AGREEMENT * logged:
        note += (
            f", but the log shows {logged / 2**30:.1f} GiB: the two disagree. Either the run did not use this file, or "
            "something that it does not state took the memory (longer sequences, the evaluation, a leak, another process)"
        )
        steps = []
    others = (one for one in diagnosis.fix if not (steps and one.does.startswith("let gpuready fit find")))
    return diagnosis.replace(fix=(*steps, *others), notes=(*diagnosis.notes, note))


def _memory_in_log(diagnosis: Diagnosis) -> float:
    """Return the bytes in use and asked for, by the error message; what was not free, where it says no more."""
    size = {name: parse_size(str(text), 1024) or 0 for name, text in diagnosis.captures.items()}
    held = max(size.get(name, 0) for name in ("held", "kept", "used"))
    return (held or max(size.get("total", 0) - size.get("free", 0), 0)) + size.get("want", 0)


def _describe_proposal(one: Proposal) -> str:
    return f"{one.says}: {'; '.join(one.settings)}" if one.settings else one.says


def _gpu_from_log(diagnosis: Diagnosis) -> list[GpuCandidate]:
    """Return the GPU with the memory that the error message states; its model is unknown."""
    size = int(parse_size(str(diagnosis.captures.get("total", "")), 1024) or 0)  # "79.10 GiB"
    if size < 1 << 20:
        return find_gpus(None, False)
    return [GpuCandidate("the GPU of the log", "9.0", (size, size), source="log")]


# -- the result -----------------------------------------------------------------------------------------------


def _complete_answer(
    result: FitResult,
    job: FitJob,
    machine: Sequence[GpuCandidate],
    predictor: CachedPredictor,
    every: bool,
    search: bool,
    command: tuple[str, ...],
    job_flags: Mapping[str, Any],
    show_progress: Callable[..., None] = lambda *_: None,
) -> FitResult:
    gaps = result.unmodelled, result.lessened
    judged = [gpu_candidates.judge_gpu(place, _predict_or_raise(predictor, job, place), *gaps) for place in machine]
    tightest = _tightest_gpu(judged) or GpuCandidate(H200.name, H200.capability, (H200.memory, H200.memory))
    result = add_peaks(result, _predict_or_raise(predictor, job, tightest)).replace(places=tuple(judged))
    result = _add_padding(result, job, predictor, tightest)
    if every or not judged:
        gpus = _judge_catalog_gpus(job, predictor, gaps, every, show_progress)
        result = result.replace(gpus=gpus, why="" if every else NO_GPU)
    if not search or not judged or result.verdict == "fits":
        return result
    show_progress("searching for a change that makes it fit")
    too_small = result.verdict == "does not fit"
    smallest = _find_smallest_gpu(job, predictor, gaps, tightest) if too_small else None
    return result.replace(
        notes=(*result.notes, _suggest_sharing(job)) if too_small and smallest is None else result.notes,
        smallest_gpu=smallest,
        proposals=_make_proposals(job, tightest, predictor, result, command, job_flags, len(tightest.indexes)),
    )


def _add_padding(result: FitResult, job: FitJob, predictor: CachedPredictor, tightest: GpuCandidate) -> FitResult:
    """Say what a trainer's batch with rows of unequal length needs beside one of full rows, whose mask attention does not see.

    Where full rows fit and such a batch may not, that is undecided.
    """
    several = job.micro_batch * (1 + job.dpo) > 1 and not (job.padded or job.packing)
    if not several or job.loop != "trainer" or job.task != "train" or job.attention != "sdpa":
        return result
    note = "counted with full rows: where those of a batch differ in length it needs {}more (--padded)"
    if predictor.traced:  # a second trace would take as long as the first
        return result.replace(notes=(*result.notes, note.format("")))
    fit = predictor(job.replace(padded=True), tightest, False)
    more = 0 if fit is None else fit.peak_allocated - (result.peak_allocated or 0)
    if more < (result.peak_allocated or 0) * SMALL_SHARE:
        return result
    note = note.format(f"{more / 2**30:.2f} GiB ")
    if tightest.verdict != "fits" or tightest.needs[1] + more <= tightest.available_memory[0]:
        return result.replace(notes=(*result.notes, note))
    places = [one.replace(verdict="undecided") if one.verdict == "fits" else one for one in result.places]
    return result.replace(places=tuple(places), unmodelled=(*result.unmodelled, note))


def _suggest_sharing(job: FitJob) -> str:
    if job.zero == 3:
        return f"{NO_GPU_HOLDS_IT}; a larger --world than {job.world} shares it between more GPUs"
    return f"{NO_GPU_HOLDS_IT}; --world N --zero 3 shares it between N GPUs"


def _predict_or_raise(predictor: CachedPredictor, job: FitJob, place: GpuCandidate) -> FitPrediction:
    """Return the prediction, or raise the predictor's reason why there is none."""
    fit = predictor(job, place)
    return fit if fit is not None else predictor.explain_failure(job, place)


def _tightest_gpu(shown: Sequence[GpuCandidate]) -> GpuCandidate | None:
    return min(shown, key=lambda place: place.available_memory[0] - place.needs[1], default=None)


def add_peaks(result: FitResult, fit: FitPrediction) -> FitResult:
    parts = dict(fit.parts)
    rounded = fit.peak_allocated - sum(parts.values())
    if rounded > 0:  # the allocator gives out whole blocks
        parts["rounding of blocks"] = rounded
    return result.replace(
        peak_allocated=fit.peak_allocated,
        peak_reserved=fit.peak_reserved,
        peak_device=fit.peak_device,
        minimum=fit.minimum,
        overhead=tuple(fit.overhead),
        parts=parts,
        phases=dict(fit.phases),
        stacks={phase: dict(parts) for phase, parts in fit.stacks.items()},
        peak_at=tuple(fit.peak_at),
        versions=result.versions or dict(fit.versions),
        notes=tuple(dict.fromkeys((*result.notes, *fit.notes))),
    )


def _judge_catalog_gpus(
    job: FitJob,
    predictor: CachedPredictor,
    gaps: tuple[Sequence[str], Sequence[str]],
    every: bool = True,
    show_progress: Callable[..., None] = lambda *_: None,
) -> tuple[GpuCandidate, ...]:
    """Judge every GPU of the catalogue, or the usual ones.

    Kernels and overheads depend on the generation; generations with equal peaks share the search for the minimum.
    """
    all_gpus = gpu_candidates.list_catalogue_gpus(every)
    first = {place.capability.partition(".")[0]: place for place in reversed(all_gpus)}
    quick = {generation: predictor(job, place, False) for generation, place in first.items()}
    full_fits: dict[tuple[int, int], FitPrediction | None] = {}
    judged = []
    for number, place in enumerate(all_gpus):
        show_progress("judging GPUs", number, len(all_gpus))
        fit = quick[place.capability.partition(".")[0]]
        if fit is None:
            judged.append(place)
            continue
        peaks = fit.peak_allocated, fit.peak_reserved
        if peaks not in full_fits:
            full_fits[peaks] = predictor(job, place)
        least = full_fits[peaks]
        fit = fit if least is None else fit.replace(minimum=least.minimum)
        judged.append(gpu_candidates.judge_gpu(place, fit, *gaps))
    return tuple(judged)


def _find_smallest_gpu(
    job: FitJob, predictor: CachedPredictor, gaps: tuple[Sequence[str], Sequence[str]], judged: GpuCandidate
) -> GpuCandidate | None:
    """Return the smallest GPU of the catalogue that the job fits as it is; a GPU that was too small sets the start."""
    for place in gpu_candidates.list_catalogue_gpus():
        if place.memory[1] <= judged.needs[0]:
            continue
        fit = predictor(job, place)
        if fit is not None and (found := gpu_candidates.judge_gpu(place, fit, *gaps)).verdict == "fits":
            return found
    return None


def _make_proposals(
    job: FitJob,
    place: GpuCandidate,
    predictor: CachedPredictor,
    result: FitResult,
    command: tuple[str, ...],
    job_flags: Mapping[str, Any],
    gpus: int,
) -> tuple[Proposal, ...]:
    proposals = []
    for rank, steps, other, fit in find_cheapest_changes(job, place, predictor, gpus, result.unmodelled):
        says, costs = describe_change(steps, job, other)
        changed = diff_jobs(job, other)
        run = ("gpuready", "fit", *command, *format_job_flags(dict(job_flags) | dict(changed)))
        proposals.append(
            Proposal(
                says,
                costs,
                round(rank, 2),
                changed,
                format_file_settings(result.kind, changed, job.fsdp),
                run,
                gpu_candidates.judge_gpu(place, fit).verdict,
                fit.peak_allocated,
                fit.peak_reserved,
                fit.peak_device,
                fit.minimum,
            )
        )
    return tuple(proposals)


def _find_largest(
    result: FitResult, job: FitJob, field: str, machine: Sequence[GpuCandidate], predictor: CachedPredictor
) -> FitResult:
    if not machine:
        raise Refused("--max needs a GPU, and there is none here: name one with --on, such as --on h100")
    gaps = result.unmodelled, result.lessened
    judged = [gpu_candidates.judge_gpu(place, _predict_or_raise(predictor, job, place), *gaps) for place in machine]
    place = _tightest_gpu(judged)
    assert place is not None
    most = job.model.get("n_positions") if field == "seq" else 0
    value, fit, fails = find_largest_value(job, field, place, predictor, most if isinstance(most, int) else 0)
    if value:
        job = job.replace(**{field: value})
        result = result.replace(job=job_spec.job_without_model(job))
    fit = fit or _predict_or_raise(predictor, job, place)
    judged = [gpu_candidates.judge_gpu(one, _predict_or_raise(predictor, job, one), *gaps) for one in machine]
    verdict = "fits" if value and not result.unmodelled else "undecided" if value else judged[0].verdict
    largest_found = LargestFit(field, value, verdict, fit.peak_device if value else 0, fails)
    return add_peaks(result, fit).replace(places=tuple(judged), largest=largest_found)
