"""The parts of tools/refresh_catalog.py alone: TOML as text and a library's names."""

from __future__ import annotations

import io
import struct
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refresh.text import Document, assignment, literal, loads
from refresh.web import Web
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
  "b",
]
source = "there"

[[row.part]]
n = 1

# the second
[[row]]
name = "b"
source = ["here"]
# the end
"""


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_reading_and_writing_a_file_of_the_catalogue_changes_no_letter(path):
    text = path.read_text()
    document = Document(text)
    assert document.text == text
    rows = [block.values for block in document.blocks]
    assert any(rows)


def test_an_entry_that_looks_like_a_header_is_none():
    document = Document(SMALL)
    assert [block.name for block in document.blocks] == ["", "row", "row.part", "row"]
    assert document.blocks[1].values["list"] == ["[[row]]", "b"]
    assert document.family(1) == 3 and document.find("row", "name", "b") == 3


def test_a_value_is_changed_in_its_place_and_comments_stay():
    document = Document(SMALL)
    document.blocks[1].set("list", ["c"])
    document.blocks[1].set("new", 3)
    document.blocks[3].set("source", ["here", "there"])
    found = loads(document.text)
    assert found["row"][0] == {"name": "a", "list": ["c"], "new": 3, "source": "there", "part": [{"n": 1}]}
    assert found["row"][1]["source"] == ["here", "there"]
    for comment in ("# what this is", "# the day", "# the first", "# the second", "# the end"):
        assert comment in document.text
    assert document.text.index("new = 3") < document.text.index('source = "there"'), "sources come last"


def test_a_row_goes_in_between_and_its_neighbours_keep_their_comments():
    document = Document(SMALL)
    document.insert(document.family(1), "row", {"name": "ab", "source": "x"})
    assert [row["name"] for row in loads(document.text)["row"]] == ["a", "ab", "b"]
    assert '# the second\n[[row]]\nname = "b"' in document.text


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
        return Wheel(Web(index.address), index.address.replace("simple/", "x.whl"))

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
