"""All rules on all shipped contracts: nothing breaks, nothing goes unread, a fit machine raises no alarm."""

from __future__ import annotations

from functools import cache

import pytest

from gpuready import contracts, rules
from gpuready.check.evaluate import judge
from gpuready.contracts import when as conditions
from gpuready.model import NOT_STATED, Fact, Facts, UnknownFactError
from gpuready.rules.bld import build_tools_fall_short
from gpuready.rules.sys import need_not_met
from tests.contracts.guide_example import load_guide_contract
from tests.every import every
from tests.rules.worlds import H100, dark, declared, facts, outcome

ROWS = contracts.list_contract_rows()
SHIPPED = [contracts.load_contract(row["framework"], row["version"], row["variant"] or None) for row in ROWS]
SHIPPED.append(load_guide_contract())
ASKING = {"job.wants": ("bf16", "fp8", "flash-attn", "build", "deepspeed", "device-map"), "job.parameters": 70 * 10**9}
OLD = {
    "gpu.name": ("Tesla P40",),
    "gpu.capability": ("6.1",),
    "gpu.memory": (24 << 30,),
    "gpu.free": (1 << 30,),
    "driver.version": "470.256.02",
    "driver.library": "470.256.02",
    "toolkit.version": "11.8",
    "disk.free": 10**9,
    "os.container": "docker",
    "system.shm": 64 << 20,
    "os.system": "windows",
    "python.version": "3.6.9",
    "memory.total": 10**9,
    "os.kernel": "4.4.0",
}
WORLDS = {
    "fit": H100,
    "asking": H100 | ASKING,
    "old": H100 | OLD | ASKING,
    "bare": {"gpu.count": 0, "gpu.visible": (), "platform.name": "cpu", "python.packages": 0},
    "amd": H100 | {"gpu.count": 0, "gpu.visible": (), "platform.name": "rocm", "torch.build": "rocm"},
}

CONTRADICTORY = ("roll 0.3.0:torch260-vllm",)
"""Contracts that no environment satisfies, which PKG024 says on every machine."""


def named(agreed):
    return agreed.name.replace(" ", "-")


each_contract = pytest.mark.parametrize("agreed", SHIPPED, ids=named)


@cache
def complete(agreed):
    """The fit machine with every package that a contract asks for there, at a version that it takes."""
    values = dict(H100)
    for _ in range(2):  # what is in force may hang on a package of the first round
        known = facts(values)
        asked = [n for n in agreed.requirements_for("package.*") if conditions.certainly_applies(n.when, known)]
        for key in {need.key for need in asked}:
            pins = [need.want for need in asked if need.key == key]
            values[key] = _inside(pins[:-1] if agreed.name in CONTRADICTORY and "<1.27" in pins else pins)
    own = f"package.{agreed.distribution or 'torch'}"
    xformers = _xformers(values["package.torch"]) if "package.xformers" in values else {}
    deepspeeds = {"package.pydantic": "2.13.0"} if values.get("package.pydantic") == "1.0" else {}
    return values | {own: values.get(own) or "1.0"} | xformers | deepspeeds


@cache
def _xformers(torch):
    """Of xformers the release that is made for the chosen torch, as a resolver would take it."""
    from gpuready.catalog import packages
    from gpuready.model import versions

    every = [row["version"] for row in packages.find_package("xformers")["version"]]
    fitting = [v for v in every if versions.satisfies_specifier(torch, packages.required_torch("xformers", v))]
    return {"package.xformers": fitting[-1]} if fitting else {}


def _inside(pins):
    from gpuready.model import versions

    bounds = [
        b
        for pin in pins
        for choice in pin.split("|")
        for b in (versions.find_version(c) for c in choice.split(","))
        if b
    ]
    candidates = [*bounds, *(f"{b}.1" for b in bounds), *(c.strip("<>=!~") for p in pins for c in p.split(","))]
    for version in [*candidates, "1.0", "0.1"]:
        if versions.is_version(version) and all(p == "*" or versions.satisfies_specifier(version, p) for p in pins):
            return version
    raise AssertionError(f"no version is inside {pins}")


@each_contract
@pytest.mark.parametrize("world", WORLDS)
def test_every_rule_answers_and_reads_only_what_it_declares(agreed, world):
    known = facts(WORLDS[world])
    for rule in rules.load_all_rules():
        found = outcome(rule, known, agreed)
        if found is not None and not isinstance(found, UnknownFactError):
            assert found.found and found.needs and found.so and found.fix, rule.CODE
            assert found.says[0].islower() or found.says.startswith(agreed.framework), found.says


@each_contract
def test_a_machine_in_the_dark_is_undecided_and_not_accused(agreed):
    report = judge(rules.load_all_rules(), Facts([]), agreed)
    if agreed.name in CONTRADICTORY:
        assert [f.code for f in report.findings] == ["PKG024"]
        return
    assert not report.findings and report.verdict == "undecided"


@each_contract
def test_what_is_not_stated_is_outside_the_fold(agreed):
    """``check FRAMEWORK --on h100``: the hardware alone, and no package of this machine."""
    keys = ("gpu.count", "gpu.visible", "gpu.name", "gpu.capability", "gpu.memory", "visibility.cuda", "platform.name")
    stated = Facts([Fact(key, H100[key], "--on", "stated") for key in keys], "h100", NOT_STATED)
    report = judge(rules.load_all_rules(), stated, agreed)
    assert not report.undecided and report.unstated
    if agreed.name in CONTRADICTORY:
        assert [f.code for f in report.findings] == ["PKG024"]
    elif "cuda" in agreed.platforms:
        assert report.verdict == "undecided" and report.lacking, report.findings


@every("agreed", [c for c in SHIPPED if "cuda" in c.platforms], ids=named)
def test_a_fit_machine_raises_no_alarm(agreed):
    """An H100 with everything that the contract asks for: no error, save what torch's own pin makes of it."""
    values = complete(agreed)
    python = next(p for p in ("3.12.3", "3.11.9") if _takes(agreed, p))
    report = judge(rules.load_all_rules(), facts(values | {"python.version": python} | _torch(values)), agreed)
    errors = [f.code for f in report.findings if f.severity == "error"]
    assert errors == (["PKG003"] if agreed.name in CONTRADICTORY else [])
    assert not report.undecided


def _takes(agreed, python):
    from gpuready.model import versions

    return all(versions.satisfies_specifier(python, n.want) for n in agreed.requirements_for("python.version"))


def _torch(values):
    """A torch of the version that the pins chose, built for the newest CUDA, which all contracts take."""
    version = values["package.torch"].partition("+")[0]
    cuda = "13.0"
    return {
        "package.torch": version,
        "torch.version": version,
        "torch.cuda": cuda,
        "toolkit.version": cuda,
        "torch.arch": ("sm_80", "sm_90", "sm_100"),
    }


@each_contract
def test_no_line_of_a_contract_goes_unread(agreed):
    """Darkness on the fact of a required need leaves some rule undecided: so some rule reads it."""
    values = complete(agreed) | ASKING
    gpu = "cuda" in agreed.platforms
    keys = {
        need.key
        for need in agreed.needs
        if need.level == "required" and not need.when and (gpu or not need.key.startswith("gpu."))
    } - {"torch.build"}

    def undecided(codes, *keys):
        report = judge(map(rules.load_rule, codes), dark(values, *keys), agreed)
        return {one.code: {fact.key for fact in one.missing} for one in report.undecided}

    # In the dark altogether many of them are missed already; what hides behind another is asked for by itself, of those that read it.
    looking = undecided(rules.list_codes(), *keys)
    for key in keys.difference(*looking.values()):
        reading = [code for code in looking if declared(rules.load_rule(code), key)]
        assert key in set().union(*undecided(reading, key).values()), key


def test_the_keys_of_all_needs_have_a_place():
    own = {"gpu.capability", "gpu.memory", "driver.version", "python.version", "disk.free", "system.shm", "os.system"}
    own |= {"torch.build", "torch.cuda", "cudnn.version", "nccl.version", *build_tools_fall_short.KEYS}
    assert set(need_not_met.OTHER_RULES_KEYS) <= own
