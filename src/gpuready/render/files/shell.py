"""A shell script that creates the environment; it can be rerun and stops at the first failure."""

from __future__ import annotations

from gpuready.render import again
from gpuready.render.files import pins, quoting, requirements, slurm

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Step
    from gpuready.planned import Plan

END = "GPUREADY_END"
MINE = ("uv", "gpuready")
"""Steps of these programs are covered by the lock of a resolved plan."""


def document(plan: Plan) -> str:
    lines = ["#!/usr/bin/env bash", *pins.head(plan, *_says(plan)), "", "set -euo pipefail", ""]
    if _mends(plan):
        lines += [line for step in plan.steps for line in _step(step)]
        lines += _told(plan)
    elif pins.is_resolved(plan) or not any(step.run for step in plan.steps):
        lines += [*_environment(plan), *_locked(plan), *_compiled(plan)]
        lines += [line for step in plan.steps if _is_left(step) for line in _step(step)]
        lines += _variables(plan)
    else:
        lines += [*_environment(plan), *(line for step in plan.steps for line in _step(step, fresh=True))]
        lines += _variables(plan)
    return pins.listed([*lines, *_done(plan)])


def _says(plan: Plan) -> tuple[str, str]:
    if _mends(plan):
        return "The steps that mend an environment", "each stops the script where it fails."
    return "A script that makes an environment", "bash FILE [FOLDER]"


def _mends(plan: Plan) -> bool:
    """Whether the plan fixes an existing environment and so consists of steps."""
    return bool(plan.options.get("fix"))


def _environment(plan: Plan) -> list[str]:
    python = ("--python", plan.python) if plan.python else ()
    return [
        'VENV="${1:-.venv}"',
        'PYTHON="$VENV/bin/python"',
        "if ! command -v uv >/dev/null; then",
        "  echo 'uv is not installed: pip install uv' >&2",
        "  exit 1",
        "fi",
        'if [ ! -x "$PYTHON" ]; then',
        f'  uv venv {quoting.words(python)}{" " if python else ""}"$VENV"',
        "fi",
        "",
    ]


def _locked(plan: Plan) -> list[str]:
    """By hash where resolved, else the versions chosen so far."""
    if not pins.is_resolved(plan):
        return [*_chosen(plan), ""]
    return [
        'REQUIREMENTS="$(mktemp)"',
        "trap 'rm -f \"$REQUIREMENTS\"' EXIT",
        f"cat >\"$REQUIREMENTS\" <<'{END}'",
        *requirements.lines(plan),
        END,
        f'uv pip install --python "$PYTHON" {quoting.words(pins.installing(plan))} -r "$REQUIREMENTS"',
        *_elsewhere(plan),
        "",
    ]


def _elsewhere(plan: Plan) -> list[str]:
    start = 'uv pip install --python "$PYTHON" --no-deps '
    return [start + quoting.word(one.origin) for one in pins.from_elsewhere(plan)]


def _chosen(plan: Plan) -> list[str]:
    """Packages pinned to an index first, from there only; then the rest from the default index."""
    wanted, found = pins.wanted(plan), pins.indexes(plan)
    lines = []
    for index, address in found.items():
        mine = [one for name, one in wanted.items() if pins.index_of(plan, name) == index]
        flags = ("--default-index", address, *mine)
        lines.append(f'uv pip install --python "$PYTHON" {quoting.words(flags)}')
    rest = [one for name, one in wanted.items() if pins.index_of(plan, name) not in found]
    if rest:
        lines.append(f'uv pip install --python "$PYTHON" {quoting.words(rest)}')
    return lines


def _compiled(plan: Plan) -> list[str]:
    lines = [pins.into(words, '"$PYTHON"') for words in pins.compilations(plan)]
    return ["# Against the torch that is there now.", *lines, ""] if lines else []


def _is_left(step: Step) -> bool:
    return not step.run or step.run[0] not in MINE or step.safety == "manual"


def _step(step: Step, fresh: bool = False) -> list[str]:
    """One step: its command, or a message where a person must do it.

    For a fresh environment the script has already created the folder it was given.
    """
    if not step.run or step.safety == "manual":
        command = f": {quoting.words(step.run)}" if step.run else ""
        note = f" ({step.note})" if step.note else ""
        said = quoting.comment(f"by hand: {step.does}{note}{command}")
        return [f"echo {quoting.word(said)} >&2"]
    said = quoting.comment(step.does)
    if fresh and (step.run[:2] == ("uv", "venv") or step.run[0] == "gpuready"):
        return []
    command = pins.into(step.run, '"$PYTHON"') if fresh else quoting.words(step.run)
    if step.run[:2] == ("uv", "venv"):
        command = f"[ -x {quoting.word(step.run[-1] + '/bin/python')} ] || {command}"
    return [f"# {said}", command]


def _variables(plan: Plan) -> list[str]:
    """Write the plan's variables to a file beside the environment for a job to source."""
    lines = [line for line in slurm.exports(plan) if line]
    if not lines:
        return []
    return [f"cat >\"$VENV/variables.sh\" <<'{END}'", *lines, END]


def _told(plan: Plan) -> list[str]:
    """Print the variables of a fixed environment: a script cannot set them for its parent shell."""
    lines = [line for line in slurm.exports(plan) if line]
    return (
        ["", *(f"echo {quoting.word('in the shell that starts the job: ' + line)}" for line in lines)]
        if lines
        else []
    )


def _done(plan: Plan) -> list[str]:
    if _mends(plan):
        look = quoting.words(again.checking(plan))
        return ["", f"echo {quoting.word(f'now look again: {look}')}"]
    source = "; variables: source $VENV/variables.sh" if plan.variables or plan.unset else ""
    return ["", f'echo "done; look at it with: gpuready check {plan.framework} --python $VENV{source}"']
