"""Seeded draws of machines and environments: check, plan, fix and a Dockerfile must not contradict each other.

Each draw is a contract on a machine (GPU, count, driver, system, kernel, processor, Python, torch, wants) or an
environment with installed versions. ``contradictions`` returns what disagrees, in words; nothing is the goal.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from gpuready import contracts, workflow
from gpuready.catalog import gpus, load_catalog, torch
from gpuready.catalog.releases import list_releases
from gpuready.model import Fact, Facts
from gpuready.model.plan import Plan
from gpuready.plan.change import end_state_facts
from gpuready.plan.choose import choose_plan
from gpuready.plan.fix import plan_fix
from gpuready.plan.platform import PlanRequest
from gpuready.workflow.judge import is_about_versions, judge_contract, make_plan_judge
from gpuready.workflow.refusal import Refused

DRIVERS = (
    None, None, None, None, None, "580.95.05", "595.45.04", "610.43.02", "418.40.04", "450.80.02", "470.82.01", "515.65.01", "525.60.13", "535.183.01", "550.54.15",
    "560.35.03", "570.86.15", "575.51.03", "580.65.06", "590.44.01", "595.45.04",
)  # fmt: skip
SYSTEMS = (None, None, None, None, "ubuntu22.04", "ubuntu22.04", "ubuntu24.04", "ubuntu20.04", "ubuntu18.04", "centos7", "rocky8", "debian12",
           "wsl", "windows11", "macos14")  # fmt: skip
PYTHONS = (None, None, None, "3.9", "3.10", "3.11", "3.12", "3.13", "3.14")
KERNELS = (None, None, None, "6.8.0", "5.15.0", "5.4.0", "4.18.0")
WANTS = (None, None, None, "bf16", "fp8", "flash-attn", "torch-compile", "bnb-4bit", "deepspeed", "cpu")
SPECS = [
    f"{r['framework']}=={r['version']}" + (f":{r['variant']}" if r.get("variant") else "")
    for r in contracts.list_contract_rows()
    if not r.get("page")
]
OTHER_SPECS = [
    f"{framework}=={version}"
    for framework in contracts.list_frameworks()
    for version in list_releases(contracts.distribution_name(framework))[::5]
]
"""Releases, most of which have no contract and are judged by what the catalogue has of them."""
CARDS = [row["name"] for row in load_catalog("gpus")["gpu"] if gpus.find_gpu(row["name"]) is row]


class Draw:
    """One machine, by the words of a command line."""

    def __init__(self, dice: random.Random):
        self.spec = dice.choice(SPECS if dice.random() < 0.7 else OTHER_SPECS)
        self.card, count = dice.choice(CARDS), dice.choice((1, 1, 1, 2, 8))
        self.on = self.card if count == 1 else f"{self.card} x{count}"
        flags = {
            "driver": dice.choice(DRIVERS), "os": dice.choice(SYSTEMS), "kernel": dice.choice(KERNELS),
            "python-version": dice.choice(PYTHONS), "arch": dice.choice((None, None, None, None, "aarch64", "x86_64")),
        }  # fmt: skip
        if dice.random() < 0.25:
            release = dice.choice(torch.list_torch_releases()[-12:])
            builds = [b.variant for b in torch.list_torch_builds(release)]
            flags["torch"] = f"{release}+{dice.choice([*builds, 'cpu'])}"
        self.flags = {name: value for name, value in flags.items() if value}
        self.wants = dice.choice(WANTS)
        self.seed = dice.random()

    def __str__(self) -> str:
        words = [word for name, value in self.flags.items() for word in (f"--{name}", value)]
        return " ".join([self.spec, "--on", repr(self.on), *words, *(["--wants", self.wants] if self.wants else [])])


class UnusualDraw(Draw):
    """A machine off the beaten track: another vendor, a Jetson, a slice, mixed GPUs, musl, Windows, a Mac."""

    def __init__(self, dice: random.Random):
        super().__init__(dice)
        self.on = dice.choice((*OTHER_MACHINES, *[row["name"] for row in load_catalog("accelerators")["product"]]))
        system = dice.choice(OTHER_SYSTEMS)
        arch = "aarch64" if self.on in ARM_MACHINES else dice.choice((None, None, "aarch64", "x86_64"))
        self.flags |= {name: value for name, value in {"os": system, "arch": arch}.items() if value}


OTHER_MACHINES = (
    "orin", "jetson orin", "thor", "gh200", "gb200x4", "gb10", "h100:mig-1g.10gb", "h100:mig-3g.40gb", "a100:mig-2g.10gb",
    "a100x4+v100x2", "rtx3090+rtx4090", "l4x2+t4x2",
)  # fmt: skip
ARM_MACHINES = ("orin", "jetson orin", "thor", "gh200", "gb200x4", "gb10")
OTHER_SYSTEMS = (None, None, "alpine3.20", "alpine", "windows11", "windows10", "macos15", "macos14", "sles15", "fedora41", "amazonlinux2023", "wsl", "debian12",
                 "ubuntu24.04")  # fmt: skip


def draws(count: int, seed: int, unusual: bool = False) -> Iterator[Draw]:
    dice = random.Random(seed)
    for _ in range(count):
        yield UnusualDraw(dice) if unusual else Draw(dice)


def contradictions(draw: Draw) -> tuple[str, list[str]]:
    """The verdict (``refused`` where the words are), and every disagreement."""
    try:
        report = workflow.check_machine([draw.spec], on=draw.on, what_if=draw.flags, wants=draw.wants)[0]
    except Refused as refusal:
        return "refused", ([] if _is_sentence(str(refusal)) else [f"refused with {refusal}"])
    errors = [f for f in report.findings if f.severity == "error" and is_about_versions(f)]
    if not errors and draw.seed > 0.25:
        return "plan", []  # check itself has made the plan, and judged its environment: see judge_with_plan
    plan = choose_plan(report.facts, [report.contract], _request(draw), make_plan_judge(report.facts))
    found = []
    is_open = any(row.code == "PKG041" for row in report.undecided)  # check cannot tell whether versions fit
    if plan.verdict == "impossible" and not errors and not is_open:
        found.append(f"plan: {plan.conflicts[0].says}; check: {report.verdict}")
    if plan.verdict == "plan" and errors:
        found.append(f"plan: {plan.torch} {plan.python}; check: {[(f.code, f.says) for f in errors]}")
    if plan.verdict == "plan":
        found += [f"end state of {plan.torch} {plan.python}: {text}" for text in _end_state_errors(report, plan)]
        found += _dockerfile_errors(draw, report, plan) if draw.seed < 0.05 else []
    return plan.verdict, found


def fix_contradictions(dice: random.Random) -> tuple[str, list[str]]:
    """Break an environment that fits its contract, fix it, and return what a check holds against the result."""
    contract = dice.choice(list(COMPLETE))
    values = dict(COMPLETE[contract])
    for key, value in dice.sample(_breakages(dice, values), dice.choice((1, 1, 2))):
        values[key] = value
    known = Facts([Fact(key, value, "the test", "read") for key, value in values.items()], "machine")
    report = judge_contract(known, contract, {}, False)
    result = plan_fix(report, lambda facts: judge_contract(facts, contract, {}, False))
    trusted = {code for change in result.changes for code in change.trusts}
    left = [f for f in result.report.findings if f.severity == "error" and f.code not in trusted]
    found = [f"{contract.name}: fixed, and check has {[f.code for f in left]}"] if _says_fixed(result, left) else []
    for change in result.changes:
        if change.acts and all(_is_installed(known, act) for act in change.acts):
            found.append(f"{contract.name}: {change.step.does}, which is installed already")
    return result.plan.verdict, found


def _is_installed(known: Facts, act: tuple[Any, ...]) -> bool:
    return act[0] == "package" and bool(act[2]) and known.value_if_known(f"package.{act[1]}") == act[2]


def _says_fixed(result: Any, left: list[Any]) -> bool:
    whole = any("*packages" in change.trusts for change in result.changes)
    return result.plan.verdict == "plan" and bool(left) and not whole


def _breakages(dice: random.Random, values: dict[str, Any]) -> list[tuple[str, Any]]:
    """Single facts that may be wrong: a driver, a Python, a package of another version or none."""
    names = sorted(key for key in values if key.startswith("package.") and values[key])
    chosen = [dice.choice(names) for _ in range(4)]
    broken: list[tuple[str, Any]] = [(key, dice.choice((None, "0.0.1", "99.0"))) for key in chosen]
    broken += [
        ("driver.version", dice.choice(("525.60.13", "550.54.15"))),
        ("python.version", dice.choice(("3.8.10", "3.14.0"))),
    ]
    return [*broken, ("system.shm", 64 << 20), ("disk.free", 10**9), ("os.kernel", "4.18.0")]


def _complete_environments() -> dict[Any, dict[str, Any]]:
    from tests.rules.test_shipped import CONTRADICTORY, SHIPPED, _torch, complete

    fitting = [c for c in SHIPPED if c.name not in CONTRADICTORY and "cuda" in c.platforms]
    return {c: (found := complete(c)) | {"python.version": "3.12.3"} | _torch(found) for c in fitting}


COMPLETE = _complete_environments()


def _dockerfile_errors(draw: Draw, report: Any, plan: Plan) -> list[str]:
    """What check says of the Dockerfile of a plan, on the same host."""
    from tempfile import TemporaryDirectory

    from gpuready.plan.deployment import add_container_image
    from gpuready.render.files import dockerfile

    with_image = add_container_image(plan, report.facts)
    if not with_image.image or draw.flags.get("os") in ("windows11", "macos14"):
        return []
    host = {name: value for name, value in draw.flags.items() if name in ("driver", "kernel", "arch")}
    with TemporaryDirectory() as folder:
        path = f"{folder}/Dockerfile"
        with open(path, "w") as file:
            file.write(dockerfile.render(with_image))
        again = workflow.check_machine([draw.spec], on=draw.on, what_if=host, wants=draw.wants, dockerfile=path)[0]
    errors = [f for f in again.findings if f.severity == "error" and is_about_versions(f)]
    return [f"Dockerfile of {plan.torch} {plan.python} on {with_image.image}: {f.code} {f.says}" for f in errors]


def _request(draw: Draw) -> PlanRequest:
    return PlanRequest(torch=draw.flags.get("torch", ""), python=draw.flags.get("python-version", ""))


def _is_sentence(text: str) -> bool:
    return bool(text) and "\n" not in text and "Traceback" not in text


def _end_state_errors(report: Any, plan: Plan) -> list[str]:
    end = end_state_facts(report.facts, plan)
    again = judge_contract(end, report.contract, {}, False)
    return [f"{f.code} {f.says}" for f in again.findings if f.severity == "error" and is_about_versions(f)]
