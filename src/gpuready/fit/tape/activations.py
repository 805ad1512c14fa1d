"""Activation functions: one kernel, or a chain of kernels where transformers composes them."""

from __future__ import annotations

from gpuready.fit.tape.autograd import Tensor
from gpuready.fit.tape.torch_ops import TorchOps


def run_activation(ops: TorchOps, name: str, x: Tensor) -> Tensor:
    if name == "gelu_new":
        return _tanh_gelu(ops, x)
    if name == "relu2":
        result = ops.unary_op(x, "relu", keeps="result")
        return ops.unary_op(ops.to_width(result, 4) if ops.autocast else result, "pow", temporaries=2)
    if name == "quick_gelu":
        return ops.mul(x, ops.unary_op(ops.scalar_op(x), "sigmoid", keeps="result"))
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
