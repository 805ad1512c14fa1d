"""Contract errors; both messages are shown to users."""

from __future__ import annotations


class UnknownContract(ValueError):
    """No contract has that name; the message is one sentence with the nearest names."""


class BadContract(ValueError):
    """A contract file that cannot be used; the message has one sentence per problem, on one line."""
