"""Arithmetic of the degrees in which a node can be bad: likelihoods of a pair's outcomes, and products of probabilities."""

from __future__ import annotations

from collections.abc import Iterable

DegreeProbabilities = tuple[float, ...]


FAULT_RATES = (0.0, 0.4, 0.7, 0.99)
RANDOM_FAILURE, BAD_LINK_PRIOR, BAD_LINK_FAILURE = 1e-4, 3e-4, 0.9
"""Probability that a pair fails by chance, that a link is bad, and that a bad link makes a pair fail."""


def outcome_likelihoods(failed: int, passed: int) -> tuple[DegreeProbabilities, ...]:
    """Likelihood of a pair's outcomes for each degree of one member and of the other."""
    link = BAD_LINK_PRIOR * BAD_LINK_FAILURE**failed * (1.0 - BAD_LINK_FAILURE) ** passed
    rows = []
    for one in FAULT_RATES:
        spoilt = [1.0 - (1.0 - one) * (1.0 - other) * (1.0 - RANDOM_FAILURE) for other in FAULT_RATES]
        rows.append(tuple(link + (1.0 - BAD_LINK_PRIOR) * p**failed * (1.0 - p) ** passed for p in spoilt))
    return tuple(rows)


def message_to_partner(mine: DegreeProbabilities, likelihoods: tuple[DegreeProbabilities, ...]) -> DegreeProbabilities:
    """Return the message of one member to the other. The table is symmetric."""
    a, b, c, d = mine
    return normalize_degrees([a * row[0] + b * row[1] + c * row[2] + d * row[3] for row in likelihoods])


def multiply_degrees(rows: Iterable[DegreeProbabilities]) -> DegreeProbabilities:
    a = b = c = d = 1.0
    for row in rows:
        a, b, c, d = a * row[0], b * row[1], c * row[2], d * row[3]
        if (whole := a + b + c + d) < 1e-60:
            a, b, c, d = a / whole, b / whole, c / whole, d / whole
    return normalize_degrees((a, b, c, d))


def divide_degrees(whole: DegreeProbabilities, part: DegreeProbabilities) -> DegreeProbabilities:
    return normalize_degrees([whole[0] / part[0], whole[1] / part[1], whole[2] / part[2], whole[3] / part[3]])


def normalize_degrees(row: Iterable[float]) -> DegreeProbabilities:
    values = [max(value, 1e-30) for value in row]
    whole = sum(values)
    return tuple(max(value / whole, 1e-30) for value in values)
