"""``gpuready contract``: what frameworks require."""

from __future__ import annotations

from gpuready.cli.words import EVERYWHERE, Command, Flag, Usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.cli.words import Told
    from gpuready.render.layout import Screen

    Answer = tuple[str, int]

_FLAGS = Flag("--contract", "a contract in a file", "FILE")
COMMANDS = (
    Command("contract list", "the frameworks and versions that gpuready knows", EVERYWHERE),
    Command("contract show", "what a framework asks for", (_FLAGS, *EVERYWHERE), "[FRAMEWORK]", 0, 1),
    Command("contract diff", "what changed between two contracts", EVERYWHERE, "A B", 2, 2),
    Command("contract import", "an environment page as a contract", EVERYWHERE, "PAGE", 1, 1),
)


def _list(told: Told, screen: Screen, started: float) -> Answer:
    from gpuready import workflow
    from gpuready.render import answers, contract

    rows = workflow.contract_list()
    return (answers.contracts(rows) if told.flags.get("json") else contract.known(rows, screen)), 0


def _show(told: Told, screen: Screen, started: float) -> Answer:
    file = told.flags.get("contract")
    if bool(told.arguments) == (file is not None):
        raise Usage("gpuready contract show takes a FRAMEWORK or --contract FILE, one of the two")
    from gpuready import workflow
    from gpuready.render import answers, contract

    shown = workflow.contract_show(told.arguments[0] if told.arguments else "", file)
    return (answers.contract(shown) if told.flags.get("json") else contract.show(shown, screen)), 0


def _diff(told: Told, screen: Screen, started: float) -> Answer:
    from gpuready import workflow
    from gpuready.render import answers, contract

    a, b = told.arguments
    rows = workflow.contract_diff(a, b, files=True)
    if told.flags.get("json"):
        return answers.contract_diff(a, b, rows), 0
    return contract.difference(a, b, rows, screen), 0


def _import(told: Told, screen: Screen, started: float) -> Answer:
    from gpuready import workflow
    from gpuready.render import answers, contract

    imported, unplaced = workflow.contract_import(told.arguments[0])
    if told.flags.get("json"):
        return answers.contract_import(imported, unplaced), 0
    return contract.show(imported, screen) + contract.unplaced(unplaced, screen), 0


def run(told: Told, screen: Screen, started: float) -> Answer:
    acts = {"list": _list, "show": _show, "diff": _diff, "import": _import}
    return acts[told.command.partition(" ")[2]](told, screen, started)
