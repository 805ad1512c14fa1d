"""A weight of a vision tower."""

from __future__ import annotations

from math import prod

from gpuready.model.record import Record


class TowerWeight(Record):
    """A weight with its bias; ``linear`` is the name of a linear layer, which can be adapted and quantised."""

    shape: tuple[int, ...]
    linear: str = ""
    bias: bool = False

    def count_parameters(self) -> int:
        return prod(self.shape) + self.bias * self.shape[0]
