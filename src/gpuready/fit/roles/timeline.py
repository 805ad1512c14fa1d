"""Roles on shared GPUs: what each GPU holds in every phase, and which phase peaks."""

from __future__ import annotations

from collections.abc import Sequence

from gpuready.fit.roles.records import PHASES, RoleUse
from gpuready.model.fit import GpuCandidate, GpuTimeline, PhaseMemory


def build_timelines(uses: Sequence[RoleUse], place: GpuCandidate) -> tuple[GpuTimeline, ...]:
    """Return one timeline for each group of GPUs that have the same roles."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for gpu in sorted({gpu for use in uses for gpu in use.gpus}):
        present = tuple(n for n, use in enumerate(uses) if gpu in use.gpus)
        groups.setdefault(present, []).append(gpu)
    return tuple(_make_timeline(tuple(gpus), [uses[n] for n in present], place) for present, gpus in groups.items())


def _make_timeline(gpus: tuple[int, ...], uses: Sequence[RoleUse], place: GpuCandidate) -> GpuTimeline:
    phases = tuple(_make_phase(phase, uses) for phase in PHASES if any(phase in use.active for use in uses))
    peak = max(phases, key=lambda one: one.total[1])
    low, high = place.available_memory
    needs = max(one.total[0] for one in phases), peak.total[1]
    verdict = "fits" if needs[1] <= low else "does not fit" if needs[0] > high else "undecided"
    return GpuTimeline(gpus, phases, peak.phase, needs, verdict)


def _make_phase(phase: str, uses: Sequence[RoleUse]) -> PhaseMemory:
    roles = {use.role: use.active.get(phase, use.idle) for use in uses}
    working = tuple(use.role for use in uses if phase in use.active)
    total = sum(low for low, _ in roles.values()), sum(high for _, high in roles.values())
    return PhaseMemory(phase, roles, working, total)
