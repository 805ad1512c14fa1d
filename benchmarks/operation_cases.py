"""Operations to be timed: name, specifications of tensors, function. A specification: (kind, shape, type or bound); g: with gradient, x: without, i: whole numbers below a bound, b: true or false."""

import torch
import torch.nn.functional as F
from torch import nn

bf, hf, fl = torch.bfloat16, torch.float16, torch.float32
C = []


def add(name, specs, fn, back=True):
    C.append((name, specs, fn, back))


def g(*shape, t=bf, last=False):
    return ("g", shape, t, last)


def x(*shape, t=bf):
    return ("x", shape, t, False)


def i(*shape, hi=1000):
    return ("i", shape, hi, False)


def b(*shape):
    return ("b", shape, None, False)


T = {bf: "bf16", hf: "fp16", fl: "fp32"}
# 3-D convolutions
for t in (bf, hf, fl):
    for n, c, o, s, k, st in (
        (2, 1, 32, 96, 3, 1),
        (2, 32, 32, 96, 3, 1),
        (2, 64, 32, 96, 3, 1),
        (2, 32, 64, 48, 3, 1),
        (2, 64, 64, 48, 3, 1),
        (2, 128, 64, 48, 3, 1),
        (2, 128, 128, 24, 3, 1),
        (2, 256, 256, 12, 3, 1),
        (2, 32, 2, 96, 1, 1),
        (2, 64, 128, 48, 3, 2),
        (4, 3, 64, 64, 7, 2),
        (2, 16, 16, 128, 3, 1),
    ):
        add(
            f"conv3d {T[t]} n{n} {c}-{o} s{s} k{k} st{st}",
            [g(n, c, s, s, s, t=t), g(o, c, k, k, k, t=t)],
            lambda a, w, st=st, k=k: F.conv3d(a, w, None, st, k // 2),
        )
    for n, c, o, s in ((2, 64, 32, 48), (2, 128, 64, 24), (2, 256, 128, 12)):
        add(
            f"convt3d {T[t]} n{n} {c}-{o} s{s} k2",
            [g(n, c, s, s, s, t=t), g(c, o, 2, 2, 2, t=t)],
            lambda a, w: F.conv_transpose3d(a, w, None, 2),
        )
for n, c, o, d, s, kd, kk, p in (
    (4, 64, 144, 16, 56, 1, 3, (0, 1, 1)),
    (4, 144, 64, 16, 56, 3, 1, (1, 0, 0)),
    (4, 128, 128, 8, 28, 3, 3, (1, 1, 1)),
    (4, 256, 256, 4, 14, 3, 3, (1, 1, 1)),
    (4, 3, 64, 16, 112, 3, 7, (1, 3, 3)),
):
    for t in (bf, fl):
        add(
            f"convvideo {T[t]} {c}-{o} d{d} s{s} k{kd}x{kk}",
            [g(n, c, d, s, s, t=t), g(o, c, kd, kk, kk, t=t)],
            lambda a, w, p=p: F.conv3d(a, w, None, 1, p),
        )
# 7x7 and other wide kernels
for t in (fl, bf):
    for n, c, o, s, k, st, pad in (
        (1, 3, 64, 262, 7, 1, 0),
        (4, 3, 64, 262, 7, 1, 0),
        (16, 3, 64, 134, 7, 1, 0),
        (1, 64, 3, 262, 7, 1, 0),
        (4, 64, 3, 262, 7, 1, 0),
        (16, 64, 3, 134, 7, 1, 0),
        (32, 3, 64, 224, 7, 2, 3),
        (64, 3, 96, 224, 11, 4, 2),
        (8, 64, 64, 128, 7, 1, 3),
        (8, 32, 128, 64, 5, 1, 2),
        (8, 128, 128, 64, 4, 2, 1),
        (8, 512, 1, 32, 4, 1, 1),
        (16, 6, 16, 64, 5, 1, 0),
    ):
        add(
            f"conv2d {T[t]} n{n} {c}-{o} s{s} k{k} st{st} p{pad}",
            [g(n, c, s, s, t=t), g(o, c, k, k, t=t)],
            lambda a, w, st=st, pad=pad: F.conv2d(a, w, None, st, pad),
        )
# the front of wav2vec2, and its positions
for L in (64000, 150000):
    add(f"conv1d wav {L} first", [g(12, 1, L), g(512, 1, 10)], lambda a, w: F.conv1d(a, w, None, 5))
    add(f"conv1d wav {L} second", [g(12, 512, L // 5), g(512, 512, 3)], lambda a, w: F.conv1d(a, w, None, 2))
    add(
        f"conv1d wav {L} positions",
        [g(12, 768, L // 320), g(768, 48, 128)],
        lambda a, w: F.conv1d(a, w, None, 1, 64, 1, 16),
    )
# norms
for t in (bf, fl):
    for sh in ((2, 32, 96, 96, 96), (8, 128, 64, 64), (2, 256, 24, 24, 24), (16, 512, 4000)):
        add(
            f"group_norm8 {T[t]} {sh}",
            [g(*sh, t=t), g(sh[1], t=fl if t is fl else bf), g(sh[1], t=fl if t is fl else bf)],
            lambda a, w, v: F.group_norm(a, 8, w, v),
        )
        add(f"instance_norm {T[t]} {sh}", [g(*sh, t=t)], lambda a: F.instance_norm(a))
    for rows, d in ((65536, 256), (32768, 768), (16384, 1024), (8192, 4096), (400000, 64)):
        add(
            f"layer_norm {T[t]} {rows}x{d}",
            [g(rows, d, t=t), g(d, t=t), g(d, t=t)],
            lambda a, w, v, d=d: F.layer_norm(a, (d,), w, v),
        )
        add(f"rms_norm {T[t]} {rows}x{d}", [g(rows, d, t=t), g(d, t=t)], lambda a, w, d=d: F.rms_norm(a, (d,), w))
    add(
        f"batch_norm {T[t]}",
        [g(64, 128, 56, 56, t=t), g(128, t=fl), g(128, t=fl)],
        lambda a, w, v: F.batch_norm(a, None, None, w, v, True),
    )
    add(
        f"batch_norm1d {T[t]}",
        [g(65536, 512, t=t), g(512, t=fl), g(512, t=fl)],
        lambda a, w, v: F.batch_norm(a, None, None, w, v, True),
    )
    add(
        f"batch_norm3d {T[t]}",
        [g(4, 64, 16, 56, 56, t=t), g(64, t=fl), g(64, t=fl)],
        lambda a, w, v: F.batch_norm(a, None, None, w, v, True),
    )
    add(f"norm rows {T[t]}", [g(32768, 768, t=t)], lambda a: torch.norm(a, dim=-1, keepdim=True))
    add(f"normalize {T[t]}", [g(32768, 768, t=t)], lambda a: F.normalize(a, dim=-1))
# pools and resizing
for t in (bf, fl):
    add(f"max_pool3d {T[t]}", [g(2, 32, 96, 96, 96, t=t)], lambda a: F.max_pool3d(a, 2))
    add(f"avg_pool3d {T[t]}", [g(2, 32, 96, 96, 96, t=t)], lambda a: F.avg_pool3d(a, 2))
    add(f"adaptive_avg_pool3d {T[t]}", [g(4, 512, 16, 28, 28, t=t)], lambda a: F.adaptive_avg_pool3d(a, 1))
    add(f"adaptive_max_pool2d {T[t]}", [g(64, 256, 56, 56, t=t)], lambda a: F.adaptive_max_pool2d(a, 7))
    add(f"max_pool1d {T[t]}", [g(32, 256, 8192, t=t)], lambda a: F.max_pool1d(a, 2))
    add(f"avg_pool1d {T[t]}", [g(32, 256, 8192, t=t)], lambda a: F.avg_pool1d(a, 2))
    add(f"trilinear {T[t]}", [g(2, 64, 32, 32, 32, t=t)], lambda a: F.interpolate(a, scale_factor=2, mode="trilinear"))
    add(f"nearest3d {T[t]}", [g(2, 64, 32, 32, 32, t=t)], lambda a: F.interpolate(a, scale_factor=2, mode="nearest"))
    add(f"bicubic {T[t]}", [g(8, 64, 64, 64, t=t)], lambda a: F.interpolate(a, scale_factor=2, mode="bicubic"))
    add(f"linear1d {T[t]}", [g(32, 128, 4096, t=t)], lambda a: F.interpolate(a, scale_factor=2, mode="linear"))
    add(f"pad3 {T[t]}", [g(2, 64, 48, 48, 48, t=t)], lambda a: F.pad(a, (1, 1, 1, 1, 1, 1)))
    add(f"replicate {T[t]}", [g(8, 64, 256, 256, t=t)], lambda a: F.pad(a, (1, 1, 1, 1), mode="replicate"))
    add(f"reflect3 {T[t]}", [g(8, 64, 256, 256, t=t)], lambda a: F.pad(a, (3, 3, 3, 3), mode="reflect"))
    add(f"circular {T[t]}", [g(8, 64, 256, 256, t=t)], lambda a: F.pad(a, (1, 1, 1, 1), mode="circular"))
# softmax and losses
for t in (bf, fl):
    add(f"softmax dim1 {T[t]} 2ch", [g(2, 2, 96, 96, 96, t=t)], lambda a: a.softmax(1))
    add(f"softmax dim1 {T[t]} 21ch", [g(8, 21, 256, 256, t=t)], lambda a: a.softmax(1))
    add(f"log_softmax dim1 {T[t]} 256", [g(4, 256, 8192, t=t)], lambda a: a.log_softmax(1))
    for d in (64, 300, 1024, 4096, 32000):
        add(f"softmax rows {T[t]} {d}", [g((1 << 25) // d, d, t=t)], lambda a: a.softmax(-1))
    add(f"cross_entropy {T[t]} 32000", [g(4096, 32000, t=t), i(4096, hi=32000)], lambda a, y: F.cross_entropy(a, y))
    add(
        f"cross_entropy smooth {T[t]} 1000",
        [g(16384, 1000, t=t), i(16384)],
        lambda a, y: F.cross_entropy(a, y, label_smoothing=0.1),
    )
    add(
        f"cross_entropy volume {T[t]}",
        [g(2, 2, 96, 96, 96, t=t), i(2, 96, 96, 96, hi=2)],
        lambda a, y: F.cross_entropy(a, y),
    )
    add(
        f"cross_entropy image {T[t]}",
        [g(8, 21, 256, 256, t=t), i(8, 256, 256, hi=21)],
        lambda a, y: F.cross_entropy(a, y),
    )
    add(
        f"cross_entropy turned {T[t]}",
        [g(4, 8192, 256, t=t), i(4, 8192, hi=256)],
        lambda a, y: F.cross_entropy(a.transpose(1, 2), y),
    )
    add(
        f"bce logits {T[t]}",
        [g(8, 1, 512, 512, t=t), x(8, 1, 512, 512, t=t)],
        lambda a, y: F.binary_cross_entropy_with_logits(a, y),
    )
    add(
        f"kl_div {T[t]}",
        [g(4096, 16000, t=t), x(4096, 16000, t=t)],
        lambda a, y: F.kl_div(a, y, reduction="batchmean", log_target=True),
    )
    add(f"smooth_l1 {T[t]}", [g(8, 64, 256, 256, t=t), x(8, 64, 256, 256, t=t)], lambda a, y: F.smooth_l1_loss(a, y))
    add(f"l1 {T[t]}", [g(8, 64, 256, 256, t=t), x(8, 64, 256, 256, t=t)], lambda a, y: F.l1_loss(a, y))
    add(f"mse {T[t]}", [g(8, 64, 256, 256, t=t), x(8, 64, 256, 256, t=t)], lambda a, y: F.mse_loss(a, y))
    add(f"cosine {T[t]}", [g(32768, 768, t=t), g(32768, 768, t=t)], lambda a, y: F.cosine_similarity(a, y))
for n, L, s in ((12, 500, 48), (32, 1000, 100)):
    add(
        f"ctc {n}x{L}",
        [g(L, n, 32, t=fl), ("i1", (n, s), 32, False)],
        lambda a, y, n=n, L=L, s=s: F.ctc_loss(a.log_softmax(-1), y, torch.full((n,), L), torch.full((n,), s)),
    )
# values one by one
for t in (bf, fl):
    big = (64, 1 << 19)
    for name, fn in (
        ("leaky", F.leaky_relu),
        ("silu", F.silu),
        ("mish", F.mish),
        ("hardswish", F.hardswish),
        ("elu", F.elu),
        ("softplus", F.softplus),
        ("relu", F.relu),
        ("gelu", F.gelu),
        ("gelutanh", lambda a: F.gelu(a, approximate="tanh")),
        ("tanh", torch.tanh),
        ("sigmoid", torch.sigmoid),
        ("exp", torch.exp),
        ("log1p", lambda a: torch.log1p(a.abs())),
        ("pow2", lambda a: a.pow(2)),
        ("pow1.5", lambda a: a.abs().pow(1.5)),
        ("sin", torch.sin),
        ("erf", torch.erf),
        ("rsqrt", lambda a: (a * a + 1).rsqrt()),
        ("dropout", lambda a: F.dropout(a, 0.1)),
        ("clamp", lambda a: a.clamp(-1, 1)),
        ("logsigmoid", F.logsigmoid),
        ("glu", lambda a: F.glu(a, 0)),
    ):
        add(f"{name} {T[t]}", [g(*big, t=t)], fn)
    add(f"add rows {T[t]}", [g(32768, 1024, t=t), g(1024, t=t)], lambda a, v: a + v)
    add(f"mul columns {T[t]}", [g(32768, 1024, t=t), g(32768, 1, t=t)], lambda a, v: a * v)
    add(f"mul channels {T[t]}", [g(32, 256, 64, 64, t=t), g(32, 256, 1, 1, t=t)], lambda a, v: a * v)
    add(f"add two {T[t]}", [g(*big, t=t), g(*big, t=t)], torch.add)
    add(f"where {T[t]}", [b(*big), g(*big, t=t), x(*big, t=t)], torch.where)
    add(f"masked_fill {T[t]}", [g(8, 16, 1024, 1024, t=t), b(1, 1, 1024, 1024)], lambda a, m: a.masked_fill(m, -1e4))
    add(f"sum last {T[t]}", [g(32768, 1024, t=t)], lambda a: a.sum(-1))
    add(f"sum first {T[t]}", [g(32768, 1024, t=t)], lambda a: a.sum(0))
    add(f"sum all {T[t]}", [g(*big, t=t)], lambda a: a.sum())
    add(f"sum space {T[t]}", [g(32, 256, 64, 64, t=t)], lambda a: a.sum((2, 3)))
    add(f"sum but channels {T[t]}", [g(32, 256, 64, 64, t=t)], lambda a: a.sum((0, 2, 3)))
    add(f"sum middle {T[t]}", [g(64, 512, 1024, t=t)], lambda a: a.sum(1))
    add(f"mean last {T[t]}", [g(32768, 1024, t=t)], lambda a: a.mean(-1))
    add(f"max last {T[t]}", [g(32768, 1024, t=t)], lambda a: a.max(-1)[0])
    add(f"amax {T[t]}", [g(32768, 1024, t=t)], lambda a: a.amax(1))
    add(f"var {T[t]}", [g(32768, 1024, t=t)], lambda a: a.var(-1))
    add(f"std first {T[t]}", [g(1024, 32768, t=t)], lambda a: a.std(0))
    add(f"argmax {T[t]}", [x(32768, 1024, t=t)], lambda a: a.argmax(-1), False)
    add(f"logsumexp {T[t]}", [g(4096, 16000, t=t)], lambda a: a.logsumexp(-1))
    add(f"cumsum last {T[t]}", [g(4096, 8192, t=t)], lambda a: a.cumsum(-1))
    add(f"cumsum first {T[t]}", [g(4096, 8192, t=t)], lambda a: a.cumsum(0))
    add(f"cumsum middle {T[t]}", [g(32, 1024, 512, t=t)], lambda a: a.cumsum(1))
    add(f"cat channels {T[t]}", [g(8, 64, 128, 128, t=t), g(8, 64, 128, 128, t=t)], lambda a, c: torch.cat((a, c), 1))
    add(f"cat last {T[t]}", [g(32768, 512, t=t), g(32768, 512, t=t)], lambda a, c: torch.cat((a, c), -1))
    add(f"stack {T[t]}", [g(32768, 512, t=t), g(32768, 512, t=t)], lambda a, c: torch.stack((a, c), 1))
    add(f"permute copy {T[t]}", [g(8, 1024, 16, 64, t=t)], lambda a: a.transpose(1, 2).contiguous())
    add(f"nchw to nhwc {T[t]}", [g(32, 256, 64, 64, t=t)], lambda a: a.permute(0, 2, 3, 1).contiguous())
    add(f"nhwc to nchw {T[t]}", [g(32, 64, 64, 256, t=t)], lambda a: a.permute(0, 3, 1, 2).contiguous())
    add(f"flip {T[t]}", [g(32, 256, 64, 64, t=t)], lambda a: a.flip(-1))
    add(f"roll {T[t]}", [g(32, 64, 64, 96, t=t)], lambda a: a.roll((3, 3), (1, 2)))
    add(f"repeat {T[t]}", [g(8, 8, 1024, 64, t=t)], lambda a: a.repeat(1, 4, 1, 1))
    add(f"repeat_interleave {T[t]}", [g(8, 8, 1024, 64, t=t)], lambda a: a.repeat_interleave(4, 1))
    add(f"expand sum {T[t]}", [g(8, 8, 1, 1024, 64, t=t)], lambda a: a.expand(8, 8, 4, 1024, 64) * 2)
    add(f"tril {T[t]}", [g(128, 1024, 1024, t=t)], torch.tril)
    add(f"unfold {T[t]}", [g(8, 32, 64, 64, t=t)], lambda a: F.unfold(a, 3, padding=1))
    add(
        f"einsum {T[t]}",
        [g(32, 8, 512, 64, t=t), g(32, 512, 64, t=t)],
        lambda a, c: torch.einsum("bhid,bjd->bhij", a, c),
    )
    add(f"cdist {T[t]}", [g(4096, 256, t=fl), g(4096, 256, t=fl)], torch.cdist)
    add(f"to other {T[t]}", [g(*big, t=t)], lambda a, t=t: a.to(fl if t is bf else bf))
    add(f"prelu {T[t]}", [g(32, 256, 64, 64, t=t), g(256, t=t)], F.prelu)
    add(f"outer mul {T[t]}", [g(64, 1024, 1, t=t), g(64, 1, 1024, t=t)], torch.mul)
# indices: embeddings, experts, sorts
for t in (bf, fl):
    for rows, d, table in (
        (8192, 1024, 32000),
        (65536, 512, 8000),
        (4096, 768, 50000),
        (131072, 128, 1000),
        (600, 128, 20000),
        (262144, 256, 256),
        (32768, 1024, 3),
    ):
        add(f"embedding {T[t]} {rows}x{d} of {table}", [i(rows, hi=table), g(table, d, t=t)], F.embedding)
    for rows, d, into in (
        (4096, 1024, 6144),
        (24576, 1024, 6144),
        (1536, 1024, 6144),
        (65536, 64, 10000),
        (500000, 16, 50000),
    ):
        add(
            f"index_add {T[t]} {rows}x{d} into {into}",
            [g(into, d, t=t), i(rows, hi=into), g(rows, d, t=t)],
            lambda a, n, c: a.index_add(0, n, c),
        )
        add(f"index rows {T[t]} {rows}x{d} of {into}", [g(into, d, t=t), i(rows, hi=into)], lambda a, n: a[n])
        add(
            f"index_select {T[t]} {rows}x{d} of {into}",
            [g(into, d, t=t), i(rows, hi=into)],
            lambda a, n: a.index_select(0, n),
        )
        add(
            f"gather rows {T[t]} {rows}x{d}",
            [g(into, d, t=t), i(rows, 1, hi=into)],
            lambda a, n: a.gather(0, n.expand(-1, a.shape[1])),
        )
        add(
            f"scatter_add {T[t]} {rows}x{d} into {into}",
            [g(into, d, t=t), i(rows, 1, hi=into), g(rows, d, t=t)],
            lambda a, n, c: a.scatter_add(0, n.expand(-1, a.shape[1]), c),
        )
    add(f"gather last {T[t]}", [g(4096, 32000, t=t), i(4096, 1, hi=32000)], lambda a, n: a.gather(1, n))
    add(f"gather wide {T[t]}", [g(64, 1024, 512, t=t), i(64, 256, 512, hi=1024)], lambda a, n: a.gather(1, n))
    add(f"topk 8 of 128 {T[t]}", [g(8192, 128, t=t)], lambda a: a.topk(8)[0])
    add(f"topk 4 of 16 {T[t]}", [g(6144, 16, t=t)], lambda a: a.topk(4)[0])
    add(f"topk 50 of 50000 {T[t]}", [g(64, 50000, t=t)], lambda a: a.topk(50)[0])
    add(f"topk 300 of 20000 {T[t]}", [g(8, 20000, t=t)], lambda a: a.topk(300)[0])
    add(f"sort 1e6 {T[t]}", [g(1 << 20, t=t)], lambda a: a.sort()[0])
    add(f"sort rows {T[t]}", [g(4096, 2048, t=t)], lambda a: a.sort(-1)[0])
    add(f"sort wide rows {T[t]}", [g(64, 50000, t=t)], lambda a: a.sort(-1)[0])
    add(f"multinomial {T[t]}", [x(64, 50000, t=t)], lambda a: torch.multinomial(a.abs() + 0.01, 1), False)
    add(
        f"index_put {T[t]}",
        [g(6144, 1024, t=t), i(1536, hi=6144), g(1536, 1024, t=t)],
        lambda a, n, c: a.clone().index_put((n,), c),
    )
    add(
        f"index_put accumulate {T[t]}",
        [g(6144, 1024, t=t), i(24576, hi=6144), g(24576, 1024, t=t)],
        lambda a, n, c: a.clone().index_put((n,), c, True),
    )
    add(
        f"index pairs {T[t]}",
        [g(64, 256, 256, t=t), i(64, 4096, hi=256), i(64, 4096, hi=256)],
        lambda a, n, m: a[torch.arange(64, device=a.device)[:, None], n, m],
    )
    add(f"masked select {T[t]}", [g(1 << 24, t=t), b(1 << 24)], lambda a, m: a[m])
    add(
        f"embedding_bag {T[t]}",
        [i(8192, 32, hi=100000), g(100000, 64, t=t)],
        lambda n, w: F.embedding_bag(n, w, mode="sum"),
    )
    add(
        f"grouped_mm {T[t]}",
        [g(24576, 1024), g(16, 1024, 1024), ("cum", (16,), 24576, False)],
        lambda a, w, o: torch._grouped_mm(a, w, offs=o),
    )
    add(f"bmm experts {T[t]}", [g(16, 1536, 1024, t=t), g(16, 1024, 512, t=t)], torch.bmm)
for n in (6144, 100000):
    add(f"argsort ids {n}", [i(n, hi=16)], lambda a: a.argsort(), False)
    add(f"argsort stable {n}", [i(n, hi=16)], lambda a: a.sort(stable=True)[1], False)
    add(f"bincount {n}", [i(n, hi=16)], lambda a: a.bincount(minlength=16), False)
    add(f"histc {n}", [i(n, hi=16)], lambda a: torch.histc(a.float(), 16, 0, 15), False)
    add(f"one_hot {n}", [i(n, hi=16)], lambda a: F.one_hot(a, 16), False)
    add(f"nonzero {n}", [i(n, hi=2)], lambda a: a.nonzero(), False)
    add(f"where cond {n}", [b(n)], lambda a: torch.where(a), False)
    add(f"unique {n}", [i(n, hi=1000)], lambda a: a.unique(), False)
    add(
        f"searchsorted {n}",
        [i(n, hi=1000)],
        lambda a: torch.searchsorted(torch.arange(0, 1000, 4, device=a.device), a),
        False,
    )
    add(f"cumsum ids {n}", [i(n, hi=16)], lambda a: a.cumsum(0), False)
    add(f"isin {n}", [i(n, hi=1000)], lambda a: torch.isin(a, torch.arange(64, device=a.device)), False)
# attention
for t in (bf, fl):
    for n, h, q, k, e, causal, mask in (
        (8, 12, 1024, 1024, 64, True, 0),
        (12, 12, 499, 499, 64, False, 1),
        (12, 12, 499, 499, 64, False, 0),
        (32, 8, 256, 256, 32, False, 0),
        (4, 16, 1024, 1024, 96, False, 0),
        (8, 8, 4096, 77, 40, False, 0),
        (8, 8, 1024, 1024, 80, False, 0),
        (2, 8, 4096, 4096, 40, False, 0),
        (256, 8, 49, 49, 32, False, 2),
        (4, 8, 1025, 1025, 64, True, 0),
        (64, 12, 197, 197, 64, False, 0),
        (4096, 8, 5, 5, 64, True, 0),
    ):
        m = [] if not mask else [b(n, 1, 1, k)] if mask == 1 else [g(1, h, q, k, t=t)]
        add(
            f"sdpa {T[t]} n{n} h{h} {q}x{k} e{e} c{causal} m{mask}",
            [g(n, h, q, e, t=t), g(n, h, k, e, t=t), g(n, h, k, e, t=t), *m],
            lambda a, c, v, *m, causal=causal: F.scaled_dot_product_attention(a, c, v, *m, is_causal=causal),
        )
    add(
        f"sdpa one key {T[t]}",
        [g(4, 8, 1025, 64, t=t), g(4, 1, 1025, 64, t=t), g(4, 1, 1025, 64, t=t)],
        lambda a, c, v: F.scaled_dot_product_attention(a, c, v, is_causal=True),
    )
# transforms
add(
    "stft",
    [g(16, 160000, t=fl)],
    lambda a: torch.stft(a, 1024, 256, window=torch.hann_window(1024, device=a.device), return_complex=True).abs(),
)
add("rfft", [g(64, 65536, t=fl)], lambda a: torch.fft.rfft(a).abs())
add("rfft2", [g(16, 64, 128, 128, t=fl)], lambda a: torch.fft.rfft2(a).abs())
add("irfft", [g(64, 65536, t=fl)], lambda a: torch.fft.irfft(torch.fft.rfft(a)))
add(
    "grid_sample3d",
    [g(2, 16, 64, 64, 64, t=fl), x(2, 64, 64, 64, 3, t=fl)],
    lambda a, n: F.grid_sample(a, n, align_corners=False),
)
add("slogdet", [g(48, 48, t=fl)], lambda a: torch.slogdet(a)[1])
add("inverse", [g(64, 64, 64, t=fl)], torch.inverse)
add("cholesky", [g(64, 64, 64, t=fl)], lambda a: torch.linalg.cholesky(a @ a.mT + 64 * torch.eye(64, device=a.device)))
add("eigh", [x(256, 256, t=fl)], lambda a: torch.linalg.eigh(a @ a.mT)[0], False)
add("svd", [x(256, 256, t=fl)], lambda a: torch.linalg.svdvals(a), False)
add("weight_norm", [g(1024, 1024, 3, t=fl), g(1024, 1, 1, t=fl)], lambda v, n: torch._weight_norm(v, n, 0))


# recurrent layers: the module is made with the tensors' device
def rnn(kind, inp, hid, layers, both, first):
    made = {}

    def run(a):
        key = (a.device, a.dtype)
        if key not in made:
            made[key] = getattr(nn, kind)(inp, hid, layers, bidirectional=both, batch_first=first).to(a.device, a.dtype)
        return made[key](a)[0]

    return run


for t in (fl, bf):
    for kind, n, s, inp, hid, layers, both, first in (
        ("LSTM", 20, 30, 128, 1024, 1, False, True),
        ("LSTM", 64, 60, 512, 1024, 2, True, True),
        ("LSTM", 64, 40, 512, 2048, 1, False, True),
        ("LSTM", 128, 100, 256, 256, 2, False, False),
        ("LSTM", 512, 28, 28, 64, 1, False, True),
        ("LSTM", 32, 400, 80, 320, 3, True, True),
        ("GRU", 64, 100, 256, 512, 1, False, True),
        ("GRU", 32, 200, 128, 768, 2, True, True),
        ("RNN", 128, 100, 128, 512, 1, False, True),
        ("LSTM", 20, 35, 650, 650, 2, False, False),
        ("LSTM", 2048, 20, 64, 128, 1, False, True),
        ("GRU", 16, 1000, 64, 128, 1, False, True),
    ):
        add(
            f"{kind} {T[t]} n{n} s{s} {inp}-{hid} l{layers} b{both} f{first}",
            [g(*((n, s) if first else (s, n)), inp, t=t)],
            rnn(kind, inp, hid, layers, both, first),
        )
# optimizers over 40 matrices and 80 vectors
OPT = {
    "adamw": lambda p: torch.optim.AdamW(p, 1e-3),
    "adamw fused": lambda p: torch.optim.AdamW(p, 1e-3, fused=True),
    "adam loop": lambda p: torch.optim.Adam(p, 1e-3, foreach=False),
    "adam amsgrad": lambda p: torch.optim.Adam(p, 1e-3, amsgrad=True),
    "sgd": lambda p: torch.optim.SGD(p, 1e-3),
    "sgd nesterov": lambda p: torch.optim.SGD(p, 1e-3, 0.9, nesterov=True, weight_decay=1e-4),
    "rmsprop": lambda p: torch.optim.RMSprop(p, 1e-3, momentum=0.9),
    "rmsprop centered": lambda p: torch.optim.RMSprop(p, 1e-3, centered=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, 1e-3),
    "adadelta": lambda p: torch.optim.Adadelta(p, 1e-3),
    "adamax": lambda p: torch.optim.Adamax(p, 1e-3),
    "nadam": lambda p: torch.optim.NAdam(p, 1e-3),
    "radam": lambda p: torch.optim.RAdam(p, 1e-3),
    "asgd": lambda p: torch.optim.ASGD(p, 1e-3),
    "rprop": lambda p: torch.optim.Rprop(p, 1e-3),
    "adafactor": lambda p: torch.optim.Adafactor(p, 1e-3),
    "adam capturable": lambda p: torch.optim.Adam(p, 1e-3, capturable=True),
    "sgd fused": lambda p: torch.optim.SGD(p, 1e-3, 0.9, fused=True),
    "adagrad fused": lambda p: torch.optim.Adagrad(p, 1e-3),
    "muon": lambda p: torch.optim.Muon([q for q in p if q.dim() == 2], 1e-3),
}


def stepper(make, t):
    kept = {}

    def run(a):
        if a.device not in kept:
            ps = [nn.Parameter(torch.empty(1024, 2048, device=a.device, dtype=t).normal_()) for _ in range(40)] + [
                nn.Parameter(torch.ones(2048, device=a.device, dtype=t)) for _ in range(80)
            ]
            for p in ps:
                p.grad = torch.ones_like(p)
            kept[a.device] = make(ps)
        kept[a.device].step()

    return run


for name, make in OPT.items():
    add(f"opt {name} fp32", [x(1)], stepper(make, fl), False)
for name in ("adamw", "adamw fused", "sgd nesterov", "adafactor"):
    add(f"opt {name} bf16", [x(1)], stepper(OPT[name], bf), False)


def lists(fn, t):
    kept = {}

    def run(a):
        if a.device not in kept:
            kept[a.device] = [[torch.ones(1024, 2048, device=a.device, dtype=t) for _ in range(40)] for _ in range(2)]
        return fn(*kept[a.device])

    return run


def clip(p, q):
    for one, grad in zip(p, q, strict=False):
        one.grad = grad
    torch.nn.utils.clip_grad_norm_(p, 1.0)


for t in (fl, bf):
    add(f"clip {T[t]}", [x(1)], lists(clip, t), False)
    for name, fn in (
        ("mul", lambda p, q: torch._foreach_mul(p, 0.9)),
        ("mul_", lambda p, q: torch._foreach_mul_(p, 0.9)),
        ("add_", lambda p, q: torch._foreach_add_(p, q, alpha=0.1)),
        ("lerp_", lambda p, q: torch._foreach_lerp_(p, q, 0.1)),
        ("addcmul_", lambda p, q: torch._foreach_addcmul_(p, q, q, 0.1)),
        ("sqrt", lambda p, q: torch._foreach_sqrt(p)),
        ("norm", lambda p, q: torch._foreach_norm(p)),
        ("copy_", lambda p, q: torch._foreach_copy_(p, q)),
        ("zero_", lambda p, q: torch._foreach_zero_(p)),
        (
            "unscale",
            lambda p, q: torch._amp_foreach_non_finite_check_and_unscale_(
                q, torch.zeros(1, device=q[0].device), torch.ones(1, device=q[0].device)
            ),
        ),
    ):
        add(f"foreach {name} {T[t]}", [x(1)], lists(fn, t), False)
