"""Versions: the short way must agree with packaging wherever both can go."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from gpuready.model import versions

releases = st.lists(st.integers(0, 700), min_size=1, max_size=4).map(lambda parts: ".".join(map(str, parts)))
suffixes = st.sampled_from(["", "", "rc1", ".post1", ".dev3", "a0", "+cu128", ".post2+cu126"])
anything = st.builds(lambda r, s: r + s, releases, suffixes)
operators = st.sampled_from([">=", "<=", "==", "!=", ">", "<"])


def public(text: str) -> Version:
    return Version(Version(text).public)


@given(anything, anything)
def test_compare_agrees_with_packaging(a, b):
    left, right = public(a), public(b)
    assert versions.compare_versions(a, b) == (left > right) - (left < right)


@given(anything, operators, releases, suffixes.filter(lambda s: "+" not in s))
def test_satisfies_agrees_with_packaging(version, operator, release, suffix):
    clause = operator + release + suffix
    expected = SpecifierSet(clause).contains(public(version), prereleases=True)
    assert versions.satisfies_specifier(version, clause) == expected


@given(
    st.sampled_from(["2.9.0", "2.9", "2.9.1"]),
    st.sampled_from(["", "+cu128", "+cu130", "+cpu"]),
    st.sampled_from(["==", "!="]),
)
def test_a_pin_with_a_local_part_is_met_by_that_build_alone(release, local, operator):
    clause = f"{operator}2.9.0+cu128"
    expected = SpecifierSet(clause).contains(release + local, prereleases=True)
    assert (
        versions.satisfies_specifier(release + local, clause)
        == versions.is_satisfied(release + local, clause)
        == expected
    )


endings = st.sampled_from(
    [
        "",
        "a0",
        "b2",
        "rc1",
        "rc10",
        ".post1",
        ".post10",
        "dev0",
        ".dev3",
        "a1.dev2",
        "rc1.post2.dev3",
        ".post2.dev1",
        ".a1",
        "post1",
        "a1dev2",
    ]
)


@given(
    st.sampled_from(["1", "1.0", "1.0.0", "1.1", "2"]),
    endings,
    operators,
    st.sampled_from(["1", "1.0.0", "1.1"]),
    endings,
)
def test_releases_of_all_kinds_agree_with_packaging(release, suffix, operator, wanted, wanted_suffix):
    version, clause = release + suffix, operator + wanted + wanted_suffix
    expected = SpecifierSet(clause).contains(public(version), prereleases=True)
    assert versions.satisfies_specifier(version, clause) == expected
    left, right = public(version), public(wanted + wanted_suffix)
    assert versions.compare_versions(version, wanted + wanted_suffix) == (left > right) - (left < right)
    assert versions.parse_version_key(version) is not None


@given(st.text("0123abrcpostdev.+-_ ", max_size=14))
def test_only_versions_have_a_key(text):
    from packaging.version import InvalidVersion

    try:
        known = public(text)
    except InvalidVersion:
        known = None
    key = versions.parse_version_key(text)
    assert key is None or known is not None
    assert key is None or versions.parse_version_key(str(known)) == key


@given(anything, st.sampled_from(["==", "!=", "~="]), releases)
def test_prefixes_and_compatible_releases_agree_with_packaging(version, operator, release):
    clause = f"{operator}{release}{'.0' if operator == '~=' else '.*'}"
    expected = SpecifierSet(clause).contains(public(version), prereleases=True)
    assert versions.satisfies_specifier(version, clause) == expected
    near = release + ".1"
    assert versions.satisfies_specifier(near, clause) == SpecifierSet(clause).contains(public(near), prereleases=True)


@pytest.mark.parametrize(
    ("version", "specifier", "inside"),
    [
        ("2.5.1+cu124", ">=2.2.0,<=2.5.1", True),
        ("2.6.0", ">=2.2.0,<=2.5.1", False),
        ("2.10.0", ">=2.9", True),
        ("2.8.0", "==2.8.0.*", True),
        ("2.6.0+cu124", "==2.6.0|==2.8.0", True),
        ("2.7.1", "==2.6.0|==2.8.0", False),
        ("0.0.23.post1", ">=0.0.23.post1", True),
        ("0.0.23", ">=0.0.23.post1", False),
        ("1.4.2", "~=1.4.1", True),
        ("580.65.6", ">=580.65.06", True),
        ("2.15.0rc1", ">=2.14", True),
        ("1.0", "", True),
    ],
)
def test_satisfies(version, specifier, inside):
    assert versions.satisfies_specifier(version, specifier) is inside


@pytest.mark.parametrize("clause", ["2.0", "latest", ">=abc", "=>1.0"])
def test_a_bad_specifier_is_a_sentence(clause):
    with pytest.raises(ValueError, match="not a version"):
        versions.satisfies_specifier("1.0", clause)


def test_not_a_version():
    assert not versions.is_version("next")
    assert not versions.is_version(2.5)
    assert versions.is_version("2.5.1+cu124")
    with pytest.raises(ValueError, match="is not a version"):
        versions.compare_versions("next", "1.0")


def test_parts():
    assert versions.major_version("13.0") == 13
    assert versions.major_minor("12.4.127") == (12, 4)
    assert versions.major_minor("13") == (13, 0)
    assert versions.major_version("2.9.0rc1") == 2
    assert versions.find_version("gcc (Debian 12.2.0-14) 12.2.0") == "12.2.0"
    assert versions.find_version("none") is None


texts = st.text(st.sampled_from("0123456789.+-_abcruv "), max_size=12)


@given(texts)
def test_what_is_plain_here_is_a_version_there(text):
    from packaging.version import InvalidVersion

    try:
        there = Version(text)
    except InvalidVersion:
        assert not versions.is_version(text)
        assert versions.parse_plain_release(text) is None
        return
    assert versions.is_version(text)
    if versions.parse_plain_release(text) is not None:
        assert versions.parse_plain_release(text) == there.release
