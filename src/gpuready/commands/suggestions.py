"""The commands that a screen names next, with the options that the user gave."""

from collections.abc import Iterable, Iterator
from typing import Any

from gpuready.commands.declaration import Parameter, Request
from gpuready.model import Report
from gpuready.model.flag_words import as_words
from gpuready.render.check_report import list_next_commands

CommandRows = list[tuple[str, tuple[str, ...]]]


_FORMAT_OPTIONS = ("verbose", "quiet", "json", "format", "color", "output", "since")
"""How an answer is shown, not what was asked for."""
_FIX_OPTIONS = ("python", "wants", "contract", "config")
_INSTALL_OPTIONS = ("wants", "contract", "config")
_PROVE_OPTIONS = ("python", "wants", "config")


def suggest_after_check(request: Request, reports: list[Report]) -> list[CommandRows]:
    """For each report, label and words of the commands that come next: fix, plan or prove, and the same with ``-v``."""
    flags = {
        "fix": option_words(request, _FIX_OPTIONS),
        "install": option_words(request, _INSTALL_OPTIONS),
        "prove": option_words(request, _PROVE_OPTIONS),
        "check": (*option_words(request, _asked_options(request)), "-v"),
    }
    is_elsewhere = any(request.get_option(name) is not None for name in ("on", "image"))
    specs = request.arguments if len(request.arguments) == len(reports) else [""] * len(reports)
    together = request.arguments if len(request.arguments) > 1 or request.get_option("contract") else ()
    rows = []
    for one, spec in zip(reports, specs, strict=True):
        kept = [name for name in _machine_options(request) if name not in _refuted_options(one, spec)]
        plan = {"plan": option_words(request, kept)}
        rows.append(list_next_commands(one, flags | plan, spec, is_elsewhere, together))
    return rows


def _refuted_options(report: Report, spec: str) -> set[str]:
    """The options whose value an error was found in: a plan would find it again, unless an older release takes it."""
    found = [fact for one in report.findings if one.severity == "error" for fact in one.found]
    sources = {fact.source for fact in found}
    free = ("torch", "python_version", "toolkit", "wants", *(("driver",) if "==" in spec else ()))
    refuted = {name for name in free if sources & {f"{lead}{name.replace('_', '-')}" for lead in ("--", "--as ")}}
    return refuted | {"python" for fact in found if fact.key == "python.version"}


def suggest_details(request: Request) -> CommandRows:
    """The same command with ``-v``."""
    words = (*request.arguments, *option_words(request, _asked_options(request)))
    return [("details", ("gpuready", *request.command.name.split(), *words, "-v"))]


def _machine_options(request: Request) -> list[str]:
    """The options that name a machine and an environment: plan takes them too."""
    known = request.command.parameters
    return [
        name
        for name in request.options
        if name in ("on", "python", "wants", "contract", "config") or known[name].group == "what_if"
    ]


def _asked_options(request: Request) -> list[str]:
    applied = request.settings.applied if request.settings else ()
    return [name for name in request.options if name not in _FORMAT_OPTIONS and name not in applied]


def option_words(request: Request, names: Iterable[str]) -> tuple[str, ...]:
    """These options of a call as the words of a command line."""
    known, options = request.command.parameters, request.options
    given = [known[name] for name in names if name in known and options.get(name) is not None]
    stated = {one.query: options[one.name] for one in given if one.group == "what_if"}
    words = [word for one in given if one.query not in stated for word in _flag_words(one, options[one.name])]
    return (*words, *as_words(stated))


def _flag_words(parameter: Parameter, value: Any) -> Iterator[str]:
    if value is None or value is parameter.inverted:
        return
    if isinstance(value, bool):
        yield parameter.flag
        return
    values = [f"{key}={text}" for key, text in value.items()] if isinstance(value, dict) else value
    for one in values if isinstance(values, (list, tuple)) else [values]:
        yield from [f"{parameter.flag}={one}"] if parameter.bare else [parameter.flag, str(one)]
