"""Which template plays a model; the rarer ones are imported only where they are needed."""

from __future__ import annotations

from gpuready.fit.job.model_shape import ModelShape
from gpuready.fit.job.records import FitJob, GpuCard
from gpuready.fit.tape.decoder import DecoderModel
from gpuready.fit.tape.delta_net import DeltaNetModel
from gpuready.fit.tape.gpt_oss import GptOssModel
from gpuready.fit.tape.latent_attention import LatentModel
from gpuready.fit.tape.linear_layers import WeightMaker
from gpuready.fit.tape.llama4 import Llama4Model
from gpuready.fit.tape.torch_ops import TorchOps
from gpuready.fit.tape.vision_tower import create_tower


def new_model(ops: TorchOps, shape: ModelShape, job: FitJob, card: GpuCard, maker: WeightMaker) -> DecoderModel:
    """Create the weights of a model, in the template of its family."""
    tower = create_tower(maker, shape.tower) if shape.tower else []
    model = _template_class(shape)(ops, shape, job, card, maker)
    model.tower = tower
    return model


def _template_class(shape: ModelShape) -> type[DecoderModel]:
    if "delta" in shape.mixers:
        return DeltaNetModel
    if shape.latent:
        return LatentModel
    if shape.sinks:
        return GptOssModel
    if shape.family == "llama4_text":
        return Llama4Model
    return DecoderModel
