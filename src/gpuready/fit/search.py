"""Find the cheapest change that fits, and the largest size that fits.

Candidates come in the order of their cost. An estimate in microseconds drops most that are too large; a replay
with few layers, extrapolated to all, drops nearly all others; what is reported was replayed in full.
"""

from __future__ import annotations

from gpuready.fit.guess import guess
from gpuready.fit.job import Fit, Job
from gpuready.fit.places import card, judged
from gpuready.fit.prediction import heights
from gpuready.fit.proposals import EXPANDABLE, Step, axes, sensible

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any

    from gpuready.fitted import Place

    Predict = Callable[..., Fit]
    Found = tuple[float, list[Step], Job, Fit]

WANTED = 3
"""Maximum number of proposals."""
TRIES, SKETCHES = 8, 28
"""Maximum number of candidates replayed, in full and with few layers."""
DEEP, LEAST = 40, 3
"""From so many layers on fewer candidates are replayed in full, but at least so many."""
NEAR, TIGHT = 0.98, 0.985
"""Upper bounds for the allocation and the minimum reserve of a proposal, as shares of the available memory: a
proposal should not depend on the last block.
"""
MORE = 2
"""Further replays after one that fits."""
FEW, SOME = 2, 4
"""Layers of the two sketches; their difference is the cost of one layer."""
POPS = 60_000
"""Maximum number of combinations considered, in order of cost."""
SURE, DOUBT = 1.05, 0.04
"""How far an estimate may exceed the available memory and still be tried: for a kind of job that was replayed,
and more for each difference from the nearest replayed one.
"""


class Prophet:
    """``predict_memory`` with a cache; None for a job that the engine has no model for."""

    def __init__(self, predict: Predict):
        self._predict = predict
        self._told: dict[Any, Fit | None] = {}
        self._drawn: dict[Any, list[dict[str, int]]] = {}
        self.asked = self.drawn = 0  # predictions and sketches made, without cache hits

    def __call__(self, job: Job, place: Place, search: bool = True, most: int = 0) -> Fit | None:
        key = (place.capability, place.memory, place.held, search, most, repr(job))
        if key not in self._told:
            self.asked += 1
            try:
                self._told[key] = self._predict(job, card(place), search, *((most,) if most else ()))
            except ValueError:
                self._told[key] = None
        return self._told[key]

    def reason(self, job: Job, place: Place) -> Fit:
        """Predict again without catching the error, which says why there is no prediction."""
        return self._predict(job, card(place), True)

    def verified(self, job: Job, place: Place, tight: bool) -> Fit | None:
        """Return the prediction of a job if it fits, else None.

        The minimum reserve is not searched if the job fits without it, if it would be too near the limit to be
        proposed, or if a tight fit is not wanted.
        """
        fit = self(job, place, False)
        if fit is None or judged(place, fit).verdict == "fits":
            return fit
        if not tight or fit.peak_allocated + fit.overhead[1] > place.room[0] * NEAR:
            return None
        most = int(place.room[0] * TIGHT) - fit.overhead[1]
        fit = self(job, place, most=most)
        return fit if fit is not None and fit.minimum <= most else None

    def sketch(self, job: Job, place: Place) -> float | None:
        """Estimate the peak allocation from two models with few layers; None if unknown."""
        layers = depth(job.model)
        job = job.but(accumulation=min(job.accumulation, 2))  # micro-steps after the second are the same
        if job.alloc_conf == EXPANDABLE:  # changes the placement of blocks, not their size
            job = job.but(alloc_conf="")
        if layers <= SOME:
            fit = self(job, place, False)
            return None if fit is None else float(fit.peak_allocated)
        key = place.capability, repr(job)
        if key not in self._drawn:
            self.drawn += 1
            try:
                self._drawn[key] = [
                    heights(job.but(model=cut(job.model, n)), card(place)) for n in (FEW, SOME)
                ]
            except ValueError:
                self._drawn[key] = []
        if not self._drawn[key]:
            return None
        low, high = self._drawn[key]
        one = {name: (high[name] - size) / (SOME - FEW) for name, size in low.items() if name in high}
        return max((low[name] + (layers - FEW) * more for name, more in one.items()), default=0.0)


def smallest(job: Job, place: Place, ask: Prophet, gpus: int = 1, open: Sequence[str] = ()) -> list[Found]:
    """Return the cheapest changes with which the job fits; none includes another one."""
    base = ask(job, place)
    if base is None or any(open):
        return []
    room = place.room[0] - base.overhead[1]
    scale = {_regime(job): base.peak_allocated / max(guess(job), 1)}
    found: list[Found] = []
    accepted: list[tuple[int, ...]] = []
    short: dict[tuple[int, str], float] = {}  # factor by which sketches were too low, per kind of sharding
    tries = ask.asked + max(TRIES * DEEP // max(depth(job.model), DEEP), LEAST)
    sketches = ask.drawn + SKETCHES
    for cost, levels, steps in _combinations(axes(job, gpus, place.capability)):
        if len(found) >= WANTED or ask.asked >= tries or ask.drawn >= sketches:
            break
        if any(all(a <= b for a, b in zip(one, levels, strict=True)) for one in accepted):
            continue
        other = changed(job, steps)
        if not sensible(other) or _idle(job, other) or _corrected(other, scale) > room:
            continue
        drawn = ask.sketch(other, place)
        if drawn is None:
            continue
        spread = other.zero, other.offload
        drawn *= short.get(spread, 1.0)
        scale[_regime(other)] = drawn / max(guess(other), 1)
        if drawn > room * NEAR:
            continue
        fit = ask.verified(other, place, tight=not found)
        whole = ask(other, place, False)
        if whole is not None:
            short[spread] = short.get(spread, 1.0) * max(whole.peak_allocated / max(drawn, 1), 1.0)
        if fit is not None:
            accepted.append(levels)
            found.append((cost, steps, other, fit))
            tries, sketches = min(tries, ask.asked + MORE), min(sketches, ask.drawn + 3 * MORE)
    return found


def depth(config: Mapping[str, Any]) -> int:
    """Return the number of layers of a config."""
    inner = config.get("text_config")
    config = inner if isinstance(inner, dict) else config
    value = config.get("num_hidden_layers", config.get("n_layer"))
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def cut(config: Mapping[str, Any], layers: int) -> dict[str, Any]:
    """Return the config with fewer layers."""
    inner = config.get("text_config")
    if isinstance(inner, dict):
        return {**config, "text_config": cut(inner, layers)}
    out = dict(config)
    for name in ("num_hidden_layers", "n_layer"):
        if name in out:
            out[name] = layers
    if isinstance(out.get("layer_types"), (list, tuple)):
        out["layer_types"] = list(out["layer_types"])[:layers]
    return out


def _idle(job: Job, other: Job) -> bool:
    """Whether a change has no effect: the optimizer's kernel, if the optimizer runs on the host."""
    return other.offload in ("optimizer", "parameters") and other.optimizer == "adamw_fused" != job.optimizer


def _regime(job: Job) -> tuple[Any, ...]:
    """Return the fields by which jobs share an estimation error."""
    return (
        job.method,
        job.checkpointing,
        job.loss,
        job.zero,
        job.offload,
        job.optimizer,
        job.precision,
        job.quant,
    )


def _corrected(job: Job, scale: Mapping[tuple[Any, ...], float]) -> float:
    """Return a low estimate, scaled by the most similar job that was replayed.

    An estimate that was too low there, by its activations or its adapter, says nothing about a job that differs
    in them.
    """
    here = _regime(job)
    apart = {regime: sum(a != b for a, b in zip(here, regime, strict=True)) for regime in scale}
    nearest = min(apart, key=lambda regime: apart[regime])
    learned = min(scale[nearest], 1.0) if apart[nearest] else scale[nearest]
    return float(guess(job) * learned / (SURE + DOUBT * apart[nearest]))


def changed(job: Job, steps: Sequence[Step]) -> Job:
    """Return the job after these steps. Accumulation keeps the global batch if possible."""
    merged: dict[str, Any] = {}
    for step in steps:
        merged |= step.changes
    if job.task == "train" and {"micro_batch", "world"} & set(merged):
        whole = job.micro_batch * job.accumulation * job.world
        each = merged.get("micro_batch", job.micro_batch) * merged.get("world", job.world)
        merged["accumulation"] = max(whole // each, 1)
    return job.but(**merged)


def _combinations(several: list[list[Step]]) -> Iterator[tuple[float, tuple[int, ...], list[Step]]]:
    """Yield combinations of steps, at most one per axis, cheapest first."""
    from heapq import heappop, heappush

    heap: list[tuple[float, tuple[int, ...], int]] = [(0.0, (0,) * len(several), 0)]
    for _ in range(POPS):
        if not heap:
            return
        cost, levels, last = heappop(heap)
        if any(levels):
            yield cost, levels, [several[i][n - 1] for i, n in enumerate(levels) if n]
        for i in range(last, len(several)):
            if levels[i] < len(several[i]):
                before = several[i][levels[i] - 1].cost if levels[i] else 0.0
                higher = (*levels[:i], levels[i] + 1, *levels[i + 1 :])
                heappush(heap, (cost + several[i][levels[i]].cost - before, higher, i))


# -- the largest value ----------------------------------------------------------------------------------------

UNITS = {"micro_batch": 1, "seq": 64}
MOST = {"micro_batch": 1 << 16, "seq": 1 << 22}


def largest(job: Job, field: str, place: Place, ask: Prophet, most: int = 0) -> tuple[int, Fit | None, int]:
    """Return the largest value of a field that fits, its prediction, and the smallest value known not to fit
    (0: none).
    """
    unit, most = UNITS[field], most or MOST[field]

    def fits(count: int) -> tuple[bool, Fit | None]:
        fit = ask(job.but(**{field: count * unit}), place)
        return fit is not None and judged(place, fit).verdict == "fits", fit

    def needs(count: int) -> float:
        fit = fits(count)[1]
        return float("inf") if fit is None else fit.minimum + fit.overhead[1]

    good, bad = 0, most // unit + 1
    probe = max(min(getattr(job, field) // unit, most // unit), 1)
    while bad - good > 1:
        yes, _ = fits(probe)
        good, bad = (probe, bad) if yes else (good, probe)
        probe = _next(good, bad, probe, most // unit, place.room[0], needs)
    return good * unit, fits(good)[1] if good else None, bad * unit if bad * unit <= most else 0


def _next(good: int, bad: int, probe: int, most: int, room: int, needs: Callable[[int], float]) -> int:
    """Return the next value to try: by linear interpolation to the available memory, inside the bracket."""
    if bad > most:
        return min(good * 2, most)
    if good == 0:
        return max(probe // 2, 1) if probe > 1 else 1
    low, high = needs(good), needs(bad)
    share = (room - low) / (high - low) if good < bad and low < high < float("inf") else 0.5
    guessed = good + int(share * (bad - good))
    return min(max(guessed, good + 1), bad - 1) if bad - good > 1 else good


def summary(steps: Sequence[Step], job: Job, other: Job) -> tuple[str, str]:
    """Describe a combination, and its cost."""
    says = [step.says for step in steps]
    costs = [
        step.costs for step in sorted(steps, key=lambda s: -s.cost) if not step.costs.startswith("nothing")
    ]
    before, after = (one.micro_batch * one.accumulation * one.world for one in (job, other))
    if job.task == "train" and other.accumulation != job.accumulation:
        says.append(
            f"accumulation {other.accumulation}" + (f" (still a batch of {after})" if after == before else "")
        )
    if job.task == "train" and before != after:
        costs.insert(0, f"a batch of {after} instead of {before}")
    return _listed(says), "; ".join(dict.fromkeys(costs)) or "nothing: the result is the same"


def _listed(several: Sequence[str]) -> str:
    return several[0] if len(several) == 1 else ", ".join(several[:-1]) + " and " + several[-1]


def changes(job: Job, other: Job) -> Mapping[str, Any]:
    """Return the fields in which two jobs differ."""
    fields = [field for field in type(job)._fields if field != "model"]
    return {field: getattr(other, field) for field in fields if getattr(other, field) != getattr(job, field)}
