"""``gpuready fit`` of a job with several roles: a timeline for each group of GPUs, and the smallest change."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpuready.fit import FitJob, FitPrediction
from gpuready.fit.roles.records import GENERATE, REFERENCE, SCORE, TRAIN, RoleSettings, RoleUse
from gpuready.fit.roles.role_memory import build_timelines, measure_role
from gpuready.fit.search.change_search import CachedPredictor
from gpuready.jobs.config_reader import JobSettings
from gpuready.model.fit import FitResult, GpuCandidate, GpuTimeline, Proposal, ServingFit
from gpuready.workflow import job_spec

FRACTION_STEP = 0.05
MAX_CHANGES = 8
"""The most changes that are proposed together."""


class RolesJob:
    """The roles of a file on one kind of GPU, with each role's model."""

    def __init__(self, spec: JobSettings, place: GpuCandidate, predictor: CachedPredictor) -> None:
        self.spec, self.place, self.predictor = spec, place, predictor
        self.models: dict[str, tuple[Mapping[str, Any], tuple[str, ...]]] = {}
        self.measured: dict[RoleSettings, Any] = {}
        self.roles: tuple[RoleSettings, ...] = ()  # those whose memory is known

    def find_model(self, role: RoleSettings) -> Mapping[str, Any]:
        """Return the config of a role's model: the job's own, or the one that it names."""
        name = role.model if isinstance(role.model, str) else ""
        stated = self.spec.said.get("model", "").startswith(f"{self.spec.path}: ")
        if not name or (not stated and role.kind != "score"):  # a model on the command line replaces the file's
            assert not isinstance(self.spec.model, str)
            return self.spec.model
        if name not in self.models:
            _, settings = job_spec.load_model_config(name, self.spec.path, "")
            assert not isinstance(settings.model, str)
            self.models[name] = settings.model, settings.unmodelled
        return self.models[name][0]

    def measure(self, role: RoleSettings) -> tuple[RoleUse, ServingFit | None]:
        if role not in self.measured:
            self.measured[role] = measure_role(role, self.find_model(role), self.place, self._predict)
        found: tuple[RoleUse, ServingFit | None] = self.measured[role]
        return found

    def _predict(self, job: FitJob) -> FitPrediction:
        fit = self.predictor(job, self.place)
        return fit if fit is not None else self.predictor.explain_failure(job, self.place)

    def make_timelines(self, roles: Sequence[RoleSettings]) -> tuple[GpuTimeline, ...]:
        """Return the timelines; where an engine's cache is too small for its context, the job does not fit."""
        measured = [self.measure(role) for role in roles]
        lines = build_timelines([use for use, _ in measured], self.place)
        for use, served in measured:
            if served is not None and served.verdict == "does not fit":
                lines = tuple(
                    one.replace(verdict="does not fit") if set(use.gpus) & set(one.gpus) else one for one in lines
                )
        return lines


def fit_roles(
    result: FitResult, spec: JobSettings, machine: Sequence[GpuCandidate], predictor: CachedPredictor
) -> FitResult:
    """Return the timeline of every GPU, judged for the smallest GPU of the machine."""
    place = min(machine, key=lambda one: one.available_memory[0])
    spec = spec.replace(roles=tuple(_bind_role(role, spec, int(result.job["world"])) for role in spec.roles))
    job = RolesJob(spec, place, predictor)
    notes = list(result.notes)
    count = sum(len(one.indexes) for one in machine)
    wanted = len({gpu for role in spec.roles for gpu in role.gpus})
    if wanted > count:
        notes.append(f"the file uses {wanted} GPUs and the machine has {count}: judged for {wanted} of them")
    roles, gaps = _known_roles(job)
    if not roles:
        return result.replace(places=tuple(machine), why=gaps[0])
    lines = job.make_timelines(roles)
    notes += _cache_notes(job, roles)
    notes.append("roles leave the GPU between their phases as the framework's code does; not measured on a GPU")
    gaps = tuple(dict.fromkeys((*gaps, *(text for _, texts in job.models.values() for text in texts))))
    worst = max(lines, key=lambda one: one.needs[1])
    result = result.replace(
        timeline=lines, unmodelled=gaps, lessened=(), notes=tuple(dict.fromkeys(notes)),
        peak_at=(worst.peak, ""),
        places=tuple(one.replace(needs=worst.needs, peak=worst.needs[1], verdict=_place_verdict(one, worst)) for one in machine),
    )  # fmt: skip
    if all(one.verdict == "fits" for one in lines):
        return result
    return result.replace(proposals=_propose_changes(job, result))


def _bind_role(role: RoleSettings, spec: JobSettings, world: int) -> RoleSettings:
    """Return a role with GPUs; one that names none has the job's, and its settings."""
    if role.gpus:
        return role
    return role.replace(gpus=tuple(range(world)), fields={**spec.fields, **role.fields})


def _known_roles(job: RolesJob) -> tuple[tuple[RoleSettings, ...], tuple[str, ...]]:
    """Return the roles whose memory is known, and a sentence for each of the others."""
    known, gaps = [], []
    for role in job.spec.roles:
        try:
            job.measure(role)
        except ValueError as error:
            gaps.append(f"{role.name} on {len(role.gpus)} GPUs: {error}")
        else:
            known.append(role)
    job.roles = tuple(known)
    return job.roles, tuple(gaps)


def _place_verdict(place: GpuCandidate, worst: GpuTimeline) -> str:
    low, high = place.available_memory
    return "fits" if worst.needs[1] <= low else "does not fit" if worst.needs[0] > high else "undecided"


def _cache_notes(job: RolesJob, roles: Sequence[RoleSettings]) -> Iterator[str]:
    for role in roles:
        served = job.measure(role)[1]
        if served is not None and served.verdict == "does not fit":
            yield (
                f"{role.name}: the KV cache holds {served.tokens[1]} tokens at most, and one sequence may have "
                f"{served.context}: {served.engine} refuses to start"
            )
        elif served is not None:
            yield f"{role.name}: {served.sequences[0]} to {served.sequences[1]} sequences of {served.context} tokens at once"


def _propose_changes(job: RolesJob, result: FitResult) -> tuple[Proposal, ...]:
    """Return single changes of one role that fit, the cheapest of each setting, or where none does, two together."""
    found = [
        _make_proposal(job, [one], _apply_change(job.roles, one))
        for one in _list_changes(job, job.roles, result.timeline)
    ]
    fitting = [one for one in found if one is not None] or _combine_changes(job, result.timeline)
    cheapest: dict[tuple[str, ...], Proposal] = {}
    for one in sorted(fitting, key=lambda one: one.rank):
        cheapest.setdefault(tuple(setting.rpartition(": ")[0] for setting in one.settings), one)
    return tuple(cheapest.values())[:3]


def _combine_changes(job: RolesJob, lines: tuple[GpuTimeline, ...]) -> list[Proposal]:
    """Return several changes that fit together: each time the one that lowers the most what is too much."""
    roles: Sequence[RoleSettings] = job.roles
    made: list[Any] = []
    for _ in range(MAX_CHANGES):
        short, best = _missing_memory(job, lines), None
        for one in _list_changes(job, roles, lines):
            changed = _apply_change(roles, one)
            missing = _missing_memory(job, job.make_timelines(changed)) if _is_possible(job, changed) else short
            if missing < short and (best is None or (missing, one[3]) < best[:2]):
                best = missing, one[3], one, changed
        if best is None:
            return []
        made = [other for other in made if other[5].rpartition(": ")[0] != best[2][5].rpartition(": ")[0]] + [best[2]]
        roles = best[3]
        lines = job.make_timelines(roles)
        if (proposal := _make_proposal(job, made, roles)) is not None:
            return [proposal]
    return []


def _is_possible(job: RolesJob, roles: Sequence[RoleSettings]) -> bool:
    try:
        return bool([job.measure(role) for role in roles])
    except ValueError:
        return False


def _missing_memory(job: RolesJob, lines: tuple[GpuTimeline, ...]) -> int:
    """Return by how much the phases of all GPUs exceed their memory."""
    room = job.place.available_memory[0]
    return sum(max(phase.total[1] - room, 0) for one in lines for phase in one.phases)


def _list_changes(job: RolesJob, roles: Sequence[RoleSettings], lines: tuple[GpuTimeline, ...]) -> list[Any]:
    """Return changes as role, words, cost in words, cost, fields of the role, and the setting in the file."""
    room = job.place.available_memory[0]
    peaks = {phase.phase for one in lines for phase in one.phases if phase.total[1] > room}
    changes: list[Any] = []
    for role in roles:
        if role.kind == "serve":
            changes += _serving_changes(job, role)
            continue
        works = {phase for phase, _ in role.phases}
        batch = int(role.score.get("micro_batch", 1))
        if works & peaks & {SCORE, REFERENCE, GENERATE} and "score" in role.keys:
            for size in _halves(batch):
                changes.append((role, f"{role.name} scores {size} sequences at a time", "a little speed", 1 + batch / size / 10,
                                {"score": {**role.score, "micro_batch": size}}, f"{role.keys['score']}: {size}"))  # fmt: skip
        micro = int(role.fields.get("micro_batch", 1))
        if role.kind == "train" and TRAIN in peaks and "micro_batch" in role.keys:
            for size in _halves(micro):
                changes.append((role, f"{role.name} trains {size} sequences at a time", "a little speed", 2 + micro / size / 10,
                                {"fields": {**role.fields, "micro_batch": size}}, f"{role.keys['micro_batch']}: {size}"))  # fmt: skip
        if role.kind == "train" and role.leaves == "weights" and "offload" in role.keys:
            changes.append((role, f"{role.name}'s optimizer in host memory", "each step waits for the host", 6,
                            {"leaves": "all", "fields": {**role.fields, "offload": "parameters"}}, f"{role.keys['offload']}: true"))  # fmt: skip
        if role.leaves == "none" and "leaves" in role.keys:
            changes.append((role, f"{role.name} leaves the GPU between its phases", "time to move it", 4,
                            {"leaves": "all"}, role.keys["leaves"]))  # fmt: skip
    return changes


def _serving_changes(job: RolesJob, role: RoleSettings) -> Iterator[Any]:
    served = job.measure(role)[1]
    assert served is not None
    share = served.fraction
    for step in range(1, 13):
        other = round(share - step * FRACTION_STEP, 2)
        if other < 0.1:
            break
        yield (role, f"{role.name} uses {other} of the GPU", "a smaller KV cache: fewer sequences at once", 0.5 + step / 10,
               {"serving": {**role.serving, "fraction": other}}, f"{role.keys['fraction']}: {other}")  # fmt: skip
    if served.tensor_parallel < 8 and len(role.gpus) % (served.tensor_parallel * 2) == 0 and "parallel" in role.keys:
        ranks = served.tensor_parallel * 2
        yield (role, f"{role.name} shares each layer among {ranks} GPUs", "each layer waits for the others", 4 + ranks / 10,
               {"serving": {**role.serving, "tensor_parallel": ranks}}, f"{role.keys['parallel']}: {ranks}")  # fmt: skip
    if role.leaves == "none" and "leaves" in role.keys:
        yield (role, f"{role.name} sleeps between its phases", "time to wake it", 0.4,
               {"leaves": "all"}, role.keys["leaves"])  # fmt: skip
    if served.verdict != "fits" and share < 0.9:
        yield (role, f"{role.name} uses 0.9 of the GPU", "less room for other roles", 0.5,
               {"serving": {**role.serving, "fraction": 0.9}}, f"{role.keys['fraction']}: 0.9")  # fmt: skip


def _halves(value: int) -> list[int]:
    sizes = []
    while value > 1:
        value //= 2
        sizes.append(value)
    return sizes


def _apply_change(roles: Sequence[RoleSettings], change: Any) -> tuple[RoleSettings, ...]:
    name = change[0].name
    return tuple(role.replace(**change[4]) if role.name == name else role for role in roles)


def _make_proposal(job: RolesJob, changes: list[Any], roles: Sequence[RoleSettings]) -> Proposal | None:
    try:
        lines = job.make_timelines(roles)
    except ValueError:
        return None
    if any(one.verdict != "fits" for one in lines):
        return None
    worst = max(one.needs[1] for one in lines)
    settings = tuple(one[5] for one in changes)
    says = " and ".join(one[1] for one in changes)
    costs = "; ".join(dict.fromkeys(one[2] for one in changes))
    return Proposal(
        says, costs, sum(one[3] for one in changes), {}, settings, (), "fits", peak_device=worst, minimum=worst
    )
