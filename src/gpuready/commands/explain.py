"""``gpuready explain``: the explanation of a code, or all codes."""

from gpuready import workflow
from gpuready.commands.declaration import Command, Parameter, Request, call_command, collect_parameters
from gpuready.commands.parameters import COMMON
from gpuready.commands.result import Result
from gpuready.render import explain as render
from gpuready.render import json_results


def run(request: Request) -> Result:
    word = request.first_argument.strip().upper()
    is_family = not word or (len(word) == 3 and word.isalpha())  # NET of NET001
    if is_family and (rules := [row for row in workflow.explain_all_rules() if row["code"].startswith(word)]):
        return Result(rules, json_results.renderer("codes"), render.render_rule_index)
    rule = workflow.explain_rule(request.first_argument)
    return Result(rule, json_results.renderer("explain"), render.render_rule_page)


EXPLAIN = Command(
    "explain",
    "what a code means, why it matters and how to fix it; or all codes",
    run,
    collect_parameters(COMMON),
    "[CODE]",
    most=1,
    argument=Parameter(
        "A code such as DRV001, the name of a rule, or a family such as DRV.",
        name="code",
        flag="code",
        least=0,
        mcp=True,
        web="code",
        max_length=80,
    ),
    examples=("DRV001", "driver-older-than-wheel", "--json"),
)
COMMANDS = (EXPLAIN,)


def explain(code: str | None = None) -> Result:
    """Explain one rule code; without a code, list all of them."""
    return call_command(EXPLAIN, () if code is None else (code,), {})
