"""The two ways in which a contract can fail its user; both messages are for people."""

from __future__ import annotations


class UnknownContract(ValueError):
    """No contract by that name; the message is one sentence that names the nearest."""


class BadContract(ValueError):
    """A contract file that cannot be used; one sentence for each problem, all in one line."""
