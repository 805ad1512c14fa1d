"""``gpuready diff``: what changed between two machines."""

from gpuready import workflow
from gpuready.commands.declaration import Command, Parameter, Request, collect_parameters
from gpuready.commands.parameters import COMMON
from gpuready.commands.result import Result
from gpuready.render import facts, json_results


def run(request: Request) -> Result:
    a, b = request.arguments
    found = workflow.diff_machines(a, b, request.get_option("framework"))
    return Result(
        found,
        lambda found: json_results.render_json("diff", a, b, found),
        facts.render_fact_changes,
        exit=1 if any(change.is_worse for change in found) else 0,
    )


_FRAMEWORK = Parameter("judge both for this framework", "FRAMEWORK", flag="--for")
COMMANDS = (
    Command(
        "diff",
        "what changed between two machines",
        run,
        collect_parameters({"framework": _FRAMEWORK}, COMMON),
        "A B",
        2,
        2,
        examples=("before.json after.json", "h100 h200 --for vllm", "rtx4090 machine.json --json"),
    ),
)
