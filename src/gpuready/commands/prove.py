"""``gpuready prove``: execute capabilities on this machine."""

import time
from typing import TYPE_CHECKING, Annotated, TypedDict

from gpuready.commands import parameters as shared
from gpuready.commands.declaration import Command, Parameter, Request, call_command, collect_parameters, reject_unread
from gpuready.commands.result import Result
from gpuready.commands.suggestions import CommandRows, option_words, suggest_details
from gpuready.model import EXIT_CODES, worst_verdict
from gpuready.render import check_report, html, json_results
from gpuready.render import prove as render
from gpuready.workflow import require_writable
from gpuready.workflow.prove import ProveResult, list_proofs, run_proofs

if TYPE_CHECKING:
    from typing_extensions import Unpack


class _Proved(TypedDict, total=False):
    python: Annotated[
        shared.PathArgument, Parameter("the environment to prove: a Python, a venv or a conda prefix", "PATH")
    ]


class _Limits(TypedDict, total=False):
    cpu: Annotated[bool, Parameter("execute what a CPU can, on the CPU")]
    contract: Annotated[
        shared.PathArgument, shared.contract_parameter("prove what this file of requirements needs", mcp=False)
    ]
    deadline: Annotated[
        float,
        Parameter(
            "seconds for each proof, instead of its default",
            "SECONDS",
            kind="number",
            most=86400,
            mcp=True,
            default=0.0,
        ),
    ]
    jobs: Annotated[int, Parameter("number of parallel processes", "N", kind="whole", most=86400, default=0)]


class ProveOptions(_Proved, shared.Wants, shared.Job, _Limits, shared.Strict, total=False):
    """Keywords of prove()."""


_LIST = {"list": Parameter("list all proofs and run none", python=False)}
_SHOWN = {
    "output": Parameter("write the evidence to this file", "FILE", flag="-o", python=False),
    **shared.quiet_and_verbose("also every number, and the output of what failed", "one line for each framework"),
}


def run(request: Request) -> Result:
    if request.has_switch("list"):
        reject_unread(request, "list")
        rows = list_proofs()
        return Result(rows, json_results.renderer("proofs"), render.render_proof_list)
    require_writable(request.get_option("output"))
    request.show_progress("looking at the machine")
    proved = run_proofs(
        shared.named_frameworks(request),
        **request.pick_options("python", "wants", "model", "config", "contract"),
        on_cpu=request.has_switch("cpu"),
        strict=request.has_switch("strict"),
        deadline=request.get_option("deadline", 0.0),
        jobs=request.get_option("jobs", 0),
        into=request.get_option("output"),
        tell=lambda proof, done, count: request.show_progress(f"proving; {proof.name} {proof.verdict}", done, count),
    )
    verdict = worst_verdict(report.verdict for report in proved.reports)
    elapsed = None if request.session.started is None else time.perf_counter() - request.session.started
    return Result(
        proved,
        json_results.renderer("prove"),
        lambda proved, screen, verbose=False: render.render_proof_screen(
            proved.reports,
            proved.evidence,
            screen,
            elapsed=elapsed,
            verbose=verbose,
            saved_path=proved.saved,
            note=proved.note,
            commands=_suggest_next(request, proved),
        ),
        verdict=verdict,
        exit=EXIT_CODES[verdict],
        line=lambda proved: "".join(check_report.format_check_line(report) for report in proved.reports),
        html=lambda proved: html.render_report_fragments(proved.reports),
    )


def _suggest_next(request: Request, proved: ProveResult) -> CommandRows:
    """Where there is no GPU, what runs without one; where torch is missing, the check, which names the fix."""
    rows, lacks = suggest_details(request), {proof.lacks for proof in proved.evidence.proofs if not proof.steps}
    if "torch" in lacks:
        named = [
            check_report.contract_spec(one.contract) for one in proved.reports if one.contract.framework != "torch"
        ]
        words = ("gpuready", "check", *named, *option_words(request, ("python", "wants", "config", "contract")))
        words += ("--wants", "cpu") if request.has_switch("cpu") and request.get_option("wants") is None else ()
        return [("what is missing", words), *rows]
    return [("on the CPU", (*rows[0][1][:-1], "--cpu")), *rows] if "gpu" in lacks else rows


PROVE = Command(
    "prove",
    "execute a framework's capabilities here and verify their numbers",
    run,
    collect_parameters(_Proved, shared.Wants, shared.Job, _Limits, _LIST, shared.Strict, _SHOWN, shared.COMMON),
    "[FRAMEWORK|CAPABILITY ...]",
    most=999,
    argument=Parameter(
        "Frameworks, capabilities or proofs; none: all that torch has here.",
        name="words",
        many=True,
        least=0,
        most=16,
        mcp=True,
        max_length=120,
    ),
    examples=("transformers", "bf16 flash-attn -v", "--list"),
)
COMMANDS = (PROVE,)


def prove(*words: str, **options: "Unpack[ProveOptions]") -> Result:
    """Execute proofs. A word is a framework, a capability or a proof. ``found`` has the Reports and the evidence."""
    return call_command(PROVE, words, options)
