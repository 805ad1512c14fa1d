"""``gpuready run``: start a script on every GPU of every node, show what the ranks write, and diagnose a failure."""

import shlex
from typing import Any

from gpuready.commands.declaration import Command, Parameter, Request, UsageError, collect_parameters
from gpuready.commands.parameters import COMMON
from gpuready.commands.result import Result
from gpuready.commands.suggestions import option_words
from gpuready.model.diagnosis import Diagnosis
from gpuready.render import diagnosis, json_results
from gpuready.render import run as render
from gpuready.render.layout import Screen
from gpuready.workflow import run as running
from gpuready.workflow.refusal import Refused

_HANGS = ("report", "stop", "kill", "restart")
_ENGINES = ("local", "torchrun", "slurm", "mpi", "ray")
_PARAMETERS = {
    "nproc": Parameter("ranks on each node: a number, or gpu (default: one for each GPU)", "N"),
    "nnodes": Parameter("how many nodes; 4:6 with Slurm or Ray: four, and two spare ones for a restart", "N"),
    "node_rank": Parameter("the number of this node, from 0", "R"),
    "master": Parameter("where rank 0 listens; without it a free port is chosen", "HOST:PORT"),
    "engine": Parameter("the engine that starts the ranks", "ENGINE", _ENGINES),
    "python": Parameter("the environment that the script runs in", "PATH"),
    "wants": Parameter("what the job asks for, such as cpu or fp8,flash-attn; with a FRAMEWORK", "LIST"),
    "log_dir": Parameter("where each rank's log is kept (default gpuready-logs/RUN)", "DIR"),
    "restarts": Parameter("restart after a failure, if that can help", "N"),
    "max_restarts": Parameter("the same as --restarts, by torchrun's name", "N"),
    "hang_timeout": Parameter("end a run that stands still or writes nothing for so long; 0: never look", "SECONDS"),
    "on_hang": Parameter(
        "what to do with a run that stands still (default: report; kill with a time-out; stop: once it was named and goes on)",
        "WHAT",
        _HANGS,
    ),
    "events": Parameter("also write progress, standstills and restarts to a file, one JSON line each", "FILE"),
    "grace": Parameter("how long ranks may go on after Ctrl-C, SIGTERM or a failure (default 30)", "SECONDS"),
    "window": Parameter("how long to wait for every rank to begin (default 60)", "SECONDS"),
    "check_collectives": Parameter("name collectives that differ between ranks, with their shapes; slower"),
    "fork": Parameter("import torch once and fork the ranks; refused where that is not safe"),
    "reap": Parameter("first end your ranks that outlived their launcher"),
    "no_preflight": Parameter("skip the checks before the start"),
    "dry_run": Parameter("show what would start where, with every variable; starts no program of the environment"),
    "preflight": Parameter("only make the checks before the start, as on every node of a job"),
    "quiet": Parameter("only the output of the ranks, and one line at the end", flag="-q"),
}


def run(request: Request) -> Result:
    if not request.rest:
        words = ("gpuready", "run", *request.arguments, *option_words(request, request.options))
        example = shlex.join([*words, "--", "train.py"])
        raise UsageError(f"gpuready run needs the script of the job, after --, such as {example}")
    flags, session = request.flag_values(), request.session
    try:
        ready = running.prepare_run(request.rest, request.first_argument or None, flags=flags)
    except Refused as refusal:
        running.tell_refusal(flags, str(refusal), session.write_sentence)
        raise
    if request.has_switch("dry_run") or request.has_switch("preflight"):
        start = running.describe_start(ready)
        return Result(start, json_results.renderer("start"), render.render_run_plan, exit=ready.refused)
    if ready.refused:
        errors = [sight for sight in ready.sights if sight.severity == "error"]
        if errors[0].what != "peers":
            running.tell_refusal(flags, errors[0].says, session.write_sentence)
        return Result(
            ready,
            lambda ready: json_results.render_json("refused", ready.refused, ready.sights),
            lambda ready, screen: render.render_run_refusal(ready.sights, screen),
            exit=ready.refused,
        )
    warnings = [sight for sight in ready.sights if sight.severity == "warning"]
    if warnings and not request.has_switch("quiet"):
        session.write_note(render.render_preflight(warnings, session.screen.replace(colour=False)))
    events = running.open_events(request.get_option("events"))
    outcome, found = running.run_job(ready, lambda job, book: events(session.make_run_reporter(job, book, request)))
    return Result(
        outcome,
        lambda outcome: json_results.render_json("run", outcome, found),
        lambda outcome, screen: _render_outcome(outcome, found, screen),
        exit=outcome.code,
        line=render.format_outcome_line,
    )


def _render_outcome(outcome: Any, found: Diagnosis | None, screen: Screen) -> str:
    is_explained = found is not None and found.verdict == "cause"
    text = render.render_post_mortem(outcome, screen, is_explained)
    if outcome.verdict in ("done", "interrupted"):
        return (
            text
            if outcome.last.notes or "warning" in text or len(outcome.attempts) > 1
            else render.format_outcome_line(outcome)
        )
    if found is not None and is_explained:
        return "\n" + text + "\n" + diagnosis.render_diagnosis_screen(found, screen)
    return "\n" + text


COMMANDS = (
    Command(
        "run",
        "start a script on every GPU, and say why it failed",
        run,
        collect_parameters(_PARAMETERS, COMMON),
        "[FRAMEWORK]",
        0,
        1,
        "SCRIPT [ARGS ...]",
        interrupted="",
        usual="nproc nnodes node-rank master engine python log-dir restarts hang-timeout dry-run preflight q",
        examples=(
            "--nproc 2 -- train.py --lr 1e-4",
            "trl --engine slurm -- train.py",
            "--dry-run --nproc 8 -- train.py",
        ),
    ),
)
