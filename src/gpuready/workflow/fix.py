"""``gpuready plan --fix``: the smallest change that removes the findings of an existing environment."""

from __future__ import annotations

from gpuready.workflow.refusal import Refused, call_or_refuse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gpuready.model import Facts, Report
    from gpuready.model.plan import Plan


def plan_fix(
    spec: str | None = None,
    *,
    on: str | None = None,
    python: str | None = None,
    wants: str | None = None,
    model: str | None = None,
    config: str | None = None,
    contract: str | None = None,
    source: str | None = None,
    what_if: Mapping[str, str] | None = None,
    note: Callable[[str], object] | None = None,
) -> Plan:
    """Plan the fix of an existing environment; without a name, for the framework found in it."""
    from gpuready import workflow
    from gpuready.plan.fix import plan_fix
    from gpuready.workflow import machine_facts

    if source is not None:
        raise Refused("--source is for a new environment; --fix changes the one that is there: leave one out")
    if not machine_facts.sees_packages(on, python):
        raise Refused(
            f"--fix mends an environment that is there, and {on} is only stated: give --python PATH or a "
            f"recording, or plan a new one with `gpuready plan {spec or 'FRAMEWORK'} --on {on}`"
        )
    if note is not None:
        note("looking at the environment")
    named = _frameworks_to_check(spec, contract)
    [report, *_] = workflow.check_machine(
        named, on=on, python=python, wants=wants, model=model, config=config, contract=contract, what_if=what_if
    )
    if note is not None and report.findings:
        note(f"trying changes for {len(report.findings)} findings")
    plan = plan_fix(report, _make_judge(report)).plan
    options = {"python": python, "wants": wants, "contract": contract}
    return plan.replace(options=plan.options | {name: value for name, value in options.items() if value})


def _frameworks_to_check(spec: str | None, contract: str | None) -> list[str]:
    """Return what to judge besides a user's contract, which is judged alone and must match the named framework."""
    if contract is None or spec is None:
        return [spec] if spec else []
    from gpuready import contracts

    own_contract = call_or_refuse(contracts.read_contract_file, contract)
    if call_or_refuse(contracts.parse_contract_spec, spec)[0] != own_contract.framework:
        raise Refused(f"--contract is for {own_contract.framework}: mend that framework, and no other, with it")
    return []


def _make_judge(report: Report) -> Callable[[Facts], Report]:
    """Return a function that judges facts by the same rules and contract."""
    from gpuready import workflow

    def judge(facts: Facts) -> Report:
        return workflow.judge_contract(facts, report.contract, {}, report.strict)

    return judge
