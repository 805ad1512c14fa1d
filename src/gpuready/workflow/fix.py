"""``gpuready plan --fix``: the smallest change that removes the findings of an existing environment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from gpuready import contracts, probe, workflow
from gpuready.apply.audit import list_distributions
from gpuready.model import Fact, Facts, Record, Report
from gpuready.model.facts import NEED_KINDS
from gpuready.model.plan import Plan
from gpuready.model.record import field
from gpuready.plan import fix as least_change
from gpuready.plan.fix import FixResult
from gpuready.workflow import contract_choice, machine_facts
from gpuready.workflow.refusal import Refused, call_or_refuse


class FixRequest(Record):
    """Which environment to fix, for what."""

    spec: str | None = None  # a framework; None: the one that is installed
    on: str | None = None
    python: str | None = None
    wants: str | None = None
    model: str | None = None
    config: str | None = None
    contract: str | None = None
    what_if: Mapping[str, str] = field(default_factory=dict)
    run_python: bool = False
    imports: str = "never"

    def check(
        self, python: str | None = None, framework: str = "", note: Callable[[str], object] = lambda text: None
    ) -> Report:
        """Check the environment, or another one for the same request."""
        reports = workflow.check_machine(
            _frameworks_to_check(self.spec, self.contract),
            on=self.on,
            python=python or self.python,
            wants=self.wants,
            model=self.model,
            config=self.config,
            contract=self.contract,
            what_if=self.what_if,
            run_python=self.run_python,
            imports=self.imports,
            note=note,
        )
        return next((report for report in reports if report.contract.framework == framework), reports[0])

    def narrow_to_cpu(self, facts: Facts) -> FixRequest:
        """Ask for the CPU too, where nobody named a machine, no GPU is visible and torch is a CPU build: that torch is meant."""
        is_for_cpu = facts.value_if_known("torch.build") == "cpu" and facts.value_if_known("gpu.count") == 0
        wants = facts.value_if_known("job.wants") or ()
        if self.on is not None or self.what_if or "cpu" in wants or not is_for_cpu:
            return self
        return self.replace(wants=",".join((*wants, "cpu")))


def compute_fix(request: FixRequest, note: Callable[[str], object]) -> tuple[FixRequest, Report, FixResult]:
    """Check the environment and search the smallest change that clears its findings; return what was asked in the end, too."""
    note("looking at the environment")
    report = request.check(note=note)
    if request.on is None:
        machine_facts.require_interpreter(report.facts)
    narrowed = request.narrow_to_cpu(report.facts)
    if narrowed != request:
        wants = Fact("job.wants", tuple(str(narrowed.wants).split(",")), "the CPU build of torch", "read")
        request, report = narrowed, make_judge(report)(report.facts.with_facts(wants))
    if report.findings:
        note(f"trying changes for {len(report.findings)} findings")
    return request, report, least_change.plan_fix(report, make_judge(report))


def list_unmet_needs(environment: str) -> list[str]:
    """Return what installed packages require and do not have, and what is installed twice or lost, whoever needs them; nothing of the environment is started."""
    installed = list(list_distributions(environment))
    names = Counter(found.name for found in installed)
    facts = Facts(tuple(probe.survey_environment(machine_facts.choose_probed_host(), environment, names)))
    rows = [row for row in facts.value_if_known("import.damage") or () if row["kind"] in NEED_KINDS]
    wrong = [f"{name} is installed twice" for name, copies in names.items() if copies > 1]
    wrong += [f"{found.name} has lost its files" for found in installed if found.has_lost_files()]
    return wrong + [f"{row['by']} requires {row['distribution']}{row['want']}, {row['detail']}" for row in rows]


def plan_fix(
    spec: str | None = None,
    *,
    source: str | None = None,
    note: Callable[[str], object] = lambda text: None,
    **options: Any,
) -> Plan:
    """Plan the fix of an existing environment; without a name, for the framework found in it."""
    request = FixRequest(spec, **{name: value for name, value in options.items() if value is not None})
    if source is not None:
        raise Refused("--source is for a new environment; --fix changes the one that is there: leave one out")
    if not machine_facts.sees_packages(request.on, request.python):
        raise Refused(
            f"--fix mends an environment that is there, and {request.on} is only stated: give --python PATH or a "
            f"recording, or plan a new one with `gpuready plan {spec or 'FRAMEWORK'} --on {request.on}`"
        )
    request, _, found = compute_fix(request, note)
    plan = found.plan
    named = {"on": request.on, "python": request.python, "wants": request.wants, "contract": request.contract}
    return plan.replace(options=plan.options | {name: value for name, value in named.items() if value})


def _frameworks_to_check(spec: str | None, contract: str | None) -> list[str]:
    """Return what to judge besides a user's contract, which is judged alone and must match the named framework."""
    if contract is None or spec is None:
        return [spec] if spec else []
    own_contract = contract_choice.read_named_contract(contract)
    if call_or_refuse(contracts.parse_contract_spec, spec)[0] != own_contract.framework:
        raise Refused(f"--contract is for {own_contract.framework}: mend that framework, and no other, with it")
    return []


def make_judge(report: Report) -> Callable[[Facts], Report]:
    """Return a function that judges facts by the same rules and contract."""

    def judge(facts: Facts) -> Report:
        return workflow.judge_contract(facts, report.contract, {}, report.strict)

    return judge
