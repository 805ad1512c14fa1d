"""The sieve: both engines find the same, and exactly what is there."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuready.logs.literal_search import UNPREPARED_BYTES, LiteralSearch, choose_anchors

LITERALS = ["out of memory", "NCCL WARN", "Traceback (most", "memory leak", 'File "', "aaaa", "ÄÖÜ lärm"]


def slow(literals, data):
    found, data = set(), data.lower()
    for number, literal in enumerate(literals):
        at = data.find(literal.encode().lower())
        while at >= 0:
            found.add((at + len(literal.encode().lower()), number))
            at = data.find(literal.encode().lower(), at + 1)
    return sorted(found)


def engines():
    try:
        __import__("hyperscan")
    except ImportError:
        return ["auto", "find"]
    return ["auto", "find", "hyperscan"]


@pytest.mark.parametrize("engine", engines())
def test_finds_what_is_there(engine):
    data = b'x Out of Memory leak\nnccl WARN\n\xff\xfe File "a", Traceback (most rec\naaaaaa\n' + "ÄÖÜ lärm".encode()
    assert LiteralSearch(LITERALS, engine).find_literals(data) == slow(LITERALS, data)


@pytest.mark.parametrize("engine", engines())
@given(
    st.lists(
        st.sampled_from([*LITERALS, "\n", " ", "x" * 50, "out of", "NCCL", "OUT OF MEMORY", "nccl warn"]), max_size=30
    )
)
@settings(max_examples=60, deadline=None)
def test_finds_the_same_as_a_slow_search(engine, parts):
    data = "".join(parts).encode()
    assert LiteralSearch(LITERALS, engine).find_literals(data) == slow(LITERALS, data)


def test_what_escapes_a_pattern_is_literal():
    assert LiteralSearch(["a.b*c[d]"], "auto").find_literals(b"axbbcd a.b*c[d]") == [(15, 0)]


def test_a_line_of_a_known_shape_may_have_another_number():
    sieve = LiteralSearch(["Xid 79 seen", "error 803"], "find")
    assert sieve.find_literals(b"Xid 31 seen\nerror 2\nplain 1\n") == []
    assert sieve.find_literals(b"plain 2\nXid 79 seen\nerror 803\n") == [(19, 0), (29, 1)]


@given(
    st.lists(
        st.sampled_from(["Xid 79 seen", "Xid 7 seen", "error 803", "error 80", "step 12 loss 3", "x 803"]), max_size=20
    )
)
@settings(max_examples=60, deadline=None)
def test_what_it_has_learned_hides_nothing(lines):
    literals, sieve = (
        ["Xid 79 seen", "error 803", "step 99"],
        LiteralSearch(["Xid 79 seen", "error 803", "step 99"], "find"),
    )
    for _ in range(2):
        data = "\n".join(lines).encode()
        assert sieve.find_literals(data) == slow(literals, data)


def test_a_short_log_makes_nothing_ready_and_finds_the_same():
    short, long = b"x NCCL WARN y\n" * 9, b"out of memory\n" * (UNPREPARED_BYTES // 14 + 1)
    sieve = LiteralSearch(LITERALS)
    assert sieve.find_literals(short) == slow(LITERALS, short) and sieve.engine == "auto"
    assert sieve.find_literals(long) == slow(LITERALS, long) and sieve.engine in ("find", "hyperscan")
    assert sieve.find_literals(short) == slow(LITERALS, short)


class MemoryCache:
    """A cache in memory that counts what is compiled."""

    def __init__(self):
        self.kept, self.saved = {}, 0

    def load(self, name):
        return self.kept.get(name)

    def save(self, name, data):
        self.kept[name], self.saved = data, self.saved + 1


def test_a_compiled_database_is_kept_by_the_hash_of_its_literals():
    pytest.importorskip("hyperscan")
    cache, data = MemoryCache(), b"x Out of memory y NCCL warn"
    for _ in range(2):
        assert LiteralSearch(LITERALS, "hyperscan", cache).find_literals(data) == slow(LITERALS, data)
    assert cache.saved == 1
    LiteralSearch([*LITERALS, "one more"], "hyperscan", cache)
    assert cache.saved == 2


def test_a_damaged_cache_is_compiled_again():
    pytest.importorskip("hyperscan")
    cache, data = MemoryCache(), b"x Out of memory y"
    LiteralSearch(LITERALS, "hyperscan", cache)
    cache.kept = dict.fromkeys(cache.kept, b"not a database")
    assert LiteralSearch(LITERALS, "hyperscan", cache).find_literals(data) == slow(LITERALS, data) and cache.saved == 2


def test_every_literal_has_its_anchor():
    chosen = choose_anchors([literal.encode().lower() for literal in LITERALS])
    assert sorted(n for members in chosen.values() for n in members) == list(range(len(LITERALS)))
    for anchor, members in chosen.items():
        assert all(anchor in LITERALS[n].encode().lower() for n in members)


def test_without_hyperscan_it_still_works(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "hyperscan", None)
    sieve = LiteralSearch(["NCCL WARN"])
    assert (
        sieve.find_literals(b"." * UNPREPARED_BYTES + b" NCCL WARN") == [(UNPREPARED_BYTES + 10, 0)]
        and sieve.engine == "find"
    )
    with pytest.raises(ValueError):
        LiteralSearch(["NCCL WARN"], "hyperscan")
