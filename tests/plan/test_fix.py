"""`plan --fix`: after its steps the judge is clear, nothing smaller would do, and nothing else is broken."""

from __future__ import annotations

import itertools
import re
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.requirements import Requirement

from gpuready import rules, workflow
from gpuready.catalog.packages import find_lookalike
from gpuready.check.evaluate import COMMAND_FACT_PREFIXES, judge
from gpuready.model import Contract, Fact, Facts, Finding, FixStep, Report
from gpuready.plan import change as changing
from gpuready.plan.change import FixChange, apply_changes
from gpuready.plan.fix import plan_fix as mend
from gpuready.plan.fix_changes import list_fix_changes
from gpuready.rules.fix_steps import install_packages_step
from gpuready.workflow.fix import plan_fix
from tests.every import every
from tests.rules.worlds import H100, contract, example, facts, need
from tests.sampling import count_draws

MACHINES = "tests/machines"
GRAVE = ("error", "warning")


def judge_of(agreed: Contract):
    return lambda known: judge(rules.applicable_rules(known), known, agreed)


def mended(known: Facts, agreed: Contract):
    look = judge_of(agreed)
    return mend(look(known), look)


def codes(report: Report, severities=GRAVE) -> set[str]:
    return {f.code for f in report.findings if f.severity in severities}


def trusted(found) -> set[str]:
    return {code for change in found.changes for code in change.trusts}


def world(rule) -> Facts:
    """The healthy machine with a rule's broken facts, and with as many GPUs as these say."""
    values = H100 | dict(rule.BROKEN)
    if "driver.library" not in rule.BROKEN:
        values["driver.library"] = values["driver.version"]
    count = values["gpu.count"] or 0
    for key, value in H100.items():
        if key.startswith("gpu.") and isinstance(value, tuple) and value and key not in rule.BROKEN:
            each = [f"{value[0]}{i}" if key == "gpu.uuid" else value[0] for i in range(count)]
            values[key] = tuple(range(count)) if key == "gpu.visible" else tuple(each)
    return facts(values)


LOOKED = [rule for rule in rules.load_all_rules() if not any(k.startswith(COMMAND_FACT_PREFIXES) for k in rule.BROKEN)]

HOPELESS = {"GPU001", "GPU005", "MEM008", "PKG008", "PKG024", "PKG041", "SYS003", "SYS004"}
"""Rules whose broken example only another machine, framework, environment or job helps."""


@cache
def mended_example(rule):
    """A rule's contract, its broken world, what mends it, and the report afterwards."""
    agreed, known = example(rule), world(rule)
    found = mended(known, agreed)
    return agreed, known, found, judge_of(agreed)(found.facts)


# -- every rule's own broken world ----------------------------------------------------------------------


@pytest.mark.parametrize("rule", LOOKED, ids=lambda rule: rule.CODE)
def test_what_can_be_turned_off_is(rule):
    agreed, known, found, again = mended_example(rule)
    errors = codes(again, ("error",)) - trusted(found)
    assert bool(errors) == (found.plan.verdict == "impossible")
    assert bool(errors) == (rule.CODE in HOPELESS), f"{errors} left by {[s.does for s in found.plan.steps]}"
    before = codes(judge_of(agreed)(known))
    assert codes(again) <= before, "a step raised what was not there"
    assert (found.plan.verdict == "impossible") == bool(found.plan.conflicts)


@every("rule", LOOKED, ids=lambda rule: rule.CODE)
def test_no_step_is_there_for_nothing(rule):
    agreed, known, found, again = mended_example(rule)
    left = codes(again) - trusted(found)
    for change in found.changes:
        rest = [one for one in found.changes if one is not change]
        still = {code for one in rest for code in one.trusts}
        assert codes(judge_of(agreed)(apply_changes(known, rest))) - still - left, f"{change.step.does} is not needed"


def universe(known: Facts, agreed: Contract) -> list[FixChange]:
    """Every change that some finding offers, here or after one other change."""
    look, found = judge_of(agreed), {}
    for finding in look(known).findings:
        found |= dict.fromkeys(list_fix_changes(finding, known, agreed))
    for change in list(found):
        after = apply_changes(known, [change])
        for finding in look(after).findings:
            found |= dict.fromkeys(list_fix_changes(finding, after, agreed))
    return [change for change in found if not change.trusts]


SMALL = ["BLD009", "BLD014", "DRV001", "GPU002", "GPU004", "NET001", "NET007", "NET011", "PKG001", "PKG003",
         "PKG010", "PKG013", "PKG019", "SYS012", "SYS015"]  # fmt: skip


@pytest.mark.parametrize("code", SMALL)
def test_no_smaller_set_does_it(code):
    """Brute force: every set of changes that costs less leaves a finding that the plan turns off."""
    rule = rules.load_rule(code)
    agreed, known = example(rule), world(rule)
    found = mended(known, agreed)
    cost = sum(change.cost for change in found.changes)
    every = universe(known, agreed)
    for size in (0, 1, 2):
        for some in itertools.combinations(every, size):
            if sum(change.cost for change in some) < cost and _apart(some):
                assert codes(judge_of(agreed)(apply_changes(known, some))) - codes(found.report)


def _apart(some) -> bool:
    subjects = [subject for change in some for subject in change.touched_subjects]
    return len(subjects) == len(set(subjects))


class Both:
    """Two rules' broken examples at once."""

    def __init__(self, one, other):
        self.BROKEN = {**one.BROKEN, **other.BROKEN}
        a, b = example(one), example(other)
        self.contract = a.replace(needs=(*a.needs, *b.needs), variables=(*a.variables, *b.variables))
        self.codes = {one.CODE, other.CODE}


@settings(max_examples=count_draws(30), deadline=None, derandomize=True)
@given(st.sampled_from(LOOKED), st.sampled_from(LOOKED))
def test_any_two_broken_things_at_once(one, other):
    both = Both(one, other)
    known = world(both)
    found = mended(known, both.contract)
    again = judge_of(both.contract)(found.facts)
    errors = codes(again, ("error",)) - trusted(found)
    if "*packages" in trusted(found):  # a new environment, with a plan of its own
        errors = {code for code in errors if not code.startswith("PKG")}
    assert bool(errors) == (found.plan.verdict == "impossible")
    assert not errors or both.codes & HOPELESS
    assert [step.safety == "manual" for step in found.plan.steps] == sorted(
        step.safety == "manual" for step in found.plan.steps
    ), "what only a person can do comes last"


# -- the recorded machines ------------------------------------------------------------------------------

FRAMEWORKS = ["transformers", "axolotl", "colossalai", "roll:torch280-vllm", "vllm", "trl"]


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("machine", ["h200", "old-driver", "no-gpu"])
def test_recorded_machines(machine, framework):
    [report] = workflow.check_machine([framework], on=f"{MACHINES}/{machine}.json")
    found = mend(report, lambda known: workflow.judge_contract(known, report.contract, {}, False))
    again = workflow.judge_contract(found.facts, report.contract, {}, False)
    left = codes(again, ("error",)) - trusted(found)
    assert left == ({"GPU001"} if machine == "no-gpu" else set())
    assert found.plan.verdict == ("impossible" if left else "plan")


def test_an_old_driver_is_met_with_a_torch_not_with_root():
    plan = plan_fix("transformers", on=f"{MACHINES}/old-driver.json")
    install, *rest = plan.steps
    assert install.run[:3] == ("uv", "pip", "install") and "torch==2.11.0+cu128" in install.run
    assert not any("driver" in step.does for step in rest)
    assert {b.about for b in plan.because} == {"DRV001", "SYS001"}
    assert plan.packages["torch"] == "2.11.0+cu128" and plan.packages["torchvision"].endswith("+cu128")


def test_where_there_is_nothing_to_mend():
    plan = plan_fix("transformers", on=f"{MACHINES}/h200.json")
    assert (plan.verdict, plan.steps) == ("plan", ()) and "nothing" in plan.notes[0]


def test_without_a_name_the_framework_that_is_installed():
    assert plan_fix(on=f"{MACHINES}/h200.json").framework in ("transformers", "vllm", "trl")


# -- several findings at once ---------------------------------------------------------------------------

DEMO = contract(
    need("package.transformers", "==4.51.3"),
    need("package.torch", ">=2.2"),
    distribution="demo",
    variables=[{"name": "DOWNLOAD_FROM", "access": "read", "allowed": ["HUB", "SCOPE"], "cite": "x.py:1"}],
)
WRECK = H100 | {
    "package.demo": "1.0",
    "driver.version": "550.144.03",
    "driver.library": "550.144.03",
    "torch.version": "2.13.0+cpu",
    "package.torch": "2.13.0+cpu",
    "torch.build": "cpu",
    "torch.cuda": None,
    "torch.arch": (),
    "nccl.version": None,
    "package.transformers": "5.1.0",
    "package.torchvision": "0.21.0+cpu",
    "env.names": ("DOWNLOAD_FROM", "CUDA_VISIBLE_DEVICES"),
    "env.DOWNLOAD_FROM": "hub",
    "env.CUDA_VISIBLE_DEVICES": "",
    "gpu.visible": (),
    "visibility.cuda": {"value": "", "shown": (), "ignored": (), "why": "hides all"},
}


def interpreted(known: Facts, steps: tuple[FixStep, ...], plan) -> Facts:
    """The facts after the steps, read by other eyes than the planner's: words of uv, and the variables."""
    changed = {fact.key: fact for fact in known}

    def put(key, value):
        changed[key] = Fact(key, value, "by hand", "stated")

    for step in steps:
        if step.run[:3] == ("uv", "pip", "install"):
            for word in step.run[3:]:
                if re.match(r"[a-z0-9-]+==", word):
                    asked = Requirement(word)
                    [pin] = asked.specifier
                    put(f"package.{asked.name}", pin.version)
                    if asked.name == "torch":
                        cu = pin.version.partition("+cu")[2]
                        put("torch.version", pin.version)
                        put("torch.build", "cuda")
                        put("torch.cuda", f"{cu[:-1]}.{cu[-1]}")
                        put("torch.arch", H100["torch.arch"])
    for name, value in plan.variables.items():
        put(f"env.{name}", value)
    for name in plan.unset:
        put(f"env.{name}", None)
    names = {*known.value("env.names"), *plan.variables} - set(plan.unset)
    put("env.names", tuple(names))
    if "CUDA_VISIBLE_DEVICES" in plan.unset:
        put("gpu.visible", (0,))
        put("visibility.cuda", None)
    return Facts(changed.values(), known.host)


def test_an_environment_with_everything_wrong():
    known = facts(WRECK)
    before = judge_of(DEMO)(known)
    assert len(codes(before, ("error",))) >= 3 and codes(before, ("warning",))
    found = mended(known, DEMO)
    assert found.plan.verdict == "plan"
    assert codes(judge_of(DEMO)(found.facts)) == set()
    assert codes(judge_of(DEMO)(interpreted(known, found.plan.steps, found.plan))) == set()
    assert found.plan.variables == {"DOWNLOAD_FROM": "HUB"} and found.plan.unset == ("CUDA_VISIBLE_DEVICES",)
    [install] = [step for step in found.plan.steps if step.run]
    assert "transformers==4.51.3" in install.run, "what goes into one environment is resolved together"
    assert "root" not in install.note or "no root" in install.note


def test_what_only_root_can_do_comes_last_and_with_its_command():
    agreed = contract(need("driver.version", ">=580"), distribution="")
    known = facts(H100 | {"driver.version": "550.144.03", "driver.library": "550.144.03",
                          "env.names": ("FORCE_CUDA",), "env.FORCE_CUDA": "0", "job.wants": ("build",)})  # fmt: skip
    plan = mended(known, agreed).plan
    assert plan.verdict == "plan"
    last = plan.steps[-1]
    assert last.safety == "manual" and last.run == ("sudo", "apt-get", "install", "nvidia-driver-580")


def test_a_gpu_that_needs_the_open_kernel_modules_gets_that_driver():
    agreed = contract(need("driver.version", ">=580"), distribution="")
    known = facts(H100 | {"driver.version": "570.86.15", "driver.library": "570.86.15", "driver.kind": "open",
                          "gpu.name": ("NVIDIA B200",) * H100["gpu.count"],
                          "gpu.capability": ("10.0",) * H100["gpu.count"]})  # fmt: skip
    driver = [step.run for step in mended(known, agreed).plan.steps if step.safety == "manual"]
    assert ("sudo", "apt-get", "install", "nvidia-driver-580-open") in driver


def test_a_gpu_too_old_is_said_to_be_so():
    agreed = contract(need("gpu.capability", ">=8.0"))
    known = facts(H100 | {"gpu.capability": ("7.0",), "gpu.name": ("Tesla V100-SXM2-16GB",)})
    plan = mended(known, agreed).plan
    assert plan.verdict == "impossible" and plan.exit == 1
    assert "GPU005 cannot be fixed here" in plan.conflicts[0].says
    assert any(opening.kind == "gpu" for opening in plan.opens)


def test_a_lookalike_never_enters():
    agreed = Contract.from_json({"framework": "roll", "version": "0.3.0", "distribution": "roll"})
    for known in (facts(H100 | {"package.roll": "0.13.4"}), facts(H100 | {"package.roll": None})):
        found = mended(known, agreed)
        for step in found.plan.steps:
            asked = [word for word in step.run if find_lookalike(re.split(r"[=<>\[]", word)[0])]
            assert not asked or "uninstall" in step.run


def test_a_change_that_hides_facts_from_a_rule_is_not_taken():
    """A torch of which nobody knows the NCCL is no answer where the contract asks for one."""
    agreed = contract(need("package.torch", ">=2.2"), need("nccl.version", ">=2.20"))
    known = facts(H100 | {"torch.cuda": "13.0", "driver.version": "570.10", "driver.library": "570.10"})
    found = mended(known, agreed)
    assert not [u for u in found.report.undecided if u.severity == "error"]


# -- the parts ------------------------------------------------------------------------------------------


def test_steps_that_lead_away():
    """A step says by its value that it fixes nothing here: whatever its words are, no plan takes it."""
    away, here = FixStep("any words", safety="elsewhere"), FixStep("use GPUs of another kind")
    finding = Finding("SYS001", "error", "it is wrong", fix=(away, here))
    changes = list_fix_changes(finding, Facts(()), Contract("x", "1"))
    assert [change.step.does for change in changes] == [here.does]


@pytest.mark.parametrize(
    ("does", "acts"),
    [
        ("set MAX_JOBS=4", {("set", "MAX_JOBS", "4")}),
        ("set NCCL_P2P_DISABLE=1 and NCCL_IB_DISABLE=1, or start with accelerate launch",
         {("set", "NCCL_P2P_DISABLE", "1"), ("set", "NCCL_IB_DISABLE", "1")}),
        ("unset RANK WORLD_SIZE and start the job with torchrun",
         {("unset", "RANK", None), ("unset", "WORLD_SIZE", None)}),
        ("set TMPDIR to a folder that exists", set()),
        ("name an instance: CUDA_VISIBLE_DEVICES=MIG-…", set()),
    ],
)  # fmt: skip
def test_variables_in_a_sentence(does, acts):
    from gpuready.model import Finding

    finding = Finding("NET010", "warning", "x", fix=(FixStep(does),))
    found = list_fix_changes(finding, facts(H100), contract())
    assert {act for change in found for act in change.acts if act[0] in ("set", "unset")} == acts


def test_a_change_leaves_the_rest_of_the_facts_alone():
    known = facts(H100)
    step = FixStep("install")
    after = apply_changes(known, [FixChange(step, 1, (("package", "peft", "0.18.0"),), "PKG003")])
    assert {f.key for f in after if f != known.fact(f.key)} == {"package.peft"}


def test_visible_devices_are_read_as_cuda_reads_them():
    known = facts(H100 | {"gpu.count": 3, "gpu.uuid": ("GPU-a1", "GPU-b2", "GPU-b3")})
    for value, shown in (("2,0", (2, 0)), ("GPU-b3", (2,)), ("GPU-b", ()), ("0,9,1", (0,)), (None, (0, 1, 2))):
        verb = "set" if value is not None else "unset"
        change = FixChange(FixStep("x"), 1, ((verb, "CUDA_VISIBLE_DEVICES", value),), "GPU002")
        assert apply_changes(known, [change]).value("gpu.visible") == shown


def test_costs_are_in_the_order_that_users_would_give_them():
    kinds = (changing.VARIABLE_COST, changing.REMOVAL_COST, changing.PACKAGE_COST, changing.TORCH_COST, changing.ENVIRONMENT_COST,
             changing.SYSTEM_COST, changing.JOB_CHANGE_COST, changing.TRUST_COST, changing.JOB_DROP_COST)  # fmt: skip
    assert list(kinds) == sorted(set(kinds))


# -- bad input ------------------------------------------------------------------------------------------


def test_a_machine_that_is_only_stated_has_no_environment():
    with pytest.raises(workflow.Refused, match="gpuready plan axolotl --on h100x8"):
        plan_fix("axolotl", on="h100x8")


def test_source_is_for_a_new_environment():
    with pytest.raises(workflow.Refused, match="leave one out"):
        plan_fix("axolotl", on=f"{MACHINES}/h200.json", source="x")


def test_a_job_for_the_cpu_gets_the_cpu_build_of_torch():
    bare = facts(H100 | {"gpu.count": 0, "gpu.visible": (), "gpu.capability": (), "job.wants": ("cpu",),
                         "package.torch": None, "torch.version": None, "torch.cuda": None})  # fmt: skip
    step = install_packages_step(bare, contract(need("package.torch", ">=2.4")), {"torch": ">=2.4"})
    assert step.run[step.run.index("--torch-backend") + 1] == "cpu"
    finding = Finding("PKG002", "error", "torch is not installed", fix=(step,))
    change = list_fix_changes(finding, bare, contract())[0]
    assert change.acts[0][0] == "torch" and change.acts[0][2] == "cpu"
    after = apply_changes(bare, [change])
    assert after.value("torch.build") == "cpu" and after.value("torch.version").endswith("+cpu")


@pytest.mark.parametrize(("wants", "words"), [((), ()), (("cpu", "fp8"), ("--wants", "cpu,fp8"))])
def test_a_new_environment_is_for_the_same_job(wants, words):
    from gpuready.plan.fix_changes import _new_environment_change

    known = Facts([Fact("job.wants", wants, "--wants", "stated")] if wants else [])
    change = _new_environment_change("3.12", Finding("PKG004", "error", "old"), known, Contract("trl", "1.16"))
    assert change.step.run == ("gpuready", "install", "trl", "-e", ".venv-3.12", "--python-version", "3.12", *words)
