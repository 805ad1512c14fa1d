"""``gpuready contract``: what frameworks require."""

from __future__ import annotations

from gpuready.cli.command_spec import COMMON_FLAGS, CommandSpec, Flag, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.cli.command_spec import ParsedCommand
    from gpuready.render.layout import Screen

    CommandOutput = tuple[str, int]

_CONTRACT_FLAG = Flag("--contract", "a contract in a file", "FILE")
COMMANDS = (
    CommandSpec("contract list", "the frameworks and versions that gpuready knows", COMMON_FLAGS),
    CommandSpec("contract show", "what a framework asks for", (_CONTRACT_FLAG, *COMMON_FLAGS), "[FRAMEWORK]", 0, 1),
    CommandSpec("contract diff", "what changed between two contracts", COMMON_FLAGS, "A B", 2, 2),
    CommandSpec("contract import", "an environment page as a contract", COMMON_FLAGS, "PAGE", 1, 1),
)


def _list_contracts(parsed: ParsedCommand, screen: Screen, started: float) -> CommandOutput:
    from gpuready import workflow
    from gpuready.render import contract, json_results

    rows = workflow.contract_list()
    return (
        json_results.render_contracts_json(rows)
        if parsed.flags.get("json")
        else contract.render_contract_list(rows, screen)
    ), 0


def _show_contract(parsed: ParsedCommand, screen: Screen, started: float) -> CommandOutput:
    file = parsed.flags.get("contract")
    if bool(parsed.arguments) == (file is not None):
        raise UsageError("gpuready contract show takes a FRAMEWORK or --contract FILE, one of the two")
    from gpuready import workflow
    from gpuready.render import contract, json_results

    contract_shown = workflow.contract_show(parsed.arguments[0] if parsed.arguments else "", file)
    return (
        json_results.render_contract_json(contract_shown)
        if parsed.flags.get("json")
        else contract.render_contract_screen(contract_shown, screen)
    ), 0


def _diff_contracts(parsed: ParsedCommand, screen: Screen, started: float) -> CommandOutput:
    from gpuready import workflow
    from gpuready.render import contract, json_results

    a, b = parsed.arguments
    rows = workflow.contract_diff(a, b, files=True)
    if parsed.flags.get("json"):
        return json_results.render_contract_diff_json(a, b, rows), 0
    return contract.render_contract_diff(a, b, rows, screen), 0


def _import_contract(parsed: ParsedCommand, screen: Screen, started: float) -> CommandOutput:
    from gpuready import workflow
    from gpuready.render import contract, json_results

    imported, unplaced = workflow.contract_import(parsed.arguments[0])
    if parsed.flags.get("json"):
        return json_results.render_contract_import_json(imported, unplaced), 0
    return contract.render_contract_screen(imported, screen) + contract.format_unplaced_lines(unplaced, screen), 0


def run(parsed: ParsedCommand, screen: Screen, started: float) -> CommandOutput:
    handlers = {"list": _list_contracts, "show": _show_contract, "diff": _diff_contracts, "import": _import_contract}
    return handlers[parsed.command.partition(" ")[2]](parsed, screen, started)
