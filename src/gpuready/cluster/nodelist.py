"""Slurm's short forms: ``n[01-03,7]`` for hosts and ``2(x3),1`` for the tasks on each."""

from __future__ import annotations

LIMIT = 100_000
"""More hosts than any cluster has; a longer list is a mistake or an attack."""

BRACKETS = 8
"""More ranges than any name has."""


def expand(text: str) -> tuple[str, ...]:
    """Return the hosts of a list in order; ValueError if it cannot be parsed."""
    found: list[str] = []
    for part in _parts(text.strip()):
        found += _hosts(part, text)
        if len(found) > LIMIT:
            raise ValueError(f"the node list {text[:60]!r} names more than {LIMIT} hosts")
    return tuple(found)


def _parts(text: str) -> list[str]:
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


def _hosts(part: str, text: str) -> list[str]:
    before, bracket, rest = part.partition("[")
    if not bracket:
        if not part.strip():
            raise ValueError(f"the node list {text[:60]!r} has an empty name")
        return [part.strip()]
    if part.count("[") > BRACKETS:
        raise ValueError(f"the node list {text[:60]!r} has a name with more than {BRACKETS} ranges")
    inside, _, after = rest.partition("]")
    numbers: list[str] = []
    for span in inside.split(","):
        numbers += _span(span, text)
        if len(numbers) > LIMIT:
            raise ValueError(f"the node list {text[:60]!r} names more than {LIMIT} hosts")
    tails = _hosts(after, text) if after else [""]
    if len(numbers) * len(tails) > LIMIT:
        raise ValueError(f"the node list {text[:60]!r} names more than {LIMIT} hosts")
    return [f"{before}{number}{tail}" for number in numbers for tail in tails]


def _span(span: str, text: str) -> list[str]:
    first, dash, last = span.partition("-")
    last = last if dash else first
    plain = all(one.isascii() and one.isdecimal() and len(one) < 10 for one in (first, last))
    if not plain or int(last) < int(first) or int(last) - int(first) > LIMIT:
        raise ValueError(f"the node list {text[:60]!r} has the range {span[:40]!r}, which is none")
    return [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]


def tasks(text: str) -> tuple[int, ...]:
    """Parse the number of tasks on each node: ``2(x3),1`` is 2, 2, 2, 1."""
    found: list[int] = []
    for part in text.strip().split(","):
        count, repeated, times = part.partition("(x")
        times = times.removesuffix(")") if repeated else "1"
        plain = count.isdecimal() and times.isdecimal() and len(count) < 10 and len(times) < 10
        if not plain or not 0 < int(times) <= LIMIT - len(found):
            raise ValueError(f"SLURM_TASKS_PER_NODE is {text[:60]!r}, which is no list such as 2(x3),1")
        found += [int(count)] * int(times)
    return tuple(found)
