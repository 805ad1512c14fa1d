"""Runs in the environment that has Ray: one task pinned to each node; prints what each wrote.

    python ray_tasks.py FILE      FILE: one line of JSON (what to do), then the stdin of each node's Python

An address that begins with http goes to Ray's job server: this script and FILE are submitted as a Ray job.
"""

import json
import os
import sys
import time

JOIN_SECONDS = 40.0
"""Seconds that Ray may take to accept the driver."""


def send_line(mark, word, node, text=""):
    line = "%s %s %s %s\n" % (mark, word, node, " ".join(text.split("\n")))
    sys.stdout.write(line.encode("ascii", "backslashreplace").decode("ascii"))
    sys.stdout.flush()


def run_in_worker(starter, data, name, seconds, cap, python):
    """In a Ray worker: start Python, pass it the orders, return its output."""
    import os
    import signal
    import subprocess
    import sys

    env = dict(os.environ)
    for variable in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"):
        if not env.get(variable):  # Ray hides every GPU from a task that requested none
            env.pop(variable, None)
    child = subprocess.Popen(
        [python or sys.executable, "-I", "-c", starter, name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=env,
        start_new_session=True,
    )
    try:
        out, _ = child.communicate(data, timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        return None
    return out[: 2 * cap].decode("utf-8", "backslashreplace")


def connect_to_ray(orders):
    import ray

    os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    ray.init(address=orders["address"] or "auto", log_to_driver=False, configure_logging=False,
             namespace="gpuready", _skip_env_hook=True)  # fmt: skip
    return ray


def list_ray_nodes(orders):
    ray = connect_to_ray(orders)
    for node in ray.nodes():
        send_line(orders["mark"], "node", node["NodeID"], json.dumps({
            "alive": bool(node.get("Alive")),
            "name": node.get("NodeName") or "",
            "host": node.get("NodeManagerHostname") or "",
            "address": node.get("NodeManagerAddress") or "",
            "gpus": int((node.get("Resources") or {}).get("GPU", 0)),
            "why": str(node.get("DeathReasonMessage") or node.get("DeathReason") or "")[:200],
            "labels": {str(k): str(v) for k, v in (node.get("Labels") or {}).items()},
        }))  # fmt: skip


def run_pinned_tasks(ray, orders, data):
    """Ask each node with a task that runs there or nowhere, a limited number at a time."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    task = ray.remote(num_cpus=0, max_retries=0, max_calls=1)(run_in_worker)
    sent = ray.put(data)
    waiting, running = list(reversed(orders["nodes"])), {}
    while waiting or running:
        while waiting and len(running) < orders["parallel"]:
            node = waiting.pop()
            place = NodeAffinitySchedulingStrategy(node["id"], soft=False)
            ref = task.options(scheduling_strategy=place).remote(
                orders["starter"], sent, node["name"], orders["seconds"], orders["cap"], orders["python"]
            )
            running[ref] = (node["name"], time.monotonic())
        done, _ = ray.wait(list(running), num_returns=1, timeout=0.2)
        for ref in done:
            report_task_result(ray, orders, ref, running.pop(ref)[0])
        late = time.monotonic() - orders["seconds"] - orders["late"]
        for ref, (name, begun) in list(running.items()):
            if begun < late:
                del running[ref]
                send_line(
                    orders["mark"],
                    "slow",
                    name,
                    "no answer of its task within %g s" % (orders["seconds"] + orders["late"]),
                )
                ray.cancel(ref, force=True)


def report_task_result(ray, orders, ref, name):
    """Report what one task returned or how it ended."""
    try:
        text = ray.get(ref)
    except Exception as error:
        kind = type(error).__name__
        why = (str(error).strip().splitlines() or [kind])[0][:200]
        node_lost = any(
            word in kind
            for word in ("NodeDied", "WorkerCrashed", "Unschedulable", "ActorDied", "OwnerDied", "ObjectLost")
        )
        return send_line(
            orders["mark"], "dead" if node_lost or "node" in why.lower() else "refused", name, "%s: %s" % (kind, why)
        )
    if text is None:
        return send_line(orders["mark"], "slow", name, "gpuready was not done within %g s" % orders["seconds"])
    lines = [line for line in text.splitlines() if line.startswith(orders["mark"] + " ")]
    if not lines:
        return send_line(orders["mark"], "refused", name, "its Python ended without an answer")
    for line in lines:  # as the node wrote them, but under Ray's name for it
        word, _, rest = line[len(orders["mark"]) + 1 :].partition(" ")
        send_line(orders["mark"], word, name, rest.partition(" ")[2])


def submit_ray_job(path, orders):
    """Submit this script and the file as a Ray job and print its lines."""
    import asyncio
    import shutil
    import tempfile

    from ray.job_submission import JobSubmissionClient

    client = JobSubmissionClient(orders["address"])
    with tempfile.TemporaryDirectory(prefix="gpuready-") as folder:
        shutil.copy(os.path.abspath(__file__), os.path.join(folder, "ray_tasks.py"))
        with open(path, "rb") as file:
            file.readline()
            rest = file.read()
        with open(os.path.join(folder, "orders"), "wb") as file:
            file.write(json.dumps(dict(orders, address="")).encode("ascii") + b"\n" + rest)
        job = client.submit_job(entrypoint="python ray_tasks.py orders", runtime_env={"working_dir": folder})

        async def follow_job_log():
            async for text in client.tail_job_logs(job):
                for line in text.splitlines():
                    if line.startswith(orders["mark"] + " "):
                        sys.stdout.write(line + "\n")
                sys.stdout.flush()

        try:
            asyncio.run(follow_job_log())
        finally:
            if str(client.get_job_status(job)) not in ("SUCCEEDED", "FAILED", "STOPPED"):
                client.stop_job(job)


def main(argv):
    with open(argv[0], "rb") as file:
        orders = json.loads(file.readline().decode("ascii"))
        data = file.read()
    try:
        import ray  # noqa: F401
    except ImportError:
        return send_line(
            orders["mark"], "engine", "-", "ray is not installed in %s: pip install 'ray[default]'" % sys.executable
        )
    try:
        if orders["address"].startswith("http"):
            submit_ray_job(argv[0], orders)
        elif orders["do"] == "nodes":
            list_ray_nodes(orders)
        else:
            run_pinned_tasks(connect_to_ray(orders), orders, data)
    except Exception as error:
        words = [line for line in str(error).strip().splitlines() if line.strip()]
        send_line(orders["mark"], "engine", "-", "%s: %s" % (type(error).__name__, (words or [""])[0][:300]))
    send_line(orders["mark"], "end", "-")


if __name__ == "__main__":
    sys.path.pop(0)  # our own folder
    main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(0)  # Ray's shutdown can take seconds
