"""Convolutions as cuDNN runs them: the layout of the result, copies into that layout, and the workspace. Runs in the target environment.

torch's meta device makes every result contiguous, and copies nothing.
"""

import math

import torch
from convolution_workspace import by_channel_sums, copied_operands, group_copies, is_by_channel, partial_sums, row_sums

CONVOLUTION_OPS = ("convolution", "convolution_backward")
BATCH_NORM_OPS = ("native_batch_norm", "cudnn_batch_norm", "_native_batch_norm_legit", "_batch_norm_with_update")
CONVOLUTION_NOTE = "cuDNN's workspaces for convolutions are counted by their usual size"
ALIGNMENT = 16  # bytes beside the copies
CHANNEL_BYTES = 16  # tensor cores read channels by as many bytes


class Convolution:
    """The operands of one call, forward or backward."""

    def __init__(self, name, args):
        self.backward = name == "convolution_backward"
        self.x, self.weight = args[1:3] if self.backward else args[:2]
        self.grad = args[0] if self.backward else None
        stride, _, dilation, self.transposed, _, self.groups = args[4:10] if self.backward else args[3:9]
        self.dilated, self.stride = math.prod(dilation) > 1, math.prod(stride)
        self.wanted = args[10] if self.backward else (True, True, True)
        tensors = (self.x, self.weight)
        self.last = self.x.dim() == 4 and any(has_channels_last(one) for one in tensors)
        self.layout = torch.channels_last if self.last else torch.contiguous_format

    def copy_sizes(self):
        """Bytes of the operands that are copied because they lie otherwise in memory: the weight last."""
        operands = [one for one in (self.grad, self.x, self.weight) if one is not None]
        return [
            one.numel() * one.element_size() for one in operands if not one.is_contiguous(memory_format=self.layout)
        ]

    def lay_out(self, out):
        """Return the results as they lie in memory on a GPU."""
        if self.layout is torch.contiguous_format:
            return out
        if not self.backward:
            return torch.empty_like(out, memory_format=self.layout)
        first = [one if one is None else torch.empty_like(one, memory_format=self.layout) for one in out[:2]]
        return (*first, *out[2:])

    def workspace_size(self, out, result="input"):
        """Bytes of the workspace of one result: of the forward pass, or the gradient of ``input`` or ``weight``."""
        what = result if self.backward else "output"
        call = ConvolutionCall(self, self.grad if self.backward else out)
        if is_by_channel(call):
            return by_channel_sums(call) if what == "weight" else 0
        if call.taps * self.stride == 1 and self.groups == 1 and what == "weight" and not self.last:
            return row_sums(call, call.padded["x"] + call.padded["y"])
        copied = copied_operands(call, what)
        size = group_copies(call) if copied == "groups" else sum(call.padded[one] for one in copied)
        return size + (ALIGNMENT + partial_sums(call) * (what == "weight")) * (size > 0)


class ConvolutionCall:
    """The numbers of one call that decide its workspace."""

    def __init__(self, made, result):
        x, weight = made.x, made.weight
        self.bytes, self.dims, self.last = x.element_size(), x.dim() - 2, made.last
        self.groups, self.stride, self.transposed = made.groups, made.stride, made.transposed
        self.taps, self.weights, self.rows = math.prod(weight.shape[2:]), weight.numel(), x.shape[0]
        self.channels, self.results = x.shape[1] // made.groups, result.shape[1] // made.groups  # of a group
        self.pixels, self.result_pixels = (one.numel() // one.shape[1] for one in (x, result))
        self.depth = self.channels * self.taps  # products in each sum
        self.products = x.numel() * self.results * self.taps if made.transposed else result.numel() * self.depth
        self.padded = {"x": padded_bytes(x), "w": padded_bytes(weight), "y": padded_bytes(result)}


def lay_out_norm(x, out):
    """Return the results of a batch norm: a picture of one pixel counts as contiguous, however its strides read."""
    if x.dim() != 4 or not x.is_contiguous() or not has_channels_last(x):
        return out
    return (torch.empty(x.shape, dtype=out[0].dtype, device=x.device), *out[1:])


def has_channels_last(tensor):
    """Whether the strides of a picture are those of channels-last memory, as torch decides it."""
    at_least = 0
    for dim in (1, 3, 2, 0):
        if tensor.stride(dim) < at_least or (dim == 0 and at_least == tensor.stride(1)):
            return False
        at_least = tensor.stride(dim) * max(1, tensor.shape[dim])
    return tensor.stride(1) > 0


def padded_bytes(tensor):
    """Return the bytes of a tensor whose channels are filled up."""
    unit = CHANNEL_BYTES // tensor.element_size()
    channels = -(-tensor.shape[1] // unit) * unit
    return tensor.numel() // tensor.shape[1] * channels * tensor.element_size()
