"""Which versions of other packages does a package's code ask for? From comparisons in its syntax trees."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from gpuready.model import Record
from gpuready.system.imports.package_source import SourceModules

SOURCES_WITH_GATES = r"__version__|_version\b|\bversion\(|greater_or_equal|less_than"
"""What a source has that may ask for a version."""

_SIGNS = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}
_NUMBER = r"\d{1,6}(?:\.\d{1,6}){1,4}[.\w]{0,20}"


class VersionGate(Record):
    """A comparison with a version: ``torch < 2.6``, and whether an error follows where it holds."""

    package: str
    specifier: str
    path: str
    line: int
    raises: bool


def find_version_gates(modules: SourceModules) -> list[VersionGate]:
    """Return each gate once, at the first place that has it."""
    found: dict[tuple[str, str], VersionGate] = {}
    for path, tree in modules.values():
        raising = _tests_before_raise(tree)
        for node in ast.walk(tree):
            for package, specifier in _gates_of(node):
                gate = VersionGate(package, specifier, path, node.lineno, id(node) in raising)  # type: ignore[attr-defined]
                found.setdefault((package, specifier), gate)
    return list(found.values())


def _tests_before_raise(tree: ast.Module) -> set[int]:
    """Return the parts of conditions below which an error is raised."""
    ifs = [node for node in ast.walk(tree) if isinstance(node, ast.If)]
    raising = [node for node in ifs if any(isinstance(part, ast.Raise) for part in node.body)]
    return {id(part) for node in raising for part in ast.walk(node.test)}


def _gates_of(node: ast.AST) -> Iterator[tuple[str, str]]:
    """``version.parse(torch.__version__) < version.parse("2.6")``, ``is_torch_version(">=", "2.6")``, ``require_version("x>=1")``."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _SIGNS:
        number = next((m for one in ast.walk(node.comparators[0]) if (m := _version_text(one))), "")
        package = _package_of(ast.unparse(node.left)) if number else ""
        if package:
            yield package, f"{_SIGNS[type(node.ops[0])]}{number}"
    elif isinstance(node, ast.Call):
        yield from _gates_of_call(node)


def _version_text(node: ast.AST) -> str:
    text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
    return text if re.fullmatch(_NUMBER, text) else ""


def _package_of(words: str) -> str:
    """``version.parse(torch.__version__)``, ``metadata.version('torch')``, ``torch_version`` -> ``torch``."""
    patterns = (
        r"\b([a-z]\w*)\.(?:__version__|version\.cuda)",
        r"version\(['\"]([\w-]+)['\"]\)",
        r"\b_?([a-z]+)_version$",
    )
    names = [match[1] for pattern in patterns if (match := re.search(pattern, words))]
    return names[0].replace("_", "-") if names else ""


def _gates_of_call(node: ast.Call) -> Iterator[tuple[str, str]]:
    name = getattr(node.func, "attr", getattr(node.func, "id", ""))
    texts = [arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
    if match := re.fullmatch(r"is_(\w{1,60})_(?:version|greater_or_equal|less_than)(?:_\w{1,60})?", name):
        sign = next((t for t in texts if t in _SIGNS.values()), "<" if "less" in name else ">=")
        yield from ((match[1].replace("_", "-"), sign + t) for t in texts if re.fullmatch(_NUMBER, t))
    elif name in ("require_version", "require_version_core"):
        for text in texts:
            if match := re.fullmatch(rf"([\w-]+)((?:>=|<=|==|<|>|!=){_NUMBER})", text.replace(" ", "")):
                yield match[1], match[2]
