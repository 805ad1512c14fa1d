"""Lines that never leave the screen."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuready.render.layout import Screen, columns, pad

WORDS = st.text(st.characters(categories=["L", "N", "P", "Zs"], exclude_characters="\xa0"), max_size=60)
ROOM = st.integers(1, 60)


@pytest.mark.parametrize(("text", "width"), [("abc", 3), ("日本", 4), ("é", 1), ("", 0), ("✓", 1), ("ｆ", 2)])
def test_columns(text, width):
    assert columns(text) == width
    assert columns(pad(text, 9)) == 9


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
    assert Screen().cut(text, room) == cut


def test_cut_in_ascii():
    assert Screen(ascii=True).cut("much too long", 8) == "much ..."
    assert Screen(ascii=True).cut("abcdef", 2) == ".."


@given(WORDS, ROOM)
def test_cut_fits(text, room):
    for screen in (Screen(), Screen(ascii=True)):
        assert columns(screen.cut(text, room)) <= room


def test_wrap():
    assert Screen().wrap("one two three four", 9) == ["one two", "three", "four"]
    assert Screen().wrap("", 9) == [""]
    assert Screen().wrap("abcdefghijkl mno", 6) == ["abcde…", "mno"]


@given(WORDS, st.integers(2, 60))
def test_wrap_keeps_every_word_that_fits(text, room):
    lines = Screen().wrap(text, room)
    assert all(columns(line) <= room for line in lines)
    if all(columns(word) <= room for word in text.split()):
        assert " ".join(lines).split() == text.split()


def test_ends_side_by_side():
    assert Screen(20).ends("left", "right") == ["left           right"]
    assert Screen(20).ends("left", "right", start=6) == ["left     right"]
    assert Screen(20).ends("left", "") == ["left"]


def test_ends_wraps_the_left_and_gives_a_long_right_its_own_line():
    assert Screen(40).ends("some words that are too long for it", "7 rules") == [
        "some words that are too long     7 rules",
        "for it",
    ]
    assert Screen(40).ends("two words more than fit", "a right side that is long") == [
        "two words more than fit",
        " " * 15 + "a right side that is long",
    ]


@given(WORDS, WORDS, st.integers(40, 100), st.integers(0, 20))
def test_ends_fits(left, right, width, start):
    right = " ".join(right.split())
    for line in Screen(width).ends(left, right, start):
        assert columns(line) <= width - start


def test_table_aligns():
    rows = Screen().table([("a", "bb", "c"), ("aaa", "b", "c")])
    assert rows == [["a    bb  c"], ["aaa  b   c"]]
    assert Screen().table([]) == []
    assert Screen().table([("a", "b")], gaps=(4,)) == [["a    b"]]


def test_a_table_too_wide_wraps_its_cells():
    rows = Screen(30).table([("key", "a value of many words", "and a source of many words")])
    assert len(rows[0]) > 1 and all(columns(line) <= 30 for line in rows[0])


@given(
    st.lists(st.tuples(WORDS, WORDS, WORDS), min_size=1, max_size=5), st.integers(40, 100), st.integers(0, 9)
)
def test_a_table_fits(rows, width, start):
    for row in Screen(width).table(rows, start, (4, 3)):
        for line in row:
            assert columns(line) <= width - start


def test_marks_and_paint():
    assert [Screen().mark(kind) for kind in ("ok", "error", "warning", "undecided")] == ["✓", "✗", "!", "?"]
    plain = Screen(ascii=True)
    assert [plain.mark(kind).strip() for kind in ("ok", "error", "warning", "undecided")] == [
        "ok",
        "x",
        "!",
        "?",
    ]
    assert Screen(colour=True).paint("x", "error") == "\x1b[1;31mx\x1b[0m"
    assert Screen(colour=True).paint("", "error") == "" and Screen().paint("x", "error") == "x"
