"""``gpuready explain``: the explanation of a code, or all codes."""

from __future__ import annotations

from gpuready.cli.words import EVERYWHERE, Command

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.cli.words import Told
    from gpuready.render.layout import Screen

    Answer = tuple[str, int]

COMMANDS = (Command("explain", "the long story behind a code, or all codes", EVERYWHERE, "[CODE]", most=1),)


def run(told: Told, screen: Screen, started: float) -> Answer:
    from gpuready import workflow
    from gpuready.render import answers, explain

    if not told.arguments:
        every = workflow.explained()
        return (answers.codes(every) if told.flags.get("json") else explain.index(every, screen)), 0
    story = workflow.explain(told.arguments[0])
    return (answers.explain(story) if told.flags.get("json") else explain.page(story, screen)), 0
