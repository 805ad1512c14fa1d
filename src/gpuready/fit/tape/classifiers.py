"""DistilBERT, and encoders whose head sorts rows or tokens into classes."""

from __future__ import annotations

from gpuready.fit.job.records import FitUndecided
from gpuready.fit.tape.autograd import Tensor
from gpuready.fit.tape.decoder_layer import LayerWeights
from gpuready.fit.tape.encoders import BertModel
from gpuready.fit.tape.linear_layers import apply_linear

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.fit.tape.decoder import RotaryTables
    from gpuready.fit.tape.encoders import LayerRunner
    from gpuready.fit.tape.key_value_cache import KeyValueCache


class DistilBertModel(BertModel):
    """BERT without token types, and without a dropout behind the attention."""

    projection_names = ("q_lin", "k_lin", "v_lin")
    output_names = ("out_lin", "lin1", "lin2")

    def create_tables(self) -> None:
        s = self.shape
        self.token_table = self.new_outer(s.vocabulary, s.hidden)
        self.positions = self.new_outer(s.sizes["positions"], s.hidden)
        self.norm = self.new_outer_norm()
        self.buffers = self.ops.new_scratch(8 * s.sizes["positions"])

    def forward(
        self, batch: int, seq: int, run: LayerRunner, cache: KeyValueCache | None = None, length: int = 0
    ) -> Tensor:
        ops, s = self.ops, self.shape
        tokens = ops.embedding(batch * seq, self.token_table, (batch, seq, s.hidden))
        self.require_input_grad(tokens)
        places = ops.embedding(seq, self.positions, (1, seq, s.hidden))
        first = self.apply_norm(ops.add(tokens, places), self.norm)
        hidden = self.drop_hidden(first)
        del tokens, places, first
        return self.run_layers(hidden, run, {})

    def run_layer(self, layer: LayerWeights, hidden: Tensor, rotary: RotaryTables, mask: Tensor | None) -> Tensor:
        ops = self.ops
        context, weights = self._attend(layer, hidden, mask)
        attended = apply_linear(ops, context, layer.linears["o"])
        del context
        attended = self.apply_norm(ops.add(attended, hidden), layer.norms["in"])
        inner = self.apply_activation(apply_linear(ops, attended, layer.linears["up"]))
        inner = self.drop_hidden(apply_linear(ops, inner, layer.linears["down"]))
        out = self.apply_norm(ops.add(inner, attended), layer.norms["mid"])
        del attended, weights, inner
        return out


class ClassifierHead(BertModel):
    """A head over the first token of each row, or over every token."""

    def create_head(self) -> None:
        s = self.shape
        if self.job.method != "full":
            raise FitUndecided("an adapter of a model that sorts into classes is not known here; --trace plays it")
        if not s.sizes["per_token"]:
            self.transform = self.maker.new_linear("dense", s.hidden, s.hidden, True)
            self.others += self.transform.list_tensors()
        self.head = self.maker.new_linear("classifier", s.hidden, s.sizes["labels"], True)
        self.others += self.head.list_tensors()

    def compute_logits(self, hidden: Tensor) -> Tensor:
        ops = self.ops
        if self.shape.sizes["per_token"]:
            return apply_linear(ops, self.drop_hidden(hidden), self.head)
        first = ops.slice(hidden, (hidden.shape[0], hidden.shape[2]))
        x = ops.unary_op(apply_linear(ops, first, self.transform), "tanh", keeps="result")
        return apply_linear(ops, self.drop_hidden(x), self.head)


class BertClassifier(ClassifierHead):
    """BERT, RoBERTa and those like them."""


class DistilBertClassifier(ClassifierHead, DistilBertModel):
    """DistilBERT."""
