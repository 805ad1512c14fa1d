"""What the parts of a model (its layers, losses and shards) use of the whole."""

from __future__ import annotations

from typing import Protocol

from gpuready.fit.job.model_shape import ModelShape
from gpuready.fit.job.records import FitJob
from gpuready.fit.tape.autograd import Tensor
from gpuready.fit.tape.decoder_layer import LayerWeights
from gpuready.fit.tape.key_value_cache import KeyValueCache
from gpuready.fit.tape.linear_layers import LinearLayer, WeightMaker
from gpuready.fit.tape.torch_ops import TorchOps


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

    def add_attention_weights(self, layer: LayerWeights) -> None: ...

    def rotary_size(self) -> int: ...

    def apply_activation(self, x: Tensor) -> Tensor: ...

    def run_gated_mlp(self, x: Tensor, gate: LinearLayer, up: LinearLayer, down: LinearLayer) -> Tensor: ...
