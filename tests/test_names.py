"""Names in src can be searched; no text has a user install a package that is not ours."""

from __future__ import annotations

import ast
import collections
import re
from pathlib import Path

from tests.test_architecture import nodes_of

ROOT = Path(__file__).parent.parent
SRC = ROOT / "src" / "gpuready"
FILES = [path for path in sorted(SRC.rglob("*.py")) if path.parent.name != "data"]


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
        if path.is_file():
            assert "tarmac" not in path.read_text(errors="replace").lower(), path.relative_to(ROOT)
