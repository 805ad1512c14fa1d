"""Every sample output in README and docs is what the program prints; the reference pages are fresh.

A sample is a fenced block under a comment that has the command:

    <!-- sample: gpuready check transformers --on tests/machines/h200.json -->

`python -m pytest tests/test_docs.py --update-samples` writes them anew.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.every import every
from tests.running import call_gpuready as gpuready
from tests.sampling import FUZZ

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SAMPLE = re.compile(
    r"(?P<head><!-- sample: gpuready (?P<command>[^\n]*) -->\n```text\n(?:\$ [^\n]*\n)?)(?P<output>.*?)```", re.S
)


def samples():
    for page in PAGES:
        for match in SAMPLE.finditer(page.read_text()):
            yield pytest.param(page, match["command"], match["output"], id=f"{page.name}: {match['command'][:50]}")


def untimed(text: str) -> str:
    """Seconds differ from run to run; the words around them do not."""
    return re.sub(r" +\d+\.\d+ ?s$", "", text, flags=re.M).rstrip()


@pytest.mark.parametrize(("page", "command", "output"), list(samples()))
def test_sample(page, command, output, request):
    ran = gpuready(*shlex.split(command), cwd=ROOT)
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


@pytest.mark.parametrize("name", ["reference", "environment_pages"])
def test_what_is_generated_is_fresh(name):
    assert not tool(name).stale(), "run `make catalog`"


INDEX_LINE = re.compile(
    r"(?:\b(?:pip|pipx|uv|tool) (?:install|add)|pipx run) [^\n`#]*?(?<![\w/.-])gpuready(?![\w/.-]*(?:/|\.whl|-VERSION))"
    r"|uvx gpuready"
)


def test_no_line_installs_from_an_index_before_there_is_a_release():
    """Whoever takes the name first would be installed by it."""
    assert INDEX_LINE.search("    uvx gpuready check") and not INDEX_LINE.search("    uvx --from . gpuready check")
    code = [path for path in (ROOT / "src").rglob("*") if path.suffix in (".py", ".toml", ".html", ".sh")]
    files = [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "scripts").iterdir(),
        ROOT / "action.yml",
        *code,
    ]
    found = {str(path.relative_to(ROOT)): INDEX_LINE.findall(path.read_text(encoding="utf-8")) for path in files}
    assert {name: hits for name, hits in found.items() if hits} == {}


def test_every_record_is_told_of():
    """A measurement that no page names is one that nobody can judge."""
    results = ROOT / "benchmarks" / "results"
    page = (results / "README.md").read_text()
    assert [path.name for path in results.iterdir() if path.name != "README.md" and path.name not in page] == []


def test_no_page_of_a_command_is_left_over():
    made = {path for path in tool("reference").pages() if path.parent.name == "commands"}
    assert made == set((ROOT / "docs/reference/commands").glob("*.md"))


FILE = re.compile(r"<!-- file: (?P<path>[^\n]+) -->\n```\w+\n(?P<text>.*?)```", re.S)


def test_files_shown_in_the_docs_are_the_files(request):
    """What a page shows of a file beside it is that file, so that the sample under it is a run of what is shown."""
    shown = 0
    for page in PAGES:
        for match in FILE.finditer(page.read_text()):
            text = (page.parent / match["path"]).read_text()
            if request.config.getoption("--update-samples"):
                page.write_text(
                    page.read_text().replace(match[0], match[0].removesuffix(match["text"] + "```") + text + "```")
                )
            else:
                assert match["text"] == text, f"{page.name}: {match['path']}"
            shown += 1
    assert shown >= 2


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as Markdown makes them."""
    outside = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.S | re.M)
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.*)$", outside, flags=re.M):
        plain = re.sub(r"[^\w\s-]", "", heading.replace("`", "")).strip().lower()
        found.add(re.sub(r"[-\s]+", "-", plain))
    return found


def links(page: Path) -> list[tuple[str, str]]:
    outside = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.S | re.M)
    outside = re.sub(r"``.*?``|`[^`\n]*`", "", outside)  # a pattern of a log may look like a link
    found = re.findall(r"(?<!\\)\]\(([^)#\s]*)(?:#([^)\s]*))?\)", outside)
    return [(path, anchor) for path, anchor in found if "://" not in path and (path or anchor)]


def test_links_inside_the_docs_lead_somewhere():
    known = {page: anchors(page) for page in PAGES}
    for page in PAGES:
        for path, anchor in links(page):
            target = (page.parent / path).resolve() if path else page
            assert target.exists(), f"{page.name} links to {path}"
            if anchor and target in known:
                assert anchor in known[target], f"{page.name} links to {path}#{anchor}"


TEXTS = [*PAGES, *(ROOT / name for name in ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"))]


def resolve_name(dotted: str) -> object:
    """Import ``gpuready.a.b.c``: modules as far as they go, then attributes."""
    parts = dotted.split(".")
    for count in range(len(parts), 0, -1):
        name = ".".join(parts[:count])
        try:
            found: object = importlib.import_module(name)
        except ModuleNotFoundError as error:
            if not str(error.name).startswith("gpuready"):
                raise
            continue
        for attribute in parts[count:]:
            found = getattr(found, attribute)
        return found
    raise ModuleNotFoundError(dotted)


def mentioned_names(text: str) -> set[str]:
    """Dotted names of gpuready in code, and those of its packages that a page imports."""
    names = set(re.findall(r"(?<![\w/.\[-])gpuready(?:\.[A-Za-z_]\w*)+(?![\w-]*\.(?:sarif|xml|json|html|toml))", text))
    for line in re.findall(r"from gpuready import ([\w, ]+)", text):
        for package in line.replace(" ", "").split(","):
            names.add(f"gpuready.{package}")
            names |= {
                f"gpuready.{package}.{word}" for word in re.findall(rf"(?<![\w.]){package}\.([A-Za-z_]\w*)", text)
            }
    for module, line in re.findall(r"from (gpuready[\w.]*) import ([\w, ]+)", text):
        names |= {f"{module}.{word}" for word in line.replace(" ", "").split(",")}
    files = ("sarif", "xml", "json", "html", "toml", "fish", "whl", "service", "svg", "yml", "js", "css", "lock")
    return {name for name in names if name.rpartition(".")[2] not in files}


@every("page", TEXTS, ids=lambda page: page.name)
def test_names_in_the_docs_exist(page):
    for name in sorted(mentioned_names(page.read_text())):
        try:
            resolve_name(name)
        except (AttributeError, ModuleNotFoundError) as error:
            if isinstance(error, AttributeError) or str(error.name).startswith("gpuready"):  # else it needs torch
                pytest.fail(f"{page.relative_to(ROOT)} mentions {name}: {error}")


OWN_FILES = [page for page in TEXTS if page.stem != "environment-pages"]
"""Pages that name files of this repository only; the others quote files of frameworks."""


@every("page", OWN_FILES, ids=lambda page: page.name)
def test_files_in_the_docs_exist(page):
    """Files of the repository by their path, and of the package by their path inside it (``catalog/gpus.toml``)."""
    outside = re.sub(r"^```(?!python).*?^```", "", page.read_text(), flags=re.S | re.M)
    paths = set(re.findall(r"(?<![\w/.-])((?:src|tests|tools|benchmarks|docs|scripts)/[\w./-]*\w)", outside))
    package = "|".join(path.name for path in (ROOT / "src/gpuready").iterdir() if path.is_dir())
    inside = set(re.findall(rf"`((?:{package})/[\w./-]+\.(?:py|toml))", outside))
    made = ("tests/logs/causes", "benchmarks/results/")
    for path in paths | inside:
        places = [ROOT / path, ROOT / "src" / "gpuready" / path, ROOT / f"{path}.py"]
        found = any(place.exists() for place in places) or path.startswith(made) or any(ROOT.glob(f"{path}*"))
        assert found or "FAMILY" in path or "NAME" in path, f"{page.relative_to(ROOT)} mentions {path}"


def test_the_rule_to_start_from_is_a_rule_as_it_is():
    rule = (ROOT / "src/gpuready/rules/sys/clock_wrong.py").read_text()
    assert f"```python\n{rule}```" in (ROOT / "docs/how-to/add-a-rule.md").read_text()


def test_the_format_of_a_contract_names_every_gate():
    from gpuready import catalog

    page = (ROOT / "docs/reference/contract-format.md").read_text()
    gates = re.findall(r"`(\w+)`", page.partition("## gate\n")[2].partition("\n## ")[0].partition("features.toml`")[2])
    assert [name for name in gates if name not in ("gate", "needs")] == [
        row["id"] for row in catalog.load_catalog("features")["feature"]
    ]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site as ``make docs`` builds it, where a warning is an error; without FUZZ=1 with the first rows of each table."""
    folder, settings = tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("settings") / "mkdocs.yml"
    hooks = [str(ROOT / name) for name in ("tools/site_links.py", *([] if FUZZ else ["tests/site_hook.py"]))]
    settings.write_text(
        json.dumps({"INHERIT": str(ROOT / "mkdocs.yml"), "docs_dir": str(ROOT / "docs"), "hooks": hooks})
    )
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", settings, "--site-dir", folder],
        cwd=ROOT, capture_output=True, text=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_the_site_is_built_and_asks_no_other_host(site):
    pages = list(site.rglob("*.html"))
    built = ("rules/gpu", "facts", "json", "commands/check")
    assert (site / "index.html").exists() and all((site / f"reference/{name}.html").exists() for name in built)
    assert "$defs" in json.loads((site / "reference" / "documents.schema.json").read_text())
    for page in pages:
        text = page.read_text()
        for tag in re.findall(r"<(?:script|img|iframe|link)\b[^>]*>", text):
            canonical = 'rel="canonical"' in tag
            assert canonical or not re.search(r"""(?:src|href)=["']?(?:https?:)?//""", tag), f"{page.name}: {tag}"


def test_the_action_takes_what_the_command_takes():
    import yaml

    action = yaml.safe_load((ROOT / "action.yml").read_text())
    script = (ROOT / "scripts" / "action.sh").read_text()
    assert "${{ inputs" not in "".join(step["run"] for step in action["runs"]["steps"])  # no input becomes a script
    for name in action["inputs"]:
        assert f"GPUREADY_{name.upper()}" in script, name
    assert set(action["outputs"]) == set(re.findall(r'echo "(\w+)=', script))


@pytest.mark.parametrize(("driver", "code"), [("580.95.05", 0), ("450.36.06", 1)])
def test_the_script_of_the_action(tmp_path, driver, code):
    command = tmp_path / "gpuready"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -c "from gpuready.cli import main; main()" "$@"\n')
    command.chmod(0o755)
    (tmp_path / "Dockerfile").write_text("FROM python:3.12-slim\nRUN pip install torch==2.8.0\n")
    fields = {"GPUREADY_FRAMEWORKS": "transformers", "GPUREADY_DOCKERFILE": "Dockerfile", "GPUREADY_DRIVER": driver}
    fields |= {"GPUREADY_COMMAND": str(command), "RUNNER_TEMP": str(tmp_path), "GITHUB_OUTPUT": str(tmp_path / "out")}
    path = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "src"), "HOME": str(tmp_path), "UV_OFFLINE": "1"}
    done = subprocess.run(["bash", ROOT / "scripts" / "action.sh"], cwd=tmp_path, env=path | fields, check=False)
    assert done.returncode == code
    outputs = dict(line.split("=", 1) for line in (tmp_path / "out").read_text().splitlines())
    assert outputs["exit"] == str(code)
    assert json.loads(Path(outputs["sarif"]).read_text())["version"] == "2.1.0"
