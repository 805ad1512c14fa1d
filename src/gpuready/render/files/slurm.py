"""The head of a Slurm batch job: resources, variables, environment and start command."""

import shlex

from gpuready.model.plan import Plan
from gpuready.render.files import pins

MEMORY_SHARE = 0.95
"""The share of a machine's memory a job can request; the rest is for the system."""


def render(plan: Plan) -> str:
    lines = ["#!/bin/bash", *_sbatch_options(plan)]
    usage = "sbatch FILE train.py --its-arguments" if _uses_torchrun(plan) else "sbatch FILE"
    lines += pins.header_comment(plan, "A batch job", usage)
    lines += ["", "set -euo pipefail", ""]
    lines += export_lines(plan)
    lines += [
        "# The environment; no modules are loaded, since torch brings its own CUDA libraries.",
        'VENV="${VENV:-.venv}"',
        "# shellcheck source=/dev/null",
        'source "$VENV/bin/activate"',
        "",
        *(_torchrun_lines(plan) if _uses_torchrun(plan) else _own_command_lines(plan)),
    ]
    return pins.join_lines(lines)


def _uses_torchrun(plan: Plan) -> bool:
    """Whether the job is a script; some frameworks have a launcher of their own."""
    return not plan.start or plan.start[0] == "torchrun"


def _own_command_lines(plan: Plan) -> list[str]:
    return [
        "# The framework's own command, on one node; words after the name of this file replace it.",
        f'if [ "$#" -eq 0 ]; then set -- {shlex.join(plan.start)}; fi',
        f'srun --kill-on-bad-exit=1{_cpus_option(plan)} "$@"',
    ]


def _sbatch_options(plan: Plan) -> list[str]:
    """Resource options; of the machine only what is known."""
    lines = [f"#SBATCH --job-name={plan.framework}", "#SBATCH --nodes=1", "#SBATCH --ntasks-per-node=1"]
    for key, flag in (("gpus", "gpus-per-node"), ("cpus", "cpus-per-task")):
        if plan.host.get(key, 0) > 0:
            lines.append(f"#SBATCH --{flag}={int(plan.host[key])}")
    if plan.host.get("memory", 0) >= 1 << 30:
        lines.append(f"#SBATCH --mem={int(plan.host['memory'] * MEMORY_SHARE) >> 30}G")
    return lines


def export_lines(plan: Plan) -> list[str]:
    """The plan's variables for bash: exports, and unsets."""
    lines = [f"export {name}={shlex.quote(value)}" for name, value in sorted(plan.variables.items())]
    lines += [f"unset {name}" for name in sorted(plan.unset)]
    return [*lines, ""] if lines else []


def _cpus_option(plan: Plan) -> str:
    """Since Slurm 22.05 srun does not inherit --cpus-per-task from sbatch."""
    return ' --cpus-per-task="$SLURM_CPUS_PER_TASK"' if plan.host.get("cpus", 0) > 0 else ""


def _torchrun_lines(plan: Plan) -> list[str]:
    processes = "gpu" if plan.cuda else "1"
    return [
        'MASTER_ADDR="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)"',
        'MASTER_PORT="$((20000 + SLURM_JOB_ID % 20000))"',
        "export MASTER_ADDR MASTER_PORT",
        "",
        f"srun --kill-on-bad-exit=1{_cpus_option(plan)} torchrun \\",
        f'  --nnodes="$SLURM_JOB_NUM_NODES" --nproc-per-node={processes} \\',
        '  --rdzv-id="$SLURM_JOB_ID" --rdzv-backend=c10d --rdzv-endpoint="$MASTER_ADDR:$MASTER_PORT" \\',
        '  "$@"',
    ]
