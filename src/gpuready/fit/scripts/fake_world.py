"""One rank of several, in a process group that answers at once. Runs in the target environment."""

import os
import sys

import torch
import torch.distributed as dist


def join_world(watch):
    """Be rank 0, with the variables that torchrun sets; every process group that the script makes is torch's fake one."""
    world = watch.request["world"]
    if not dist.is_available():
        return
    if world > 1 or watch.request["launcher"]:
        set_rank_variables(world)
    from torch.testing._internal.distributed.fake_pg import FakeStore

    make = dist.init_process_group
    dist.Backend.backend_capability["fake"].append("meta")
    dist.Backend.default_device_backend_map["meta"] = "fake"

    def init_process_group(backend=None, *args, world_size=-1, rank=-1, **kwargs):
        stated = world_size if world_size > 0 else int(os.environ.get("WORLD_SIZE", world))
        make("fake", rank=0, world_size=stated, store=FakeStore())

    dist.init_process_group = dist.distributed_c10d.init_process_group = init_process_group
    dist.is_nccl_available = dist.distributed_c10d.is_nccl_available = lambda: True
    dist.all_gather_object = gather_same
    sys.modules["torch.distributed"].broadcast_object_list = lambda *args, **kwargs: None
    torch.distributed.barrier = lambda *args, **kwargs: None


def gather_same(objects, own, group=None):
    """Every rank is taken to say what this one says."""
    objects[:] = [own] * len(objects)


def set_rank_variables(world):
    os.environ.update(
        {
            "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world), "GROUP_RANK": "0", "GROUP_WORLD_SIZE": "1",
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "TORCHELASTIC_RUN_ID": "watched", "ROLE_RANK": "0", "ROLE_WORLD_SIZE": str(world),
        }
    )  # fmt: skip
