"""``gpuready install``: install atomically what was planned. Progress goes to stderr."""

from gpuready.commands.declaration import (
    Command,
    Parameter,
    Request,
    UsageError,
    collect_parameters,
    reject_together,
    reject_unread,
)
from gpuready.commands.parameters import (
    AS_IF,
    COMMON,
    WHAT_IF,
    Environment,
    Machine,
    Resolve,
    framework_argument,
    named_frameworks,
)
from gpuready.commands.result import Result
from gpuready.model.plan import InstallResult
from gpuready.render import json_results
from gpuready.render.install import render_install_proposal, render_install_screen
from gpuready.workflow.install import DEFAULT_ENVIRONMENT, InstallOrder, rollback_environment, verify_environment

_FOLDER = {"environment": Parameter("the folder of the environment (default .venv)", "DIR", flag="-e", path="folder")}
_PYTHON = {
    name: one.replace(help="plan for this Python: an interpreter, a venv or a conda prefix", details="")
    for name, one in collect_parameters(Environment).items()
}
_ACTIONS = {
    "lock": Parameter("install what this lock says", "FILE", path="file"),
    "dry_run": Parameter("show what would run; changes nothing"),
    "rollback": Parameter("go back to the environment before this one"),
    "verify": Parameter("verify that every file of the environment is present and unchanged"),
    "keep": Parameter(
        "how many environments to keep for a rollback (default 2)", "N", kind="count", most=1000, default=2
    ),
    "yes": Parameter("do not ask"),
}


def run(request: Request) -> Result:
    _check_flag_conflicts(request)
    environment = request.get_option("environment", DEFAULT_ENVIRONMENT)
    if request.has_switch("rollback"):
        return _make_result(rollback_environment(environment))
    if request.has_switch("verify"):
        return _make_result(verify_environment(environment, request.get_option("find_links", ())))
    is_dry = request.has_switch("dry_run")
    order = InstallOrder(
        request.first_argument,
        environment,
        **request.pick_options("lock", "on", "python", "wants", "contract", "config", "source"),
        find_links=request.get_option("find_links", ()),
        offline=request.has_switch("offline"),
        allow_build=request.has_switch("allow_build"),
        use_project_config=request.has_switch("use_project_config"),
        keep=request.get_option("keep", 2),
        additions=request.arguments[1:],
        what_if=request.what_if,
        show_step=lambda text, done=0, total=0: request.show_progress(text, done, total, at_once=True),
        acts=not is_dry,
    )
    if is_dry:
        return _make_result(order.dry_run())

    def render_proposal() -> str:
        return render_install_proposal(order.dry_run(), request.session.screen.replace(colour=False))

    if not request.has_switch("yes") and not request.session.ask_person(render_proposal, "install this? [y/N] "):
        return Result.from_text("nothing was changed\n", 1)
    return _make_result(order.run_install())


def _check_flag_conflicts(request: Request) -> None:
    """Reject contradictory flags before anything is probed."""
    reject_together(request, "rollback", "verify", "dry_run")
    if not (request.has_switch("rollback") or request.has_switch("verify")):
        request.arguments = named_frameworks(request)
    names_target = bool(request.arguments) or request.get_option("lock") is not None
    for action in ("rollback", "verify"):
        if request.has_switch(action):
            if names_target:
                raise UsageError(f"--{action} takes no FRAMEWORK and no --lock, only -e DIR")
            reject_unread(request, action, "environment", "yes", *(("find_links",) if action == "verify" else ()))
            return
    if not names_target:
        raise UsageError("gpuready install takes a FRAMEWORK, or --lock FILE; --rollback and --verify take neither")


def _make_result(result: InstallResult) -> Result:
    return Result(result, json_results.renderer("install"), render_install_screen)


INSTALL = Command(
    "install",
    "install a framework atomically: all of it or nothing",
    run,
    collect_parameters(_FOLDER, Machine, _PYTHON, Resolve, _ACTIONS, WHAT_IF, AS_IF, COMMON),
    "[FRAMEWORK] [PACKAGE ...]",
    0,
    64,
    argument=framework_argument(),
    usual="e on as python wants config lock dry-run rollback verify yes json",
    examples=("vllm --dry-run", "trl peft 'wandb<1'", "--lock gpuready.lock -e .venv", "--rollback"),
)
COMMANDS = (INSTALL,)
