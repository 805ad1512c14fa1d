"""A query becomes a command line, or is refused: nothing that names a file comes through, whatever is asked."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuready.cli import parser
from gpuready.commands import load_command
from gpuready.commands.declaration import UsageError
from gpuready.web.query_parser import (
    WEB_COMMANDS,
    InvalidQuery,
    build_command_words,
    build_page_commands,
    query_parameters,
)

FILES = ("FILE", "PATH", "DIR", "MODEL|FILE")
KEYS = sorted(
    {"framework", "model", "code", "gpu", "count", "contract", "config", "python", "o", "token"}
    | {name for command in WEB_COMMANDS for name in query_parameters(command)}
)
VALUES = st.one_of(
    st.text(max_size=30),
    st.sampled_from(
        ["../x", "/etc/passwd", "x.json", "h100x8", "trl", "--json", "-", "1", "\0", "llama-3.1-8b/", "~", "a\\b"]
    ),
    st.from_regex(r"[a-z./~-]{1,12}", fullmatch=True),
)
PAIRS = st.lists(st.tuples(st.sampled_from(KEYS), VALUES), max_size=5)


@pytest.mark.parametrize("command", WEB_COMMANDS)
def test_every_name_is_a_flag_of_the_command_and_none_names_a_file(command):
    known = {flag.flag.lstrip("-"): flag for flag in load_command(command).flags}
    for name, parameter in query_parameters(command).items():
        assert parameter is known[name]
        assert (parameter.metavar not in FILES and not parameter.many) or name in ("model", "ignore"), name


@given(st.sampled_from(sorted(WEB_COMMANDS)), PAIRS)
def test_whatever_is_asked_names_no_file(command, pairs):
    try:
        line = build_command_words(command, pairs)
    except InvalidQuery as bad:
        assert str(bad)
        return
    holds_no_path(line)


@given(PAIRS)
def test_nor_does_the_page(pairs):
    try:
        found = build_page_commands(pairs)
    except InvalidQuery:
        return
    for line in found.values():
        holds_no_path(line)


def holds_no_path(line: list[str]) -> None:
    try:
        result = parser.parse_command_line(line)
    except UsageError:
        return
    named = [*result.arguments, str(result.flags.get("on", "")), str(result.flags.get("model", ""))]
    for word in named:
        assert "/" not in word and "\\" not in word and not word.startswith((".", "~", "-"))
        assert not word.lower().endswith((".json", ".yml", ".yaml", ".py", ".toml"))
    assert not {"contract", "config", "python", "source", "find-links", "bundle", "o", "since", "trace"} & set(
        result.flags
    )


def test_what_the_page_asks_for():
    found = build_page_commands(
        [("framework", "axolotl"), ("gpu", "h100"), ("count", "8"), ("model", "llama-3.1-8b"), ("zero", "3")]
    )
    assert found["check"] == ["check", "--json", "--on=h100x8", "--", "axolotl"]
    assert found["fit"] == ["fit", "--json", "--on=h100x8", "--zero=3", "--", "llama-3.1-8b"]
    assert "--no-resolve" in found["plan"]
    assert build_page_commands([("gpu", "h100")]) == {}
