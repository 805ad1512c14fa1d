"""Environment pages that are none, or made to be slow: refused in a sentence, never a crash."""

from __future__ import annotations

import functools
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuready.contracts.page import import_page
from gpuready.contracts.page_layout import parse_blocks
from tests.deadlines import fastest


def test_a_page_that_is_too_large_is_refused():
    with pytest.raises(ValueError, match="1 MiB"):
        import_page("x\n" * (1 << 20), "big.txt")


SLOW = ["[[", "environment variables (", "a ", "`", "CUDA ", "1GB ", "(", "''", "Linux ", "- ", "| ", "A_", "'A_B'"]


@pytest.mark.parametrize("scrap", SLOW)
def test_lines_made_to_be_slow_are_not(scrap):
    sections = ["System Requirements", "Common Errors", "Python Packages", "Credentials", "Quick Install"]

    def page(size: int) -> str:
        line = (scrap * 8000)[:size]
        return "Environment:A B CUDA\n\n" + "\n\n".join(f"{s}\n\n{line}\n  • {line}" for s in sections)

    short, long = (
        fastest(functools.partial(import_page, page(size), "slow.txt"), clock=time.process_time) for size in (500, 4000)
    )
    assert long < 32 * short, "64 times where it is quadratic"


def test_a_line_without_end_is_refused():
    with pytest.raises(ValueError, match="8000"):
        import_page("x" * 9000, "long.txt")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "empty"),
        (" \n\t\n", "empty"),
        ("== Overview ==\n\0\n", "not text"),
        ("== Overview ==\n" + r"\xff\xfe\x9b" * 20, "not text"),
        ("== Overview ==\n" + "\x01\x02" * 20, "not text"),
        ("Environment:A B CUDA\n\nwords and no section\n", "no section"),
        ("## Colours\n\nred\n", "no section"),
        ('[needs]\nkey = "broken\n', "no section"),
    ],
)
def test_what_is_no_page_is_refused_with_what_one_looks_like(text, says):
    with pytest.raises(ValueError, match=f"nothing.txt is .*{says}.*: an environment page has") as caught:
        import_page(text, "nothing.txt")
    assert "\n" not in str(caught.value)


def test_what_stands_before_the_first_heading_is_listed_unless_a_site_puts_it_there():
    head = "Jump to content\n\nAsk Atlas anything\n\nRead me first\n\nEnvironment:A Kiosk CUDA\n\nFrom Atlas\n"
    text = f"{head}Last Updated 2031-01-01\nNeeds luck\n\nOverview\n\nA kiosk.\n"
    contract, unplaced = import_page(text, "kiosk.txt")
    assert unplaced == [(5, "Read me first"), (11, "Needs luck")] and contract.notes == ("A kiosk.",)


def test_a_section_that_no_page_has_is_listed_and_not_noted():
    text = "## Overview\n\nA kiosk.\n\n## Colours\n\nOnly red.\n\n1. Paint\n\n- fp8 red\n"
    contract, unplaced = import_page(text, "kiosk.md")
    assert unplaced == [(7, "Only red."), (9, "Paint"), (11, "fp8 red")]
    assert contract.notes == ("A kiosk.",) and contract.steps == () and contract.capabilities == ()


@pytest.mark.parametrize(
    ("says", "platforms"),
    [
        ("A kiosk.", ()),
        ("It wants CUDA 12.", ("cuda",)),
        ("An NVIDIA card.", ("cuda",)),
        ("It wants ROCm 6.", ("rocm",)),
    ],
)
def test_a_platform_is_never_made_up(says, platforms):
    assert import_page(f"## Overview\n\n{says}\n", "kiosk.md")[0].platforms == platforms


SCRAPS = st.sampled_from(
    """\
System Requirements/Common Errors/Quick Install/Code Evidence/Credentials/Python Packages/
Environment:A B CUDA/Error Cause Solution/OS Linux 16GB for 7B/`torch` >= 2.2 or 3 (for torch 2)/
  • `NAME`: Set to `a` or `b`/{|/|-/| a || b || c/|}/! A !! B/<pre>/```/pip install 'unclosed/
== Dependencies ==/1. First/CUDA >= /`/(/# x/\x1b[31mred
""".replace("/\n", "/").split("/")
)


@given(st.lists(st.one_of(SCRAPS, st.text(max_size=60)), max_size=30))
def test_no_page_breaks_it(lines):
    try:
        contract, unplaced = import_page("\n".join(lines), "any.txt")
    except ValueError as refused:
        assert str(refused).startswith("any.txt is ")
        return
    assert contract == import_page("\n".join(lines), "any.txt")[0]
    numbers = [number for number, _ in unplaced]
    assert numbers == sorted(numbers) and all(number >= 1 for number in numbers)
    assert all(step.run == () or step.safety != "manual" for step in contract.steps)


def test_a_section_of_installing_and_of_evidence_at_once_comes_to_its_end():
    """Found by fuzzing: a caption stood where code was to begin, and the reader went no further."""
    page = "Environment:A B CUDA\n\n== Quick Install and Code Evidence ==\n\nThe guard stands here:\n\nraise SystemExit(1)\n"
    kinds = [block.kind for block in parse_blocks(page)]
    assert kinds[-2:] == ["text", "code"]
