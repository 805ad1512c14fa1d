"""Which template plays a model; the rarer ones are imported only where they are needed."""

from __future__ import annotations

from gpuready.fit.tape.decoder import DecoderModel
from gpuready.fit.tape.vision_tower import create_tower

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.fit.job.model_shape import ModelShape
    from gpuready.fit.job.records import FitJob, GpuCard
    from gpuready.fit.tape.linear_layers import WeightMaker
    from gpuready.fit.tape.torch_ops import TorchOps


def new_model(ops: TorchOps, shape: ModelShape, job: FitJob, card: GpuCard, maker: WeightMaker) -> DecoderModel:
    """Create the weights of a model, in the template of its family."""
    tower = create_tower(maker, shape.tower) if shape.tower else []
    model = _template_class(shape)(ops, shape, job, card, maker)
    model.tower = tower
    return model


def _template_class(shape: ModelShape) -> type[DecoderModel]:
    if shape.kind == "encoder" and (shape.family == "distilbert" or "labels" in shape.sizes):
        from gpuready.fit.tape import classifiers

        plain, sorting = classifiers.DistilBertModel, classifiers.DistilBertClassifier
        if shape.family == "distilbert":
            return sorting if "labels" in shape.sizes else plain
        return classifiers.BertClassifier
    if shape.kind in ("encoder", "image"):
        from gpuready.fit.tape import encoders

        return {"vit": encoders.VitModel, "modernbert": encoders.ModernBertModel}.get(shape.family, encoders.BertModel)
    if shape.norm == "t5":
        from gpuready.fit.tape.t5 import T5Model

        return T5Model
    if shape.kind == "encoder-decoder":
        from gpuready.fit.tape.encoder_decoder import EncoderDecoderModel

        return EncoderDecoderModel
    if "mamba2" in shape.mixers:
        from gpuready.fit.tape.mamba2 import Mamba2Model

        return Mamba2Model
    if "delta" in shape.mixers:
        from gpuready.fit.tape.delta_net import DeltaNetModel

        return DeltaNetModel
    if shape.latent:
        from gpuready.fit.tape.latent_attention import LatentModel

        return LatentModel
    if shape.sinks:
        from gpuready.fit.tape.gpt_oss import GptOssModel

        return GptOssModel
    if shape.family == "falcon":
        from gpuready.fit.tape.falcon import FalconModel

        return FalconModel
    if shape.family == "gpt_neo":
        from gpuready.fit.tape.gpt_neo import GptNeoModel

        return GptNeoModel
    if shape.family == "llama4_text":
        from gpuready.fit.tape.llama4 import Llama4Model

        return Llama4Model
    return DecoderModel
