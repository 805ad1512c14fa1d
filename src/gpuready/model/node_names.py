"""Slurm's short forms: node names folded (``n[0001-0016,0020]``) and expanded, and ``2(x3),1`` for the tasks on each.

Folding takes linear time for any names: each is split into text and numbers once, names of one shape are
grouped, and only the number that varies most is folded. Tools that fold every number of a name take minutes
for ten thousand names that do not fold.
"""

import re
from collections.abc import Iterable, Sequence

NameParts = list[str]  # text, number, text, number ..., text

MAX_HOSTS = 100_000
"""More hosts than any cluster has; a longer list is a mistake or an attack."""

MAX_RANGES = 8
"""More ranges than any name has."""


def fold_node_names(names: Iterable[str]) -> str:
    """Fold the names into one line, without duplicates."""
    shapes: dict[tuple[str, ...], list[NameParts]] = {}
    for name in dict.fromkeys(names):
        name_parts = _split_name(name)
        shapes.setdefault(tuple(name_parts[::2]), []).append(name_parts)
    rows: list[tuple[str, list[str], str]] = []
    for shape, names_of_shape in shapes.items():
        rows += _fold_shape(shape, names_of_shape)
    rows.sort(key=lambda row: (row[0], row[2], len(row[1][0]), row[1][0]))
    return ",".join(f"{before}{_format_ranges(numbers)}{after}" for before, numbers, after in rows)


def _split_name(name: str) -> NameParts:
    """Split ``r01n7`` into ``r 01 n 7`` and an empty text: text and numbers in turn.

    A longer number does not count nodes: a date, a serial number, part of an address.
    """
    return re.split(r"(?<![0-9])([0-9]{1,9})(?![0-9])", name)


def _fold_shape(shape: tuple[str, ...], names_of_shape: list[NameParts]) -> list[tuple[str, list[str], str]]:
    """Return (text before, numbers, text after) rows for names of one shape."""
    fields = range(1, 2 * len(shape) - 1, 2)
    if not fields or len(names_of_shape) == 1:
        return [("".join(parts), [""], "") for parts in names_of_shape]
    field = max(fields, key=lambda at: (len({parts[at] for parts in names_of_shape}), at))
    groups: dict[tuple[str, str], list[str]] = {}
    for parts in names_of_shape:
        groups.setdefault(("".join(parts[:field]), "".join(parts[field + 1 :])), []).append(parts[field])
    return [(before, numbers, after) for (before, after), numbers in groups.items()]


def _format_ranges(numbers: Sequence[str]) -> str:
    """Format ``0001 0002 0003 0005`` as ``[0001-0003,0005]``; a single number has no brackets."""
    if len(numbers) == 1:
        return numbers[0]
    ordered = sorted(numbers, key=lambda one: (int(one), len(one)))
    spans, first, last = [], ordered[0], ordered[0]
    for number in ordered[1:]:
        if number != str(int(last) + 1).zfill(len(last)):
            spans.append((first, last))
            first = number
        last = number
    spans.append((first, last))
    return "[" + ",".join(a if a == b else f"{a}-{b}" for a, b in spans) + "]"


def expand_node_set(text: str) -> tuple[str, ...]:
    """Return the names of a node set in order, none for an empty one; ValueError if it cannot be parsed."""
    return expand_nodelist(text) if text.strip() else ()


def expand_nodelist(text: str) -> tuple[str, ...]:
    """Return the hosts of a list in order; ValueError if it cannot be parsed."""
    hosts: list[str] = []
    for part in _split_outside_brackets(text.strip()):
        hosts += _expand_part(part, text)
        if len(hosts) > MAX_HOSTS:
            raise ValueError(f"the node list {text[:60]!r} names more than {MAX_HOSTS} hosts")
    return tuple(hosts)


def _split_outside_brackets(text: str) -> list[str]:
    """Split the list at commas outside brackets."""
    parts = [""]
    for at, piece in enumerate(re.split(r"(\[[^][]*\])", text)):
        first, *others = [piece] if at % 2 else piece.split(",")  # what the brackets hold stands at odd places
        if not at % 2 and ("[" in piece or "]" in piece):
            raise ValueError(f"the node list {text[:60]!r} has brackets that do not match")
        parts[-1] += first
        parts += others
    return parts


def _expand_part(part: str, text: str) -> list[str]:
    before, bracket, rest = part.partition("[")
    if not bracket:
        if not part.strip():
            raise ValueError(f"the node list {text[:60]!r} has an empty name")
        return [part.strip()]
    if part.count("[") > MAX_RANGES:
        raise ValueError(f"the node list {text[:60]!r} has a name with more than {MAX_RANGES} ranges")
    inside, _, after = rest.partition("]")
    numbers: list[str] = []
    for span in inside.split(","):
        numbers += _expand_range(span, text)
        if len(numbers) > MAX_HOSTS:
            raise ValueError(f"the node list {text[:60]!r} names more than {MAX_HOSTS} hosts")
    tails = _expand_part(after, text) if after else [""]
    if len(numbers) * len(tails) > MAX_HOSTS:
        raise ValueError(f"the node list {text[:60]!r} names more than {MAX_HOSTS} hosts")
    return [f"{before}{number}{tail}" for number in numbers for tail in tails]


def _expand_range(span: str, text: str) -> list[str]:
    first, dash, last = span.partition("-")
    last = last if dash else first
    plain = all(one.isascii() and one.isdecimal() and len(one) < 10 for one in (first, last))
    if not plain or int(last) < int(first) or int(last) - int(first) > MAX_HOSTS:
        raise ValueError(f"the node list {text[:60]!r} has the range {span[:40]!r}, which is not a range")
    return [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]


def parse_tasks_per_node(text: str) -> tuple[int, ...]:
    """Parse the number of tasks on each node: ``2(x3),1`` is 2, 2, 2, 1."""
    counts: list[int] = []
    for part in text.strip().split(","):
        count, repeated, times = part.partition("(x")
        times = times.removesuffix(")") if repeated else "1"
        plain = count.isdecimal() and times.isdecimal() and len(count) < 10 and len(times) < 10
        if not plain or not 0 < int(times) <= MAX_HOSTS - len(counts):
            raise ValueError(f"SLURM_TASKS_PER_NODE is {text[:60]!r}, which is not a list such as 2(x3),1")
        counts += [int(count)] * int(times)
    return tuple(counts)
