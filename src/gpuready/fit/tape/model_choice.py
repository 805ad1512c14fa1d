"""Which template plays a model; a vision tower only holds weights."""

from __future__ import annotations

from gpuready.fit.job.model_shape import ModelShape, TowerWeight
from gpuready.fit.job.records import FitJob, GpuCard
from gpuready.fit.tape.decoder import DecoderModel
from gpuready.fit.tape.gpt_oss import GptOssModel
from gpuready.fit.tape.latent_attention import LatentModel
from gpuready.fit.tape.linear_layers import WeightMaker
from gpuready.fit.tape.torch_ops import TorchOps


def new_model(ops: TorchOps, shape: ModelShape, job: FitJob, card: GpuCard, maker: WeightMaker) -> DecoderModel:
    """Create the weights of a model, in the template of its family."""
    tower = create_tower(maker, shape.tower) if shape.tower else []
    model = _template_class(shape)(ops, shape, job, card, maker)
    model.tower = tower
    return model


def _template_class(shape: ModelShape) -> type[DecoderModel]:
    if shape.latent:
        return LatentModel
    if shape.sinks:
        return GptOssModel
    return DecoderModel


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
