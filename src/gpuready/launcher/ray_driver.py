"""Runs in the target environment as Ray's driver: one task for each rank, which runs the rank's agent.

python ray_driver.py -- SCRIPT ARGS      (settings in GPUREADY_ATTEND, as JSON)
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

AGENT_SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "rank_agent.py")


NO_ROOM = "Ray has no room for the ranks"
"""How the line begins by which the supervisor learns that Ray waits for room."""
OWN_TO_A_NODE = ("RAY_", "CUDA_VISIBLE_", "HIP_VISIBLE_", "ROCR_VISIBLE_", "ASCEND_RT_VISIBLE_", "HOSTNAME", "TMPDIR")
"""How variables begin that each node has for itself; all others of the user reach the ranks."""


def run_rank_agent(command: list[str], variables: dict[str, str], folder: str) -> int:
    """In a Ray worker: run one rank's agent until it ends, in the folder of the driver if it is there."""
    where = folder if os.path.isdir(folder) else None
    return subprocess.call([sys.executable, *command], env={**os.environ, **variables}, cwd=where)


def describe_room(ray: Any, nodes: int, bundle: dict[str, int]) -> str:
    """What was asked for, what is free, and what the cluster has in all."""
    kinds = sorted({"CPU", *bundle})
    free, every = ray.available_resources(), ray.cluster_resources()
    asked = " and ".join(f"{bundle.get(kind, 0):g} {kind}" for kind in kinds)
    have = ", ".join(f"{free.get(kind, 0):g} of {every.get(kind, 0):g} {kind}" for kind in kinds)
    return f"{NO_ROOM}: asked for {asked} on each of {nodes} nodes; free are {have}"


def make_rank_variables(environ: Mapping[str, str], settings: dict[str, Any], rank: int, gpus: int) -> dict[str, str]:
    """Return the variables of one rank: the user's own, but for those of a node, and its place in the job."""
    nproc = settings["nproc"]
    node, local = divmod(rank, nproc)
    place = {"RANK": rank, "LOCAL_RANK": local, "WORLD_SIZE": settings["world"], "LOCAL_WORLD_SIZE": nproc,
             "GROUP_RANK": node, "GROUP_WORLD_SIZE": settings["nnodes"], "GPUREADY_FIRST": int(local == 0)}  # fmt: skip
    if gpus:  # Ray gives a task with one GPU only that GPU: it is device 0 there
        place["LOCAL_RANK"] = 0
    own = {name: value for name, value in environ.items() if not name.startswith(OWN_TO_A_NODE)}
    return {**own, **{name: str(value) for name, value in place.items()}}


def main() -> int:
    import ray  # type: ignore[import-not-found]
    from ray.util.placement_group import placement_group, remove_placement_group  # type: ignore[import-not-found]
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy  # type: ignore[import-not-found]

    settings = json.loads(os.environ["GPUREADY_ATTEND"])
    world, nproc, nodes = settings["world"], settings["nproc"], settings["nnodes"]
    ray.init(address=os.environ.get("RAY_ADDRESS") or None, log_to_driver=True, include_dashboard=False,
             num_cpus=None if os.environ.get("RAY_ADDRESS") else max(world, os.cpu_count() or 1))  # fmt: skip
    gpus = 1 if ray.cluster_resources().get("GPU", 0) >= world else 0
    bundle = {"CPU": nproc, **({"GPU": nproc} if gpus else {})}
    group = placement_group([bundle] * nodes, strategy="STRICT_SPREAD" if nodes > 1 else "PACK")
    try:
        if not group.wait(min(5.0, settings["window"])):  # said early: the window may be long
            sys.stderr.write(describe_room(ray, nodes, bundle) + "; waiting\n")
            sys.stderr.flush()
        ray.get(group.ready(), timeout=settings["window"])
        task = ray.remote(max_retries=0, num_cpus=1, num_gpus=gpus)(run_rank_agent)
        runs = []
        for rank in range(world):
            placement = PlacementGroupSchedulingStrategy(group, rank // nproc)
            variables = make_rank_variables(os.environ, settings, rank, gpus)
            runs.append(
                task.options(scheduling_strategy=placement).remote(
                    [AGENT_SCRIPT, "--", *sys.argv[2:]], variables, os.getcwd()
                )
            )
        codes = ray.get(runs)
        return next((code for code in codes if code), 0)
    except ray.exceptions.GetTimeoutError:
        sys.stderr.write(describe_room(ray, nodes, bundle) + "\n")
        return 1
    finally:
        remove_placement_group(group)
        ray.shutdown()


if __name__ == "__main__":
    sys.path.pop(0)  # our own folder
    sys.exit(main())
