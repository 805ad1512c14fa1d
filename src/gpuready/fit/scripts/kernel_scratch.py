"""What CUDA kernels allocate beside their results, and the meta device does not. Runs in the target environment."""

import math

import torch
from convolutions import CONVOLUTION_OPS, Convolution
from emulation import load_gpuready_module

PROCESSORS = 132  # of a Hopper card: they decide into how many parts a sum is split
SORT_THRESHOLD = 3072  # indices of an embedding above which its gradient sorts them
SUM_OPS = ("sum", "mean")
COUNTED = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32)
LONGEST_SORT = 4096  # values of a row that are sorted in place
SOFTMAX_OPS = ("_softmax", "_log_softmax", "_softmax_backward_data", "_log_softmax_backward_data")


class KernelScratch:
    """Sizes in bytes of the buffers of one kernel: before its result, and after it."""

    def __init__(self):
        self.reductions = load_gpuready_module("gpuready.fit.tape.elementwise_ops")

    def sizes_before(self, name, args):
        if name == "embedding_dense_backward" and args[1].numel() > SORT_THRESHOLD:
            return [8 * args[1].numel()] * 2  # the indices and their order
        if name == "logsumexp":  # the exponentials
            return [args[0].numel() * args[0].element_size()]
        if name == "sum" and args[0].dtype in COUNTED:  # the values as whole numbers of 64 bits
            return [8 * args[0].numel()]
        if name == "roll" and len(args) > 2 and len(args[2]) > 1:  # one dimension after the other
            return [args[0].numel() * args[0].element_size()]
        if name == "sort" and max(args[0].shape, default=0) > LONGEST_SORT:  # keys and positions twice
            return [args[0].numel() * (args[0].element_size() + 16)]
        if name.startswith("native_layer_norm"):
            return self.contiguous_copies(args)
        return Convolution(name, args).copy_sizes() if name in CONVOLUTION_OPS else []

    def sizes_after(self, name, args, out):
        if name == "embedding_dense_backward" and args[1].numel() > SORT_THRESHOLD:
            return self.embedding_sizes(args[1].numel(), *out.shape)
        if name in SUM_OPS and len(args) > 1:
            return self.sum_sizes(args[0], args[1])
        if name == "_safe_softmax":  # a byte for each score: is it minus infinity?
            return [args[0].numel()]
        sizes = self.contiguous_copies(args) if name in SOFTMAX_OPS else []
        if name == "_softmax_backward_data":  # the CUDA kernel first multiplies gradient and result
            sizes.append(args[0].numel() * args[0].element_size())
        return sizes

    def contiguous_copies(self, args):
        """A softmax or a norm reads rows that are contiguous: any other tensor is copied."""
        tensors = [one for one in args if isinstance(one, torch.Tensor)]
        return [one.numel() * one.element_size() for one in tensors if not one.is_contiguous()]

    def result_sizes(self, name, args, out, place):
        """Buffers that are freed before the next result is allocated: of a convolution's gradients, one after the other."""
        if name not in CONVOLUTION_OPS:
            return []
        made = Convolution(name, args)
        if place < 2:
            size = made.workspace_size(out, "weight" if place else "input")
            return [size] if size else []
        return self.sum_sizes(made.grad, [n for n in range(made.grad.dim()) if n != 1])

    def embedding_sizes(self, ids, rows, columns):
        """Rows of the table are summed by segments of equal indices."""
        segments = ids // 10 + min(ids, rows)
        return [8 * ids, 8 * ids, 8 * ids, 8 * segments, 4 * segments * columns]

    def sum_sizes(self, x, dims):
        """A sum over rows, into the dimensions that lie contiguous in memory, is split over thread blocks."""
        summed = {dim % x.dim() for dim in dims or ()}
        by_stride = [n for n in sorted(range(x.dim()), key=lambda n: -x.stride(n)) if x.shape[n] > 1]
        kept = [x.shape[n] for n in by_stride if n not in summed]
        rows_first = all(n in summed for n in by_stride[: len(by_stride) - len(kept)])
        dense = by_stride and x.numel() == x.shape[by_stride[0]] * x.stride(by_stride[0])
        if not kept or len(kept) == len(by_stride) or not rows_first or not dense or x.stride(by_stride[-1]) != 1:
            return []
        columns = math.prod(kept)
        return self.reductions.sum_scratch_sizes(x.numel() // columns, columns, x.element_size(), PROCESSORS)
