"""The number of parameters of a model."""

from gpuready.fit.job.model_shape import ModelShape


def count_parameters(shape: ModelShape) -> int:
    """Count the parameters of the whole model."""
    norm = shape.hidden * (2 if shape.norm == "layer" else 1)
    norms_per_layer = 1 if shape.one_norm else 4 if shape.post_norms else 2
    sparse = sum(shape.is_sparse_layer(layer) for layer in range(shape.layers))
    embeddings = (shape.vocabulary * (1 if shape.tied else 2) + shape.positions) * shape.hidden
    return (
        embeddings + norm + shape.vocabulary * shape.bias_head
        + shape.layers * _count_attention(shape) + shape.layers * norms_per_layer * norm
        + (shape.layers - sparse) * _count_dense_mlp(shape) + sparse * _count_experts(shape)
    )  # fmt: skip


def _count_attention(shape: ModelShape) -> int:
    queries, keys = shape.heads * shape.head_size, shape.kv_heads * shape.head_size
    bias = shape.bias_qkv * (queries + 2 * keys) + shape.bias_out * shape.hidden
    norms = 2 * shape.head_size if shape.qk_norm_span == "head" else queries + keys
    return 2 * shape.hidden * (queries + keys) + bias + shape.qk_norm * norms + shape.sinks * shape.heads


def _count_dense_mlp(shape: ModelShape) -> int:
    rising = 2 if shape.gated else 1
    bias = shape.bias_mlp * (rising * shape.inner + shape.hidden)
    return (rising + 1) * shape.hidden * shape.inner + bias


def _count_experts(shape: ModelShape) -> int:
    shared = 3 * shape.shared_inner + bool(shape.shared_inner)  # the shared expert and its gate
    bias = shape.expert_bias * shape.experts * (2 * shape.expert_inner + shape.hidden + 1)
    return shape.hidden * (shape.experts * (3 * shape.expert_inner + 1) + shared) + bias
