"""The engines: how each is called, and which variables the ranks get and why."""

import json
import os
import sys
from collections.abc import Mapping
from typing import Any

from gpuready.launcher import flight_dumps
from gpuready.model.run import LaunchJob, RankVariable
from gpuready.rollcall.job_secret import TOKEN_VARIABLE, make_token

HERE = os.path.dirname(os.path.abspath(__file__))
AGENT_SCRIPT, RAY_SCRIPT = os.path.join(HERE, "rank_agent.py"), os.path.join(HERE, "ray_driver.py")
_ISOLATED_MAIN = "import sys; sys.path.append(sys.argv.pop(1)); from gpuready.cli import main; main()"
"""gpuready from its own folder: the current folder and PYTHONPATH belong to the job."""
_AS_TORCHRUN = "as torchrun sets it"
ENGINE_GRACE_SECONDS = 30.0
"""From a signal of the engine to SIGKILL, where --grace says nothing else: torchrun's own time."""


def common_variables(job: LaunchJob, environ: Mapping[str, str], attempt: int = 0) -> list[RankVariable]:
    """Return the variables of every rank. Those that the user has set stay."""
    variables = [
        RankVariable("GPUREADY_RUN_ID", job.run_id, "tells this run from every other"),
        RankVariable("PYTHONFAULTHANDLER", "1", "a crash shows its Python stack"),
        RankVariable("PYTHONUNBUFFERED", "1", "the last words of a rank reach the log"),
    ]
    if job.logs and not any(name in environ for name in flight_dumps.PLACES):
        folder = f"{job.logs}/{flight_dumps.FOLDER}/rank_"
        variables += [
            RankVariable(flight_dumps.PLACES[0], folder, "where the flight recorder of a rank writes"),
            RankVariable(flight_dumps.SIZE, "2000", "the last collectives of each rank"),
        ]
    if job.nproc > 1:
        variables.append(RankVariable("OMP_NUM_THREADS", "1", f"{_AS_TORCHRUN}: ranks share the processors"))
    if job.engine == "local":
        variables += [
            RankVariable("MASTER_ADDR", job.master, "where rank 0 listens"),
            RankVariable("MASTER_PORT", str(job.port), "a port that is free here"),
            RankVariable("TORCHELASTIC_RUN_ID", job.run_id, _AS_TORCHRUN),
            RankVariable("TORCHELASTIC_USE_AGENT_STORE", "False", "rank 0 holds the store, no agent does"),
        ]
    if job.engine != "torchrun":
        variables += [
            RankVariable("TORCHELASTIC_RESTART_COUNT", str(attempt), _AS_TORCHRUN),
            RankVariable("TORCHELASTIC_MAX_RESTARTS", str(job.restarts), _AS_TORCHRUN),
            RankVariable(
                "TORCH_NCCL_ASYNC_ERROR_HANDLING", "1", f"{_AS_TORCHRUN}: a lost peer is an error, not a wait"
            ),
        ]
    return [
        v for v in variables if v.name not in environ or v.name.startswith(("MASTER_", "TORCHELASTIC_", "GPUREADY_"))
    ]


def secret_variables(job: LaunchJob, environ: Mapping[str, str]) -> list[RankVariable]:
    """Return the secret of this run's roll-call, which no screen shows: the user's, else a new one.

    Under torchrun on several nodes each node has a gpuready of its own, so that only the user's is the same on all.
    """
    token = environ.get(TOKEN_VARIABLE) or ("" if job.engine == "torchrun" and job.nnodes > 1 else make_token())
    return [RankVariable(TOKEN_VARIABLE, token, "the secret that keeps strangers out of this run")] if token else []


def split_torchrun_defaults(job: LaunchJob, environ: Mapping[str, str]) -> tuple[dict[str, str], list[RankVariable]]:
    """Return the engine's environment, and what only the ranks get: torchrun takes PET_* for flags, and ours count."""
    own = [name for name in environ if name.startswith("PET_")] if job.engine == "torchrun" else []
    kept = {name: value for name, value in environ.items() if name not in own}
    return kept, [RankVariable(name, environ[name], "set by the operator of this pod") for name in own]


def local_rank_variables(job: LaunchJob) -> list[dict[str, str]]:
    """Return the variables of each rank of this node, under torchrun's names."""
    first = job.node_rank * job.nproc
    return [
        {
            "RANK": str(first + local),
            "LOCAL_RANK": str(local),
            "WORLD_SIZE": str(job.world),
            "LOCAL_WORLD_SIZE": str(job.nproc),
            "GROUP_RANK": str(job.node_rank),
            "GROUP_WORLD_SIZE": str(job.nnodes),
            "ROLE_NAME": "default",
            "ROLE_RANK": str(first + local),
            "ROLE_WORLD_SIZE": str(job.world),
        }
        for local in range(job.nproc)
    ]


def engine_command(job: LaunchJob, mpi: str = "open") -> list[str]:
    """Return the engine's command line. ``mpi`` is whose mpirun it is: open, or another."""
    rank_command = [job.python, AGENT_SCRIPT, "--", *job.words]
    if job.engine == "torchrun":
        return [*_torchrun_command(job), "--no-python", *rank_command]
    if job.engine == "slurm":
        counts = [f"--nodes={job.nnodes}", f"--ntasks={job.world}", f"--ntasks-per-node={job.nproc}"]
        avoid = [f"--exclude={','.join(job.avoided)}"] if job.avoided else []
        return ["srun", *counts, *avoid, "--export=ALL", *rank_command]
    if job.engine == "mpi":
        return [*_mpirun_command(job, mpi), *rank_command]
    if job.engine == "ray":
        return [job.python, RAY_SCRIPT, "--", *job.words]
    return rank_command


def _torchrun_command(job: LaunchJob) -> list[str]:
    node_flags = [f"--nnodes={job.nnodes}", f"--nproc-per-node={job.nproc}", f"--node-rank={job.node_rank}"]
    master = [f"--master-addr={job.master}", f"--master-port={job.port}", f"--rdzv-id={job.run_id}"]
    return [job.python, "-m", "torch.distributed.run", *node_flags, *master, "--max-restarts=0"]


def _mpirun_command(job: LaunchJob, mpi: str) -> list[str]:
    words = ["mpirun", "-np", str(job.world)]
    if mpi != "open":
        return [*words, "-ppn", str(job.nproc)]
    words += ["--map-by", f"ppr:{job.nproc}:node:OVERSUBSCRIBE", "--bind-to", "none"]
    words += ["--allow-run-as-root"] if os.geteuid() == 0 else []
    names = ["GPUREADY_ATTEND", "PATH", *(v.name for v in job.variables)]
    return [*words, *(word for name in names for word in ("-x", name))]


def node_preflight_command(job: LaunchJob) -> tuple[str, ...]:
    """Return the preflight of one node as a command: that of a local run. Uses gpuready's own Python, not the
    target's.
    """
    flags = ["--preflight", "--json", "--engine", "local", "--nproc", str(job.nproc), "--python", job.python]
    program = [sys.executable, "-I", "-c", _ISOLATED_MAIN, os.path.dirname(os.path.dirname(HERE)), "run"]
    rest = ["-m", *job.words] if job.kind == "module" else list(job.words)
    return (*program, *([job.framework] if job.framework else []), *flags, "--", *rest)


def agent_settings_json(
    job: LaunchJob, hosts: list[str], port: int, token: str, attempt: int, variables: list[RankVariable]
) -> str:
    """Return an agent's settings for GPUREADY_ATTEND."""
    settings: dict[str, Any] = {
        "hub": [hosts, port],
        "token": token,
        "engine": job.engine,
        "kind": job.kind,
        "seats": local_rank_variables(job) if job.engine == "local" else None,
        "preload": job.preload,
        "attempt": attempt,
        "grace": job.grace or ENGINE_GRACE_SECONDS,
        "window": max(job.window * 0.8, job.window - 5.0),  # the engine speaks before we give up
        "world": job.world,
        "nproc": job.nproc,
        "nnodes": job.nnodes,
        "looks": list(job.looks),
        "shared": {v.name: v.value for v in variables},
    }
    return json.dumps(settings)
