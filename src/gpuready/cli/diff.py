"""``gpuready diff``: what changed between two machines."""

from __future__ import annotations

from gpuready.cli.command_spec import COMMON_FLAGS, CommandSpec, Flag

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.cli.command_spec import ParsedCommand
    from gpuready.render.layout import Screen

    CommandOutput = tuple[str, int]

_FLAGS = (Flag("--for", "judge both for this framework", "FRAMEWORK"),)
COMMANDS = (CommandSpec("diff", "what changed between two machines", _FLAGS + COMMON_FLAGS, "A B", 2, 2),)


def run(parsed: ParsedCommand, screen: Screen, started: float) -> CommandOutput:
    from gpuready import workflow
    from gpuready.render import changes, json_results

    a, b = parsed.arguments
    changes_found = workflow.diff_machines(a, b, parsed.flags.get("for"))
    code = 1 if any(change.is_worse for change in changes_found) else 0
    if parsed.flags.get("json"):
        return json_results.render_diff_json(a, b, changes_found), code
    return changes.render_fact_changes(changes_found, screen), code
