"""Lines that never leave the screen."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuready.render.layout import Screen, display_width, pad_text

WORDS = st.text(st.characters(categories=["L", "N", "P", "Zs"], exclude_characters="\xa0"), max_size=60)
ROOM = st.integers(1, 60)


@pytest.mark.parametrize(("text", "width"), [("abc", 3), ("日本", 4), ("é", 1), ("", 0), ("✓", 1), ("ｆ", 2)])
def test_columns(text, width):
    assert display_width(text) == width
    assert display_width(pad_text(text, 9)) == 9


@pytest.mark.parametrize(
    ("text", "room", "cut"),
    [
        ("short", 5, "short"),
        ("much too long", 8, "much to…"),
        ("/a/long/path/version.py", 12, "…/version.py"),
        ("a / b is no path", 6, "a / b…"),
        ("日本語日本語", 6, "日本…"),
        ("abc", 1, "…"),
        ("abc", 0, ""),
    ],
)
def test_cut_says_that_it_cut(text, room, cut):
    assert Screen().truncate_text(text, room) == cut


def test_cut_in_ascii():
    assert Screen(ascii=True).truncate_text("much too long", 8) == "much ..."
    assert Screen(ascii=True).truncate_text("abcdef", 2) == ".."


@given(WORDS, ROOM)
def test_cut_fits(text, room):
    for screen in (Screen(), Screen(ascii=True)):
        assert display_width(screen.truncate_text(text, room)) <= room


def test_wrap():
    assert Screen().wrap_text("one two three four", 9) == ["one two", "three", "four"]
    assert Screen().wrap_text("", 9) == [""]
    assert Screen().wrap_text("abcdefghijkl mno", 6) == ["abcde…", "mno"]


@given(WORDS, st.integers(2, 60))
def test_wrap_keeps_every_word_that_fits(text, room):
    lines = Screen().wrap_text(text, room)
    assert all(display_width(line) <= room for line in lines)
    if all(display_width(word) <= room for word in text.split()):
        assert " ".join(lines).split() == text.split()


def test_ends_side_by_side():
    assert Screen(20).align_ends("left", "right") == ["left           right"]
    assert Screen(20).align_ends("left", "right", start=6) == ["left     right"]
    assert Screen(20).align_ends("left", "") == ["left"]


def test_ends_wraps_the_left_and_gives_a_long_right_its_own_line():
    assert Screen(40).align_ends("some words that are too long for it", "7 rules") == [
        "some words that are too long     7 rules",
        "for it",
    ]
    assert Screen(40).align_ends("two words more than fit", "a right side that is long") == [
        "two words more than fit",
        " " * 15 + "a right side that is long",
    ]


@given(WORDS, WORDS, st.integers(40, 100), st.integers(0, 20))
def test_ends_fits(left, right, width, start):
    right = " ".join(right.split())
    for line in Screen(width).align_ends(left, right, start):
        assert display_width(line) <= width - start


def test_table_aligns():
    rows = Screen().format_table([("a", "bb", "c"), ("aaa", "b", "c")])
    assert rows == [["a    bb  c"], ["aaa  b   c"]]
    assert Screen().format_table([]) == []
    assert Screen().format_table([("a", "b")], gaps=(4,)) == [["a    b"]]


def test_a_table_too_wide_wraps_its_cells():
    rows = Screen(30).format_table([("key", "a value of many words", "and a source of many words")])
    assert len(rows[0]) > 1 and all(display_width(line) <= 30 for line in rows[0])


@given(st.lists(st.tuples(WORDS, WORDS, WORDS), min_size=1, max_size=5), st.integers(40, 100), st.integers(0, 9))
def test_a_table_fits(rows, width, start):
    for row in Screen(width).format_table(rows, start, (4, 3)):
        for line in row:
            assert display_width(line) <= width - start


def test_marks_and_paint():
    assert [Screen().status_mark(kind) for kind in ("ok", "error", "warning", "undecided")] == ["✓", "✗", "!", "?"]
    plain = Screen(ascii=True)
    assert [plain.status_mark(kind).strip() for kind in ("ok", "error", "warning", "undecided")] == [
        "ok",
        "x",
        "!",
        "?",
    ]
    assert Screen(colour=True).apply_style("x", "error") == "\x1b[1;31mx\x1b[0m"
    assert Screen(colour=True).apply_style("", "error") == "" and Screen().apply_style("x", "error") == "x"
