"""environment.yml: Python from conda-forge, everything else as the wheels of the plan."""

import shlex

from gpuready.model.plan import Plan
from gpuready.render.files import pins, quoting, requirements

CHANNELS_COMMENT = (
    "Only Python and pip come from conda, and from conda-forge alone (nodefaults): the wheels are what the plan "
    "was checked with, PyTorch publishes no conda packages any more, and two builders of one CUDA stack in one "
    "environment do not mix."
)


def render(plan: Plan) -> str:
    lines = pins.header_comment(plan, "A conda environment", "conda env create -f environment.yml")
    lines += quoting.wrap_comment(CHANNELS_COMMENT)
    lines += [
        f"name: {quoting.quote_toml_string(plan.framework.lower())}",
        "channels:",
        "  - conda-forge",
        "  - nodefaults",
    ]
    lines += ["dependencies:"]
    lines += [f"  - {quoting.quote_toml_string('python=' + plan.python)}" if plan.python else "  - python"]
    lines += [
        "  - pip",
        "  - pip:",
        *(f"      - {quoting.quote_toml_string(line)}" for line in _pip_requirement_lines(plan)),
    ]
    for one in pins.packages_outside_indexes(plan):
        lines += quoting.wrap_comment(
            f"Afterwards, since {one.name} comes from no index: pip install --no-deps {one.origin}"
        )
    for words in pins.kernel_build_commands(plan):
        lines += quoting.wrap_comment(f"Afterwards, against that torch: {shlex.join(words)}")
    if plan.variables:
        lines += ["variables:"]
        lines += [f"  {name}: {quoting.quote_toml_string(value)}" for name, value in sorted(plan.variables.items())]
    return pins.join_lines(lines)


def _pip_requirement_lines(plan: Plan) -> list[str]:
    """The pip lines of environment.yml."""
    if pins.is_resolved(plan):
        return requirements.requirement_lines(plan, joined=True)
    return [*pins.index_options(plan), *pins.requirements_by_package(plan).values()]
