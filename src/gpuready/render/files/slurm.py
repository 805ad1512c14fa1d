"""The head of a Slurm batch job: resources, variables, environment and start command."""

from __future__ import annotations

import shlex

from gpuready.render.files import pins

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model.plan import Plan

MEMORY_SHARE = 0.95
"""The share of a machine's memory a job can request; the rest is for the system."""


def render(plan: Plan) -> str:
    lines = ["#!/bin/bash", *_sbatch_options(plan)]
    lines += pins.header_comment(plan, "A batch job", "sbatch FILE train.py --its-arguments")
    lines += ["", "set -euo pipefail", ""]
    lines += export_lines(plan)
    lines += [
        "# The environment; no modules are loaded, since torch brings its own CUDA libraries.",
        'VENV="${VENV:-.venv}"',
        "# shellcheck source=/dev/null",
        'source "$VENV/bin/activate"',
        "",
        'MASTER_ADDR="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)"',
        'MASTER_PORT="$((20000 + SLURM_JOB_ID % 20000))"',
        "export MASTER_ADDR MASTER_PORT",
        "",
        *_srun_lines(plan),
    ]
    return pins.join_lines(lines)


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


def _srun_lines(plan: Plan) -> list[str]:
    processes = "gpu" if plan.cuda else "1"
    # Since Slurm 22.05 srun does not inherit --cpus-per-task from sbatch.
    cpus = ' --cpus-per-task="$SLURM_CPUS_PER_TASK"' if plan.host.get("cpus", 0) > 0 else ""
    return [
        f"srun --kill-on-bad-exit=1{cpus} torchrun \\",
        f'  --nnodes="$SLURM_JOB_NUM_NODES" --nproc-per-node={processes} \\',
        '  --rdzv-id="$SLURM_JOB_ID" --rdzv-backend=c10d --rdzv-endpoint="$MASTER_ADDR:$MASTER_PORT" \\',
        '  "$@"',
    ]
