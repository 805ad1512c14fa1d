"""What the parts of a model (its layers, losses and shards) use of the whole: layers, cache, model."""

from __future__ import annotations

from typing import Protocol

from gpuready.fit.job.model_shape import ModelShape
from gpuready.fit.job.records import FitJob
from gpuready.fit.tape.autograd import Tensor
from gpuready.fit.tape.linear_layers import LinearLayer, WeightMaker
from gpuready.fit.tape.torch_ops import TorchOps


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


class ModelParts(Protocol):
    """A model as its parts see it; ``DecoderModel`` is one."""

    ops: TorchOps
    shape: ModelShape
    job: FitJob
    maker: WeightMaker
    layers: list[LayerWeights]
    head: LinearLayer
    cache: KeyValueCache | None
    has_row_masks: bool

    def list_outer_tensors(self) -> list[Tensor]: ...

    def rotary_size(self) -> int: ...

    def apply_activation(self, x: Tensor) -> Tensor: ...

    def run_gated_mlp(self, x: Tensor, gate: LinearLayer, up: LinearLayer, down: LinearLayer) -> Tensor: ...


class KeyValueCache:
    """Keys and values of every layer. A dynamic cache is concatenated for every token; a static one is written
    in place.
    """

    def __init__(self, ops: TorchOps, longest: int = 0) -> None:
        self.ops = ops
        self.max_length = longest
        self.entries: dict[int, tuple[Tensor, Tensor]] = {}

    def visible_keys(self, window: int, past: int, seq: int) -> int:
        """Return the number of keys that a pass attends to."""
        if not self.max_length:
            return min(past, window - 1) + seq if window else past + seq
        most = min(self.max_length, window) if window else self.max_length
        return most if not window or past + seq <= most else min(past, most - 1) + seq

    def update_layer(self, layer: int, k: Tensor, v: Tensor, length: int, window: int) -> tuple[Tensor, Tensor]:
        ops = self.ops
        kind, ops.tape.kind = ops.tape.kind, "cache"
        ops.tape.op = "cache"
        update = self._write_static if self.max_length else self._append_dynamic
        updated = update(layer, k, v, length, window)
        ops.tape.kind = kind
        return updated

    def _append_dynamic(self, layer: int, k: Tensor, v: Tensor, length: int, window: int) -> tuple[Tensor, Tensor]:
        """Concatenate into new memory. A window keeps the last tokens only, as a view of the concatenation."""
        old = self.entries.pop(layer, None)
        count = self.visible_keys(window, length - k.shape[2], k.shape[2])
        keys = self._new_cache_tensor(k, count)
        if old is not None and not window:
            old = (keys, old[1])
        values = self._new_cache_tensor(v, count)
        self.entries[layer] = keys, values
        return keys, values

    def _write_static(self, layer: int, k: Tensor, v: Tensor, length: int, window: int) -> tuple[Tensor, Tensor]:
        most = min(self.max_length, window) if window else self.max_length
        if layer not in self.entries:
            self.entries[layer] = self._new_cache_tensor(k, most), self._new_cache_tensor(v, most)
        past = length - k.shape[2]
        if not window or length <= most:
            return self.entries[layer]
        if past >= most and k.shape[2] == 1:
            rolled = (self._new_cache_tensor(k, most), self._new_cache_tensor(v, most))
            del rolled
            return self.entries[layer]
        return (k, v) if not past else (self._new_cache_tensor(k, min(past, most - 1) + k.shape[2]),) * 2

    def _new_cache_tensor(self, like: Tensor, count: int) -> Tensor:
        batch, heads, _, size = like.shape
        made = self.ops.new_empty((batch, heads, count, size), like.width)
        self.ops.tape.launch_kernel("spread", made.numel, 2 * made.numel * made.width)
        made.order = "heads"
        return made
