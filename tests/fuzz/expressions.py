"""Every regular expression of the code, and texts that are made to slow each one down."""

from __future__ import annotations

import ast
import importlib
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

if sys.version_info >= (3, 11):
    import re._constants as kinds
    import re._parser as parser
else:  # the same two modules under their old names
    import sre_constants as kinds
    import sre_parse as parser

SOURCE = Path(__file__).parents[2] / "src"
CALLS = ("compile", "match", "search", "fullmatch", "sub", "subn", "split", "findall", "finditer")
OURS = ("LazyRegex", "compile_cached", "_matches")
"""What compiles an expression later, or once."""
_CALLED = re.compile(rf"\bre\.(?:{'|'.join(CALLS)})\(|\b(?:{'|'.join(OURS)})\(")
SOME = 300
"""Repeats of more than so many count as endless."""


class Expression(NamedTuple):
    """One expression, where it stands, and how it is used: searched for anywhere, or matched where a text begins."""

    where: str
    source: str
    flags: int
    anywhere: bool


def every() -> tuple[list[Expression], list[str]]:
    """All of them, and the calls whose expression is not known before the program runs."""
    found, unknown = [], []
    for path in sorted((SOURCE / "gpuready").rglob("*.py")):
        if "scripts" in path.parts or "data" in path.parts:  # tables made from TOML: `tables` has theirs
            continue
        text = path.read_text()
        if not _CALLED.search(text):
            continue
        name, nodes = str(path.relative_to(SOURCE / "gpuready")), list(ast.walk(ast.parse(text)))
        kept = {id(one.value): one.targets[0] for one in nodes if isinstance(one, ast.Assign)}
        for call in nodes:
            if isinstance(call, ast.Call) and (how := _how(call)) and call.args:
                if how in ("LazyRegex", "compile"):  # under a name, or in a table: how it is used is found by that
                    how = _used(text, ast.unparse(kept[id(call)]) if id(call) in kept else "")
                try:
                    found.append(_read(path, name, call, how))
                except (NameError, AttributeError, TypeError):
                    unknown.append(f"{name}: {ast.unparse(call.args[0])}")
    return [*found, *tables()], unknown


def tables() -> Iterator[Expression]:
    """Expressions that stand in tables."""
    from gpuready.apply import build_errors
    from gpuready.catalog import load_catalog
    from gpuready.logs.log_patterns import compile_patterns
    from gpuready.system.redaction import named_secrets, secret_patterns, text

    yield from (
        Expression("build_errors", row[0], 0, True)
        for row in build_errors._SPECIFIC_CAUSES + build_errors._GENERAL_CAUSES
    )
    redaction: Any = text
    for hint, source in secret_patterns._TOKENS.items():
        yield Expression(f"shapes {hint}", source, 0, True)
    for hint, _, sources in (*secret_patterns.ADDRESSES, *secret_patterns.PHRASES):
        yield from (Expression(f"shapes {hint}", source, 0, True) for source in sources)
    for hint, (_, source) in secret_patterns.TOKENS_BY_MIDDLE.items():
        yield Expression(f"shapes {hint}", source, 0, True)
    yield Expression("redact _HOST", redaction._HOST, 0, True)
    yield Expression("redact _WHOLE_LOGIN", redaction._WHOLE_LOGIN, 0, True)
    yield Expression("redact _USERINFO", redaction._USERINFO, 0, False)
    names = (
        "_BARE_VALUE _ENTITY _REST_OF_LINE _ASSIGNMENT _SEPARATE_VALUE _ADJACENT_SECRET _OPTION_GAP _LIST_ITEMS "
        "_NEARBY_SECRET _PARAMETERS"
    )
    for name in names.split():
        yield Expression(f"announced {name}", getattr(named_secrets, name), 0, False)
    for name in ("_VALUE_BEFORE_NAME", "_VALUE_IN_PAIR"):
        yield Expression(f"announced {name}", getattr(named_secrets, name), 0, True)
    yield from (Expression("announced _QUOTED", source, 0, False) for source in named_secrets._QUOTED_VALUES.values())
    patterns = (pattern for code, row in load_catalog("patterns")["rows"] for pattern in compile_patterns(code, [row]))
    regexes = {piece.regex.source: piece.regex for pattern in patterns for piece in pattern.pieces if piece.regex}
    yield from (Expression("a pattern of logs", source, regex.flags, True) for source, regex in regexes.items())


def heard(work: Callable[[], None]) -> list[Expression]:
    """Those that are put together while something works."""
    found: dict[Expression, None] = {}
    real = {name: getattr(re, name) for name in CALLS}

    def noting(name: str) -> Any:
        def call(pattern: Any, *args: Any, **more: Any) -> Any:
            flags = more.get("flags", args[-1] if args and isinstance(args[-1], re.RegexFlag) else 0)
            if isinstance(pattern, str):
                found[Expression("made at work", pattern, int(flags), name not in ("match", "fullmatch"))] = None
            return real[name](pattern, *args, **more)

        return call

    try:
        for name in CALLS:
            setattr(re, name, noting(name))
        work()
    finally:
        for name, was in real.items():
            setattr(re, name, was)
    return list(found)


def _how(call: ast.Call) -> str:
    func = call.func
    if isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name) and func.value.id == "re":
        return func.attr if func.attr in CALLS else ""
    return func.id if isinstance(func, ast.Name) and func.id in OURS else ""


def _used(text: str, name: str) -> str:
    ways = [way for way in CALLS if f"{name}.{way}(" in text]
    return next((way for way in ways if way not in ("match", "fullmatch")), ways[0] if ways else "compile")


def _read(path: Path, name: str, call: ast.Call, how: str) -> Expression:
    module = importlib.import_module(".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__"))
    space = {**vars(module), "re": re}
    source = eval(compile(ast.Expression(call.args[0]), name, "eval"), space)  # our own code, not data
    if isinstance(source, bytes):
        source = source.decode("latin-1")
    if not isinstance(source, str):
        raise TypeError
    flags = 0
    for node in [*call.args[1:], *(k.value for k in call.keywords if k.arg == "flags")]:
        if "re." in ast.unparse(node) or isinstance(node, ast.Constant):
            value = eval(compile(ast.Expression(node), name, "eval"), space)
            flags |= int(value) if isinstance(value, int) and _how(call) not in ("sub", "subn", "split") else 0
    return Expression(
        f"{name}:{call.lineno}", source, flags, how not in ("match", "fullmatch", "compile_cached", "_matches")
    )


# -- texts ------------------------------------------------------------------------------------------------------


def pumps(source: str, flags: int) -> list[tuple[str, str]]:
    """Beginnings, and what can be repeated behind each for ever: one pair for every endless repeat, and pairs of them."""
    tree = parser.parse(source, flags)
    found: dict[tuple[str, str], None] = {}
    _walk(tree, "", found)
    whole = _sample(tree)
    found[("", whole or "a")] = None
    for before, again in list(found):
        if before:
            found[("", before + again)] = None
            found[("", before)] = None
    return [pair for pair in found if pair[1]][:24]


def _walk(tree: Any, before: str, found: dict[tuple[str, str], None]) -> None:
    for kind, reported in tree:
        if kind in (kinds.MAX_REPEAT, kinds.MIN_REPEAT) or str(kind) == "POSSESSIVE_REPEAT":
            least, most, inner = reported
            if most >= SOME or most is kinds.MAXREPEAT:
                for again in _choices(inner):
                    found[(before, again)] = None
            _walk(inner, before, found)
            before += _sample(inner) * min(least, 20)
        else:
            for part in _inside(kind, reported):
                _walk(part, before, found)
            before += _sample([(kind, reported)])


def _inside(kind: Any, reported: Any) -> list[Any]:
    if kind is kinds.SUBPATTERN:
        return [reported[3]]
    if kind is kinds.BRANCH:
        return list(reported[1])
    if kind in (kinds.ASSERT, kinds.ASSERT_NOT):
        return [reported[1]]
    return [reported] if str(kind) == "ATOMIC_GROUP" else []


def _choices(tree: Any) -> list[str]:
    """A few texts that the inside of a repeat takes: one for each way of a branch and each part of a class."""
    first = _sample(tree)
    found = [first, first * 2]
    for kind, reported in tree:
        if kind is kinds.IN:
            found += [_sample([(kind, [one])]) for one in reported[:6]]
        for part in _inside(kind, reported):
            found.append(_sample(part))
    return [one for one in dict.fromkeys(found) if one]


def _sample(tree: Any) -> str:
    """One text that an expression takes, more or less."""
    return "".join(_one(kind, reported) for kind, reported in tree)


CLASSES = {"DIGIT": "7", "NOT_DIGIT": "x", "SPACE": " ", "NOT_SPACE": "x", "WORD": "a", "NOT_WORD": "-"}


def _one(kind: Any, reported: Any) -> str:
    if kind is kinds.LITERAL:
        return chr(reported)
    if kind in (kinds.NOT_LITERAL, kinds.ANY):
        return "a" if reported != ord("a") else "b"
    if kind is kinds.IN:
        return _member(reported)
    if kind is kinds.BRANCH:
        return _sample(reported[1][0])
    if kind is kinds.SUBPATTERN:
        return _sample(reported[3])
    if kind in (kinds.MAX_REPEAT, kinds.MIN_REPEAT) or str(kind) == "POSSESSIVE_REPEAT":
        return _sample(reported[2]) * min(max(reported[0], 1), 20)
    return ""


def _member(reported: Any) -> str:
    if reported and reported[0][0] is kinds.NEGATE:
        return next((c for c in "a 7-x/.~\n" if not any(_has(one, c) for one in reported[1:])), "\x01")
    kind, value = reported[0]
    if kind is kinds.RANGE:
        return chr(value[0])
    if kind is kinds.CATEGORY:
        return CLASSES[str(value).removeprefix("CATEGORY_")]
    return chr(value) if kind is kinds.LITERAL else "a"


def _has(one: Any, char: str) -> bool:
    kind, value = one
    if kind is kinds.RANGE:
        return bool(value[0] <= ord(char) <= value[1])
    if kind is kinds.CATEGORY:
        name = str(value).removeprefix("CATEGORY_")
        return {"DIGIT": char.isdigit(), "SPACE": char.isspace(), "WORD": char.isalnum() or char == "_"}.get(
            name, False
        )
    return bool(kind is kinds.LITERAL and value == ord(char))
