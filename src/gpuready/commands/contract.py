"""``gpuready contract``: what frameworks require."""

from gpuready import workflow
from gpuready.commands.declaration import Command, Parameter, Request, UsageError, call_command, collect_parameters
from gpuready.commands.parameters import COMMON, PathArgument, framework_argument
from gpuready.commands.result import Result
from gpuready.render import contract as render
from gpuready.render import json_results
from gpuready.render.contract import render_contract_toml
from gpuready.workflow.contract_draft import check_contract_file, draft_contract


def _list_contracts(request: Request) -> Result:
    rows = workflow.contract_list()
    return Result(rows, json_results.renderer("contracts"), render.render_contract_list)


def _show_contract(request: Request) -> Result:
    file = request.get_option("file")
    if bool(request.arguments) == (file is not None):
        raise UsageError("gpuready contract show takes a FRAMEWORK or --contract FILE, one of the two")
    shown = workflow.contract_show(request.first_argument, file)
    return Result(shown, json_results.renderer("contract"), render.render_contract_screen)


def _diff_contracts(request: Request) -> Result:
    a, b = request.arguments
    rows = workflow.contract_diff(a, b, files=True)
    return Result(
        rows,
        lambda rows: json_results.render_json("contract_diff", a, b, rows),
        lambda rows, screen: render.render_contract_diff(a, b, rows, screen),
    )


def _draft_contract(request: Request) -> Result:
    output = request.get_option("output")
    if output is not None:
        workflow.require_new_file(output)
    name, *source = request.arguments
    drafted = draft_contract(name, *source)
    text = render_contract_toml(drafted)
    if output is not None:
        workflow.save_text_file(output, text, private=False)
        text = f"{output} has a draft of {drafted.name}: add what its files do not tell, then gpuready contract check {output}\n"
    return Result(drafted, json_results.renderer("contract"), lambda _, screen: text)


def _check_contract(request: Request) -> Result:
    checked = check_contract_file(request.first_argument)
    return Result(checked, json_results.renderer("contract_check"), render.render_contract_check)


_COMMON = collect_parameters(COMMON)
_FILE = Parameter("a file of requirements", "FILE", flag="--contract")
_OUTPUT = Parameter("write the draft to a new file", "FILE", flag="-o", python=False)
LIST = Command(
    "contract list",
    "list the known frameworks and versions",
    _list_contracts,
    _COMMON,
    examples=("", "--json", "--color never"),
)
SHOW = Command(
    "contract show",
    "show a framework's requirements",
    _show_contract,
    collect_parameters({"file": _FILE}, COMMON),
    "[FRAMEWORK]",
    0,
    1,
    argument=framework_argument(),
    examples=("vllm", "axolotl==0.18 --json", "--contract mine.toml"),
)
COMMANDS = (
    LIST,
    SHOW,
    Command(
        "contract diff",
        "what changed between the requirements of two releases",
        _diff_contracts,
        _COMMON,
        "A B",
        2,
        2,
        examples=("axolotl==0.18 axolotl==0.21", "mine.toml vllm", "transformers==5.0 transformers==5.22 --json"),
    ),
    Command(
        "contract new",
        "draft requirements from a wheel, a checkout or the index",
        _draft_contract,
        collect_parameters({"output": _OUTPUT}, COMMON),
        "NAME [SOURCE]",
        1,
        2,
        examples=("kite kite_ml-1.2.3-py3-none-any.whl", "kite src/kite -o kite.toml", "kite==1.2.3"),
    ),
    Command(
        "contract check",
        "judge a file of requirements",
        _check_contract,
        _COMMON,
        "FILE",
        1,
        1,
        examples=("kite.toml", "kite.toml --json", "kite.toml --color never"),
    ),
)


def contract(framework: str | None = None, *, file: PathArgument | None = None) -> Result:
    """Return what a framework requires; without a name, the known frameworks and versions."""
    if framework is None and file is None:
        return call_command(LIST, (), {})
    return call_command(SHOW, () if framework is None else (framework,), {"file": file})
