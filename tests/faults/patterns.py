"""Every regular expression of gpuready, and texts made against it from its own parts.

Run as a program it takes its patterns from stdin and tells of each how its time grows; a pattern that does not come
back at all takes the process with it, and whoever started it sees at which one.
"""

from __future__ import annotations

import ast
import json
import re
import signal
import sys
import time
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    from re import _constants as words
    from re import _parser as parser
else:
    import sre_constants as words
    import sre_parse as parser

SRC = Path(__file__).parents[2] / "src" / "gpuready"
VERBS = ("compile", "search", "match", "fullmatch", "sub", "subn", "findall", "finditer", "split")
ANCHORED = ("match", "fullmatch")
SHORT, LONG = 1_000, 8_000
SLOW = 0.02
"""Below this no growth is believed, in seconds."""


def every() -> list[dict[str, Any]]:
    """The constant patterns in the source, with the verb that they are used by and the file that they stand in."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for path in sorted(SRC.rglob("*.py")):
        if "data" in path.parts:
            continue
        tree = ast.parse(path.read_text())
        names = {
            t.id: n.value.value
            for n in tree.body
            if isinstance(n, ast.Assign) and isinstance(n.value, ast.Constant)
            for t in n.targets
            if isinstance(t, ast.Name)
        }
        for node in ast.walk(tree):
            verb = _verb(node)
            text = _text(node.args[0], names) if verb and isinstance(node, ast.Call) else None
            if isinstance(text, (str, bytes)):
                plain = text.decode("latin-1") if isinstance(text, bytes) else text
                row = {"file": str(path.relative_to(SRC)), "pattern": plain, "verb": verb, "flags": _flags(node)}
                found.setdefault((plain, verb), row)
    return list(found.values())


def _verb(node: ast.AST) -> str:
    """The function of ``re`` that is called here."""
    called = node.func if isinstance(node, ast.Call) and node.args else None
    if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name) and called.value.id == "re":
        return called.attr if called.attr in VERBS else ""
    return ""


def _text(node: ast.expr, names: dict[str, Any]) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = _text(node.left, names), _text(node.right, names)
        return left + right if isinstance(left, type(right)) and isinstance(left, (str, bytes)) else None
    if isinstance(node, ast.JoinedStr):
        parts = [_text(v.value if isinstance(v, ast.FormattedValue) else v, names) for v in node.values]
        return "".join(str(part) for part in parts) if all(part is not None for part in parts) else None
    return None


def _flags(node: ast.Call) -> int:
    told = [*node.args[1:], *(k.value for k in node.keywords if k.arg == "flags")]
    names = {part.attr for arg in told for part in ast.walk(arg) if isinstance(part, ast.Attribute)}
    return sum(int(getattr(re, name)) for name in names if name.isupper() and hasattr(re, name))


# -- texts against a pattern -------------------------------------------------------------------------------


def attacks(pattern: str, flags: int, size: int) -> list[str]:
    """Texts that lead up to each repetition, fill it, and then disappoint it."""
    made = {"a" * size, " " * size, "\n" * size, "\0"}
    for before, body in _repeats(parser.parse(pattern, flags)):
        fill = body or "a"
        for lead in (before, ""):
            for end in ("\0", "\n!"):
                made.add(lead + fill * (size // len(fill)) + end)
        # The beginning itself again and again: a search starts anew at each.
        start = before + fill
        made.add(start * (size // len(start)) + "\0")
    return sorted(made)


def _repeats(tree: Any, before: str = "") -> list[tuple[str, str]]:
    """(a text that leads up to it, a text of its body) for each repetition without a small bound."""
    found: list[tuple[str, str]] = []
    for op, value in tree:
        if op in (words.MAX_REPEAT, words.MIN_REPEAT) or str(op) == "POSSESSIVE_REPEAT":
            least, most, body = value
            inside = _witness(body)
            if most > 20:
                found.append((before, inside))
            found += _repeats(body, before)
            before += inside * max(1, min(least, 3))
            continue
        if op is words.SUBPATTERN:
            found += _repeats(value[3], before)
        elif op is words.BRANCH:
            for one in value[1]:
                found += _repeats(one, before)
        elif op in (words.ASSERT, words.ASSERT_NOT):
            found += _repeats(value[1], before)
            continue
        before += _witness([(op, value)])
    return found


def _witness(tree: Any) -> str:
    """A short text that a part of a pattern takes."""
    text = ""
    for op, value in tree:
        if op is words.LITERAL:
            text += chr(value)
        elif op is words.NOT_LITERAL:
            text += "b" if value == ord("a") else "a"
        elif op is words.ANY:
            text += "a"
        elif op is words.IN:
            text += _of_class(value)
        elif op is words.SUBPATTERN:
            text += _witness(value[3])
        elif op is words.BRANCH:
            text += _witness(value[1][0])
        elif op in (words.MAX_REPEAT, words.MIN_REPEAT) or str(op) == "POSSESSIVE_REPEAT":
            text += _witness(value[2]) * max(1, min(value[0], 40))
    return text


_CATEGORIES = {"DIGIT": "0", "NOT_DIGIT": "a", "SPACE": " ", "NOT_SPACE": "a", "WORD": "a", "NOT_WORD": "-"}


def _of_class(items: Any) -> str:
    inverted = items and items[0][0] is words.NEGATE
    if inverted:
        taken = "".join(_of_class([item]) for item in items[1:])
        return next((c for c in "a0 -b,\t" if c not in taken), "\x7f")
    op, value = items[0]
    if op is words.RANGE:
        return chr(value[0])
    if op is words.CATEGORY:
        return _CATEGORIES[str(value).rpartition("CATEGORY_")[2]]
    return chr(value)


# -- how its time grows ------------------------------------------------------------------------------------


def growth(row: dict[str, Any]) -> dict[str, Any]:
    """The worst text of a pattern: how long it takes, and how much more than a text of an eighth."""
    made = re.compile(row["pattern"], row["flags"])
    verb = row["verb"] if row["verb"] in ANCHORED else "search"
    use = {"match": made.match, "fullmatch": made.fullmatch, "search": made.search}[verb]
    worst = {"seconds": 0.0, "ratio": 0.0, "text": ""}
    for short, long in zip(
        attacks(row["pattern"], row["flags"], SHORT), attacks(row["pattern"], row["flags"], LONG), strict=False
    ):
        late = _timed(use, long)
        if late > max(SLOW, worst["seconds"]):
            worst = {"seconds": late, "ratio": late / max(_timed(use, short), 1e-6), "text": ascii(long[:40])}
        if worst["seconds"] > 1:
            break  # it is bad enough
    return worst


def _timed(use: Any, text: str) -> float:
    begun = time.process_time()
    use(text)
    return time.process_time() - begun


def main() -> None:
    for row in json.load(sys.stdin):
        signal.alarm(20)  # in the midst of a match nothing else ends it
        print(json.dumps({**row, **growth(row)}), flush=True)


if __name__ == "__main__":
    main()
