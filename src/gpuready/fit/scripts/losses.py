"""Losses for which torch has no meta kernel, as CUDA runs them. Runs in the target environment."""

import torch
from emulation import first_backward_only


class CtcKernel(torch.autograd.Function):
    """torch's own CTC kernel: keeps the sums over all paths, and makes as many again in the backward."""

    @staticmethod
    def forward(ctx, log_probs, longest):
        frames, rows, _ = log_probs.shape
        sums = torch.empty((rows, frames, 2 * longest + 1), dtype=log_probs.dtype, device=log_probs.device)
        loss = torch.empty(rows, dtype=log_probs.dtype, device=log_probs.device)
        ctx.save_for_backward(log_probs, sums, loss)
        return loss

    @staticmethod
    @first_backward_only
    def backward(ctx, grad):
        log_probs, sums, _ = ctx.saved_tensors
        beta = torch.empty_like(sums)
        made = torch.empty_like(log_probs)
        del beta
        return made, None


def ctc_loss(log_probs, targets, input_lengths, target_lengths, blank=0, reduction="mean", zero_infinity=False):
    """``torch.nn.functional.ctc_loss``, with lengths that are known."""
    longest = int(target_lengths.max()) if isinstance(target_lengths, torch.Tensor) else max(target_lengths)
    loss = CtcKernel.apply(log_probs if log_probs.dim() == 3 else log_probs.unsqueeze(1), longest)
    if zero_infinity:
        loss = torch.where(loss == torch.inf, 0.0, loss)
    return {"none": loss, "sum": loss.sum(), "mean": loss.mean()}[reduction]
