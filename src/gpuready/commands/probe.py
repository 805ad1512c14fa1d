"""``gpuready probe``: what gpuready sees of this machine."""

from shlex import quote
from typing import TYPE_CHECKING

from gpuready import workflow
from gpuready.commands.declaration import Command, Parameter, Request, UsageError, call_command, collect_parameters
from gpuready.commands.parameters import AS_IF, COMMON, WHAT_IF, Environment, Machine, PathArgument, RunPython, WhatIf
from gpuready.commands.result import Result
from gpuready.render import facts, json_results
from gpuready.render.facts import render_recording_summary

if TYPE_CHECKING:
    from typing_extensions import Unpack


class ProbeOptions(Environment, RunPython, WhatIf, total=False):
    """Keywords of probe()."""


_OUTPUT = Parameter(
    "record this machine in a file, for --on or a bug report; - is stdout", "FILE", flag="-o", python=False
)


def run(request: Request) -> Result:
    path = request.get_option("output")
    if path is not None:
        return _record_machine(request, path)
    known = workflow.probe_machine(
        **request.pick_options("python", "on"), what_if=request.what_if, run_python=request.has_switch("run_python")
    )
    return Result(known, json_results.renderer("probe"), facts.render_fact_list)


def _record_machine(request: Request, path: str) -> Result:
    if request.get_option("on") is not None or request.what_if:
        raise UsageError("-o records the machine that gpuready runs on: leave out --on and the what-if flags")
    recording = workflow.record_machine(
        python=request.get_option("python"), run_python=request.has_switch("run_python")
    )
    text = json_results.render_json("recording", recording)
    if path == "-":
        return Result.from_text(text)
    workflow.save_text_file(path, text)
    request.session.write_sentence(
        f"recorded this machine in {path}; judge it anywhere with gpuready check --on {quote(path)}"
    )
    return Result.from_text(render_recording_summary(recording, request.session.screen))


PROBE = Command(
    "probe",
    "list the facts about this machine",
    run,
    collect_parameters(Machine, Environment, RunPython, {"output": _OUTPUT}, WHAT_IF, AS_IF, COMMON),
    examples=("-o machine.json", "--on rtx4090 --json", "--python .venv"),
)
COMMANDS = (PROBE,)


def probe(on: PathArgument | None = None, **options: "Unpack[ProbeOptions]") -> Result:
    """Return what gpuready sees of a machine. ``found``: the Facts."""
    return call_command(PROBE, (), {"on": on, **options})
