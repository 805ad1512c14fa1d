"""environment.yml: Python from conda-forge, everything else as the wheels of the plan."""

from __future__ import annotations

from gpuready.render.files import pins, quoting, requirements

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.planned import Plan

CHANNELS = (
    "Only Python and pip come from conda, and from conda-forge alone (nodefaults): the wheels are what the plan "
    "was checked with, PyTorch publishes no conda packages any more, and two builders of one CUDA stack in one "
    "environment do not mix."
)


def document(plan: Plan) -> str:
    lines = pins.head(plan, "A conda environment", "conda env create -f environment.yml")
    lines += quoting.wrapped(CHANNELS)
    lines += [
        f"name: {quoting.text(plan.framework.lower())}",
        "channels:",
        "  - conda-forge",
        "  - nodefaults",
    ]
    lines += ["dependencies:"]
    lines += [f"  - {quoting.text('python=' + plan.python)}" if plan.python else "  - python"]
    lines += ["  - pip", "  - pip:", *(f"      - {quoting.text(line)}" for line in _pip(plan))]
    for one in pins.from_elsewhere(plan):
        lines += quoting.wrapped(
            f"Afterwards, since {one.name} comes from no index: pip install --no-deps {one.origin}"
        )
    for words in pins.compilations(plan):
        lines += quoting.wrapped(f"Afterwards, against that torch: {quoting.words(words)}")
    if plan.variables:
        lines += ["variables:"]
        lines += [f"  {name}: {quoting.text(value)}" for name, value in sorted(plan.variables.items())]
    return pins.listed(lines)


def _pip(plan: Plan) -> list[str]:
    """The pip lines of environment.yml."""
    if pins.is_resolved(plan):
        return requirements.lines(plan, joined=True)
    own = pins.default_index(plan)
    addresses = [f"--index-url {own}"] if own else []
    addresses += [f"--extra-index-url {address}" for address in pins.indexes(plan).values()]
    return [*addresses, *pins.wanted(plan).values()]
