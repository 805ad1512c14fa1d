"""The weights of a vision tower: they lie on the GPU, and a batch of text alone gives them no gradient."""

from __future__ import annotations

from gpuready.fit.job.tower_weight import TowerWeight
from gpuready.fit.tape.linear_layers import WeightMaker


def create_tower(maker: WeightMaker, weights: tuple[TowerWeight, ...]) -> list[object]:
    """Create the weights, with the adapters of linear layers; none of them gets a gradient or a state."""
    trains, trained = maker.trains_weights, len(maker.trained)
    maker.trains_weights = False
    made: list[object] = []
    for one in weights:
        if one.linear:
            made.append(maker.new_linear(one.linear, one.shape[1], one.shape[0], one.bias))
        else:
            made += [maker.new_frozen(shape) for shape in (one.shape, one.shape[:1])[: 1 + one.bias]]
    maker.trains_weights = trains
    del maker.trained[trained:]
    return made
