"""The literal search finds exactly what a slow search of every literal finds."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from gpuready.catalog import load_catalog
from gpuready.logs import literal_search
from gpuready.logs.literal_search import LiteralSearch
from gpuready.logs.pattern_index import PatternIndex
from tests.sampling import count_draws

LITERALS = ["out of memory", "NCCL WARN", "Traceback (most", "memory leak", 'File "', "aaaa", "ÄÖÜ lärm", "): 79,"]
NUMBERED = ["Xid 79 seen", "error 803", "step 99", "sm90a", "): 13,"]


def slow(literals, data):
    found, data = set(), data.lower()
    for number, literal in enumerate(literals):
        at = data.find(literal.encode().lower())
        while at >= 0:
            found.add((at + len(literal.encode().lower()), number))
            at = data.find(literal.encode().lower(), at + 1)
    return sorted(found)


def test_finds_what_is_there():
    data = b'x Out of Memory leak\nnccl WARN\n\xff\xfe File "a", Traceback (most rec\raaaaaa\n' + "ÄÖÜ lärm".encode()
    assert LiteralSearch(LITERALS).find_literals(data) == slow(LITERALS, data) != []


@given(
    st.lists(
        st.sampled_from([*LITERALS, "\n", "\r", " ", "7", "x" * 50, "out of", "NCCL", "OUT OF MEMORY", "nccl warn"]),
        max_size=30,
    )
)
@settings(max_examples=count_draws(100), deadline=None)
def test_finds_the_same_as_a_slow_search(parts):
    data = "".join(parts).encode()
    assert LiteralSearch(LITERALS).find_literals(data) == slow(LITERALS, data)


LINES = ["Xid 79 seen", "Xid 7 seen", "error 803", "error 80", "step 12 loss 3", "x 803", "sm90a", "sm9a0", "): 1,"]


@given(st.lists(st.lists(st.sampled_from(LINES), max_size=20), max_size=4))
@settings(max_examples=count_draws(100), deadline=None)
def test_what_it_remembers_hides_nothing(blocks):
    search = LiteralSearch(NUMBERED)
    for block in blocks:
        data = "\n".join(block).encode()
        assert search.find_literals(data) == slow(NUMBERED, data)


@given(st.data())
@settings(max_examples=count_draws(40), deadline=None)
def test_the_literals_of_the_catalogue_are_found_inside_other_text(data):
    index = catalogue_index()
    parts = st.sampled_from([*index.literals, "\n", " ", "x", "1", "A", ": "])
    text = "".join(data.draw(st.lists(parts, max_size=12))).encode()
    assert index.search.find_literals(text) == slow(index.literals, text)


_INDEX: list[PatternIndex] = []


def catalogue_index():
    if not _INDEX:
        _INDEX.append(PatternIndex(load_catalog("patterns")))
    return _INDEX[0]


def test_what_is_forgotten_is_found_again(monkeypatch):
    monkeypatch.setattr(literal_search, "MAX_REMEMBERED_BYTES", 10)
    search = LiteralSearch(LITERALS)
    for data in (b"NCCL WARN\n" + b"other text " * 9, b"NCCL WARN\nnew", b"NCCL WARN\nnewer"):
        assert search.find_literals(data) == [(9, 1)]


def test_ignored_literals_are_not_found():
    assert LiteralSearch(LITERALS).find_literals(b"out of memory leak", {0}) == [(18, 3)]


def test_what_escapes_a_pattern_is_literal():
    assert LiteralSearch(["a.b*c[d]"]).find_literals(b"axbbcd a.b*c[d]") == [(15, 0)]
