"""How many samples a job's local dataset has, and how long they are."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from gpuready import system
from gpuready.workflow.refusal import host_for_named_files

MAX_READ_BYTES = 8 << 20  # of a file; of a longer one the rest is taken to be alike
BYTES_PER_TOKEN = (5.5, 2.5)  # most and fewest bytes of text in a token, by what tokenizers make of prose and of code


def measure_datasets(names: Sequence[str], beside: str) -> tuple[int, tuple[float, float]] | None:
    """Return the samples of files of JSON rows, and their mean tokens: at least, at most; equal where they have token ids.

    Files are named from here or from the job's file; None where one of them is not such a file.
    """
    try:
        found = [_measure_file(name, beside.rpartition("/")[0]) for name in names]
    except (system.AccessError, ValueError, RecursionError):
        return None
    samples = sum(one[0] for one in found)
    if not samples:
        return None
    low, high = (sum(one[at] for one in found) / samples for at in (1, 2))
    return round(samples), (low, high)


def _measure_file(name: str, folder: str) -> tuple[float, float, float]:
    """Return samples, and tokens at least and at most; ValueError for what is no local file of JSON rows."""
    host = host_for_named_files()
    found = {one: host.stat_path(one) for one in (f"{folder}/{name}" if folder else name, name)}
    path, stat = next(((path, stat) for path, stat in found.items() if stat is not None), ("", {}))
    if not path.endswith((".jsonl", ".json")) or stat["kind"] != "file":
        raise ValueError(f"{name} is no local file of JSON rows")
    text = host.read_text(path, MAX_READ_BYTES) or ""
    size, read = stat["size"], len(text.encode())
    if text.lstrip().startswith("["):
        rows = json.loads(text)
    else:
        lines = text.splitlines()
        rows = [json.loads(line) for line in (lines if read >= size else lines[:-1]) if line.strip()]
    share = max(size / read, 1.0) if read else 1.0
    bounds = [_count_tokens(row) for row in rows]
    return share * len(rows), share * sum(low for low, _ in bounds), share * sum(high for _, high in bounds)


def _count_tokens(row: Any) -> tuple[float, float]:
    if isinstance(row, dict) and isinstance(row.get("input_ids"), list):
        return len(row["input_ids"]), len(row["input_ids"])
    size = sum(len(text.encode()) for text in _list_texts(row))
    return size / BYTES_PER_TOKEN[0], size / BYTES_PER_TOKEN[1]


def _list_texts(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _list_texts(one)
