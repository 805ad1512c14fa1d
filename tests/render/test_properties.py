"""Whatever a machine, a file or a user says: no control characters, no line beyond the screen."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from gpuready.model import (
    NOT_STATED,
    Contract,
    Fact,
    Facts,
    Finding,
    FixStep,
    IgnoredFinding,
    PassedRule,
    Report,
    Requirement,
    UndecidedRule,
)
from gpuready.model.contract import ContractCheck
from gpuready.render import check_report, explain
from gpuready.render import contract as contracts
from gpuready.render import facts as listing
from gpuready.render.layout import Screen

from .test_golden import SGR, is_one_command_word, width

KEYS = (
    "gpu.count gpu.name gpu.capability gpu.memory gpu.nvlink gpu.mig driver.version driver.cuda "
    "toolkit.version compiler.gcc compiler.ninja python.version package.torch package.transformers "
    "driver.compat job.parameters job.wants os.container os.pretty system.shm memory.total memory.limit "
    "nccl.version net.interface net.ib can.matmul"
)
TEXT = st.text(st.characters(exclude_categories=()), max_size=40) | st.text("x/ 日\u0301", max_size=200)
VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=4).map(tuple) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
GAP = st.sampled_from(["", "", NOT_STATED]) | TEXT
FACT = st.builds(Fact, st.sampled_from(KEYS.split()) | TEXT, VALUE, TEXT, st.sampled_from(["read", "run"]), GAP)
CODE = st.sampled_from(["GPU", "DRV", "BLD", "PKG", "MEM", "CAP", "SYS", "NET", "FLT", "RUN"]).map(lambda f: f + "001")
SEVERITY = st.sampled_from(["error", "warning", "info"])
NEED = st.builds(Requirement, TEXT, TEXT, TEXT, TEXT, TEXT)
STEP = st.builds(
    FixStep, TEXT, st.lists(TEXT, max_size=4).map(tuple), st.sampled_from(["safe", "ask", "manual"]), note=TEXT
)


def some(of: st.SearchStrategy) -> st.SearchStrategy:
    return st.lists(of, max_size=3).map(tuple)


FINDING = st.builds(Finding, CODE, SEVERITY, TEXT, some(FACT), some(NEED), TEXT, some(STEP))
UNDECIDED = st.builds(UndecidedRule, CODE, SEVERITY, TEXT, some(FACT))
CONTRACT = st.builds(Contract, *[TEXT] * 7, platforms=some(TEXT), needs=some(NEED), notes=some(TEXT))
REPORT = st.builds(
    Report,
    CONTRACT,
    st.builds(Facts, st.lists(FACT, max_size=12), TEXT, st.sampled_from(["nothing looked for it", NOT_STATED])),
    some(FINDING),
    some(UNDECIDED),
    some(UNDECIDED),
    some(st.builds(PassedRule, CODE, some(TEXT))),
    some(st.builds(IgnoredFinding, FINDING, TEXT)),
    st.booleans(),
    TEXT,
)
SCREEN = st.builds(Screen, st.integers(40, 100), st.booleans(), st.booleans())


def tame(shown: str, screen: Screen) -> None:
    assert screen.colour or "\x1b" not in shown
    for line in SGR.sub("", shown).split("\n"):
        assert line.isprintable(), line
        assert width(line) <= screen.width or is_one_command_word(line), line


@settings(deadline=None, max_examples=settings.default.max_examples // 2)  # large ones: the time goes into making them
@given(REPORT, SCREEN, st.booleans())
def test_any_report(report, screen, verbose):
    tame(check_report.render_check_screen(report, screen, elapsed=0.1, verbose=verbose, seconds={"nvml": 0.1}), screen)
    assert check_report.format_check_line(report)[:-1].isprintable()


@settings(deadline=None)
@given(st.builds(Facts, st.lists(FACT, max_size=12), TEXT), SCREEN)
def test_any_facts(known, screen):
    tame(listing.render_fact_list(known, screen), screen)


CHANGE = st.fixed_dictionaries(dict.fromkeys(("change", "table", "name", "before", "after"), TEXT))


@settings(deadline=None)
@given(CONTRACT, st.lists(CHANGE, max_size=4), SCREEN)
def test_any_contract(contract, changes, screen):
    tame(contracts.render_contract_screen(contract, screen), screen)
    tame(contracts.render_contract_diff(contract.framework, contract.version, changes, screen), screen)
    tame(contracts.render_contract_check(ContractCheck(contract.title, None, contract.notes), screen), screen)


@settings(deadline=None)
@given(TEXT, TEXT, some(TEXT), SEVERITY, SCREEN)
def test_any_page(title, summary, many, severity, screen):
    fields = {"code": "GPU001", "name": title, "severity": severity, "title": title, "text": summary}
    fields |= {"reads": many, "signs": many}
    tame(explain.render_rule_page(fields, screen), screen)
    tame(explain.render_rule_index([fields], screen), screen)
