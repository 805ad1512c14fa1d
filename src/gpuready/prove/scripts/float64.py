"""References for the kernels: the same mathematics in float64, written plainly.

Layouts are (batch, length, heads, size), as in the attention packages.
"""

import math

import torch


def exact_attention(q, k, v, causal, scale=None):
    """Softmax attention; k and v may have fewer heads than q (GQA); causal masks align at the last position."""
    share = q.shape[2] // k.shape[2]
    q, k, v = (x.double().transpose(1, 2) for x in (q, k, v))
    k, v = k.repeat_interleave(share, 1), v.repeat_interleave(share, 1)
    apart = torch.arange(q.shape[2], device=q.device)[:, None] - torch.arange(k.shape[2], device=q.device)
    hidden = apart < q.shape[2] - k.shape[2] if causal else torch.zeros_like(apart, dtype=torch.bool)
    return exact_masked_attention(q, k, v, hidden, scale).transpose(1, 2)


def exact_masked_attention(q, k, v, hidden, scale=None):
    """Softmax attention over (batch, heads, length, size) with a mask of the pairs that must not be seen."""
    weight = q @ k.transpose(-1, -2) * (scale or 1 / math.sqrt(q.shape[-1]))
    return weight.masked_fill(hidden, -math.inf).softmax(-1) @ v


def masked_attention_gradients(q, k, v, towards, window=None):
    """Return causal attention (within a window, if any) over (batch, heads, length, size), and the gradients."""
    at = torch.arange(q.shape[2], device=q.device)
    apart = at[:, None] - at
    hidden = apart < 0 if window is None else (apart < 0) | (apart > window)
    return exact_gradients(lambda *x: exact_masked_attention(*x, hidden), (q, k, v), towards)


def exact_packed_attention(q, k, v, lengths, causal):
    """The same for concatenated sequences, (total, heads, size); none may see another."""
    parts, begin = [], 0
    for length in lengths:
        one = slice(begin, begin + length)
        parts.append(exact_attention(q[None, one], k[None, one], v[None, one], causal)[0])
        begin += length
    return torch.cat(parts)


def exact_gradients(function, inputs, towards):
    """Return the result in float64 and its gradient for every input, for the output gradient ``towards``."""
    leaves = [x.detach().double().requires_grad_() for x in inputs]
    out = function(*leaves)
    out.backward(towards.double())
    return out.detach(), [x.grad for x in leaves]


def exact_cross_entropy(hidden, weight, labels, ignored=-100):
    """Mean loss of a linear head, in float64."""
    logits = hidden.double() @ weight.double().t()
    return torch.nn.functional.cross_entropy(logits, labels, ignore_index=ignored)


def exact_rms_norm(x, weight, eps=1e-6):
    return x.double() * (x.double().pow(2).mean(-1, keepdim=True) + eps).rsqrt() * weight.double()


def exact_adamw(weight, gradients_, lr, betas=(0.9, 0.999), eps=1e-8, decay=0.0):
    """Return the weight after one AdamW step per gradient (decoupled decay), in float64."""
    w = weight.detach().double().clone()
    m, s = torch.zeros_like(w), torch.zeros_like(w)
    for t, g in enumerate(gradients_, 1):
        g = g.double()
        m = betas[0] * m + (1 - betas[0]) * g
        s = betas[1] * s + (1 - betas[1]) * g * g
        w = w * (1 - lr * decay)
        w = w - lr * (m / (1 - betas[0] ** t)) / ((s / (1 - betas[1] ** t)).sqrt() + eps)
    return w
