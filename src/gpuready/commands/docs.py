"""``gpuready docs``: the guides that are installed beside gpuready."""

import json

from gpuready.commands.declaration import Command, Request, collect_parameters
from gpuready.commands.parameters import COMMON
from gpuready.commands.result import Result
from gpuready.render.layout import Screen
from gpuready.workflow.guides import list_guides, read_guide


def run(request: Request) -> Result:
    if request.first_argument:
        text = read_guide(request.first_argument)
        return Result(text, json.dumps, lambda found, screen: str(found))
    return Result(list_guides(), json.dumps, _format_guides)


def _format_guides(paths: dict[str, str], screen: Screen) -> str:
    """A path is never shortened: it is there to be opened."""
    width = max(map(len, paths))
    return (
        "\n".join(["gpuready docs NAME prints one of these:", "", *(f"  {n:<{width}}  {p}" for n, p in paths.items())])
        + "\n"
    )


DOCS = Command(
    "docs",
    "the guides: where they are, or the text of one",
    run,
    collect_parameters(COMMON),
    "[NAME]",
    most=1,
    examples=("", "fit", "diagnose"),
)
COMMANDS = (DOCS,)
