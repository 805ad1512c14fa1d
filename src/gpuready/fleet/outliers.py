"""Outliers: nodes or GPUs whose figures are worse than those of their equals, and are so again when asked again.

Each value is taken as its distance from the median of its stratum. How much values scatter is estimated from the
median of those distances, which a few bad nodes cannot move. Whether one node is slower by SHIFT, or only unlucky,
is then weighed value by value (Wald's sequential test): most nodes are cleared by their first value, a few are
measured again, and nobody is accused on one measurement, nor on one wild one among several. Nodes that are a little
slower for good are not outliers as long as their equals differ for good by as much. In doubt nobody is accused.
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
"""The loss that is looked for: smaller ones than half of it are nobody's business."""
FLOOR = 0.005
"""Figures never scatter less than this, whatever a lucky median says."""
FALSE = 0.005 / 1000
"""Accusations that may be false, for each node of a run: one in two hundred runs of a thousand nodes."""
MISSED = 0.002
TRIES = 8
MOST = 4.0
"""What one value may weigh at most: four at least are needed, so that figures with heavy tails accuse nobody."""
CHANCE, FEW = 0.005, 1.0
"""Accusations that lasting differences may cause, in a run; and how much further a value must lie where equals are few,
whose scatter is known less well."""
EQUALS = 4
"""With fewer equals nothing is usual."""
LOWER = ("_seconds", "_latency")
"""Endings of figures of which less is better."""
USUAL = 1.4826
"""A median distance times this is a standard deviation, where values scatter normally."""


class Weighed:
    """What figures show: who is slower, who is to be measured again, and who was not cleared in TRIES."""

    def __init__(self) -> None:
        self.outliers: list[Outlier] = []
        self.again: set[str] = set()
        self.unclear: list[Outlier] = []


def weigh(tries: Tries, stratum_of: Mapping[str, str], most: int = TRIES) -> Weighed:
    """Judge every figure of every stratum. Pure: the same values give the same answer in any order."""
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
    """The logarithm of how much likelier the values are of a node that is slower by SHIFT than of an equal."""
    return sum(min(-SHIFT / noise**2 * (value + SHIFT / 2), MOST) for value in row)


def _tamed(row: Sequence[float]) -> float:
    """The mean with the next value in place of the lowest, so that one wild value accuses nobody."""
    lowest, *rest = sorted(row)
    return (sum(row) - lowest + rest[0]) / len(row) if rest else 0.0


def _bounds(false: float) -> tuple[float, float]:
    return log((1 - MISSED) / false), log(MISSED / (1 - false))


def _far(count: int) -> float:
    """Standard deviations beyond which none of so many equals is found by chance."""
    from statistics import NormalDist

    return -NormalDist().inv_cdf(CHANCE / count) * (1 + FEW / sqrt(count))


def _least(noise: float, lasting: float, count: int, far: float) -> float:
    """The loss that chance and what nodes have for good do not explain together."""
    return max(SHIFT / 2, far * sqrt(lasting**2 + (noise**2 - lasting**2) / count))


def _lasting(shares: Mapping[Entity, Sequence[float]], noise: float) -> float:
    """How much of the scatter may be the nodes' own: whoever was slow at first is so again.

    The slope of second on first values, and half of its doubt on top; it does not matter that only the slower ones were
    measured again. Where nobody was, all of it may be.
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
