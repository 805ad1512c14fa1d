"""Names in src can be searched and are plain words; no text has a user install a package that is not ours."""

from __future__ import annotations

import ast
import collections
import io
import re
import statistics
import tokenize
from functools import cache
from pathlib import Path

import pytest

from tests.test_architecture import nodes, nodes_of

ROOT = Path(__file__).parent.parent
SRC = ROOT / "src" / "gpuready"
FILES = [path for path in sorted(SRC.rglob("*.py")) if path.parent.name != "data"]

INTERFACE_NAMES = {
    "judge", "run", "render", "main", "close", "read", "write", "to_json", "from_json", "forward", "backward",
    "run_proof",
}  # fmt: skip
"""Names that many modules or classes repeat on purpose: rules, proofs, records, commands, files, torch's functions."""

DIALECT = {
    "patient": "target environment", "door": "host access", "blind": "access error", "witness": "worker",
    "prophet": "prediction", "refrain": "repeated line", "yard": "folder", "desk": "service", "crew": "worker pool",
    "seat": "rank", "litter": "leftover", "story": "log summary", "sighting": "match", "asleep": "not applicable",
    "told": "reported", "held": "validated", "given": "requested", "noun": "record",
}  # fmt: skip
"""Words that only this project used, each with a plain one."""

KEPT_IDENTIFIERS = {"held": "key of the JSON document of fit: memory used by other processes"}


def _functions() -> list[str]:
    """Names of all functions, without those of an interface and dunders."""
    names = [node.name for path in FILES for node in nodes_of(path, ast.FunctionDef, ast.AsyncFunctionDef)]
    return [name for name in names if name not in INTERFACE_NAMES and not name.startswith("__")]


def test_function_names_can_be_searched():
    names = _functions()
    bare = [name.strip("_") for name in names]
    assert sum("_" not in name for name in bare) <= 0.3 * len(bare), "too many names of one word"
    assert statistics.mean(map(len, bare)) >= 11, "names too short on average"
    often = [name for name, count in collections.Counter(names).items() if count >= 10]
    assert len(often) <= 5, f"defined ten times or more: {often}"


def test_a_class_name_exists_once():
    places: dict[str, list[str]] = collections.defaultdict(list)
    for path in FILES:
        for node in nodes_of(path, ast.ClassDef):
            places[node.name].append(str(path.relative_to(SRC)))
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_the_top_level_holds_packages_only():
    found = {path.name for path in SRC.iterdir() if path.name != "__pycache__"}
    packages = {path.name for path in SRC.iterdir() if (path / "__init__.py").is_file()}
    assert found - packages == {"__init__.py", "__main__.py", "py.typed"}


# -- plain words --------------------------------------------------------------------------------------------


@cache
def _dialect_words(text: str) -> set[str]:
    """The words of the dialect in a text or identifier; code in backticks, quoted values and ``not given``, a word of the
    screens, are left out."""
    plain = re.sub(r"``.*?``|\"[^\"\n]*\"|not given", " ", text, flags=re.S)
    split = re.sub(r"([a-z])([A-Z])", r"\1 \2", plain).lower().replace("_", " ")
    words = set(re.findall(r"[a-z]+", split))
    return {word for word in DIALECT if words & {word, f"{word}s", f"{word.removesuffix('y')}ies"}}


def _may_have_dialect(text: str) -> bool:
    """Whether the letters of such a word, or of its plural, are anywhere in a text: a quick look that overlooks none."""
    lowered = text.lower()
    return any(word.removesuffix("y") in lowered for word in DIALECT)


def _identifiers(path: Path) -> set[str]:
    """All identifiers of a module: what it defines, imports, reads and passes by name."""
    found: set[str] = set()
    for node in nodes(path):
        for field in ("id", "attr", "arg", "name", "asname"):
            value = getattr(node, field, None)
            if isinstance(value, str):
                found.update(value.split("."))
    return found


def _comments(text: str) -> list[str]:
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return [token.string for token in tokens if token.type == tokenize.COMMENT]


def _docstrings(path: Path) -> list[str]:
    """Docstrings, also those below an assignment."""
    statements = [node.value for node in nodes_of(path, ast.Expr)]
    return [node.value for node in statements if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def _is_rule(path: Path) -> bool:
    return path.relative_to(SRC).match("rules/*/*.py")


@pytest.mark.parametrize("package", sorted({path.relative_to(SRC).parts[0] for path in FILES}))
def test_no_dialect_in_names_and_docstrings(package):
    for path in FILES:
        text = path.read_text() if path.relative_to(SRC).parts[0] == package else ""
        if not _may_have_dialect(text):
            continue
        for name in _identifiers(path) - set(KEPT_IDENTIFIERS):
            assert not _dialect_words(name), f"{path.relative_to(SRC)}: {name}"
        texts = _docstrings(path)
        if _is_rule(path):
            texts = texts[1:]  # the first is printed by `gpuready explain`, and is user text, not description of code
        for one in texts + _comments(text):
            assert not _dialect_words(one), f"{path.relative_to(SRC)}: {one[:80]!r} has {_dialect_words(one)}"


@pytest.mark.parametrize("folder", ["benchmarks", "tools", "tests"])
def test_no_dialect_in_names_of_scripts_and_tests(folder):
    """The names of tests are sentences, and ``given`` is hypothesis's."""
    for path in sorted((ROOT / folder).rglob("*.py")):
        allowed = {*KEPT_IDENTIFIERS, *(("given",) if "from hypothesis import" in path.read_text() else ())}
        names = {name for name in _identifiers(path) - allowed if not name.startswith("test_")}
        assert not {name for name in names if _dialect_words(name)}, path.relative_to(ROOT)


DOCS = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "action.yml")),
    *(ROOT / "docs").glob("*.md"),
    *(ROOT / "docs" / "how-to").glob("*.md"),
    *(ROOT / "docs" / "explanation").glob("*.md"),
    *(ROOT / "docs" / "start").glob("*.md"),
    ROOT / "docs" / "reference" / "glossary.md",
    ROOT / "docs" / "reference" / "index.md",
]
GENERATED_PARTS = {"recordings.md": r"^\| `.*$"}
"""Parts of pages that are made from records and golden reports."""


@pytest.mark.parametrize("page", DOCS, ids=lambda page: page.name)
def test_no_dialect_in_the_docs(page):
    """Samples of output, code and the labels of golden machines are left out."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.S | re.M)
    text = re.sub(GENERATED_PARTS.get(page.name, r"\Z"), "", text, flags=re.M)
    text = re.sub(r"`[^`]*`", " ", text)
    assert not _dialect_words(text), f"{page.relative_to(ROOT)}: {_dialect_words(text)}"


# -- the name of the project --------------------------------------------------------------------------------

TEXTS = [
    *(
        ROOT / name
        for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "action.yml", "Makefile")
    ),
    *(path for path in (ROOT / "docs").rglob("*") if path.suffix in (".md", ".yml", ".svg", ".json", "")),
    *(path for path in (ROOT / ".github").rglob("*") if path.is_file()),
    *(path for path in SRC.rglob("*") if path.suffix in (".py", ".toml", ".html", ".js", ".sh")),
]
INSTALL = re.compile(r"(?:pip3?|uv|pipx|conda|uvx)\s+(?:pip\s+)?(?:tool\s+)?(?:install|add|run|inject)\s+([^\n`|;]*)")
OUR_NAMES = re.compile(r"^(?:gpuready(?:\[[a-z,]+\])?(?:[=<>~!].*)?|gpuready-[\w.]+-py3-none-any\.whl)$")


def _looks_like_ours(word: str) -> bool:
    """Whether a word is meant to be this project: its former name, or something near to its present one."""
    name = re.split(r"[\[=<>~!@]", word)[0].lower().replace("_", "-")
    return name in ("tarmac", "gpu-ready", "gpureadiness") or name.startswith("gpuready")


def test_no_text_installs_a_name_that_is_not_ours():
    seen = 0
    for path in TEXTS:
        if not path.is_file():
            continue
        for match in INSTALL.finditer(path.read_text(errors="replace")):
            for word in match[1].replace("'", " ").replace('"', " ").split():
                word = word.rstrip(".,:)")
                if _looks_like_ours(word):
                    seen += 1
                    assert OUR_NAMES.match(word), f"{path.relative_to(ROOT)}: {match[0]}"
    assert seen >= 5, "the pattern finds no install line any more"


def test_the_former_name_is_nowhere_in_what_is_shipped():
    for path in TEXTS:
        if path.is_file() and path.name not in ("CHANGELOG.md", "benchmarks.md"):  # they tell of the change
            assert "tarmac" not in path.read_text(errors="replace").lower(), path.relative_to(ROOT)
