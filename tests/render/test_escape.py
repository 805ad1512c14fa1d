"""Text from a machine cannot drive the terminal."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuready.model.visible_text import escape_unprintable
from gpuready.render.escape import encodable_text, quote_command_words

from .machines import HOSTILE

ANY = st.text(st.characters(exclude_categories=()))


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("plain text, déjà vu, 日本語", "plain text, déjà vu, 日本語"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("\x9b31m", "\\x9b31m"),
        ("over\rwritten", "over\\x0dwritten"),
        ("two\nlines", "two\\nlines"),
        ("a\tb", "a\\x09b"),
        ("\u202eevil", "\\u202eevil"),
        ("\u2066\u200b\ufeff", "\\u2066\\u200b\\ufeff"),
        ("\U000e0001", "\\U000e0001"),
        ("\udcff", "\\xff"),
        ("\ud800", "\\ud800"),
        ("\x00\x7f", "\\x00\\x7f"),
        ("\u2028", "\\u2028"),
        ("no\xa0break", "no\\xa0break"),
        (None, "None"),
        (42, "42"),
    ],
)
def test_what_a_terminal_would_act_on_is_written_out(raw, shown):
    assert escape_unprintable(raw) == shown


@given(ANY)
def test_nothing_but_printable_text_remains(text):
    shown = escape_unprintable(text)
    assert shown.isprintable() and escape_unprintable(shown) == shown
    shown.encode("utf-8")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8", "cp1252"])
def test_a_stream_gets_only_what_it_can_write(encoding):
    text = encodable_text("✗ déjà 日本 " + escape_unprintable(HOSTILE), encoding)
    text.encode(encoding)
    assert "\\u2717" in text or "✗" in text


@given(st.lists(st.text(st.characters(categories=["L", "N", "P", "S", "Zs"])), max_size=5))
def test_a_command_means_what_it_says(words):
    words = [escape_unprintable(word) for word in words]
    assert shlex.split(" ".join(quote_command_words(tuple(words)))) == words
