"""The number of parameters in a folder's safetensors files, by their headers. Runs in the target environment."""

import json
import math
import struct
from pathlib import Path

MAX_HEADER = 1 << 27
PLAIN_DTYPES = {"F64", "F32", "F16", "BF16"}
TOLERANCE = 0.01  # a pooler or a head that one of the two lacks


def count_checkpoint_parameters(folder):
    """Return the number of values; None without files, or where a quantised one packs them."""
    total = 0
    for path in sorted(Path(folder).glob("*.safetensors")) if folder else ():
        header = read_header(path)
        if header is None or any(row["dtype"] not in PLAIN_DTYPES for row in header):
            return None
        total += sum(math.prod(row["shape"]) for row in header)
    return total or None


def read_header(path):
    """Return the rows of one file's header; None if it has none."""
    try:
        with path.open("rb") as file:
            (size,) = struct.unpack("<Q", file.read(8))
            rows = json.loads(file.read(size)) if size <= MAX_HEADER else {}
        return [row for name, row in rows.items() if name != "__metadata__" and len(row["shape"]) >= 0]
    except (OSError, ValueError, struct.error, KeyError, TypeError, AttributeError):
        return None


def explain_difference(folder, model):
    """Return why a checkpoint is not of this class; empty where its count agrees or is unknown."""
    held = count_checkpoint_parameters(folder)
    made = sum(p.numel() for p in model.parameters())
    if held is None or abs(held - made) <= TOLERANCE * made:
        return ""
    return f"the weights in {folder} have {held:,} parameters, and {type(model).__name__} of its config {made:,}"
