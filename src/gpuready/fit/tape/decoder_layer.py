"""The weights of one decoder layer."""

from __future__ import annotations

from gpuready.fit.tape.autograd import Tensor
from gpuready.fit.tape.linear_layers import LinearLayer


class LayerWeights:
    """The weights of one decoder layer."""

    __slots__ = ("adapters", "index", "linears", "moe", "norms")

    def __init__(self, index: int) -> None:
        self.index = index
        self.adapters: dict[str, tuple[Tensor, Tensor]] = {}  # of the router and the experts
        self.linears: dict[str, LinearLayer] = {}
        self.norms: dict[str, tuple[Tensor, Tensor | None]] = {}
        self.moe: dict[str, Tensor] = {}

    def list_tensors(self) -> list[Tensor]:
        """Return every unquantised weight of the layer."""
        tensors = [t for linear in self.linears.values() for t in linear.list_tensors()]
        tensors += [t for pair in self.norms.values() for t in pair if t is not None]
        tensors += [t for pair in self.adapters.values() for t in pair]
        return [*tensors, *self.moe.values()]
