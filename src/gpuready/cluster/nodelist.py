"""Slurm's short forms: ``n[01-03,7]`` for hosts and ``2(x3),1`` for the tasks on each."""

from __future__ import annotations

MAX_HOSTS = 100_000
"""More hosts than any cluster has; a longer list is a mistake or an attack."""

MAX_RANGES = 8
"""More ranges than any name has."""


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
    parts: list[str] = []
    depth = start = 0
    for at, char in enumerate(text):
        depth += {"[": 1, "]": -1}.get(char, 0)
        if depth not in (0, 1):
            raise ValueError(f"the node list {text[:60]!r} has brackets that do not match")
        if char == "," and not depth:
            parts.append(text[start:at])
            start = at + 1
    if depth:
        raise ValueError(f"the node list {text[:60]!r} has brackets that do not match")
    return [*parts, text[start:]]


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
        raise ValueError(f"the node list {text[:60]!r} has the range {span[:40]!r}, which is none")
    return [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]


def parse_tasks_per_node(text: str) -> tuple[int, ...]:
    """Parse the number of tasks on each node: ``2(x3),1`` is 2, 2, 2, 1."""
    counts: list[int] = []
    for part in text.strip().split(","):
        count, repeated, times = part.partition("(x")
        times = times.removesuffix(")") if repeated else "1"
        plain = count.isdecimal() and times.isdecimal() and len(count) < 10 and len(times) < 10
        if not plain or not 0 < int(times) <= MAX_HOSTS - len(counts):
            raise ValueError(f"SLURM_TASKS_PER_NODE is {text[:60]!r}, which is no list such as 2(x3),1")
        counts += [int(count)] * int(times)
    return tuple(counts)
