"""The parts of tools/refresh_catalog.py alone: TOML as text and a library's names."""

from __future__ import annotations

import io
import struct
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refresh.text import assignment, insert_row, list_rows, literal, loads, replace_row, set_head
from refresh.wheel import Wheel

from .indexed import Served, ranged

REPO = Path(__file__).resolve().parents[2]
FILES = sorted((REPO / "src" / "gpuready" / "catalog").glob("*.toml"))
SMALL = """# what this is
as_of = "2026-01-01"  # the day

# the first
[[row]]
name = "a"
list = [
  "[[row]]",  # no header
]

[[row.part]]
n = 1

# the second
[[row]]
name = "b"
# the end
"""


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_every_row_of_the_catalogue_is_found(path):
    def names(data: dict, above: str = "") -> list[str]:
        tables = {k: v for k, v in data.items() if isinstance(v, list) and v and all(isinstance(x, dict) for x in v)}
        return [name for k, v in tables.items() for one in v for name in [above + k, *names(one, f"{above}{k}.")]]

    text = path.read_text()
    listed = {row.name for row in list_rows(text)}
    assert sorted(row.name for row in list_rows(text)) == sorted(n for n in names(loads(text)) if n in listed)


def test_rows_go_in_and_are_replaced_and_comments_stay():
    text = insert_row(SMALL, lambda row: row.start < SMALL.index("# the second"), [("row", {"name": "ab"})])
    text = set_head(replace_row(text, "row", "name", {"name": "b", "n": 2}), "as_of", "2026-02-02")
    found = loads(text)
    assert [row["name"] for row in found["row"]] == ["a", "ab", "b"] and found["row"][2]["n"] == 2
    assert found["as_of"] == "2026-02-02" and '# the second\n[[row]]\nname = "b"' in text
    assert all(
        comment in text for comment in ("# what this is", "# the day", "# the first", "# no header", "# the end")
    )


VALUES = st.recursive(
    st.text() | st.booleans() | st.integers(-(2**53), 2**53),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.from_regex(r"[a-z]{1,5}", fullmatch=True), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_any_text_is_the_same_after_it_is_written(text):
    assert loads(f"a = {literal(text)}")["a"] == text


@given(VALUES.filter(lambda v: "\\ud" not in ascii(v)))
def test_any_value_is_the_same_after_it_is_written(value):
    assert loads(assignment("key", value)) == {"key": value}


# -- libraries ------------------------------------------------------------------------------------------


def library(*names: str, moved: int = 0) -> bytes:
    """A small 64-bit ELF that loads these libraries; its names stand ``moved`` bytes further on."""
    table = b"\0" + b"".join(name.encode() + b"\0" for name in names)
    at = [1 + sum(len(n) + 1 for n in names[:i]) for i in range(len(names))]
    dynamic_at = 64 + 2 * 56
    entries = [(1, offset) for offset in at] + [(5, 0x1000 + moved), (10, len(table)), (0, 0)]
    dynamic = b"".join(struct.pack("<QQ", *entry) for entry in entries)
    names_at = dynamic_at + len(dynamic)
    head = b"\x7fELF\2\1\1" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64, 56, 2, 0, 0, 0)
    load = struct.pack("<IIQQQQQQ", 1, 4, names_at, 0x1000, 0, len(table) + moved, len(table) + moved, 0)
    dyn = struct.pack("<IIQQQQQQ", 2, 4, dynamic_at, 0x9000, 0, len(dynamic), len(dynamic), 0)
    return head + load + dyn + dynamic + bytes(moved) + table


@pytest.fixture
def opened():
    index = Served()

    def make(members: dict[str, bytes]) -> Wheel:
        body = io.BytesIO()
        with zipfile.ZipFile(body, "w", zipfile.ZIP_DEFLATED) as out:
            for name, content in members.items():
                out.writestr(name, content)
        index.special["/x.whl"] = lambda handler: ranged(handler, body.getvalue())
        return Wheel(index.address.replace("simple/", "x.whl"))

    yield make
    index.close()


@pytest.mark.parametrize("moved", [0, 5000, 3_000_000])
def test_the_libraries_that_a_library_loads(opened, moved):
    wheel = opened({"a.so": library("libcudart.so.13", "libc.so.6", moved=moved)})
    assert wheel.needed("a.so") == ["libcudart.so.13", "libc.so.6"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x7fELF",
        b"MZ" + bytes(200),
        b"\x7fELF\1\1" + bytes(100),
        library("a")[:150],
        b"\x7fELF\2\1" + b"\xff" * 400,
    ],
)
def test_what_is_no_library_loads_nothing(opened, body):
    assert not opened({"a.so": body}).needed("a.so")


def test_a_library_whose_names_are_too_far_off_is_not_read(opened):
    assert opened({"a.so": library("libcudart.so.12", moved=1 << 20)}).needed("a.so", limit=1 << 16) is None


def test_a_name_that_is_only_mentioned_is_not_loaded(opened):
    body = library("libc.so.6") + b"\0libcudart.so.12\0"
    assert opened({"a.so": body}).needed("a.so") == ["libc.so.6"]
