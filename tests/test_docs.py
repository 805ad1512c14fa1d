"""Every sample output in README and docs is what the program prints; the reference pages are fresh.

A sample is a fenced block under a comment that has the command:

    <!-- sample: tarmac check transformers --on tests/machines/h200.json -->

`python -m pytest tests/test_docs.py --update-samples` writes them anew.
"""

from __future__ import annotations

import importlib.util
import re
import shlex
from pathlib import Path

import pytest

from tests.running import tarmac

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SAMPLE = re.compile(
    r"(?P<head><!-- sample: tarmac (?P<command>[^\n]*) -->\n```text\n(?:\$ [^\n]*\n)?)(?P<output>.*?)```",
    re.S,
)


def samples():
    for page in PAGES:
        for match in SAMPLE.finditer(page.read_text()):
            yield pytest.param(
                page, match["command"], match["output"], id=f"{page.name}: {match['command'][:50]}"
            )


def untimed(text: str) -> str:
    """Seconds differ from run to run; the words around them do not."""
    return re.sub(r" +\d+\.\d+ ?s$", "", text, flags=re.M).rstrip()


@pytest.mark.parametrize(("page", "command", "output"), list(samples()))
def test_sample(page, command, output, request):
    ran = tarmac(*shlex.split(command), cwd=ROOT)
    if request.config.getoption("--update-samples"):
        fresh = re.sub(r" +\d+\.\d+ ?s$", "", ran.out, flags=re.M).rstrip("\n") + "\n"

        def put(match: re.Match[str]) -> str:
            return match["head"] + fresh + "```" if match["command"] == command else match[0]

        page.write_text(SAMPLE.sub(put, page.read_text()))
        return
    assert untimed(output) == untimed(ran.out)


def test_there_are_samples():
    assert len(list(samples())) >= 4


def tool(name: str):
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_reference_is_fresh():
    assert [path.name for path in tool("reference").stale()] == [], "run `make catalog`"


def test_links_inside_the_docs_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} links to {target}"
