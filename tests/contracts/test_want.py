"""The grammar of want: what it means for each kind of value, and what it refuses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from gpuready.contracts import want
from tests.every import every

VERSIONS = st.builds(lambda parts: ".".join(map(str, parts)), st.lists(st.integers(0, 30), min_size=1, max_size=4))
CLAUSES = st.builds(str.__add__, st.sampled_from([">=", "<=", "==", "!=", ">", "<"]), VERSIONS)
WANTS = st.lists(st.lists(CLAUSES, min_size=1, max_size=3).map(",".join), min_size=1, max_size=3)


@every(
    ("asked", "value", "answer"),
    [
        (">=2.2,<=2.5.1", "2.5.1", True),
        (">=2.2,<=2.5.1", "2.6.0", False),
        (">=2.2", "2.10.0", True),
        ("<=2.9", "2.10", False),
        ("==2.6.0|==2.8.0", "2.8.0+cu128", True),
        ("==2.6.0|==2.8.0", "2.7.0", False),
        ("==4.51.*", "4.51.3", True),
        ("~=1.4", "1.9", True),
        (">=0.0.23.post1", "0.0.23", False),
        (">=550.40.07", "550.144.03", True),
        (">=5.15", "5.15.0-91-generic", True),
        (">=5.15", "4.18.0-513.el8.x86_64", False),
        (">=16GB", 16_000_000_000, True),
        (">=16GB", 15_999_999_999, False),
        (">=16GiB", 16_000_000_000, False),
        (">=16GiB", 2**34, True),
        (">=1.5TB", 1_500_000_000_000, True),
        (">1,<=8", 8, True),
        (">1,<=8", 1, False),
        ("==3|>=8", 9, True),
        (">=0.5", 0.5, True),
        ("linux|windows", "Linux", True),
        ("linux|windows", "darwin", False),
        ("cuda", "cpu", False),
        ("x86_64|aarch64", "aarch64", True),
        ("true", True, True),
        ("true", False, False),
        ("false", False, True),
        ("*", "anything", True),
        ("*", 0, True),
        ("*", False, True),
    ],
)
def test_a_want_means_what_the_value_is(asked, value, answer):
    assert want.value_meets_want(asked, value) is answer


@pytest.mark.parametrize("asked", [">=2.2", ">=16GB", "linux", "true", "false", "*", "<1"])
def test_what_is_absent_meets_nothing(asked):
    assert want.value_meets_want(asked, None) is False
    assert want.value_meets_want(asked, []) is False
    assert want.value_meets_want(asked, ()) is False


def test_every_element_of_a_list_must_hold():
    assert want.value_meets_want(">=8.0", ["9.0", "8.6"])
    assert not want.value_meets_want(">=8.0", ("9.0", "7.5"))
    assert want.value_meets_want(">=16GB", [17179869184, 85520809984])
    assert not want.value_meets_want("==9.0|==10.0", ["9.0", "10.0", "12.0"])


@pytest.mark.parametrize(
    ("asked", "value"),
    [
        ("", "1.0"),
        (">=1,,<2", "1.0"),
        ("|>=1", "1.0"),
        (">=banana", "1.0"),
        (">=", "1.0"),
        ("=>2", "1.0"),
        (">=16", "not a version at all"),
        (">=16GB", "16"),
        (">=16 parsecs", 16),
        ("sixteen", 16),
        ("~=16", 16),
        (">=-1", 16),
        ("yes", True),
        (">=1", True),
        (">=1|>=x", "5"),
    ],
)
def test_a_want_that_makes_no_sense_says_so_in_one_sentence(asked, value):
    with pytest.raises(ValueError) as caught:
        want.value_meets_want(asked, value)
    text = str(caught.value)
    assert text and "\n" not in text and "Traceback" not in text


@pytest.mark.parametrize(
    ("asked", "kind"),
    [
        (">=2.2,<=2.5.1", "version"),
        (">=8.0", "versions"),
        (">=16GB", "bytes"),
        (">=16GB", "bytes_list"),
        (">=2", "int"),
        ("linux|wsl", "text"),
        ("true", "bool"),
        ("*", "version"),
        ("*", ""),
        (">=3", ""),
        ("linux", ""),
    ],
)
def test_check_accepts_what_fits_the_kind(asked, kind):
    want.check_want(asked, kind)


@pytest.mark.parametrize(
    ("asked", "kind"),
    [
        ("linux", "version"),
        ("2.2", "version"),
        (">=16GB", "version"),
        ("linux", "bytes"),
        (">=big", "int"),
        ("maybe", "bool"),
        ("$(reboot)", "text"),
        ("", "text"),
        ("a|", "text"),
    ],
)
def test_check_refuses_what_does_not(asked, kind):
    with pytest.raises(ValueError, match=r"write|specifier"):
        want.check_want(asked, kind)


@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        (">=580", ">= 580"),
        (">=2.2,<=2.5.1", ">= 2.2, <= 2.5.1"),
        ("==2.6.0|==2.8.0", "2.6.0 or 2.8.0"),
        ("==4.51.3", "== 4.51.3"),
        (">=16GB", ">= 16 GB"),
        (">=40GiB", ">= 40 GiB"),
        ("linux|windows", "linux or windows"),
        ("true", "true"),
        ("*", "present"),
        ("==0.8.4|>=0.15", "0.8.4 or >= 0.15"),
        (">=1,<2|==3", ">= 1, < 2 or == 3"),
    ],
)
def test_a_want_can_be_read_on_a_screen(asked, shown):
    assert want.describe_want(asked) == shown


@given(WANTS, VERSIONS)
def test_versions_agree_with_packaging(choices, version):
    expected = any(SpecifierSet(c).contains(Version(version), prereleases=True) for c in choices)
    assert want.value_meets_want("|".join(choices), version) is expected


@given(WANTS, st.lists(VERSIONS, min_size=1, max_size=5))
def test_a_list_holds_exactly_when_all_its_elements_do(choices, versions):
    asked = "|".join(choices)
    assert want.value_meets_want(asked, versions) is all(want.value_meets_want(asked, v) for v in versions)


@given(st.integers(0, 10**6), st.sampled_from(["KB", "MB", "GB", "KiB", "MiB", "GiB"]), st.integers(0, 2**52))
def test_a_size_is_a_threshold(number, unit, value):
    size = want.parse_quantity(f"{number}{unit}")
    assert want.value_meets_want(f">={number}{unit}", value) is (value >= size)
    assert want.value_meets_want(f">={number}{unit}", size)
    assert not want.value_meets_want(f">{number}{unit}", size)


@given(st.text(max_size=40), st.one_of(st.text(max_size=20), st.integers(), st.booleans(), st.none()))
def test_no_text_breaks_it_other_than_with_a_sentence(asked, value):
    try:
        assert want.value_meets_want(asked, value) in (True, False)
    except ValueError as error:
        assert str(error)


@given(st.text(max_size=40))
def test_what_check_accepts_can_be_shown(asked):
    try:
        want.check_want(asked)
    except ValueError:
        return
    assert want.describe_want(asked)
