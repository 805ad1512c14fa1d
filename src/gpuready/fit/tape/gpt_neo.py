"""GPT-Neo: scores in fp32, a mask of all positions in every layer, and no fused attention."""

from __future__ import annotations

from gpuready.fit.job.records import FitUndecided
from gpuready.fit.tape.attention import make_heads_contiguous, softmax
from gpuready.fit.tape.autograd import Tensor
from gpuready.fit.tape.decoder import DecoderModel
from gpuready.fit.tape.linear_layers import apply_linear

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.fit.job.model_shape import ModelShape
    from gpuready.fit.job.records import FitJob, GpuCard
    from gpuready.fit.tape.decoder import AttentionOutput, RotaryTables
    from gpuready.fit.tape.decoder_layer import LayerWeights
    from gpuready.fit.tape.encoders import LayerRunner
    from gpuready.fit.tape.key_value_cache import KeyValueCache
    from gpuready.fit.tape.linear_layers import WeightMaker
    from gpuready.fit.tape.torch_ops import Grads, TorchOps


class GptNeoModel(DecoderModel):
    """GPT-Neo; its local layers have the same memory as the global ones."""

    def __init__(self, ops: TorchOps, shape: ModelShape, job: FitJob, card: GpuCard, maker: WeightMaker) -> None:
        for applies, what in (
            (job.attention == "flash", "the flash-attn package"),
            (job.checkpointing == "reentrant", "reentrant checkpointing"),
            (job.tensor_parallel > 1, "tensor parallelism"),
        ):
            if applies:
                raise FitUndecided(f"{what} of the architecture 'gpt_neo' is not known here")
        self.mask_buffers: list[Tensor] = []
        self.results: list[Tensor] = []  # attention weights of the last layer, which the loop over the layers holds
        super().__init__(ops, shape, job, card, maker)
        self.job = job.replace(attention="eager")  # transformers has no SDPA for it

    def add_attention_weights(self, layer: LayerWeights) -> None:
        s, make = self.shape, self.maker.new_linear
        self.mask_buffers.append(self.ops.new_scratch(s.positions * s.positions))
        for name in ("k", "v", "q"):
            layer.linears[name] = make(f"{name}_proj", s.hidden, s.hidden, False)
        layer.linears["o"] = make("out_proj", s.hidden, s.hidden, True)

    def forward(
        self, batch: int, seq: int, run: LayerRunner, cache: KeyValueCache | None = None, length: int = 0
    ) -> Tensor:
        out = super().forward(batch, seq, run, cache, length)
        self.results.clear()
        return out

    def run_layer(self, layer: LayerWeights, hidden: Tensor, rotary: RotaryTables, mask: Tensor | None) -> Tensor:
        out = super().run_layer(layer, hidden, rotary, mask)
        del self.results[:-1]
        if self.ops.in_backward:
            self.results.clear()
        return out

    def _self_attention(
        self, layer: LayerWeights, x: Tensor, rotary: RotaryTables, mask: Tensor | None
    ) -> AttentionOutput:
        ops, s = self.ops, self.shape
        q, k, v = (
            ops.split_heads(apply_linear(ops, x, layer.linears[name]), s.heads, s.head_size) for name in ("q", "k", "v")
        )
        if self.cache is not None:
            k, v = self.cache.update_layer(layer.index, k, v, self.total_length, 0)
        out, weights = self._attend(q, k, v, mask)
        out = apply_linear(ops, ops.merge_heads(out), layer.linears["o"])
        del q, k, v
        self.results.append(weights)
        return out, weights

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        ops = self.ops
        q, k = ops.to_width(q, 4), ops.to_width(k, 4)
        batch, heads, seq, size = q.shape
        dense, turned = make_heads_contiguous(ops, q), make_heads_contiguous(ops, k)
        scores = ops.matmul(dense, turned, (batch, heads, seq, k.shape[2]), columns=True)
        del dense, turned
        scores = _mask_later_keys(ops, scores)
        if mask is not None:
            scores = ops.add(scores, mask)
        scores = softmax(ops, scores, 4)
        scores = ops.to_width(scores, v.width)
        scores = ops.dropout(scores, self.shape.dropout_attention if self.training else 0.0)
        out = ops.matmul(scores, make_heads_contiguous(ops, v), (batch, heads, seq, size))
        return out, ops.detach(scores)


def _mask_later_keys(ops: TorchOps, scores: Tensor) -> Tensor:
    """``where`` by a part of the layer's buffer."""
    ops.tape.op = "where"
    out = ops.empty_like(scores)
    if ops.any_requires_grad(scores):
        ops.count_saved()

        def backward(g: Grads) -> tuple[Tensor | None, ...]:
            return (ops.empty_like(g[0]),)

        ops.add_node(out, "where", (scores,), backward)
    return out
