"""Norms and activations that models compose of single kernels."""

from gpuready.fit.tape.autograd import Tensor
from gpuready.fit.tape.torch_ops import TorchOps


def rms_norm(ops: TorchOps, x: Tensor, w: Tensor) -> Tensor:
    """Llama's: computed in fp32, cast back, then scaled."""
    wide, variance = _scale_by_rms(ops, x)
    out = ops.mul(w, ops.to_width(wide, x.width))
    del wide, variance
    return out


def _scale_by_rms(ops: TorchOps, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the scaled values and the variance: the module holds both in variables to its end."""
    wide = ops.to_width(x, 4)
    square = ops.unary_op(wide, "pow", temporaries=2)
    variance = ops.mean(square)
    del square
    wide = ops.mul(wide, ops.unary_op(ops.scalar_op(variance, "add"), "rsqrt", keeps="result", temporaries=2))
    return wide, variance


def gemma_norm(ops: TorchOps, x: Tensor, w: Tensor) -> Tensor:
    """Gemma's: 1 + weight in fp32."""
    out = _inner_norm(ops, ops.to_width(x, 4))
    out = ops.mul(out, ops.scalar_op(ops.to_width(w, 4), "add"))
    return ops.to_width(out, x.width)


def _inner_norm(ops: TorchOps, x: Tensor) -> Tensor:
    """Divide by the root of the mean square, in one expression."""
    return ops.mul(
        x, ops.unary_op(ops.scalar_op(ops.mean(ops.unary_op(x, "pow", temporaries=2)), "add"), "rsqrt", "result", 0, 2)
    )


def run_activation(ops: TorchOps, name: str, x: Tensor) -> Tensor:
    if name == "gelu_new":
        return _tanh_gelu(ops, x)
    return ops.unary_op(x, name, keeps="result" if name in ("relu", "tanh", "sigmoid") else "input")


def _tanh_gelu(ops: TorchOps, x: Tensor) -> Tensor:
    """One expression, as in the model: each intermediate is freed with the next."""
    half = ops.scalar_op(x)
    return ops.mul(
        half,
        ops.scalar_op(
            ops.unary_op(ops.scalar_op(ops.add(x, ops.scalar_op(_cube_values(ops, x)))), "tanh", keeps="result"), "add"
        ),
    )


def _cube_values(ops: TorchOps, x: Tensor) -> Tensor:
    """Cube the values; autocast computes powers in fp32."""
    return ops.unary_op(ops.to_width(x, 4) if ops.autocast else x, "pow", temporaries=2)
