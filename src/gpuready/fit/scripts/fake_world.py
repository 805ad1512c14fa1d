"""One rank of several, in a process group that answers at once. Runs in the target environment."""

import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing


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
    patch_ddp(torch.nn.parallel.DistributedDataParallel)
    torch.multiprocessing.spawn = lambda run, args=(), *_, **__: run(0, *args)  # this process is its rank 0


def patch_ddp(made):
    """The reduction of a bucket answers at once; a hook of the script's own would run on other ranks' values."""
    init, register = made.__init__, made.register_comm_hook

    def reduce_at_once(state, bucket):
        future = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    def init_and_register(self, *args, **kwargs):
        init(self, *args, **kwargs)
        register(self, None, reduce_at_once)

    made.__init__, made.register_comm_hook = init_and_register, lambda *args, **kwargs: None


def apply_launcher(watch):
    """Set the variables that accelerate's launcher would set, by its own functions."""
    if watch.request["launcher"] != "accelerate" or not watch.request["launcher_words"]:
        return
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser
    from accelerate.utils.launch import prepare_multi_gpu_env, prepare_simple_launcher_cmd_env

    args = launch_command_parser().parse_args([*watch.request["launcher_words"], "script.py"])
    args = _validate_launch_command(args)[0]
    several = watch.request["world"] > 1
    found = prepare_multi_gpu_env(args) if several else prepare_simple_launcher_cmd_env(args)[1]
    os.environ.update(
        {name: value for name, value in found.items() if name.startswith(("ACCELERATE_", "FSDP_", "PARALLELISM_"))}
    )


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
