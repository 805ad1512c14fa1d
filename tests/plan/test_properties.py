"""Over the whole catalogue: a plan is confirmed by the rules, and what is impossible by trying everything."""

from __future__ import annotations

import itertools
import random

import pytest

from gpuready import contracts, rules
from gpuready.catalog import gpus, indexes, load_catalog, packages, torch
from gpuready.check.evaluate import judge
from gpuready.model import Fact
from gpuready.model.plan import Plan
from gpuready.plan.candidates import PYTHONS, make_torch_facts
from gpuready.plan.choose import choose_plan
from gpuready.plan.platform import PlanRequest
from gpuready.probe import stated_machine
from tests.every import every
from tests.sampling import FUZZ, sample_cases

DRIVERS = (None, "470.82.01", "525.60.13", "550.54.15", "570.86.15", "580.65.06", "595.45.04")
SYSTEMS = (None, "ubuntu22.04", "centos7")
CONTRACTS = [
    contracts.load_contract(r["framework"], r["version"], r.get("variant") or None)
    for r in contracts.list_contract_rows()
]
ROW = {(c.framework, c.version, c.variant): c for c in CONTRACTS}
SETTLING = {"GPU", "DRV", "PKG", "SYS", "MEM"}
"""The families of rules that a choice of versions answers; the others are about the job and the network."""
CODES = [code for code in rules.list_codes() if code[:3] in SETTLING and code != "PKG002"]
"""PKG002 tells what is not there yet, which the installer brings."""


def cards() -> list[str]:
    return [name for name in dict.fromkeys(row["name"] for row in load_catalog("gpus")["gpu"]) if gpus.find_gpu(name)]


def machine(gpu: str, driver: str | None, system: str | None, python: str | None):
    flags = {"driver": driver, "os": system, "python-version": python}
    return stated_machine.stated_machine_facts(gpu, {name: value for name, value in flags.items() if value})


def environment(facts, build, python, contract):
    """The environment as it would be: torch, its companions, and what the contract pins to one version."""
    found = list(make_torch_facts(build.version, build.variant, build.machine))
    found += [Fact("python.version", python, "the test", "stated")]
    row = torch.find_torch_release(build.version)
    for name in ("torchvision", "torchaudio"):
        if contract.requirements_for(f"package.{name}"):
            found.append(Fact(f"package.{name}", row[name], "the test", "stated"))
    for key, value in (("cudnn.version", build.cudnn), ("nccl.version", build.nccl)):
        found += [Fact(key, value, "the test", "stated")] if value else []
    for need in contract.needs:  # what is pinned to one version will be there in that version
        name = need.key.removeprefix("package.")
        if name != need.key and _exact(need.want) and need.level == "required" and not need.when and name != "torch":
            found.append(Fact(need.key, need.want[2:], "the test", "stated"))
    own = packages.find_package(contract.distribution)
    rows = [r for r in (own or {}).get("version", ()) if contracts.covers_version(contract.version, r["version"])]
    linked = rows[-1].get("cuda_linked") if rows else None
    for package, index in indexes.packages_with_own_index(contract.framework, contract.variant).items():
        major = index.rpartition("-cu")[2][:-1]
        if major.isdigit():  # what an index of its own has is built for one CUDA
            row = {"file": "x.so", "cudart": major, "missing": (f"libcudart.so.{major}",)}
            found += [
                Fact("extension.linked", {package: row}, "the test", "stated"),
                Fact(f"package.{package}", "99.0", "the test", "stated"),
            ]
    if linked:  # a framework that is compiled loads one CUDA
        major = linked[0].rpartition(".")[2]
        here = {contract.distribution: {"file": "x.so", "cudart": major, "missing": tuple(linked)}}
        found += [
            Fact("extension.linked", here, "the test", "stated"),
            Fact(f"package.{contract.distribution}", rows[-1]["version"], "the test", "stated"),
        ]
    return facts.with_facts(
        Fact("os.system", facts.value_if_known("os.system") or "linux", "the test", "stated"), *found
    )


def required(contract):
    """A framework's own package is an error where it does not load: the contract of the test says that it is needed."""
    from gpuready.model import Requirement

    return contract.replace(
        needs=(*contract.needs, Requirement(f"package.{contract.distribution}", "*", cite="the test"))
    )


def errors(facts, contract) -> list[str]:
    """The errors that the rules find in an environment, of the kinds that a choice can answer."""
    return list(_errors(facts, required(contract), [rules.load_rule(code) for code in CODES]))


def _errors(facts, contract, some):
    for rule in some:
        for finding in judge([rule], facts, contract).findings:
            if finding.severity == "error":
                yield finding.code


def wrong(facts, contract) -> bool:
    """Whether any rule finds an error; the one that found the last is asked first."""
    asked = required(contract)
    for place, code in enumerate(CODES):
        if any(_errors(facts, asked, [rules.load_rule(code)])):
            CODES.insert(0, CODES.pop(place))
            return True
    return False


def possible(facts, contract, pythons=PYTHONS) -> str | None:
    """The first environment that no rule speaks against, tried one by one; None where there is none."""
    arch = facts.value_if_known("os.arch") or "x86_64"
    for version in reversed(torch.list_torch_releases()):
        for build in torch.list_torch_builds(version, arch):
            if not _inside(version, contract):
                continue
            for python in pythons:
                if python not in build.python or not _installs(contract, python):
                    continue
                if not wrong(environment(facts, build, python, contract), contract):
                    return f"{build.version}+{build.variant} {python}"
    return None


def _exact(want) -> bool:
    return want.startswith("==") and not any(letter in want for letter in "*,|")


def _installs(contract, python) -> bool:
    """Whether an installer takes the packages that are pinned to one version on this Python: no rule asks that."""
    from gpuready.model.versions import satisfies_specifier

    for need in contract.requirements_for("package.*"):
        name = need.key.removeprefix("package.")
        row = packages.find_package_release(name, need.want[2:]) if _exact(need.want) else None
        asks = (row or {}).get("requires_python")
        if asks and need.level == "required" and not need.when and not satisfies_specifier(python, asks):
            return False
    return True


def _inside(version, contract) -> bool:
    """The unconditional pin on torch, applied first: most of the catalogue is outside it."""
    from gpuready.model.versions import satisfies_specifier

    pins = [n.want for n in contract.requirements_for("package.torch") if n.level == "required" and not n.when]
    return all(want == "*" or satisfies_specifier(version, want) for want in pins)


def sampled(count: int, seed: int):
    """The same machines every time, each contract at least once."""
    dice = random.Random(seed)
    every = cards()
    for number in range(count):
        contract = CONTRACTS[number % len(CONTRACTS)]
        python = dice.choice((None, None, "3.9", "3.10", "3.11", "3.12", "3.14"))
        yield contract, dice.choice(every), dice.choice(DRIVERS), dice.choice(SYSTEMS), python


def ident(case) -> str:
    contract, *rest = case
    return " ".join([contract.name, *(str(part) for part in rest if part)])


def test_nothing_crashes_on_any_gpu():
    """Every kind of card with every contract; an ordinary run takes one pair in six."""
    kinds = {}
    for card in cards():
        row = gpus.find_gpu(card)
        kinds.setdefault((row["compute_capability"], row.get("host", "x86_64")), card)
    pairs = sample_cases(itertools.product(CONTRACTS, kinds.values()), 6)
    assert {card for _, card in pairs} == set(kinds.values()) and len({c.name for c, _ in pairs}) > 10
    verdicts = set()
    for contract, card in pairs:
        found = choose_plan(machine(card, None, None, None), [contract])
        assert Plan.from_json(found.to_json()).verdict == found.verdict
        assert (found.verdict == "plan") == (not found.conflicts)
        verdicts.add(found.verdict)
    assert verdicts == {"plan", "impossible"}


@pytest.mark.parametrize("case", list(sampled(144 if FUZZ else len(CONTRACTS), 7)), ids=ident)
def test_the_choice_and_the_rules_agree(case):
    """Each contract on one machine; on three with FUZZ=1."""
    contract, card, driver, system, python = case
    facts = machine(card, driver, system, python)
    found = choose_plan(facts, [contract], PlanRequest(python=python or ""))
    if found.verdict == "plan":
        version, _, variant = found.torch.partition("+")
        build = torch.find_torch_build(version, variant, facts.value_if_known("os.arch"))
        left = {*errors(environment(facts, build, found.python, contract), contract)}
        assert not left - {"DRV007", "DRV008"}, (
            "a driver that does not know the GPU is refused by the judge, whatever is chosen"
        )
        return
    pythons = (python,) if python else PYTHONS
    own_pins = any("own pins" in c.says or "which no version is" in c.says for c in found.conflicts)
    by_catalogue = any("catalogue has no torch" in c.says for c in found.conflicts)
    assert own_pins or by_catalogue or possible(facts, contract, pythons) is None, found.conflicts[0].says


@every("case", list(sampled(40, 11)), ids=ident)
def test_a_conflict_is_smallest(case):
    """Without any one of its limits, some choice is left."""
    from gpuready.plan.platform import machine_facts_only
    from gpuready.plan.search_space import SearchSpace, smallest_failing_set

    contract, card, driver, system, python = case
    field = SearchSpace(
        machine_facts_only(machine(card, driver, system, python)), contract, PlanRequest(python=python or "")
    )
    numbers = smallest_failing_set(field.masks.values(), len(field.limits))
    if field.open_choices():
        assert numbers == ()
        return
    assert all(any(mask >> n & 1 for n in numbers) for mask in field.masks.values())
    for left_out in numbers:
        rest = [n for n in numbers if n != left_out]
        assert not all(any(mask >> n & 1 for n in rest) for mask in field.masks.values())
