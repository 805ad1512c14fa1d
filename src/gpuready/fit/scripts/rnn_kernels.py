"""Recurrent layers as cuDNN runs them: one call for all steps and layers, which keeps a reserve for the backward pass. Runs in the target environment.

The meta device would run them step by step. The reserve is as measured, the workspace an estimate.
"""

import functools

import torch
from emulation import first_backward_only
from kernel_recorder import product_width

GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
RESERVED = {"lstm": 6, "gru": 7, "rnn_tanh": 2, "rnn_relu": 2}  # values of each step and layer, one less in the last
# Of all layers; 150 calls on an H200: within 8 % in the median.
WORKED = {"lstm": 7.4, "gru": 6.1, "rnn_tanh": 6.0, "rnn_relu": 6.0}
STEP_VALUES = (((2_500_000, 1_700), (3_300_000, 1_500)), ((2_000_000, 900), (2_300_000, 350)))
"""Of a product of states and what follows it, forward and backward, in fp32 and in 16 bits: its time, and that for each of its depth, as values
that are handled one by one (24 layers on an H200). Small layers in fp32 run all steps in one kernel."""
PERSISTENT = 128
WORK_START = 9 << 20  # bytes of each direction


class RnnKernel(torch.autograd.Function):
    """What one call keeps, and allocates in the backward."""

    @staticmethod
    def forward(ctx, x, hidden, cells, sizes, *weights):
        reserve_size, workspace_size, width, ctx.note, ctx.batch_first = sizes
        by_step = torch.empty_like(x) if ctx.batch_first else None  # in order of steps
        shape = [*x.shape[:-1], width]
        strides = (width, shape[0] * width, 1) if ctx.batch_first else torch.empty(shape, device="meta").stride()
        out = torch.empty_strided(shape, strides, dtype=x.dtype, device=x.device)
        last = torch.empty_like(hidden), None if cells is None else torch.empty_like(cells)
        workspace = torch.empty(workspace_size, dtype=torch.uint8, device=x.device)
        reserve = torch.empty(reserve_size if any(ctx.needs_input_grad) else 0, dtype=torch.uint8, device=x.device)
        del workspace, by_step
        ctx.save_for_backward(x, hidden, cells, out, reserve, *weights)
        ctx.workspace_size = workspace_size
        return out, *last

    @staticmethod
    @first_backward_only
    def backward(ctx, *grads):
        x, hidden, cells, _, _, *weights = ctx.saved_tensors
        ctx.note(True)
        by_step = [torch.empty_like(one) for one in (x, grads[0]) if ctx.batch_first]
        made = [None if one is None else torch.empty_like(one) for one in (x, hidden, cells)]
        workspace = torch.empty(ctx.workspace_size, dtype=torch.uint8, device=x.device)
        del workspace, by_step
        again = torch.empty_like(x) if ctx.batch_first else None
        flat = torch.empty(sum(one.numel() for one in weights), dtype=x.dtype, device=x.device)
        workspace = torch.empty(ctx.workspace_size, dtype=torch.uint8, device=x.device)
        del workspace, again
        parts = flat.split([one.numel() for one in weights])
        return *made, None, *(part.view(one.shape) for part, one in zip(parts, weights, strict=True))


def flatten_weights(layer):
    """What a recurrent module does whenever it is moved: all weights come into one block of memory."""
    weights = [one for one in layer._flat_weights if isinstance(one, torch.Tensor)]
    if weights and all(one.is_cuda and one.dtype is weights[0].dtype for one in weights):
        with torch.no_grad():
            flat = torch.empty(sum(one.numel() for one in weights), dtype=weights[0].dtype, device=weights[0].device)
            for one, part in zip(weights, flat.split([one.numel() for one in weights]), strict=True):
                one.data = part.view(one.shape)


class RnnLayers:
    """``torch.lstm``, ``gru``, ``rnn_tanh`` or ``rnn_relu``, of whole or of packed sequences."""

    saw_packed = False

    def __init__(self, name, watch_kernels, autocast):
        self.name, self.kernels, self.autocast = name, watch_kernels, autocast

    def __call__(self, x, second, third, *rest):
        is_packed = isinstance(second, torch.Tensor) and not second.is_floating_point()
        if is_packed:  # x, batch_sizes, states, weights, has_biases, layers, dropout, train, bidirectional
            states, (weights, _, layers, dropout, train, both), steps = third, rest[:6], len(second)
            batch_first = False
            RnnLayers.saw_packed = True
        else:  # x, states, weights, has_biases, layers, dropout, train, bidirectional, batch_first
            states, weights, (_, layers, dropout, train, both, batch_first) = second, third, rest[:6]
            steps = x.shape[1 if batch_first else 0] if x.dim() == 3 else x.shape[0]
        hidden, cells = states if self.name == "lstm" else (states, None)
        if self.autocast.active:
            x, hidden, cells, *weights = self.autocast.cast((x, hidden, cells, *weights), self.autocast.dtype)
        gates, rows, size, ways = GATES[self.name], x.numel() // x.shape[-1], hidden.shape[-1], 1 + bool(both)
        step_bytes = rows * size * ways * x.element_size()
        reserve = step_bytes * (RESERVED[self.name] * layers - 1)
        drops = bool(dropout and train and layers > 1)
        weight_bytes = sum(one.numel() for one in weights) * x.element_size()
        workspace = int(step_bytes * (WORKED[self.name] + drops)) + weight_bytes + WORK_START * ways
        note = functools.partial(self.note, x, gates * size * ways, size, rows, steps, layers, ways)
        note()
        out, *last = RnnKernel.apply(
            x, hidden, cells, (reserve, workspace, size * ways, note, batch_first and x.dim() == 3), *weights
        )
        return out, *(one for one in last if one is not None)

    def note(self, x, columns, size, rows, steps, layers, ways, backward=False):
        """Note the products of all steps at once, backward also those of the weights' gradients; then the states, step by step and way by way."""
        width = product_width(x, torch.backends.cudnn.allow_tf32)
        start, deep = STEP_VALUES[width == 2][backward]
        depth = columns // ways if backward else size
        alone = ["guess" if width == 3 and size <= PERSISTENT else "spread", start + deep * depth, 0]
        for layer in range(layers):
            inputs = x.shape[-1] if not layer else size * ways
            sums = (
                [(rows, inputs, columns), (columns, inputs, rows), (columns, size, rows)]
                if backward
                else [(rows, columns, inputs)]
            )
            self.kernels.rows += [["matmul", *one, width, 1, 16] for one in sums] + [alone] * steps * ways
