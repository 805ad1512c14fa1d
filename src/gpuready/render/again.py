"""Command lines that a screen or a script suggests, with the flags the plan was made with."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpuready.planned import Plan

NO_FLAG = ("version", "capability", "fix")
"""Plan options that no command line takes as a flag."""


def installing(plan: Plan) -> tuple[str, ...]:
    return ("gpuready", "install", _spec(plan), *_flags(plan, plan.options), "-e", ".venv")


def checking(plan: Plan) -> tuple[str, ...]:
    """The command that checks the environment again after a fix."""
    told = ("python", "wants", "contract")
    if plan.options.get("contract"):
        return ("gpuready", "check", *_flags(plan, told))
    return ("gpuready", "check", _spec(plan), *_flags(plan, told))


def _spec(plan: Plan) -> str:
    version = f"=={plan.version}" if plan.options.get("version") else ""
    return plan.framework + version + (f":{plan.variant}" if plan.variant else "")


def _flags(plan: Plan, names: Iterable[str]) -> Iterator[str]:
    for name in names:
        value = plan.options.get(name)
        if not value or name in NO_FLAG:
            continue
        for one in value if isinstance(value, (list, tuple)) else [value]:
            yield f"--{name}"
            if one is not True:
                yield str(one)
