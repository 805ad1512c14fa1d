"""Two types in one model: what transformers keeps in fp32, and operations that a GPU refuses for tensors of two types, and the
meta device takes. Runs in the target environment.
"""

import math
from fnmatch import fnmatchcase

import torch
from known_values import Refusal, find_place

SAME_TYPE_ARGUMENTS = {
    "mm": (0, 1), "bmm": (0, 1), "addmm": (0, 1, 2), "baddbmm": (0, 1, 2), "mv": (0, 1), "addmv": (0, 1, 2), "dot": (0, 1),
    "_grouped_mm": (0, 1), "convolution": (0, 1, 2), "native_layer_norm": (0, 2, 3), "native_group_norm": (0, 1, 2),
    "index_put": (0, 2), "index_put_": (0, 2), "_index_put_impl_": (0, 2), "index_add": (0, 3), "index_add_": (0, 3),
    "grid_sampler_2d": (0, 1), "grid_sampler_3d": (0, 1),
}  # fmt: skip
"""The positions of the tensors that must be of one type, by operation."""

FILLS = ("masked_fill", "masked_fill_", "fill", "fill_")


def refuse_mixed_types(name, args):
    """Refuse an operation at which a step of this model ends on a GPU."""
    if name not in SAME_TYPE_ARGUMENTS:
        return
    tensors = [args[n] for n in SAME_TYPE_ARGUMENTS[name] if n < len(args) and isinstance(args[n], torch.Tensor)]
    types = dict.fromkeys(str(one.dtype).removeprefix("torch.") for one in tensors)
    if len(types) > 1:
        raise Refusal(
            f"{find_place()} mixes {' and '.join(types)} in {name}, which a GPU refuses: try another precision"
        )


def refuse_overflow(name, args):
    """Refuse a fill with a number that the tensor's type does not hold: a GPU raises an error there."""
    if name not in FILLS or not isinstance(args[-1], (int, float)) or not args[0].is_floating_point():
        return
    if torch.finfo(args[0].dtype).max < abs(args[-1]) < math.inf:
        kind = str(args[0].dtype).removeprefix("torch.")
        raise Refusal(f"{find_place()} fills {kind} with {args[-1]:.4g}, which overflows: try another precision")


def widen_kept_parameters(model, dtype):
    """Widen what ``from_pretrained`` loads in fp32 whatever is asked for: some parts always, others where fp16 is asked for."""
    if dtype not in (torch.float16, torch.bfloat16):
        return
    names = set(getattr(model, "_keep_in_fp32_modules_strict", None) or ())
    if dtype == torch.float16:
        names |= set(getattr(model, "_keep_in_fp32_modules", None) or ())
    for path, one in (*model.named_parameters(), *model.named_buffers()):
        if one.dtype == dtype and any(fnmatchcase(path, f"*{name}*") for name in names):
            one.data = one.data.float()
