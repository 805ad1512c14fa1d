"""Find nodes or GPUs whose figures are repeatedly worse than those of their equals.

Values are taken as distances from the median of their peers. The noise is estimated from the median of
those distances, which a few bad nodes cannot move. Wald's sequential test then decides value by value whether
a node is slower by LOSS_SOUGHT: most nodes are cleared by their first value, a few are measured again, and
none is accused on one measurement or on one wild value among several. Nodes that are permanently a little
slower are not outliers as long as their equals differ permanently by as much. In doubt no node is accused.
"""

from collections.abc import Mapping, Sequence
from math import log, sqrt
from statistics import NormalDist, median

from gpuready.model.fleet import Outlier

MeasuredEntity = tuple[str, int | None]
TriesByEntity = Mapping[str, Mapping[MeasuredEntity, Mapping[int, float]]]


LOSS_SOUGHT = 0.08
"""Relative loss to detect; losses below half of it are ignored."""
MIN_NOISE = 0.005
"""Lower bound of the noise, in case the median is lucky."""
FALSE_ACCUSATION_RATE = 0.005 / 1000
"""Rate of false accusations per node of a run: one in two hundred runs of a thousand nodes."""
MISSED_RATE = 0.002
MAX_TRIES = 8
MAX_VALUE_WEIGHT = 4.0
"""Largest weight of one value: at least four values are needed, so that heavy-tailed figures accuse no node."""
LASTING_FALSE_RATE, FEW_EQUALS_FACTOR = 0.005, 1.0
"""False accusations per run from permanent differences, and how much further a value must lie if the equals
are few, because their noise is known less well."""
MIN_EQUALS = 4
"""With fewer equals no value counts as usual: then only a loss of FEW_LOSS against the best counts."""
FEW_LOSS, FEW_TRIES = 0.25, 4
SHARED_PREFIX, DISK_FIGURES = "shared-", ("disk-write", "disk-read")
"""Figures of a network file system say nothing of a node; nor do those of disks that MANY_SLOW nodes have slow at once."""
GROSS = 20
"""So many times slower than the rest is told of a node all the same."""
MANY_SLOW, MANY_SHARE = 3, 0.15
LOWER_IS_BETTER = ("_seconds", "_latency")
"""Suffixes of figures for which less is better."""
MAD_TO_SIGMA = 1.4826
"""Converts a median absolute deviation to a standard deviation for normal noise."""


class OutlierResult:
    """Outliers, nodes to measure again, and nodes not cleared within MAX_TRIES."""

    def __init__(self) -> None:
        self.outliers: list[Outlier] = []
        self.measure_again: set[str] = set()
        self.unclear: list[Outlier] = []
        self.shared: dict[str, set[str]] = {}  # figure of a disk -> nodes on which it is slow: one disk that they share


def find_outliers(tries: TriesByEntity, peers_of: Mapping[str, str]) -> OutlierResult:
    """Judge every figure of every peer group. The result does not depend on the order of the values."""
    result = OutlierResult()
    for figure in sorted(tries):
        rows_of: dict[str, dict[MeasuredEntity, list[float]]] = {}
        for entity, values in tries[figure].items():
            if entity[0] in peers_of and values:
                row = [values[at] for at in sorted(values)]
                rows_of.setdefault(peers_of[entity[0]], {})[entity] = row
        for peers, rows in sorted(rows_of.items()):
            judged = OutlierResult()
            _judge_peers(judged, figure, peers, rows, len(tries))
            usual = median([row[0] for row in rows.values()])
            gross = {node for (node, _), row in rows.items() if GROSS * median(row) <= usual}
            is_shared = figure.startswith(SHARED_PREFIX)
            result.outliers += [one for one in judged.outliers if one.node in gross or not is_shared]
            result.unclear += [one for one in judged.unclear if one.node in gross or not is_shared]
            result.measure_again |= judged.measure_again & gross if is_shared else judged.measure_again
    _set_shared_disks_apart(result, {figure: {node for node, _ in table} for figure, table in tries.items()})
    result.outliers.sort(key=lambda one: (one.share, one.node))
    return result


def _judge_peers(
    result: OutlierResult, figure: str, peers: str, rows: Mapping[MeasuredEntity, Sequence[float]], figures: int
) -> None:
    if len({node for node, _ in rows}) < MIN_EQUALS:
        return _judge_few(result, figure, peers, rows)
    usual = median([row[0] for row in rows.values()])
    if usual <= 0:
        return
    sign = -1.0 if figure.endswith(LOWER_IS_BETTER) else 1.0
    shares = {entity: [sign * (value / usual - 1) for value in row] for entity, row in rows.items()}
    noise = max(MAD_TO_SIGMA * median([abs(row[0]) for row in shares.values()]), MIN_NOISE)
    nodes = len({node for node, _ in rows})
    # standard deviations that none of so many equals exceeds by chance
    far = -NormalDist().inv_cdf(LASTING_FALSE_RATE / len(rows)) * (1 + FEW_EQUALS_FACTOR / sqrt(len(rows)))
    lasting = _lasting_noise(shares, noise)
    false = FALSE_ACCUSATION_RATE / (max(len(rows) // nodes, 1) * figures)
    accuse, clear = log((1 - MISSED_RATE) / false), log(MISSED_RATE / (1 - false))
    for entity, row in sorted(shares.items(), key=lambda item: (item[0][0], item[0][1] or 0)):
        # log likelihood ratio of a node slower by LOSS_SOUGHT against an equal one
        weight = sum(min(-LOSS_SOUGHT / noise**2 * (value + LOSS_SOUGHT / 2), MAX_VALUE_WEIGHT) for value in row)
        if weight <= clear:
            continue
        unexplained = max(LOSS_SOUGHT / 2, far * sqrt(lasting**2 + (noise**2 - lasting**2) / len(row)))
        certain = weight >= accuse and _mean_without_lowest(row) <= -unexplained
        if not certain and len(row) < MAX_TRIES:
            result.measure_again.add(entity[0])
            continue
        mean = sum(row) / len(row)
        one = _make_outlier(
            entity, figure, rows[entity], usual, mean * sign, mean / noise * len(row) ** 0.5, peers, certain
        )
        (result.outliers if certain else result.unclear).append(one)


def _judge_few(result: OutlierResult, figure: str, peers: str, rows: Mapping[MeasuredEntity, Sequence[float]]) -> None:
    """Compare two or three nodes with the best of them: none is far below it in every measurement by chance."""
    sign = -1.0 if figure.endswith(LOWER_IS_BETTER) else 1.0
    middles = {entity: median(row) for entity, row in rows.items()}
    best = max(middles, key=lambda entity: (sign * middles[entity], entity[0]))
    if middles[best] <= 0:
        return
    for entity, row in sorted(rows.items(), key=lambda item: (item[0][0], item[0][1] or 0)):
        shares = [sign * (value / middles[best] - 1) for value in row]
        if entity[0] == best[0] or median(shares) > -FEW_LOSS:
            continue
        if len(row) < FEW_TRIES:
            result.measure_again |= {entity[0], best[0]}
            continue
        certain = max(shares) < -FEW_LOSS
        mean = sum(shares) / len(shares)
        one = _make_outlier(entity, figure, row, middles[best], mean * sign, mean / MIN_NOISE, peers, certain)
        (result.outliers if certain else result.unclear).append(one)


def _set_shared_disks_apart(result: OutlierResult, measured: Mapping[str, set[str]]) -> None:
    """Take back what is said of nodes where many have a slow disk at once: they share it."""
    for figure in DISK_FIGURES:
        slow = {one.node for one in (*result.outliers, *result.unclear) if one.figure == figure}
        if len(slow) >= max(MANY_SLOW, MANY_SHARE * len(measured.get(figure, ()))):
            result.shared[figure] = slow
            result.outliers = [o for o in result.outliers if o.figure != figure or GROSS * o.value <= o.usual]
            result.unclear = [o for o in result.unclear if o.figure != figure or GROSS * o.value <= o.usual]


def _mean_without_lowest(row: Sequence[float]) -> float:
    """Mean with the second lowest value in place of the lowest, so that one wild value accuses no node."""
    lowest, *rest = sorted(row)
    return (sum(row) - lowest + rest[0]) / len(row) if rest else 0.0


def _lasting_noise(shares: Mapping[MeasuredEntity, Sequence[float]], noise: float) -> float:
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


def _make_outlier(
    entity: MeasuredEntity,
    figure: str,
    row: Sequence[float],
    usual: float,
    share: float,
    score: float,
    peers: str,
    sure: bool,
) -> Outlier:
    node, gpu = entity
    value = sum(row) / len(row)
    return Outlier(node, figure, value, usual, round(share, 4), round(score, 2), gpu, len(row), sure, peers)
