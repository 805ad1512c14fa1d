"""Convolutions as cuDNN runs them: the layout of the result, copies into that layout, and the workspace. Runs in the target environment.

torch's meta device makes every result contiguous, and copies nothing.
"""

import math

import torch

CONVOLUTION_OPS = ("convolution", "convolution_backward")
CHANNEL_BYTES = 16  # tensor cores read channels by as many bytes
WIDE = 4  # bytes of a sum
FEW_RESULTS = 16 * 128 * 128  # of a weight's gradient: fewer tiles of 128 by 128 leave processors idle
PARTIAL_SUMS = 2 << 20  # bytes: between 1.6 and 6 MB as measured


class Convolution:
    """The operands of one call, forward or backward."""

    def __init__(self, name, args):
        self.backward = name == "convolution_backward"
        self.x, self.weight = args[1:3] if self.backward else args[:2]
        self.grad = args[0] if self.backward else None
        stride, _, _, self.transposed, _, self.groups = args[4:10] if self.backward else args[3:9]
        self.stride, self.wanted = math.prod(stride), args[10] if self.backward else (True, True, True)
        tensors = (self.x, self.weight)
        last = self.x.dim() == 4 and any(has_channels_last(one) for one in tensors)
        self.layout = torch.channels_last if last else torch.contiguous_format

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

    def workspace_size(self, out):
        """Bytes of the channels-last copies that cuDNN makes of operands and result: its kernels for tensor cores read no other layout.

        A pointwise convolution is a matrix product as it lies, and one by channel has kernels of its own.
        """
        by_channel = self.groups == self.x.shape[1] > 1
        if self.layout is torch.channels_last or self.pointwise or by_channel or self.x.dim() > 4:
            return 0
        return self.transposed_bytes(out)

    def weight_workspace_size(self):
        """Bytes of the workspace of the weight's gradient.

        A pointwise one has a product for each row of the batch, and their results are summed; of any other that has few
        results, pixels are split, and the sums of the parts are kept beside the copies.
        """
        if self.pointwise and self.layout is torch.contiguous_format:
            by_row = WIDE * self.x.shape[0] * self.weight.numel()
            return min(by_row, self.transposed_bytes(None)) if self.x.element_size() < WIDE else by_row
        size = self.workspace_size(None)
        return size + PARTIAL_SUMS * (size > 0 and self.weight.numel() < FEW_RESULTS * self.groups)

    @property
    def pointwise(self):
        return math.prod(self.weight.shape[2:]) * self.stride == 1 and self.groups == 1

    def transposed_bytes(self, out):
        result = self.grad if self.backward else out
        weight = [self.weight] if math.prod(self.weight.shape[2:]) > 1 else []
        return sum(padded_bytes(one) for one in (self.x, *weight, result))


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
