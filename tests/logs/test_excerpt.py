"""From a log of any size to the lines that may matter."""

from __future__ import annotations

import pytest

from gpuready.logs.excerpt import AFTER, BEFORE, HEAD, LITERAL_QUOTA, MAX_LINES, TAIL, extract_excerpt
from gpuready.logs.literal_search import LiteralSearch
from gpuready.logs.log_lines import MAX_LINE_BYTES

SIEVE = LiteralSearch(["NEEDLE in it", "often said"])


def quiet(count: int, width: int = 90) -> list[bytes]:
    return [b"line %d " % i + b"." * width for i in range(1, count + 1)]


def read(rows: list[bytes], size: int = 1 << 16, **options):
    data = b"\n".join(rows) + b"\n"
    return extract_excerpt((data[i : i + size] for i in range(0, len(data), size)), SIEVE, **options)


def test_a_small_log_is_kept_whole():
    part = read(quiet(50))
    assert part.whole and part.lines == 50 and part.rows[0] == (1, quiet(1)[0]) and part.rows[-1][0] == 50


@pytest.mark.parametrize("size", [7_000, 65_536, 1_000_000])
def test_of_a_large_one_the_surroundings_of_a_hit(size):
    rows = quiet(20_000)
    rows[9_999] = b"here is NEEDLE in it"
    part = read(rows, size)
    numbers = [number for number, _ in part.rows]
    assert not part.whole and part.lines == 20_000
    assert numbers[:HEAD] == list(range(1, HEAD + 1)) and numbers[-TAIL:] == list(range(20_001 - TAIL, 20_001))
    assert set(range(10_000 - BEFORE + 1, 10_000 + AFTER)) <= set(numbers)
    assert all(line == rows[number - 1] for number, line in part.rows), "a line has the number that it has in the file"
    assert len(part.rows) < HEAD + TAIL + BEFORE + AFTER + 80


@pytest.mark.parametrize("at", [0, 79, 80, 5_000, 19_998, 19_999])
def test_a_hit_anywhere_keeps_its_number(at):
    rows = quiet(20_000)
    rows[at] = b"here is NEEDLE in it"
    assert (at + 1, rows[at]) in read(rows, 10_000).rows


def test_what_is_said_all_the_time_has_a_quota():
    rows = [b"often said %d" % i for i in range(40_000)]
    assert len(read(rows).rows) < LITERAL_QUOTA * (AFTER + 2) + HEAD + TAIL
    assert len(read(rows, quotas={1: MAX_LINES}).rows) > 1.5 * LITERAL_QUOTA * (AFTER + 2)


def test_a_giant_line_is_cut_around_its_hit():
    data = b"x" * 3_000_000 + b"NEEDLE in it" + b"y" * 3_000_000
    part = extract_excerpt([data], SIEVE)
    assert sum(len(line) for _, line in part.rows) < 20 * MAX_LINE_BYTES
    assert any(b"NEEDLE in it" in line for _, line in part.rows)


def test_many_sources_share_the_room():
    whole = read(quiet(3_000), share=1000)
    assert len(whole.rows) < 1_000


def test_nothing_at_all():
    assert extract_excerpt([], SIEVE).rows == () and extract_excerpt([b""], SIEVE).lines == 0
