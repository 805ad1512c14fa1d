"""The import statements of a source, found by its text: a fraction of the time that parsing it takes."""

from __future__ import annotations

import ast
import bisect
import re

from gpuready.system.imports.source_names import catches, suppresses

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

STATEMENT = re.compile(
    r"(?:from[ \t]+([\w.]+)[ \t]+)?import[ \t]+(?:\(([^)]{0,8000})\)|((?:[^\n#;\\]|\\\r?\n){1,2000}))"
)
BY_NAME = re.compile(r"(?:import_module|__import__)\([ \t\n]*[\"']([\w.]+)[\"']")
MARGIN = re.compile(r"\n(?=[^\s#])")
DEFINITION = re.compile(r"(?:async def|def|class) (\w+)")
NEVER = re.compile(
    r"if (?:\w+\.)?TYPE_CHECKING\b[^\n]*:|if False:|if __name__ ?==|if sys\.platform(?: ?== ?|\.startswith\()[\"']win"
)
"""Conditions at the margin that do not hold here."""
COMMENT = re.compile(r"#[^\n]*")


class ImportStatement:
    """One statement: its module, the names that it takes from it (name and local name), its column and its place."""

    def __init__(self, module: str, names: list[tuple[str, str]], column: int, at: int, alias: str = ""):
        self.module, self.names, self.column, self.at, self.alias = module, names, column, at, alias


def list_statements(
    text: str, package: str, is_wanted: Callable[[int], bool] | None = None
) -> Iterator[ImportStatement]:
    """Yield the import statements of a module in a package, and imports by a name that is written out.

    ``is_wanted`` tells of the place of an indented one whether it counts.
    """
    at = text.find("import")
    while at >= 0:
        start = text.rfind("\n", 0, at) + 1
        before = text[start:at].lstrip(" \t")
        column = at - start - len(before)
        if column and is_wanted is not None and not is_wanted(start):
            pass
        elif not before or before.startswith(("from ", "from\t")):
            match = STATEMENT.match(text, start + column)
            yield from _read_statement(match, package, column, start) if match else ()
        elif match := BY_NAME.search(text, at, at + 200):
            yield ImportStatement(absolute_name(match[1], package), [], max(column, 1), start)
        at = text.find("import", at + 6)


def _read_statement(match: re.Match[str], package: str, column: int, at: int) -> Iterator[ImportStatement]:
    module, bracketed, plain = match.groups()
    parts = [part.split() for part in COMMENT.sub("", bracketed or plain).replace("\\", " ").split(",")]
    pairs = [(words[0], words[2] if len(words) == 3 else "") for words in parts if len(words) in (1, 3)]
    if module:
        names = [(name, local or name) for name, local in pairs if name == "*" or name.isidentifier()]
        yield ImportStatement(absolute_name(module, package), names, column, at)
        return
    for name, local in pairs:
        if all(part.isidentifier() for part in name.split(".")):
            yield ImportStatement(name, [], column, at, local)


def absolute_name(module: str, package: str) -> str:
    """``.wing`` in the package ``kite.deep`` -> ``kite.deep.wing``."""
    rest = module.lstrip(".")
    level = len(module) - len(rest)
    if not level:
        return module
    parts = package.split(".")
    return ".".join(part for part in (*parts[: len(parts) - level + 1], rest) if part)


class StatementPlaces:
    """What surrounds a place of a text: a function, a condition that does not hold, a ``try``."""

    def __init__(self, text: str):
        self.text = text
        self._margins: list[int] | None = None
        self._called: dict[str, bool] = {}
        self._tree: ast.Module | None = None

    def find_margin(self, at: int) -> int:
        """The start of the last line before a place that is not indented."""
        if self._margins is None:
            self._margins = [0, *(match.end() for match in MARGIN.finditer(self.text))]
        return self._margins[bisect.bisect_right(self._margins, at) - 1]

    def never_runs(self, at: int) -> bool:
        return NEVER.match(self.text, self.find_margin(at)) is not None

    def is_in_function(self, at: int) -> bool:
        """Whether a place is inside of a function or class that the text itself does not call at the start of a line."""
        start = self.find_margin(at)
        match = DEFINITION.match(self.text, start)
        if match is None:
            return self.text[start : start + 1] == ")"  # the end of a signature of several lines
        if match[1] not in self._called:
            self._called[match[1]] = match[0][0] != "c" and self._is_called(f"{match[1]}(")
        return not self._called[match[1]]

    def _is_called(self, call: str) -> bool:
        """Whether a statement outside of functions calls a function at its start, or for its value."""
        at = self.text.find(call)
        while at >= 0:
            before = self.text[self.text.rfind("\n", 0, at) + 1 : at].strip()
            if (not before or before.endswith("=")) and not DEFINITION.match(self.text, self.find_margin(at)):
                return True
            at = self.text.find(call, at + 1)
        return False

    def is_caught(self, at: int, kind: str) -> bool:
        """Whether something around a place catches an error of this kind, and goes on."""
        if self._tree is None:
            self._tree = parse_source(self.text) or ast.Module([], [])
        line = self.text.count("\n", 0, at) + 1
        return any(_catches_at(node, line, kind) for node in ast.walk(self._tree))


def _catches_at(node: ast.AST, line: int, kind: str) -> bool:
    if not isinstance(node, (ast.Try, ast.With)) or not node.body[0].lineno <= line <= (node.body[-1].end_lineno or 0):
        return False
    if isinstance(node, ast.With):
        return any(suppresses(one.context_expr, kind) for one in node.items)
    found = next((one for one in node.handlers if catches(one.type, kind) is not False), None)
    return found is not None and not any(isinstance(one, ast.Raise) for one in found.body)


def parse_source(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None
