"""Attention of packages with their own kernels, forward and backward, against float64.

Argument: flash-2, flash-3, flash-4, xformers, sage, varlen (torch's own), vllm. Each is tested plain, causal, with shared
heads (GQA) and concatenated sequences, in fp16 and bf16, as far as it supports them.
"""

import inspect

import package_import
import proof

LENGTHS, BLOCKS = (37, 128, 91), (64, 128, 192)
LENGTH, BLOCK = 160, 256
COSINE, DISTANCE = 0.995, 0.08
"""SageAttention (arXiv 2410.02367) states cosine similarity and relative L1 for normally distributed inputs: 1.0 and
0.015 with int8 for q and k, and about 0.04 with fp8 for p and v as well. Wrong attention is far from both."""
BOUND = {"float16": 5e-3, "bfloat16": 3e-2}


class AttentionKernels:
    """What one package provides: dense(q, k, v, causal), packed(q, k, v, ends, longest, causal)."""

    dense = None
    packed = None
    backward = True
    grouped = True
    dtypes = ("float16", "bfloat16")
    rounds = False  # it quantises on purpose: checked by its authors' metrics, not by the largest error
    whole = 0  # without a mask it is right only for multiples of this length; 0: for every length


def first_output(made):
    """Some versions return (out, lse), others only out."""
    return made[0] if isinstance(made, (tuple, list)) else made


def load_flash(p, module, distribution, least, most=None):
    package_import.require_capability(p, *least, distribution)
    if most and p.capability() > most:
        raise proof.Unsupported("%s ends at compute capability %d.%d" % ((distribution,) + most))
    package = package_import.import_compiled(p, module, distribution)
    dense, packed = package_import.get_attributes(package, "flash_attn_func", "flash_attn_varlen_func")
    adapter = AttentionKernels()
    adapter.dense = lambda q, k, v, causal: first_output(dense(q, k, v, causal=causal))
    adapter.packed = lambda q, k, v, ends, longest, causal: first_output(
        packed(q, k, v, cu_seqlens_q=ends, cu_seqlens_k=ends, max_seqlen_q=longest, max_seqlen_k=longest, causal=causal)
    )
    return adapter


def load_flash_2(p):
    return load_flash(p, "flash_attn", "flash-attn", (8, 0))


def load_flash_3(p):
    return load_flash(p, "flash_attn_interface", "flash-attn-3", (9, 0), (9, 0))


def load_flash_4(p):
    return load_flash(p, "flash_attn.cute", "flash-attn-4", (9, 0), (10, 9))


def load_xformers(p):
    ops = package_import.import_compiled(p, "xformers.ops", "xformers")
    check_xformers_library(p)
    attend = package_import.get_attributes(ops, "memory_efficient_attention")
    lower, blocks = ops.LowerTriangularMask, ops.fmha.attn_bias.BlockDiagonalMask
    adapter = AttentionKernels()
    adapter.grouped = False  # GQA needs a fifth axis, which is another call

    def dense(q, k, v, causal):
        return attend(q, k, v, attn_bias=lower() if causal else None)

    def packed(q, k, v, ends, longest, causal):
        mask = blocks.from_seqlens((ends[1:] - ends[:-1]).tolist())
        return attend(q[None], k[None], v[None], attn_bias=mask.make_causal() if causal else mask)[0]

    adapter.dense, adapter.packed = dense, packed
    return adapter


def check_xformers_library(p):
    """Check its separate kernel library: the import succeeds even if that does not load."""
    try:
        from xformers import _cpp_lib
    except ImportError:
        return
    load_error = getattr(_cpp_lib, "_cpp_library_load_exception", None)
    if load_error is None:
        return
    message = " ".join(str(load_error).partition("Please reinstall")[0].split())
    cause = getattr(load_error, "__cause__", None)
    why = package_import.explain_load_error(cause) if cause is not None else "it brings no compiled kernels"
    cuda = p.torch().version.cuda or "none"
    raise proof.WrongResult("xformers has no kernels: %s; torch here is for CUDA %s. %s" % (why, cuda, message))


def load_sage(p):
    """Forward only; q and k are rounded to int8 on purpose.

    Its Triton kernels count the keys that pad the last block of 64 (a release later they still do): without a mask
    only whole blocks are right. A causal mask hides the padding, so that every length is right.
    """
    package_import.require_capability(p, 8, 0, "SageAttention")
    package = package_import.import_compiled(p, "sageattention", "sageattention")
    attend = package_import.get_attributes(package, "sageattn")
    adapter = AttentionKernels()
    adapter.backward, adapter.rounds, adapter.whole = False, True, 64
    adapter.dense = lambda q, k, v, causal: attend(q, k, v, tensor_layout="NHD", is_causal=causal)
    if hasattr(package, "sageattn_varlen"):
        adapter.packed = lambda q, k, v, ends, longest, causal: package.sageattn_varlen(
            q, k, v, ends, ends, longest, longest, is_causal=causal
        )
    return adapter


def load_torch_varlen(p):
    """torch.nn.attention.varlen: in torch from 2.10 on; causal was an argument first and is a window now."""
    package_import.require_capability(p, 8, 0, "torch.nn.attention.varlen")
    p.torch()
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        raise proof.Absent("this torch has no torch.nn.attention.varlen; 2.10 brings it") from None
    words = inspect.signature(varlen_attn).parameters
    adapter = AttentionKernels()
    adapter.grouped = "enable_gqa" in words

    def packed(q, k, v, ends, longest, causal):
        extra = {"is_causal": causal} if "is_causal" in words else {"window_size": (-1, 0) if causal else (-1, -1)}
        if adapter.grouped and q.shape[1] != k.shape[1]:
            extra["enable_gqa"] = True
        return first_output(varlen_attn(q, k, v, ends, ends, longest, longest, **extra))

    adapter.packed = packed
    return adapter


def load_vllm_flash(p):
    """The build of FlashAttention in vLLM's own wheel; forward only."""
    package_import.require_capability(p, 8, 0, "vLLM's FlashAttention")
    p.record_version("vllm")
    attend = package_import.get_attributes(
        package_import.import_compiled(p, "vllm.vllm_flash_attn"), "flash_attn_varlen_func"
    )
    adapter = AttentionKernels()
    adapter.backward = False
    adapter.packed = lambda q, k, v, ends, longest, causal: first_output(
        attend(q, k, v, max_seqlen_q=longest, cu_seqlens_q=ends, max_seqlen_k=longest, cu_seqlens_k=ends, causal=causal)
    )
    return adapter


LOADERS = {
    "flash-2": load_flash_2,
    "flash-3": load_flash_3,
    "flash-4": load_flash_4,
    "xformers": load_xformers,
    "sage": load_sage,
    "varlen": load_torch_varlen,
    "vllm": load_vllm_flash,
}


def run_proof(p):
    torch = p.torch()
    kernels = LOADERS[p.arguments[0]](p)
    for name in kernels.dtypes:
        if name == "bfloat16" and p.cuda and p.capability() < (8, 0):
            continue
        check_dtype(p, torch, kernels, getattr(torch, name), BOUND[name])


def check_dtype(p, torch, kernels, dtype, bound):
    """Check every shape of one data type."""
    short = str(dtype).rpartition(".")[2]
    for causal in (False, True):
        for heads in ((4, 4), (8, 2)) if kernels.grouped else ((4, 4),):
            label = "%s%s%s" % (short, "_causal" if causal else "", "_gqa" if heads[0] != heads[1] else "")
            if kernels.dense:
                p.begin_step("dense " + label)
                check_dense(p, torch, kernels, dtype, heads, causal, bound, "dense_" + label)
            if kernels.packed:
                p.begin_step("varlen " + label)
                check_packed(p, torch, kernels, dtype, heads, causal, bound, "varlen_" + label)


def draw_inputs(p, torch, shape, heads, dtype):
    """Return q, k, v and the output gradient."""
    sizes = [heads[0], heads[1], heads[1], heads[0]]
    return [torch.randn(*shape, one, 64, device=p.device, dtype=dtype) for one in sizes]


def check_dense(p, torch, kernels, dtype, heads, causal, bound, label):
    import float64

    for length in lengths_to_try(kernels, causal, LENGTH, BLOCK):
        *inputs, towards = draw_inputs(p, torch, (2, length), heads, dtype)
        exact = lambda q, k, v: float64.exact_attention(q, k, v, causal)  # noqa: E731
        ours = lambda q, k, v: kernels.dense(q, k, v, causal)  # noqa: E731
        inside = causal or not kernels.whole or length % kernels.whole == 0
        compare_kernel(p, kernels, ours, exact, inputs, towards, bound, label, inside)


def check_packed(p, torch, kernels, dtype, heads, causal, bound, label):
    import float64

    for many in lengths_to_try(kernels, causal, LENGTHS, BLOCKS):
        *inputs, towards = draw_inputs(p, torch, (sum(many),), heads, dtype)
        ends = torch.tensor([0] + [sum(many[: i + 1]) for i in range(len(many))], device=p.device)
        ends = ends.to(torch.int32)
        exact = lambda q, k, v: float64.exact_packed_attention(q, k, v, many, causal)  # noqa: B023, E731
        ours = lambda q, k, v: kernels.packed(q, k, v, ends, max(many), causal)  # noqa: B023, E731
        inside = causal or not kernels.whole or many is BLOCKS
        compare_kernel(p, kernels, ours, exact, inputs, towards, bound, label, inside)


def lengths_to_try(kernels, causal, ragged, blocks):
    """Return the lengths to try: ragged ones, and whole blocks too if only these are promised."""
    return (ragged, blocks) if kernels.whole and not causal else (ragged,)


def compare_kernel(p, kernels, ours, exact, inputs, towards, bound, label, inside=True):
    """Compare output and gradients of the kernel with float64."""
    import float64

    leaves = [
        x.detach().clone().requires_grad_(kernels.backward) for x in inputs
    ]  # some kernels write into their inputs
    out = ours(*leaves)
    reference, slopes = float64.exact_gradients(exact, inputs, towards)
    if kernels.rounds:
        check_rounded(p, label, out, reference, inside)
        return
    p.check_close(label, out, reference, bound)
    if kernels.backward:
        out.backward(towards)
        for name, leaf, slope in zip("qkv", leaves, slopes):
            p.check_close("%s_d%s" % (label, name), leaf.grad, slope, 2 * bound)


def check_rounded(p, label, out, reference, inside):
    """Check a kernel that rounds on purpose by cosine and mean distance; only recorded where it promises nothing."""
    got, exact = out.detach().double(), reference.double()
    cosine = float((got * exact).sum() / (got.norm() * exact.norm()))
    distance = float((got - exact).abs().sum() / exact.abs().sum())
    if inside:
        p.record_number(label + "_cosine", cosine, "least", COSINE)
        p.record_number(label + "_relative_l1", distance, "most", DISTANCE)
    else:
        p.record_number(label + "_ragged_relative_l1", distance)
        if distance > DISTANCE:
            p.record_note(
                "ragged lengths", "wrong without a causal mask: it counts the keys that fill up the last block"
            )
