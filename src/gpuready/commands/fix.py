"""``gpuready fix``: make the changes of ``plan --fix``. It asks once; progress goes to stderr."""

from typing import TYPE_CHECKING, Annotated, TypedDict

from gpuready.commands import parameters as shared
from gpuready.commands.declaration import (
    Command,
    Parameter,
    Request,
    UsageError,
    call_command,
    collect_parameters,
    reject_together,
    reject_unread,
)
from gpuready.commands.result import Result
from gpuready.commands.suggestions import option_words, suggest_details
from gpuready.model.plan import FixOutcome
from gpuready.render import json_results
from gpuready.render.escape import quote_command_words
from gpuready.render.fix import format_fix_line, render_fix_proposal, render_fix_screen
from gpuready.workflow.fix import FixRequest
from gpuready.workflow.fix_order import FixOrder, undo_fix

if TYPE_CHECKING:
    from typing_extensions import Unpack


class _FixActions(TypedDict, total=False):
    only: Annotated[
        shared.WordList, Parameter("make only the changes for these codes, such as DRV001,PKG003", "CODES", kind="list")
    ]
    dry_run: Annotated[bool, Parameter("show the changes; make none")]
    undo: Annotated[bool, Parameter("take back the last fix of this environment")]
    yes: Annotated[bool, Parameter("do not ask")]


class _Source(TypedDict, total=False):
    contract: Annotated[shared.PathArgument, shared.contract_parameter("fix by this file of requirements", mcp=False)]
    find_links: Annotated[shared.PathList, shared.FIND_LINKS]
    offline: Annotated[bool, shared.OFFLINE]
    allow_build: Annotated[bool, shared.ALLOW_BUILD]
    use_project_config: Annotated[bool, shared.USE_PROJECT_CONFIG]


class FixOptions(shared.Machine, shared.Environment, shared.Wants, shared.Job, _Source, _FixActions, total=False):
    """Keywords of fix()."""


def run(request: Request) -> Result:
    reject_together(request, "undo", "dry_run")
    if request.has_switch("undo"):
        return _undo(request)
    is_dry, on = request.has_switch("dry_run"), request.get_option("on")
    if on is not None and request.get_option("python") is None:
        words = quote_command_words(("gpuready", "check", *request.arguments, *option_words(request, ("on",))))
        raise UsageError(f"fix needs an environment of this machine, --python PATH; `{' '.join(words)}` only looks")
    if not is_dry and not request.has_switch("yes") and not request.can_ask:
        raise UsageError(
            "gpuready fix asks before it changes anything, and nobody is here to ask: add --yes or --dry-run"
        )
    codes = [code for code in str(request.get_option("only", "")).split(",") if code.strip()]
    if "only" in request.options and not codes:
        raise UsageError("--only names no code: --only DRV001,PKG003 makes the changes for these two")
    order = FixOrder(
        FixRequest(
            next(iter(shared.named_frameworks(request)), None),
            **request.pick_options("python", "wants", "model", "config", "contract", "on"),
            run_python=not is_dry,
            imports="never" if is_dry else "always",
        ),
        only=codes,
        find_links=request.get_option("find_links", ()),
        offline=request.has_switch("offline"),
        allow_build=request.has_switch("allow_build"),
        use_project_config=request.has_switch("use_project_config"),
        show_step=lambda text, done=0, total=0: request.show_progress(text, done, total, at_once=True),
        show_search=request.show_progress,  # before anything changes, short work is silent
    )
    if is_dry or not order.changes_something:
        again = tuple(word for word in suggest_details(request)[0][1][:-1] if word != "--dry-run")
        return _make_result(order.dry_run(), again) if is_dry else _make_result(order.apply())

    def render_proposal() -> str:
        return render_fix_proposal(order.dry_run(), request.session.screen.replace(colour=False))

    if not request.has_switch("yes") and not request.session.ask_person(render_proposal, "make these changes? [y/N] "):
        return Result.from_text("nothing was changed\n", 1)
    return _make_result(order.apply())


def _undo(request: Request) -> Result:
    if request.arguments or request.get_option("only"):
        raise UsageError("--undo takes no FRAMEWORK and no --only: it takes back the whole last fix")
    reject_unread(request, "undo", "python", "yes")
    return _make_result(undo_fix(request.get_option("python"), request.session.write_note))


def _make_result(outcome: "FixOutcome", again: tuple[str, ...] = ()) -> Result:
    rows = [("do it", again)] if again and any(item.by == "gpuready" for item in outcome.items) else []
    return Result(
        outcome,
        json_results.renderer("fix"),
        lambda outcome, screen, verbose=False: render_fix_screen(outcome, screen, verbose, rows),
        line=format_fix_line,
    )


FIX = Command(
    "fix",
    "fix what check found, after asking once; can be undone",
    run,
    collect_parameters(FixOptions, shared.quiet_and_verbose("also every command and every reason"), shared.COMMON),
    "[FRAMEWORK]",
    0,
    1,
    argument=shared.framework_argument(),
    examples=("axolotl", "axolotl --dry-run", "--only PKG003 --yes", "--undo"),
    settings=("framework",),
)
COMMANDS = (FIX,)


def fix(framework: str = "", **options: "Unpack[FixOptions]") -> Result:
    """Change what check found wrong in an environment. ``yes=True`` agrees to it; ``dry_run=True`` changes nothing."""
    return call_command(FIX, [framework] if framework else [], options)
