"""``tarmac diff``: what changed between two machines."""

from __future__ import annotations

from tarmac.cli.words import EVERYWHERE, Command, Flag

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tarmac.cli.words import Told
    from tarmac.render.layout import Screen

    Answer = tuple[str, int]

_FLAGS = (Flag("--for", "judge both for this framework", "FRAMEWORK"),)
COMMANDS = (Command("diff", "what changed between two machines", _FLAGS + EVERYWHERE, "A B", 2, 2),)


def run(told: Told, screen: Screen, started: float) -> Answer:
    from tarmac import workflow
    from tarmac.render import answers, changes

    a, b = told.arguments
    found = workflow.diff(a, b, told.flags.get("for"))
    code = 1 if any(change.worse for change in found) else 0
    if told.flags.get("json"):
        return answers.diff(a, b, found), code
    return changes.listing(found, screen), code
