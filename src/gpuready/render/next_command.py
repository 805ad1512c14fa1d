"""The last lines of a plan and an install: the framework's own command for the user's file."""

from __future__ import annotations


def list_next_commands(start: tuple[str, ...], environment: str = "") -> list[tuple[str, tuple[str, ...]]]:
    """``start the job: axolotl train config.yml``, and what activates the environment before it, each with its label."""
    activate = [("activate it", ("source", f"{environment}/bin/activate"))] if environment else []
    job = [("start the job", start)] if start else []
    return [*activate, *job]
