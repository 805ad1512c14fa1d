"""``gpuready diff``: what changed between two machines."""

from __future__ import annotations

from gpuready.cli.words import EVERYWHERE, Command, Flag

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.cli.words import Told
    from gpuready.render.layout import Screen

    Answer = tuple[str, int]

_FLAGS = (Flag("--for", "judge both for this framework", "FRAMEWORK"),)
COMMANDS = (Command("diff", "what changed between two machines", _FLAGS + EVERYWHERE, "A B", 2, 2),)


def run(told: Told, screen: Screen, started: float) -> Answer:
    from gpuready import workflow
    from gpuready.render import answers, changes

    a, b = told.arguments
    found = workflow.diff(a, b, told.flags.get("for"))
    code = 1 if any(change.worse for change in found) else 0
    if told.flags.get("json"):
        return answers.diff(a, b, found), code
    return changes.listing(found, screen), code
