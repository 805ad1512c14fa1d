"""``gpuready env``: choose the variables that the framework wants on this machine."""

from __future__ import annotations

from gpuready import contracts, system
from gpuready.system.redact import redact_value
from gpuready.workflow import choosing, looking
from gpuready.workflow.refusal import Refused, refusing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuready.model import Facts
    from gpuready.planned import Settings


def env(
    framework: str,
    *,
    on: str | None = None,
    python: str | None = None,
    role: str | None = None,
    wants: str | None = None,
    contract: str | None = None,
    what_if: Mapping[str, str] | None = None,
) -> Settings:
    """Return the variables for a framework, by the contract of its installed version, or by a contract file."""
    own = None if contract is None else refusing(contracts.read, contract)
    named = refusing(contracts.parse, framework)
    if own is not None and named[0] != own.framework:
        raise Refused(f"{contract} is a contract of {own.framework}, not of {named[0]}")
    asked = [] if own else [choosing.asked(framework, looking.sees_packages(on, python))]
    look, _, stop = looking.start(on, python, what_if or {}, None, *looking.besides(asked, own))
    try:
        job = looking.job(wants, None, None, own)
        facts = look().also(*job)
    except BaseException:  # a refusal or a signal: stop probes that still run
        stop()
        raise
    chosen = choosing.given(facts, own) if own else choosing.contract_of(facts, *asked[0])
    from gpuready.plan.variables import variables

    recorded = on is not None and looking.sees_packages(on, None)
    found = refusing(variables, facts, chosen, role, _environment(facts, recorded))
    return found.but(conflicts=tuple(c.but(have=redact_value(c.name, c.have)) for c in found.conflicts))


def _environment(facts: Facts, recording: bool) -> dict[str, str]:
    """Return what is set where the job would start: the recording's variables, else this shell's.

    A named machine has no variables of its own, and the user's must be respected there too.
    """
    # Facts have only variables that rules read, redacted; here every name counts.
    if not recording:
        return dict(system.Live().environ())
    return {
        fact.key.removeprefix("env."): str(fact.value)
        for fact in facts
        if fact.key.startswith("env.") and fact.key != "env.names" and fact.value is not None and not fact.gap
    }
