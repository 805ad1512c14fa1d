"""Which template plays a model."""

from __future__ import annotations

from gpuready.fit.job.model_shape import ModelShape
from gpuready.fit.job.records import FitJob, GpuCard
from gpuready.fit.tape.decoder import DecoderModel
from gpuready.fit.tape.gpt_oss import GptOssModel
from gpuready.fit.tape.linear_layers import WeightMaker
from gpuready.fit.tape.torch_ops import TorchOps


def new_model(ops: TorchOps, shape: ModelShape, job: FitJob, card: GpuCard, maker: WeightMaker) -> DecoderModel:
    """Create the weights of a model, in the template of its family."""
    return _template_class(shape)(ops, shape, job, card, maker)


def _template_class(shape: ModelShape) -> type[DecoderModel]:
    if shape.sinks:
        return GptOssModel
    return DecoderModel
