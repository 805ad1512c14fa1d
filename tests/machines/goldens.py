"""What gpuready says of every golden machine: a small document for each that a person can read and hold right or wrong."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from gpuready import contracts
from gpuready.catalog import packages
from gpuready.model import Report, versions
from gpuready.render import check_report
from gpuready.render.layout import Screen
from gpuready.workflow import check_machine
from tests.machines import altered, park
from tests.machines.altered import HERE, Changes
from tests.machines.parts import VENV, install

GOLDEN = HERE / "golden"
FRAMEWORKS = ("transformers", "axolotl", "colossalai", "roll", "vllm", "trl")
REAL = {
    "h200-real": "One H200 in a container of a cloud, as it was recorded.",
    "bare-real": "A machine with neither GPU nor torch, as it was recorded.",
    "cpu-torch-real": "A machine without GPU, with the CPU build of torch, as it was recorded.",
}
NAMES = (*park.MACHINES, *REAL)
SITE = re.compile(rf"{VENV}/lib/python3\.\d+/site-packages/")


# -- the recordings --------------------------------------------------------------------------------------


@cache
def recorded(name: str, framework: str = "transformers") -> str:
    """The recording of a machine; of a derived one with what the framework asks for in its environment."""
    if name in REAL:
        return (HERE / f"{name.removesuffix('-real')}.json").read_text()
    changed = equipped(park.changes(name), framework)
    return json.dumps(altered.recording(altered.facts(changed, VENV, tuple(packages.list_packages()))))


def equipped(changed: Changes, framework: str) -> Changes:
    """The machine after an install that took every pin of the framework but torch's: what is left is the machine's."""
    folders = [found.group() for path in changed.files if (found := SITE.match(path))]
    if not folders:  # nothing is installed, and nothing stays so
        return changed
    site = folders[0].rstrip("/")
    for name, (version, want) in pinned(framework).items():
        bare = name.replace("-", "_")
        there = re.findall(rf"{site}/{bare}-([^/]*)\.dist-info/", "\n".join(changed.files))
        if there and want != "*" and versions.satisfies_specifier(there[0], want):
            continue
        for path in [path for path in changed.files if path.startswith(f"{site}/{bare}-")]:
            del changed.files[path]
        install(changed, site, bare, version)
    return changed


@cache
def pinned(framework: str) -> dict[str, tuple[str, str]]:
    """What a contract asks for: for each package a version that it takes, and the specifier."""
    contract = contracts.load_contract(framework, None, None, None)
    rows = {
        need.key[8:]: need.want
        for need in contract.requirements_for("package.*")
        if need.level != "optional" and "wants=" not in need.when
    }
    own = {contracts.distribution_name(framework): (contract.version, f"=={contract.version}.*")}
    left = {name: (taken(want), want) for name, want in rows.items() if name not in ("torch", "triton")}
    return {name: pair for name, pair in left.items() if pair[0]} | own


def taken(want: str) -> str:
    """A version that a specifier takes: the first that it names, or one right beside."""
    if want in ("", "*"):
        return "1.0"
    named = re.findall(r"\d+(?:\.\d+)*(?:\.?(?:post|rc|dev)\d+)?", want) or ["1.0"]
    beside = [f"{one}.1" for one in named] + ["0.1", "1.0", "99.0"]
    return next(
        (one for one in [*named, *beside] if versions.is_version(one) and versions.satisfies_specifier(one, want)), ""
    )


def report(name: str, framework: str) -> Report:
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        file.write(recorded(name, framework))
        file.flush()
        return check_machine([framework], on=file.name)[0]


# -- the documents ---------------------------------------------------------------------------------------


def document(name: str, reports: dict[str, Report]) -> str:
    """Verdicts, findings and gaps, those that several frameworks share once; and the rules that hold."""
    says: dict[str, list[str]] = {}
    for framework, one in reports.items():
        for row in [*map(finding, one.findings), *map(gap, one.undecided)]:
            says.setdefault(row, []).append(framework)
    every = [
        {"for": "all" if len(who) == len(reports) else " ".join(who), **json.loads(row)} for row, who in says.items()
    ]
    result = REAL.get(name) or (park.MACHINES[name].__doc__ or "").strip()
    driver = next(iter(reports.values())).facts.value_if_known("driver.version")
    made = {
        "machine": result,
        "driver": driver,
        "verdicts": {framework: one.verdict for framework, one in reports.items()},
        "says": every,
        "holds": {framework: " ".join(j.code for j in one.judged) for framework, one in reports.items()},
    }
    return json.dumps(made, indent=1, ensure_ascii=False) + "\n"


def finding(one: Any) -> str:
    found = [f"{fact.key} = {short(fact.value)}" for fact in one.found]
    needs = [f"{need.key} {need.want}".strip() for need in one.needs]
    row = {
        one.severity: f"{one.code}: {one.says}",
        "found": found,
        "needs": needs,
        "so": one.so,
        "fix": [s.does for s in one.fix],
    }
    return json.dumps({key: value for key, value in row.items() if value}, ensure_ascii=False)


def gap(one: Any) -> str:
    missing = [f"{fact.key}: {fact.gap}" for fact in one.missing]
    return json.dumps({"undecided": f"{one.code} ({one.severity}): {one.says}", "missing": missing}, ensure_ascii=False)


def short(value: Any) -> str:
    plain = json.dumps(value, ensure_ascii=False, default=str)
    return plain if len(plain) < 120 else f"{plain[:116]} ..."


def screen(one: Report) -> str:
    return check_report.render_check_screen(one, Screen(), elapsed=0.1)


def made(name: str, frameworks: Sequence[str] = FRAMEWORKS) -> tuple[str, str]:
    """The document of a machine, and the screen of transformers on it."""
    reports = {framework: report(name, framework) for framework in frameworks}
    shown = reports["transformers"]
    asked = tuple("machine.json" if word.endswith(".json") else word for word in shown.asked)
    return document(name, reports), screen(shown.replace(asked=asked))


def by_framework(reported: str, frameworks: Sequence[str], every: Sequence[str] = FRAMEWORKS) -> dict[str, Any]:
    """What a document of all frameworks says of some of them, whatever the order of its rows."""
    whole = json.loads(reported)
    said: dict[str, list[str]] = {framework: [] for framework in frameworks}
    for row in whole.pop("says"):
        who = row.pop("for")
        for framework in set(frameworks) & set(every if who == "all" else who.split()):
            said[framework].append(json.dumps(row, ensure_ascii=False))
    parts = {key: {one: whole[key][one] for one in frameworks} for key in ("verdicts", "holds")}
    return {**whole, **parts, "says": {framework: sorted(rows) for framework, rows in said.items()}}


def paths(name: str) -> tuple[Path, Path]:
    return GOLDEN / f"{name}.json", GOLDEN / f"{name}.txt"
