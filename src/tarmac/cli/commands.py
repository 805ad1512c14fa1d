"""The commands: each calls one workflow and renders what it returns."""

from __future__ import annotations

import time

from tarmac.cli.grammar import WHAT_IF, Usage
from tarmac.render.layout import Screen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from tarmac.cli.grammar import Told
    from tarmac.model import Report

    Answer = tuple[str, int]


def run(told: Told, screen: Screen, started: float) -> Answer:
    """The text for stdout and the exit code."""
    return _COMMANDS[told.command](told, screen, started)


# -- check ----------------------------------------------------------------------------------------------


def _check(told: Told, screen: Screen, started: float) -> Answer:
    flags = told.flags
    if flags.get("q") and flags.get("v"):
        raise Usage("-q and -v do not go together: choose one")
    ignore = _reasons(flags.get("ignore", []))
    from tarmac import workflow
    from tarmac.model import EXIT, worst

    seconds: dict[str, float] = {}
    reports = workflow.check(
        list(told.arguments),
        **{name: flags.get(name) for name in ("on", "python", "wants", "model", "config", "contract")},
        ignore=ignore,
        strict=bool(flags.get("strict")),
        what_if=what_if(flags),
        seconds=seconds,
    )
    form = _format(flags)
    if form in ("sarif", "junit"):
        text = _for_tools(form, reports)
    elif form == "json":
        text = _json(reports, told)
    elif flags.get("q"):
        text = _lines(reports)
    else:
        text = _screens(reports, screen, started, bool(flags.get("v")), seconds)
        text += _since(flags.get("since"), reports, screen)
    return text, EXIT[worst(report.verdict for report in reports)]


def _format(flags: Mapping[str, Any]) -> str:
    asked = str(flags.get("format", "json" if flags.get("json") else "text"))
    if flags.get("json") and asked != "json":
        raise Usage(f"--json and --format {asked} do not go together: choose one")
    return asked


def _for_tools(form: str, reports: list[Report]) -> str:
    if form == "junit":
        from tarmac.render import junit

        return junit.document(reports)
    from tarmac import workflow
    from tarmac.render import sarif

    return sarif.document(reports, {code: workflow.explain(code) for code in workflow.codes()})


def _since(path: str | None, reports: list[Report], screen: Screen) -> str:
    if path is None:
        return ""
    from tarmac import workflow
    from tarmac.render import changes

    return f"\nsince {path}:\n\n" + changes.listing(workflow.since(path, reports[0]), screen)


def _diff(told: Told, screen: Screen, started: float) -> Answer:
    from tarmac import workflow
    from tarmac.render import changes, json

    a, b = told.arguments
    found = workflow.diff(a, b, told.flags.get("for"))
    code = 1 if any(change.worse for change in found) else 0
    if told.flags.get("json"):
        rows = [change.to_json() | {"worse": change.worse} for change in found]
        return json.document({"a": a, "b": b, "changes": rows}), code
    return changes.listing(found, screen), code


def _reasons(given: list[str]) -> dict[str, str]:
    reasons = {}
    for text in given:
        code, _, reason = text.partition("=")
        if not code.strip() or not reason.strip():
            asked = code.strip() or "CODE"
            raise Usage(f'--ignore {asked} needs a reason: --ignore {asked}="why it does not matter here"')
        reasons[code.strip().upper()] = reason.strip()
    return reasons


def what_if(flags: Mapping[str, Any]) -> dict[str, str]:
    """What the what-if flags say."""
    names = [flag.name.lstrip("-") for flag in WHAT_IF]
    return {name: flags[name] for name in names if name in flags}


def _json(reports: list[Report], told: Told) -> str:
    """One framework that was named gives its Report; anything else gives a list, however long."""
    from tarmac.render import json

    asked = len(told.arguments) + ("contract" in told.flags)
    return json.document(json.report(reports[0]) if asked == len(reports) == 1 else json.reports(reports))


def _lines(reports: list[Report]) -> str:
    from tarmac.render import text

    return "".join(text.line(report) for report in reports)


def _screens(
    reports: list[Report], screen: Screen, started: float, verbose: bool, seconds: Mapping[str, float]
) -> str:
    from tarmac.render import text

    last = len(reports) - 1
    parts = []
    for i, report in enumerate(reports):
        elapsed = time.perf_counter() - started if i == last else None
        told = seconds if i == last else {}
        parts.append(text.render(report, screen, elapsed=elapsed, verbose=verbose, seconds=told))
    return "\n".join(parts)


# -- explain, probe, contract ---------------------------------------------------------------------------


def _explain(told: Told, screen: Screen, started: float) -> Answer:
    from tarmac import workflow
    from tarmac.render import explain, json

    if not told.arguments:
        every = workflow.explained()
        return (
            json.document({"rules": every}) if told.flags.get("json") else explain.index(every, screen)
        ), 0
    story = workflow.explain(told.arguments[0])
    return (json.document(story) if told.flags.get("json") else explain.page(story, screen)), 0


def _probe(told: Told, screen: Screen, started: float) -> Answer:
    flags = told.flags
    stated = what_if(flags)
    if "o" in flags:
        return _record(told, stated)
    from tarmac import workflow
    from tarmac.render import facts, json

    known = workflow.probe(python=flags.get("python"), on=flags.get("on"), what_if=stated)
    return (json.document(json.facts(known)) if flags.get("json") else facts.listing(known, screen)), 0


def _record(told: Told, stated: Mapping[str, str]) -> Answer:
    if "on" in told.flags or stated:
        raise Usage("-o records the machine that tarmac runs on: leave out --on and the what-if flags")
    from tarmac import workflow
    from tarmac.cli.terminal import sentence
    from tarmac.render import json

    path = told.flags["o"]
    text = json.document(workflow.record(python=told.flags.get("python")))
    if path == "-":
        return text, 0
    workflow.save(path, text)
    sentence(f"recorded this machine in {path}; judge it anywhere with tarmac check --on {path}")
    return "", 0


def _contract_list(told: Told, screen: Screen, started: float) -> Answer:
    from tarmac import workflow
    from tarmac.render import contract, json

    rows = workflow.contract_list()
    return (json.document({"contracts": rows}) if told.flags.get("json") else contract.known(rows, screen)), 0


def _contract_show(told: Told, screen: Screen, started: float) -> Answer:
    file = told.flags.get("contract")
    if bool(told.arguments) == (file is not None):
        raise Usage("tarmac contract show takes a FRAMEWORK or --contract FILE, one of the two")
    from tarmac import workflow
    from tarmac.render import contract, json

    shown = workflow.contract_show(told.arguments[0] if told.arguments else "", file)
    return (json.document(shown.to_json()) if told.flags.get("json") else contract.show(shown, screen)), 0


def _contract_diff(told: Told, screen: Screen, started: float) -> Answer:
    from tarmac import workflow
    from tarmac.render import contract, json

    a, b = told.arguments
    rows = workflow.contract_diff(a, b)
    if told.flags.get("json"):
        return json.document({"a": a, "b": b, "changes": rows}), 0
    return contract.difference(a, b, rows, screen), 0


def _contract_import(told: Told, screen: Screen, started: float) -> Answer:
    from tarmac import workflow
    from tarmac.render import contract, json

    imported, unplaced = workflow.contract_import(told.arguments[0])
    if told.flags.get("json"):
        return json.document({"contract": imported.to_json(), "unplaced": unplaced}), 0
    return contract.show(imported, screen) + contract.unplaced(unplaced, screen), 0


def _elsewhere(name: str) -> Callable[[Told, Screen, float], Answer]:
    """A command with a module of its own, which is imported when it is called."""

    def run(told: Told, screen: Screen, started: float) -> Answer:
        found: Answer = __import__(f"tarmac.cli.{name}", fromlist=["run"]).run(told, screen, started)
        return found

    return run


_COMMANDS = {
    "check": _check,
    "plan": _elsewhere("plan"),
    "install": _elsewhere("install"),
    "env": _elsewhere("env"),
    "fit": _elsewhere("fit"),
    "diagnose": _elsewhere("diagnose"),
    "run": _elsewhere("run"),
    "diff": _diff,
    "explain": _explain,
    "probe": _probe,
    "contract list": _contract_list,
    "contract show": _contract_show,
    "contract diff": _contract_diff,
    "contract import": _contract_import,
}
