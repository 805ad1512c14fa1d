"""What a signal left behind: the exception of Ctrl-C or SIGTERM carries one sentence to the command line."""

from __future__ import annotations


def note_interrupt(error: BaseException, text: str) -> None:
    """Let a signal's exception say what was undone and what is left. The first to note knows best; errors are left alone."""
    if not isinstance(error, Exception) and not error.args:
        error.args = (text,)
