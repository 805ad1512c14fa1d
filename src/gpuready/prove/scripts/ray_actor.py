"""Ray: a local cluster, an actor on its own GPU (or on the CPU), and a product that it computes there.

Argument: plain, or roll: ROLL's platform is checked first, and the actor is a Worker of ROLL.
"""

import glob
import os
import signal

import package_import
import proof

WAITS = {
    "RAY_agent_register_timeout_ms": "600000",
    "RAY_worker_register_timeout_seconds": "600",
    "RAY_gcs_rpc_server_connect_timeout_s": "60",
    "RAY_health_check_failure_threshold": "100",
}
"""How long Ray waits for its own processes. Its raylet ends where an agent has not answered in 30 seconds, however busy the
machine is, and takes the driver with it; here the deadline of the proof decides."""
STARTS = 3


def run_proof(p):
    p.torch()
    if (p.arguments or ["plain"])[0] == "roll":
        return run_in_cluster(p, check_roll_worker, roll_namespace(p))
    return run_in_cluster(p, check_plain_actor, "proof")


def roll_namespace(p):
    """Return ROLL's name for its actors; importing it is the first part of the proof."""
    platform = package_import.import_compiled(p, "roll.platforms", "roll").current_platform
    taken = platform.device_type
    p.record_note("platform", type(platform).__name__)
    if taken != p.device.type:
        raise proof.WrongResult("ROLL took the platform %s, and %s was asked for" % (taken, p.device.type))
    return package_import.import_compiled(p, "roll.utils.constants").RAY_NAMESPACE


def run_in_cluster(p, then, name, runtime_env=None):
    """Run in a temporary single-machine cluster, whose files lie in the folder of the proof."""
    import shutil
    import tempfile

    ray = package_import.import_compiled(p, "ray", "ray")
    # Its sockets need a short path.
    short = len(tempfile.gettempdir()) < 32 or not os.path.isdir("/tmp")
    folder = tempfile.mkdtemp(prefix="ray", dir=None if short else "/tmp")
    words = {"num_cpus": 2, "include_dashboard": False, "namespace": name, "log_to_driver": False}
    words.update({"runtime_env": runtime_env} if runtime_env else {})
    try:
        start_cluster(p, ray, _temp_dir=folder, num_gpus=1 if p.cuda else 0, **words)
        then(p, ray)
    finally:
        ray.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


def start_cluster(p, ray, **words):
    """Start Ray here. Its driver waits 30 seconds for the node, which no setting changes: then it is started again."""
    # Do not join a cluster that the shell names.
    os.environ.pop("RAY_ADDRESS", None)
    for name, value in WAITS.items():
        os.environ.setdefault(name, value)
    for start in range(1, STARTS + 1):
        p.begin_step("start a local cluster" if start == 1 else "start a local cluster, again")
        try:
            return ray.init(address="local", **words)
        except Exception as error:
            if start == STARTS or "timed out during startup" not in str(error):
                raise
            end_children()


def end_children():
    """End what Ray's driver has started: after a failed start it forgets them, and they would hold up the next one."""
    for path in glob.glob("/proc/self/task/*/children"):
        with open(path) as file:
            for pid in file.read().split():
                os.kill(int(pid), signal.SIGKILL)


def check_plain_actor(p, ray):
    class PlainActor:
        def compute_product(self, kind, rows):
            import torch

            a = torch.tensor(rows, device=kind)
            return ((a @ a).cpu().tolist(), str(a.device), os.environ.get("CUDA_VISIBLE_DEVICES", ""), os.getpid())

    check_actor_product(p, ray, ray.remote(num_gpus=1 if p.cuda else 0, num_cpus=1)(PlainActor).remote())


def check_actor_product(p, ray, actor):
    """Compute a product in the actor's process, on the device that Ray assigned."""
    torch = p.torch()
    p.begin_step("compute in the actor")
    rows = torch.randn(64, 64)
    got, device, visible, pid = ray.get(actor.compute_product.remote(p.device.type, rows.tolist()))
    p.record_note("actor_device", device)
    p.record_note("actor_visible_gpus", visible)
    p.record_number("own_process", pid != os.getpid(), "equal", 1)
    p.check_close("product", torch.tensor(got), rows.double() @ rows.double(), 1e-4)


def check_roll_worker(p, ray):
    """Run a Worker of ROLL as an actor, with the variables that its Cluster sets."""
    p.begin_step("import ROLL's worker")
    from roll.configs.worker_config import WorkerConfig
    from roll.distributed.executor.worker import Worker

    class RollActor(Worker):
        def compute_product(self, kind, rows):
            import torch

            a = torch.tensor(rows, device=kind)
            return ((a @ a).cpu().tolist(), str(a.device), os.environ.get("CUDA_VISIBLE_DEVICES", ""), os.getpid())

        def rank_and_port(self):
            info = self.get_rank_info()
            return info.rank, info.world_size, self.get_master_addr_and_port()[1]

        def read_variables(self, names):
            return {name: os.environ.get(name) for name in names}

    variables = {"WORKER_NAME": "proof-0", "CLUSTER_NAME": "proof", "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    variables.update(package_import.import_compiled(p, "roll.platforms").current_platform.get_custom_env_vars())
    p.begin_step("start ROLL's worker")
    made = ray.remote(num_gpus=1 if p.cuda else 0, num_cpus=1)(RollActor)
    actor = made.options(runtime_env={"env_vars": variables}).remote(worker_config=WorkerConfig(name="proof"))
    rank, world, port = ray.get(actor.rank_and_port.remote())
    p.record_number("rank", rank, "equal", 0)
    p.record_number("world", world, "equal", 1)
    p.record_number("port", port, "least", 1)
    got = ray.get(actor.read_variables.remote(sorted(variables)))
    wrong = [name for name, value in variables.items() if got[name] != value]
    p.record_note("worker_variables", ", ".join("%s=%s" % one for one in sorted(variables.items())))
    p.record_number("variables_that_differ", len(wrong), "equal", 0)
    check_actor_product(p, ray, actor)
