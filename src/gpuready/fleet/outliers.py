"""Find nodes or GPUs whose figures are repeatedly worse than those of their equals.

Values are taken as distances from the median of their stratum. The noise is estimated from the median of
those distances, which a few bad nodes cannot move. Wald's sequential test then decides value by value whether
a node is slower by LOSS_SOUGHT: most nodes are cleared by their first value, a few are measured again, and
none is accused on one measurement or on one wild value among several. Nodes that are permanently a little
slower are not outliers as long as their equals differ permanently by as much. In doubt no node is accused.
"""

from __future__ import annotations

from math import log, sqrt

from gpuready.fleeted import Outlier

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    Entity = tuple[str, int | None]
    Tries = Mapping[str, Mapping[Entity, Mapping[int, float]]]

SHIFT = 0.08
"""Relative loss to detect; losses below half of it are ignored."""
FLOOR = 0.005
"""Lower bound of the noise, in case the median is lucky."""
FALSE = 0.005 / 1000
"""Rate of false accusations per node of a run: one in two hundred runs of a thousand nodes."""
MISSED = 0.002
TRIES = 8
MOST = 4.0
"""Largest weight of one value: at least four values are needed, so that heavy-tailed figures accuse no node."""
CHANCE, FEW = 0.005, 1.0
"""False accusations per run from permanent differences, and how much further a value must lie if the equals
are few, because their noise is known less well."""
EQUALS = 4
"""With fewer equals no value counts as usual."""
LOWER = ("_seconds", "_latency")
"""Suffixes of figures for which less is better."""
USUAL = 1.4826
"""Converts a median absolute deviation to a standard deviation for normal noise."""


class Weighed:
    """Outliers, nodes to measure again, and nodes not cleared within MAX_TRIES."""

    def __init__(self) -> None:
        self.outliers: list[Outlier] = []
        self.again: set[str] = set()
        self.unclear: list[Outlier] = []


def weigh(tries: Tries, stratum_of: Mapping[str, str], most: int = TRIES) -> Weighed:
    """Judge every figure of every stratum. The result does not depend on the order of the values."""
    found = Weighed()
    for figure in sorted(tries):
        strata: dict[str, dict[Entity, list[float]]] = {}
        for entity, values in tries[figure].items():
            if entity[0] in stratum_of and values:
                row = [values[at] for at in sorted(values)]
                strata.setdefault(stratum_of[entity[0]], {})[entity] = row
        for stratum, rows in sorted(strata.items()):
            _weigh_stratum(found, figure, stratum, rows, len(tries), most)
    found.outliers.sort(key=lambda one: (one.share, one.node))
    return found


def _weigh_stratum(
    found: Weighed, figure: str, stratum: str, rows: Mapping[Entity, Sequence[float]], figures: int, most: int
) -> None:
    if len({node for node, _ in rows}) < EQUALS:
        return
    usual = median([row[0] for row in rows.values()])
    if usual <= 0:
        return
    sign = -1.0 if figure.endswith(LOWER) else 1.0
    shares = {entity: [sign * (value / usual - 1) for value in row] for entity, row in rows.items()}
    noise = max(USUAL * median([abs(row[0]) for row in shares.values()]), FLOOR)
    nodes = len({node for node, _ in rows})
    far = _far(len(rows))
    lasting = _lasting(shares, noise)
    accuse, clear = _bounds(FALSE / (max(len(rows) // nodes, 1) * figures))
    for entity, row in sorted(shares.items(), key=lambda item: (item[0][0], item[0][1] or 0)):
        weight = _weight(row, noise)
        if weight <= clear:
            continue
        certain = weight >= accuse and _tamed(row) <= -_least(noise, lasting, len(row), far)
        if not certain and len(row) < most:
            found.again.add(entity[0])
            continue
        mean = sum(row) / len(row)
        one = _outlier(
            entity, figure, rows[entity], usual, mean * sign, mean / noise * len(row) ** 0.5, stratum, certain
        )
        (found.outliers if certain else found.unclear).append(one)


def _weight(row: Sequence[float], noise: float) -> float:
    """Log likelihood ratio of a node slower by LOSS_SOUGHT against an equal one."""
    return sum(min(-SHIFT / noise**2 * (value + SHIFT / 2), MOST) for value in row)


def _tamed(row: Sequence[float]) -> float:
    """Mean with the second lowest value in place of the lowest, so that one wild value accuses no node."""
    lowest, *rest = sorted(row)
    return (sum(row) - lowest + rest[0]) / len(row) if rest else 0.0


def _bounds(false: float) -> tuple[float, float]:
    return log((1 - MISSED) / false), log(MISSED / (1 - false))


def _far(count: int) -> float:
    """Number of standard deviations that none of ``count`` equals exceeds by chance."""
    from statistics import NormalDist

    return -NormalDist().inv_cdf(CHANCE / count) * (1 + FEW / sqrt(count))


def _least(noise: float, lasting: float, count: int, far: float) -> float:
    """Loss that noise and permanent differences together do not explain."""
    return max(SHIFT / 2, far * sqrt(lasting**2 + (noise**2 - lasting**2) / count))


def _lasting(shares: Mapping[Entity, Sequence[float]], noise: float) -> float:
    """Estimate how much of the noise is permanent: nodes that were slow at first are slow again.

    Uses the slope of second on first values plus half of its uncertainty; measuring only the slower nodes
    again does not bias it. If no node was measured again, all noise may be permanent.
    """
    pairs = [(row[0], row[1]) for row in shares.values() if len(row) > 1 and abs(row[0]) < 3.0 * noise]
    pairs = [(a, b) for a, b in pairs if abs(b) < 3.0 * noise]
    weight = sum(a * a for a, _ in pairs)
    if not weight:
        return noise
    slope = sum(a * b for a, b in pairs) / weight
    return noise * sqrt(min(max(slope, 0.0) + 0.5 * noise / sqrt(weight), 1.0))


def _outlier(
    entity: Entity,
    figure: str,
    row: Sequence[float],
    usual: float,
    share: float,
    score: float,
    stratum: str,
    sure: bool,
) -> Outlier:
    node, gpu = entity
    value = sum(row) / len(row)
    return Outlier(node, figure, value, usual, round(share, 4), round(score, 2), gpu, len(row), sure, stratum)


def median(values: Collection[float]) -> float:
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
