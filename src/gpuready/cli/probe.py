"""``gpuready probe``: what gpuready sees of this machine."""

from __future__ import annotations

from gpuready.cli.words import EVERYWHERE, PATIENT, WHAT_IF, Command, Flag, Usage, what_if

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuready.cli.words import Told
    from gpuready.render.layout import Screen

    Answer = tuple[str, int]

_FLAGS = Flag("-o", "record this machine in a file, for --on or a bug report; - is stdout", "FILE")
COMMANDS = (
    Command("probe", "what gpuready sees of this machine", (*PATIENT, _FLAGS, *WHAT_IF, *EVERYWHERE)),
)


def run(told: Told, screen: Screen, started: float) -> Answer:
    flags = told.flags
    stated = what_if(flags)
    if "o" in flags:
        return _record(told, stated)
    from gpuready import workflow
    from gpuready.render import answers, facts

    known = workflow.probe(python=flags.get("python"), on=flags.get("on"), what_if=stated)
    return (answers.probe(known) if flags.get("json") else facts.listing(known, screen)), 0


def _record(told: Told, stated: Mapping[str, str]) -> Answer:
    if "on" in told.flags or stated:
        raise Usage("-o records the machine that gpuready runs on: leave out --on and the what-if flags")
    from gpuready import workflow
    from gpuready.cli.terminal import sentence
    from gpuready.render import answers

    path = told.flags["o"]
    text = answers.recording(workflow.record(python=told.flags.get("python")))
    if path == "-":
        return text, 0
    workflow.save(path, text)
    sentence(f"recorded this machine in {path}; judge it anywhere with gpuready check --on {path}")
    return "", 0
