"""Numbers for people."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuready.catalog import facts as declared
from gpuready.model import NOT_STATED, Fact
from gpuready.render import units


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (0, "0 B"),
        (1, "1 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (64 << 20, "64 MiB"),
        (1 << 30, "1 GiB"),
        ((1 << 30) - 1, "1 GiB"),
        (85520809984, "79.6 GiB"),
        (1000 << 30, "1000 GiB"),
        (3 << 40, "3 TiB"),
        (5000 << 40, "5000 TiB"),
    ],
)
def test_size(count, said):
    assert units.format_bytes(count) == said


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (85520809984, "80 GB"),
        (150754820096, "141 GB"),
        (24564 << 20, "24 GB"),
        (2113600000 * 1024, "2.0 TB"),
        (0, "0 GB"),
    ],
)
def test_memory_is_what_the_box_says(count, said):
    assert units.format_nominal_memory(count) == said


@pytest.mark.parametrize(
    ("count", "exact", "said"),
    [
        (0.083, False, "0.1s"),
        (0.083, True, "83 ms"),
        (0.0, True, "0 ms"),
        (1.5, True, "1.5s"),
        (9.94, False, "9.9s"),
        (9.96, False, "10s"),
        (119, False, "119s"),
        (120, False, "2m 00s"),
        (3725, False, "62m 05s"),
    ],
)
def test_seconds(count, exact, said):
    assert units.format_seconds(count, exact=exact) == said


@pytest.mark.parametrize(
    ("fact", "said"),
    [
        (Fact("a.b", None), "absent"),
        (Fact("a.b", None, gap="denied"), "unknown"),
        (Fact("a.b", 5, gap="denied"), "unknown"),
        (Fact("a.b", None, gap=NOT_STATED), "not given"),
        (Fact("a.b", True), "true"),
        (Fact("a.b", ""), "empty"),
        (Fact("a.b", ()), "none"),
        (Fact("a.b", 0.123456), "0.1235"),
        (Fact("gpu.capability", ("9.0", "9.0", "8.0")), "2 x 9.0, 8.0"),
        (Fact("gpu.memory", (80 << 30, 80 << 30)), "2 x 80 GiB"),
        (Fact("system.shm", 64 << 20), "64 MiB"),
        (Fact("limit.memlock", -1), "no limit"),
        (Fact("limit.nofile", -1), "no limit"),
        (Fact("limit.nofile", 1024), "1024"),
        (Fact("a.b", {"path": "/usr", "version": "12.8"}), "path /usr, version 12.8"),
        (Fact("a.b", tuple(range(12))), "0, 1, 2, 3, 4, 5, 6, 7 and 4 more"),
        (Fact("system.shm", "lots"), "lots"),
        (Fact("system.shm", True), "true"),
        (Fact("system.shm", 10**400), "too large"),
        (Fact("system.shm", float("nan")), "nan"),
        (Fact("system.shm", float("inf")), "inf"),
        (Fact("a.b", [[[[[1]]]]]), "more inside"),
    ],
)
def test_a_value_in_words(fact, said):
    assert units.format_fact_value(fact) == said


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=12,
)


@given(st.sampled_from(["gpu.memory", "system.shm", "limit.nofile", "a.b"]), JSON)
def test_a_recording_can_say_anything(key, value):
    assert units.format_fact_value(Fact(key, value))


def test_the_facts_that_are_bytes_are_those_of_the_catalogue():
    rows = [declared.find_declaration(key) for key in list(declared.list_fact_keys())]
    assert {row["key"] for row in rows if row["type"].startswith("bytes")} == units._BYTE_FACTS


def test_a_table_is_told_in_words():
    rows = ({"gpu": 0, "pid": 4711, "used": 39 * 2**30, "user": None}, {"gpu": 1, "pid": 12, "used": 512})
    assert units.format_any_value(rows) == "gpu 0, pid 4711, used 39 GiB; gpu 1, pid 12, used 512"
    assert units.format_any_value({"lo": {"up": True}, "eth0": {"up": False}}) == "lo: up true; eth0: up false"
