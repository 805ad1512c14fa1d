"""``gpuready probe``: what gpuready sees of this machine."""

from __future__ import annotations

from gpuready.cli.command_spec import (
    COMMON_FLAGS,
    TARGET_FLAGS,
    WHAT_IF_FLAGS,
    CommandSpec,
    Flag,
    UsageError,
    what_if_values,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuready.cli.command_spec import ParsedCommand
    from gpuready.render.layout import Screen

    CommandOutput = tuple[str, int]

_OUTPUT_FLAG = Flag("-o", "record this machine in a file, for --on or a bug report; - is stdout", "FILE")
COMMANDS = (
    CommandSpec(
        "probe", "what gpuready sees of this machine", (*TARGET_FLAGS, _OUTPUT_FLAG, *WHAT_IF_FLAGS, *COMMON_FLAGS)
    ),
)


def run(parsed: ParsedCommand, screen: Screen, started: float) -> CommandOutput:
    flags = parsed.flags
    stated = what_if_values(flags)
    if "o" in flags:
        return _record_machine(parsed, stated)
    from gpuready import workflow
    from gpuready.render import facts, json_results

    known = workflow.probe_machine(python=flags.get("python"), on=flags.get("on"), what_if=stated)
    return (json_results.render_probe_json(known) if flags.get("json") else facts.render_fact_list(known, screen)), 0


def _record_machine(parsed: ParsedCommand, stated: Mapping[str, str]) -> CommandOutput:
    if "on" in parsed.flags or stated:
        raise UsageError("-o records the machine that gpuready runs on: leave out --on and the what-if flags")
    from gpuready import workflow
    from gpuready.cli.terminal import write_sentence
    from gpuready.render import json_results

    path = parsed.flags["o"]
    text = json_results.render_recording_json(workflow.record_machine(python=parsed.flags.get("python")))
    if path == "-":
        return text, 0
    workflow.save_text_file(path, text)
    write_sentence(f"recorded this machine in {path}; judge it anywhere with gpuready check --on {path}")
    return "", 0
