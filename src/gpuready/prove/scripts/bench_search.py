"""Guided search for the fastest matmul shape: a few shapes first, then steps around the best.

Standalone and without torch. A shape is (m, n, k): an m x k matrix times a k x n one.
"""

from statistics import median

STEPS = (0.5, 0.25, 0.125)
TILE = 256
FINALISTS, ROUNDS = 4, 2

MODEL_SHAPES = (
    (4096, 4096, 8192),
    (2048, 2048, 16384),
    (8192, 8192, 8192),
    (4096, 4096, 4096),
    (2048, 4096, 16384),
    (16384, 8192, 4096),
    (4096, 14336, 4096),
    (8192, 28672, 8192),
    (6144, 17920, 2816),
    (16384, 16384, 4096),
    (2048, 16384, 4096),
    (4096, 4096, 16384),
    (16384, 16384, 16384),
    (8192, 8192, 2048),
    (8192, 8192, 16384),
    (12288, 12288, 4096),
    (4096, 8192, 8192),
    (16384, 2048, 8192),
    (12288, 6144, 6144),
    (2048, 2048, 8192),
)
"""Products of large language models (tokens x width, the two halves of an MLP), and squares."""


def full_wave_shapes(units, per_wave=(128, 256), rounds=(8, 16)):
    """Return shapes whose tiles fill every multiprocessor equally often: none is idle in the last wave."""
    shapes = []
    for turns in rounds if units else ():
        tiles = units * turns
        rows = min(
            (r for r in range(1, tiles + 1) if tiles % r == 0),
            key=lambda r: abs(r * per_wave[0] - tiles // r * per_wave[1]),
        )
        shapes += [(rows * per_wave[0], tiles // rows * per_wave[1], depth) for depth in (4096, 8192)]
    return shapes


def starting_shapes(units=0, limit=16384, quick=False):
    """Return the shapes to try first, the likeliest first; ``limit`` is the largest side that the memory allows."""
    fill = full_wave_shapes(units)
    shapes = list(MODEL_SHAPES[:2]) + fill[:2] + list(MODEL_SHAPES[2:6]) + fill[2:] + list(MODEL_SHAPES[6:])
    fitted = [tuple(_snap_to_tile(min(side, limit)) for side in shape) for shape in shapes]
    return list(dict.fromkeys(fitted))[: 8 if quick else None]


def neighbour_shapes(shape, step, limit):
    """Return shapes one step away: a side longer or shorter, or one side traded for another."""
    shapes = []
    for i in range(3):
        for factor in (1 + step, 1 / (1 + step)):
            shapes.append(_scale_shape(shape, {i: factor}, limit))
    for i, j in ((0, 1), (1, 0), (0, 2), (1, 2)):
        shapes.append(_scale_shape(shape, {i: 1 + step, j: 1 / (1 + step)}, limit))
    return [one for one in dict.fromkeys(shapes) if one != shape]


def _scale_shape(shape, factors, limit):
    return tuple(_snap_to_tile(min(side * factors.get(i, 1), limit)) for i, side in enumerate(shape))


def _snap_to_tile(side):
    """Round a side to a multiple of the tile; a small one to a multiple of 16."""
    tile = TILE if side >= 2 * TILE else 16
    return max(int(side + tile / 2) // tile * tile, 16)


def search_best_shape(rate, shapes, limit, enough=lambda: False, over=lambda: False, most=96):
    """Return the best shape, its rate, and every rate seen.

    ``rate(shape)`` is a number, or None if the shape cannot be multiplied. ``enough()`` stops new shapes, ``over()``
    means that the time is up; ``most`` is the maximum number of shapes. The finalists are measured again, as one lucky
    number is no maximum.
    """
    seen = {}

    def rate_once(shape):
        if shape not in seen and len(seen) < most and (not any(seen.values()) or not enough()):
            seen[shape] = rate(shape)
        return seen.get(shape) or 0.0

    for shape in shapes:
        rate_once(shape)
    for step in STEPS:
        _climb_uphill(rate_once, seen, step, limit, most, enough)
    return _measure_finalists(rate, seen, over)


def _climb_uphill(tried, seen, step, limit, most, enough):
    """Move uphill by one step while the rate improves; from the two best, as the first may be a local maximum."""
    for start in _best_shapes(seen, 2):
        here = start
        while len(seen) < most and not enough():
            up = max(neighbour_shapes(here, step, limit), key=tried)
            if tried(up) <= tried(here):
                break
            here = up


def _best_shapes(seen, count):
    return sorted((s for s in seen if seen[s]), key=lambda s: -seen[s])[:count]


def _measure_finalists(rate, seen, over):
    """Measure the best few again, in turns, so that a clock change affects all of them alike."""
    finalists = _best_shapes(seen, FINALISTS)
    if not finalists:
        return None, 0.0, seen
    again = {shape: [seen[shape]] for shape in finalists}
    for _ in range(ROUNDS):
        if not over():
            for shape in finalists:
                again[shape].append(rate(shape) or 0.0)
    # The first number selected the finalists and so is biased: ignore it if there are others.
    fair = {shape: median(numbers[1:] or numbers) for shape, numbers in again.items()}
    best = max(finalists, key=lambda shape: fair[shape])
    return best, fair[best], seen
