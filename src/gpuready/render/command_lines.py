"""Command lines that a screen or a script suggests, with the flags the plan was made with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpuready.model.plan import Plan

OPTIONS_WITHOUT_FLAG = ("version", "capability", "macos", "fix")
"""Plan options that no command line takes as a flag."""


def build_install_command(plan: Plan) -> tuple[str, ...]:
    """The command that installs a plan: whole, with the consent that it needs where a note says what is built."""
    names = [name for name in plan.options if name != "no-resolve"]
    flags = [*_iter_plan_flags(plan, names)]
    if any(row.built for row in plan.lock) and "--allow-build" not in flags:
        flags.append("--allow-build")
    return ("gpuready", "install", _plan_framework_spec(plan), *flags, "-e", ".venv")


def build_plan_command(plan: Plan) -> tuple[str, ...]:
    """The command that shows the same plan with every detail."""
    fix = ("--fix",) if plan.options.get("fix") else ()
    return ("gpuready", "plan", _plan_framework_spec(plan), *fix, *_iter_plan_flags(plan, plan.options), "-v")


def build_fix_command(plan: Plan) -> tuple[str, ...]:
    """The command that applies a fix plan."""
    return ("gpuready", "fix", _plan_framework_spec(plan), *_iter_plan_flags(plan, ("python", "wants", "contract")))


def build_check_command(plan: Plan) -> tuple[str, ...]:
    """The command that checks the environment again after a fix."""
    flag_names = ("python", "wants", "contract")
    if plan.options.get("contract"):
        return ("gpuready", "check", *_iter_plan_flags(plan, flag_names))
    return ("gpuready", "check", _plan_framework_spec(plan), *_iter_plan_flags(plan, flag_names))


def _plan_framework_spec(plan: Plan) -> str:
    version = f"=={plan.version}" if plan.options.get("version") else ""
    return plan.framework + version + (f":{plan.variant}" if plan.variant else "")


def _iter_plan_flags(plan: Plan, names: Iterable[str]) -> Iterator[str]:
    for name in names:
        value = plan.options.get(name)
        if not value or name in OPTIONS_WITHOUT_FLAG:
            continue
        for one in value if isinstance(value, (list, tuple)) else [value]:
            yield f"--{name}"
            if one is not True:
                yield str(one)
