"""Runs in the target environment as Ray's driver: one task for each rank, which runs the rank's agent.

python ray_driver.py -- SCRIPT ARGS      (settings in GPUREADY_ATTEND, as JSON)
"""

from __future__ import annotations

import json
import os
import sys

AGENT_SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "rank_agent.py")


def run_rank_agent(command: list[str], variables: dict[str, str]) -> int:
    """In a Ray worker: run one rank's agent until it ends."""
    import subprocess

    return subprocess.call([sys.executable, *command], env={**os.environ, **variables})


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
        ray.get(group.ready(), timeout=settings.get("window", 60))
        task = ray.remote(max_retries=0, num_cpus=1, num_gpus=gpus)(run_rank_agent)
        runs = []
        for rank in range(world):
            node, local = divmod(rank, nproc)
            placement = PlacementGroupSchedulingStrategy(group, node)
            rank_variables = {"RANK": rank, "LOCAL_RANK": local, "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": nproc,
                    "GROUP_RANK": node, "GROUP_WORLD_SIZE": nodes}  # fmt: skip
            variables = {
                **{k: str(v) for k, v in rank_variables.items()},
                "GPUREADY_ATTEND": os.environ["GPUREADY_ATTEND"],
            }
            # Ray gives a task with one GPU only that GPU: it is device 0 there.
            variables |= {"LOCAL_RANK": "0"} if gpus else {}
            variables["GPUREADY_FIRST"] = str(int(local == 0))
            runs.append(
                task.options(scheduling_strategy=placement).remote([AGENT_SCRIPT, "--", *sys.argv[2:]], variables)
            )
        codes = ray.get(runs)
        return next((code for code in codes if code), 0)
    except ray.exceptions.GetTimeoutError:
        requested = f"{nodes} x {bundle}"
        sys.stderr.write(f"Ray cannot place the ranks: {requested} asked for, {ray.available_resources()} free\n")
        return 1
    finally:
        remove_placement_group(group)
        ray.shutdown()


if __name__ == "__main__":
    sys.path.pop(0)  # our own folder
    sys.exit(main())
