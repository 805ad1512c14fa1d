"""A shell script that creates the environment; it can be rerun and stops at the first failure."""

import shlex

from gpuready.model import FixStep
from gpuready.model.plan import Plan
from gpuready.model.visible_text import escape_unprintable
from gpuready.render.files import pins, requirements, slurm
from gpuready.render.plan import build_check_command

HEREDOC_END = "GPUREADY_END"
INSTALLER_PROGRAMS = ("uv", "gpuready")
"""Steps of these programs are covered by the lock of a resolved plan."""


def render(plan: Plan) -> str:
    lines = ["#!/usr/bin/env bash", *pins.header_comment(plan, *_describe_script(plan)), "", "set -euo pipefail", ""]
    if _is_fix_plan(plan):
        lines += [line for step in plan.steps for line in _script_step_lines(step)]
        lines += _echo_variables(plan)
    elif pins.is_resolved(plan) or not any(step.run for step in plan.steps):
        lines += [*_create_venv_lines(plan), *_install_package_lines(plan), *_build_kernel_lines(plan)]
        lines += [line for step in plan.steps if _is_step_needed(step) for line in _script_step_lines(step)]
        lines += _write_variables_file(plan)
    else:
        lines += [
            *_create_venv_lines(plan),
            *(line for step in plan.steps for line in _script_step_lines(step, fresh=True)),
        ]
        lines += _write_variables_file(plan)
    return pins.join_lines([*lines, *_closing_hint(plan)])


def _describe_script(plan: Plan) -> tuple[str, str]:
    if _is_fix_plan(plan):
        return "The steps that fix an environment", "each stops the script where it fails."
    return "A script that makes an environment", "bash FILE [FOLDER]"


def _is_fix_plan(plan: Plan) -> bool:
    """Whether the plan fixes an existing environment and so consists of steps."""
    return bool(plan.options.get("fix"))


def _create_venv_lines(plan: Plan) -> list[str]:
    python = ("--python", plan.python) if plan.python else ()
    return [
        'VENV="${1:-.venv}"',
        'PYTHON="$VENV/bin/python"',
        "if ! command -v uv >/dev/null; then",
        "  echo 'uv is not installed: pip install uv' >&2",
        "  exit 1",
        "fi",
        'if [ ! -x "$PYTHON" ]; then',
        f'  uv venv {shlex.join(python)}{" " if python else ""}"$VENV"',
        "fi",
        "",
    ]


def _install_package_lines(plan: Plan) -> list[str]:
    """By hash where resolved, else the versions chosen so far."""
    if not pins.is_resolved(plan):
        return [*_unresolved_install_lines(plan), ""]
    return [
        'REQUIREMENTS="$(mktemp)"',
        "trap 'rm -f \"$REQUIREMENTS\"' EXIT",
        f"cat >\"$REQUIREMENTS\" <<'{HEREDOC_END}'",
        *requirements.requirement_lines(plan),
        HEREDOC_END,
        f'uv pip install --python "$PYTHON" {shlex.join(pins.hashed_install_flags(plan))} -r "$REQUIREMENTS"',
        *_install_origin_lines(plan),
        "",
    ]


def _install_origin_lines(plan: Plan) -> list[str]:
    start = 'uv pip install --python "$PYTHON" --no-deps '
    return [start + shlex.quote(one.origin) for one in pins.packages_outside_indexes(plan)]


def _unresolved_install_lines(plan: Plan) -> list[str]:
    """Packages pinned to an index first, from there only; then the rest from the default index."""
    pins_by_name, extra_indexes = pins.requirements_by_package(plan), pins.extra_index_urls(plan)
    lines = []
    for index, address in extra_indexes.items():
        index_pins = [one for name, one in pins_by_name.items() if pins.find_package_index(plan, name) == index]
        flags = ("--default-index", address, *index_pins)
        lines.append(f'uv pip install --python "$PYTHON" {shlex.join(flags)}')
    rest = [one for name, one in pins_by_name.items() if pins.find_package_index(plan, name) not in extra_indexes]
    if rest:
        lines.append(f'uv pip install --python "$PYTHON" {shlex.join(rest)}')
    return lines


def _build_kernel_lines(plan: Plan) -> list[str]:
    lines = [pins.retarget_install_command(words, '"$PYTHON"') for words in pins.kernel_build_commands(plan)]
    return ["# Against the torch that is there now.", *lines, ""] if lines else []


def _is_step_needed(step: FixStep) -> bool:
    return not step.run or step.run[0] not in INSTALLER_PROGRAMS or step.safety == "manual"


def _script_step_lines(step: FixStep, fresh: bool = False) -> list[str]:
    """One step: its command, or a message where a person must do it.

    For a fresh environment the script has already created the folder of its argument.
    """
    if not step.run or step.safety == "manual":
        command = f": {shlex.join(step.run)}" if step.run else ""
        note = f" ({step.note})" if step.note else ""
        description = escape_unprintable(f"by hand: {step.does}{note}{command}")
        return [f"echo {shlex.quote(description)} >&2"]
    description = escape_unprintable(step.does)
    if fresh and (step.run[:2] == ("uv", "venv") or step.run[0] == "gpuready"):
        return []
    command = pins.retarget_install_command(step.run, '"$PYTHON"') if fresh else shlex.join(step.run)
    if step.run[:2] == ("uv", "venv"):
        command = f"[ -x {shlex.quote(step.run[-1] + '/bin/python')} ] || {command}"
    return [f"# {description}", command]


def _write_variables_file(plan: Plan) -> list[str]:
    """Write the plan's variables to a file beside the environment for a job to source."""
    lines = [line for line in slurm.export_lines(plan) if line]
    if not lines:
        return []
    return [f"cat >\"$VENV/variables.sh\" <<'{HEREDOC_END}'", *lines, HEREDOC_END]


def _echo_variables(plan: Plan) -> list[str]:
    """Print the variables of a fixed environment: a script cannot set them for its parent shell."""
    lines = [line for line in slurm.export_lines(plan) if line]
    return (
        ["", *(f"echo {shlex.quote('in the shell that starts the job: ' + line)}" for line in lines)] if lines else []
    )


def _closing_hint(plan: Plan) -> list[str]:
    if _is_fix_plan(plan):
        check_command = shlex.join(build_check_command(plan))
        return ["", f"echo {shlex.quote(f'now look again: {check_command}')}"]
    source = "; variables: source $VENV/variables.sh" if plan.variables or plan.unset else ""
    return ["", f'echo "done; look at it with: gpuready check {plan.framework} --python $VENV{source}"']
