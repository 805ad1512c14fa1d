"""``gpuready explain``: the explanation of a code, or all codes."""

from __future__ import annotations

from gpuready.cli.command_spec import COMMON_FLAGS, CommandSpec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.cli.command_spec import ParsedCommand
    from gpuready.render.layout import Screen

    CommandOutput = tuple[str, int]

COMMANDS = (CommandSpec("explain", "the long story behind a code, or all codes", COMMON_FLAGS, "[CODE]", most=1),)


def run(parsed: ParsedCommand, screen: Screen, started: float) -> CommandOutput:
    from gpuready import workflow
    from gpuready.render import explain, json_results

    if not parsed.arguments:
        explanations = workflow.explain_all_rules()
        return (
            json_results.render_codes_json(explanations)
            if parsed.flags.get("json")
            else explain.render_rule_index(explanations, screen)
        ), 0
    explanation = workflow.explain_rule(parsed.arguments[0])
    return (
        json_results.render_explain_json(explanation)
        if parsed.flags.get("json")
        else explain.render_rule_page(explanation, screen)
    ), 0
