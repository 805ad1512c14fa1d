"""What may stand in a pattern's regular expression, and by which literals its matches are found.

Every repeat is bounded and no wide repeat stands in another, so that no text makes a match slow. A match always contains
one of the literals: only lines with one are tried.
"""

import sys
from collections.abc import Iterable
from functools import cache
from typing import Any

MAX_REPEAT, MAX_WAYS, MAX_ALTERNATIVES = 200, 4000, 48
"""Longest repeat, the number of ways in which one start may be tried, and the number of literals of one expression."""

_REPEATS = ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")
_ASSERTIONS = ("ASSERT", "ASSERT_NOT")
_ONE_CHARACTER = ("LITERAL", "NOT_LITERAL", "ANY", "IN", "CATEGORY", "RANGE")


@cache
def parse_regex(source: str) -> tuple[Any, ...]:
    """The nodes of a regular expression, parsed once. ValueError where it is none, or could be slow."""
    try:
        tree = _parser().parse(source)
    except Exception as error:  # re.error, and a RecursionError or OverflowError of a strange one
        raise ValueError(f"{source!r} is not a regular expression: {error}") from None
    ways = _count_ways(tree, source)
    if ways > MAX_WAYS:
        raise ValueError(f"{source!r} can match in {ways} ways: shorten its repeats, or part it by a gap {{}}")
    return tuple(tree)


def _parser() -> Any:
    """The parser of Python's own regular expressions."""
    return __import__("re._parser", fromlist=("parse",)) if sys.version_info >= (3, 11) else __import__("sre_parse")


def _count_ways(nodes: Iterable[Any], source: str) -> int:
    """How many ways there are to match from one start, at most."""
    ways = 1
    for op, value in nodes:
        ways *= _ways_of_node(str(op), value, source)
    return ways


def _ways_of_node(op: str, value: Any, source: str) -> int:
    if op in _REPEATS:
        low, high, body = int(value[0]), value[1], list(value[2])
        if not isinstance(high, int) or int(high) > MAX_REPEAT:
            raise ValueError(f"{source!r} has a repeat without a bound of {MAX_REPEAT}")
        single = len(body) == 1 and str(body[0][0]) in _ONE_CHARACTER
        inner = 1 if single else _count_ways(body, source)
        return int(high - low + 1) if inner == 1 else min(sum(inner**n for n in range(low, high + 1)), 1 << 40)
    if op == "SUBPATTERN":
        return _count_ways(value[3], source)
    if op == "BRANCH":
        return 1 if _is_unambiguous(value) else sum(_count_ways(branch, source) for branch in value[1])
    if op in _ASSERTIONS:
        return _count_ways(value[1], source)
    if op in (*_ONE_CHARACTER, "AT"):
        return 1
    raise ValueError(f"{source!r} has {op.lower()}, which a pattern may not have")


def _is_unambiguous(branch: Any) -> bool:
    """Whether at most one of the alternatives can match: literals, none of which begins another."""
    texts = _exact_texts("BRANCH", branch)
    if texts is None:
        return False
    return not any(other != text and other.startswith(text) for text in texts for other in texts)


# -- literals ---------------------------------------------------------------------------------------------


def required_literals(source: str) -> tuple[str, ...]:
    """Literals, in lower case, of which every match contains one: the longest set of few; empty where there is none."""
    return _best_set(_literal_sets(parse_regex(source)))


def literal_sets(source: str) -> list[tuple[str, ...]]:
    """All such sets that were found."""
    return [texts for texts in _literal_sets(parse_regex(source)) if any(texts)]


def _literal_sets(nodes: Iterable[Any]) -> list[tuple[str, ...]]:
    """Sets of literals, of each of which every match contains one."""
    found: list[tuple[str, ...]] = []
    run: tuple[str, ...] = ("",)  # what the nodes just before match, exactly
    plain = ""  # the same, as far back as there is one text only
    for op, value in nodes:
        exact = _exact_texts(str(op), value)
        found.append((plain,))
        plain = plain + exact[0] if exact is not None and len(exact) == 1 else ""
        if exact is not None and len(run) * len(exact) <= MAX_ALTERNATIVES:
            run = tuple(dict.fromkeys(one + other for one in run for other in exact))
            continue
        found.append(run)
        found += _inner_sets(str(op), value)
        run = exact if exact is not None else ("",)
    return [*found, run, (plain,)]


def _inner_sets(op: str, value: Any) -> list[tuple[str, ...]]:
    if op == "SUBPATTERN":
        return _literal_sets(value[3])
    if op in _REPEATS and value[0]:
        return _literal_sets(value[2])
    if op == "BRANCH":
        best = [_best_set(_literal_sets(branch)) for branch in value[1]]
        return [tuple(dict.fromkeys(text for one in best for text in one))] if all(best) else []
    return []


def _exact_texts(op: str, value: Any) -> tuple[str, ...] | None:
    """All texts that a node matches, where they are few."""
    if op == "LITERAL":
        return (chr(value).lower(),)
    if op in (*_ASSERTIONS, "AT"):
        return ("",)
    if op == "IN" and len(value) <= 4 and all(str(kind) == "LITERAL" for kind, _ in value):
        return tuple(dict.fromkeys(chr(one).lower() for _, one in value))
    if op == "SUBPATTERN":
        return _exact_sequence(value[3])
    if op == "BRANCH":
        parts = [_exact_sequence(branch) for branch in value[1]]
        texts = tuple(dict.fromkeys(text for part in parts if part for text in part))
        return texts if all(part is not None for part in parts) and len(texts) <= MAX_ALTERNATIVES else None
    if op in _REPEATS and value[1] == 1:
        inner = _exact_sequence(value[2])
        return None if inner is None else inner if value[0] else ("", *inner)
    return None


def _exact_sequence(nodes: Iterable[Any]) -> tuple[str, ...] | None:
    texts: tuple[str, ...] = ("",)
    for op, value in nodes:
        more = _exact_texts(str(op), value)
        if more is None or len(texts) * len(more) > MAX_ALTERNATIVES:
            return None
        texts = tuple(dict.fromkeys(one + other for one in texts for other in more))
    return texts


def _best_set(sets: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """The set whose shortest literal is longest; of those that are long enough, the smallest."""
    usable = [_drop_covered(one) for one in sets if one and all(one)]
    return max(usable, key=lambda one: (min(min(map(len, one)), 12), -len(one), min(map(len, one))), default=())


def _drop_covered(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Drop texts that contain another one: who finds that finds them."""
    return tuple(text for text in texts if not any(other != text and other in text for other in texts))
