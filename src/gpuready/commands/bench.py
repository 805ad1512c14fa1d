"""``gpuready bench``: is this machine as fast as it should be?"""

from typing import TYPE_CHECKING, Annotated, TypedDict

from gpuready.commands.declaration import (
    Command,
    Parameter,
    Request,
    UsageError,
    call_command,
    collect_parameters,
    reject_unread,
)
from gpuready.commands.parameters import COMMON, PathArgument, WordList, quiet_and_verbose
from gpuready.commands.result import Result
from gpuready.commands.suggestions import suggest_details
from gpuready.render import json_results
from gpuready.render.bench import (
    format_bench_line,
    format_job_bench_line,
    render_bench_screen,
    render_job_bench,
    render_measure_list,
)
from gpuready.workflow import require_writable, save_text_file
from gpuready.workflow.bench import list_measures, measure_machine
from gpuready.workflow.bench_job import bench_job

if TYPE_CHECKING:
    from typing_extensions import Unpack


class BenchOptions(TypedDict, total=False):
    """Keywords of bench()."""

    python: Annotated[
        PathArgument, Parameter("the environment whose torch measures: a Python, a venv or a conda prefix", "PATH")
    ]
    full: Annotated[
        bool, Parameter("all measurements: also held rates, collectives and eager mode, in a minute or more")
    ]
    quick: Annotated[bool, Parameter("a first answer, as without --full")]
    only: Annotated[
        WordList,
        Parameter("measure only these, by name or group, such as matmul,memory-copy,disk", "LIST", kind="list"),
    ]
    repeat: Annotated[int, Parameter("number of passes of each (2)", "N", kind="count", most=20, default=2)]
    gpu: Annotated[int, Parameter("this GPU only, by its index", "INDEX", kind="count", least=0, most=1023)]
    folder: Annotated[PathArgument, Parameter("the folder whose disk is measured (the current one)", "DIR")]
    job: Annotated[
        PathArgument,
        Parameter("run a few real steps of this job with random weights, beside the predicted time", "FILE"),
    ]
    bench: Annotated[PathArgument, Parameter("with --job: a record of this GPU, to predict by", "FILE")]


_SHOWN = {
    "list": Parameter("list all measurements and run none", python=False),
    "output": Parameter("write the result to a file, as JSON", "FILE", flag="-o", python=False),
    **quiet_and_verbose("also shapes, passes, spreads and expected ranges"),
}


def run(request: Request) -> Result:
    if request.has_switch("list"):
        reject_unread(request, "list")
        rows = list_measures()
        return Result(rows, json_results.renderer("measures"), render_measure_list)
    require_writable(request.get_option("output"))
    if request.get_option("job") is not None:
        return _run_job(request)
    if request.get_option("bench") is not None:
        raise UsageError("--bench goes with --job")
    result = measure_machine(
        **request.pick_options("python", "only", "gpu", "folder"),
        full=request.has_switch("full"),
        repeat=request.get_option("repeat", 2),
        show_progress=request.show_progress,
    )
    path = request.get_option("output")
    if path is not None:
        save_text_file(path, json_results.render_json("bench", result))
    words = suggest_details(request)[0][1][:-1]
    rest = [("the rest", (*words, "--full"))] if result.quick else []
    return Result(
        result,
        json_results.renderer("bench"),
        lambda result, screen, verbose=False: render_bench_screen(result, screen, verbose, rest),
        line=format_bench_line,
    )


def _run_job(request: Request) -> Result:
    reject_unread(request, "job", "python", "bench", "output")
    result = bench_job(
        request.get_option("job"), **request.pick_options("python", "bench"), show_progress=request.show_progress
    )
    if (path := request.get_option("output")) is not None:
        save_text_file(path, json_results.render_json("job_bench", result))
    return Result(result, json_results.renderer("job_bench"), render_job_bench, line=format_job_bench_line)


BENCH = Command(
    "bench",
    "is this machine as fast as it should be?",
    run,
    collect_parameters(BenchOptions, _SHOWN, COMMON),
    examples=("--full", "--only matmul,disk -o bench.json", "--gpu 0 --repeat 5 -v", "--job axolotl.yml"),
)
COMMANDS = (BENCH,)


def bench(**options: "Unpack[BenchOptions]") -> Result:
    """Measure whether this machine is as fast as it should be."""
    return call_command(BENCH, (), options)
