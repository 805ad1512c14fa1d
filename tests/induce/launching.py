"""Starting: rendezvous, ports, launchers and what they need to be told."""

from __future__ import annotations

from tests.induce.scripts import GLOO, PLAIN
from tests.induce.stage import Provoke

NODE = "torchrun --nnodes 2 --node-rank {node} --nproc-per-node 1 --master-addr {addr} --master-port {port} train.py"
SHORT = (
    PLAIN
    + """
from datetime import timedelta
import torch.distributed as dist
dist.init_process_group("gloo", timeout=timedelta(seconds=6))
log.info("rank %d ready", rank)
"""
)
STORE = (
    PLAIN
    + """
from datetime import timedelta
import torch.distributed as dist
log.info("connecting to %s:%s", os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"])
dist.init_process_group("gloo", timeout=timedelta(seconds=6))
"""
)
TAKEN = (
    "python -c \"import socket, time; s = socket.socket(); s.bind(('0.0.0.0', {port})); s.listen(); time.sleep(60)\" & "
    "sleep 1; "
)
ENV = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"}
ARGS = (
    PLAIN
    + """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, default=0)
parser.add_argument("--model", default="llama")
told = parser.parse_args()
log.info("local rank %d", told.local_rank)
"""
)
TWO_NODES = """
a=induce-a-$$ b=induce-b-$$
ip netns add $a; ip netns add $b
trap 'ip netns del $a; ip netns del $b' EXIT
ip link add mgmt0 netns $a type veth peer name mgmt0 netns $b
n=0; for node in $a $b; do
  n=$((n + 1))
  ip -n $node link set lo up; ip -n $node addr add 198.51.100.$n/24 dev mgmt0; ip -n $node link set mgmt0 up
  ip -n $node link add data0 type veth peer name void0; ip -n $node link set void0 up; ip -n $node addr add 203.0.113.$n/24 dev data0; ip -n $node link set data0 up
done
export WORLD_SIZE=2 MASTER_ADDR=198.51.100.1 MASTER_PORT=29500 GLOO_SOCKET_IFNAME=data0
RANK=1 ip netns exec $b python train.py & second=$!
RANK=0 ip netns exec $a python train.py; first=$?
wait $second; exit $first
"""
"""Two nodes whose management network works, so that they meet; the network for the data leads nowhere."""
UNREACHABLE = r"(client socket has timed out|timed out|[Tt]imeout|failed to connect|was unable to connect|RendezvousConnectionError|could not be resolved|getaddrinfo)"

LAUNCHING = (
    Provoke("start-refused", "rendezvous-unreachable", (UNREACHABLE,), STORE, env={**ENV, "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": "28999"}, deadline=60),
    Provoke("start-no-such-host", "rendezvous-unreachable", (UNREACHABLE,), STORE, env={**ENV, "MASTER_ADDR": "head-node.invalid",
            "MASTER_PORT": "29500"}, deadline=90),
    Provoke("start-unrouted", "rendezvous-unreachable", (UNREACHABLE,), STORE, env={**ENV, "MASTER_ADDR": "192.0.2.7",
            "MASTER_PORT": "29500"}, deadline=90),
    Provoke("start-refused-old", "rendezvous-unreachable", (UNREACHABLE,), STORE, env={**ENV, "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": "28999"}, deadline=60, room="old"),
    Provoke("start-c10d-refused", "rendezvous-unreachable", (r"^\S*Rendezvous(Connection|Timeout)Error",), SHORT,
            "torchrun --nnodes 2 --nproc-per-node 1 --rdzv-backend c10d --rdzv-id 7 --rdzv-endpoint 192.0.2.7:29400 "
            "--rdzv-conf read_timeout=5,timeout=5 train.py", deadline=150),
    Provoke("start-c10d-no-host-old", "rendezvous-unreachable", (r"RendezvousConnectionError|could not be resolved|getaddrinfo|gai error",), SHORT,
            "torchrun --nnodes 2 --nproc-per-node 1 --rdzv-backend c10d --rdzv-id 7 --rdzv-endpoint head.invalid:29400 "
            "--rdzv-conf read_timeout=5,timeout=5 train.py", deadline=150, room="old"),
    Provoke("start-node-missing", "rendezvous-unreachable", (r"^\S*(RendezvousTimeoutError|DistStoreError|DistNetworkError)",), SHORT,
            "torchrun --nnodes 2 --nproc-per-node 1 --rdzv-backend c10d --rdzv-id 7 --rdzv-endpoint 127.0.0.1:{port} "
            "--rdzv-conf join_timeout=8,timeout=8 train.py", deadline=100, variant="a node never joins"),
    Provoke("start-rank-missing", "ranks-missing", (r"Error: .*[Tt]imed out",), STORE,
            env={"RANK": "0", "WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "28997"}, deadline=60,
            variant="ranks never join"),
    Provoke("start-port-taken", "port-in-use", (r"EADDRINUSE|[Aa]ddress already in use",), SHORT,
            TAKEN + "torchrun --nproc-per-node 2 --master-addr 127.0.0.1 --master-port {port} train.py"),
    Provoke("start-port-taken-old", "port-in-use", (r"EADDRINUSE|[Aa]ddress already in use",), SHORT,
            TAKEN + "torchrun --nproc-per-node 2 --master-addr 127.0.0.1 --master-port {port} train.py", room="old"),
    Provoke("start-port-taken-plain", "port-in-use", (r"EADDRINUSE|[Aa]ddress already in use",), SHORT,
            TAKEN + "MASTER_PORT={port} python train.py", env={"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}),
    Provoke("start-healthy-port-avoided", "healthy", (r"Port `\d+` is already in use", r"rank 1 ready"), SHORT + "dist.destroy_process_group()\n",
            TAKEN + "accelerate launch --multi_gpu --num_processes 2 --main_process_ip 127.0.0.1 --main_process_port {port} train.py", deadline=120, ends="ok"),
    Provoke("start-port-taken-deepspeed", "port-in-use", (r"EADDRINUSE|already in use",), SHORT, TAKEN + "deepspeed --no_local_rank --num_accelerators 2 --master_addr 127.0.0.1 --master_port {port} train.py", deadline=150),
    Provoke("start-no-launcher", "launcher-env-missing", (r"environment variable RANK expected, but not set",), GLOO),
    Provoke("start-no-master", "launcher-env-missing", (r"environment variable MASTER_ADDR expected, but not set",), GLOO,
            env={"RANK": "0", "WORLD_SIZE": "2"}),
    Provoke("start-no-world-old", "launcher-env-missing", (r"environment variable WORLD_SIZE expected, but not set",), GLOO,
            env={"RANK": "0"}, room="old"),
    Provoke("start-no-local-rank", "launcher-env-missing", (r"KeyError: 'LOCAL_RANK'",), PLAIN + """
local_rank = int(os.environ["LOCAL_RANK"])
"""),
    Provoke("start-local-rank-argument", "launcher-local-rank-arg", (r"unrecognized arguments: --local[-_]rank",), ARGS.replace(
            "local_rank", "device_index"), "python -m torch.distributed.launch --nproc_per_node 2 --master_port {port} train.py",
            deadline=120),
    Provoke("start-local-rank-argument-old", "launcher-local-rank-arg", (r"unrecognized arguments: --local-rank",), ARGS,
            "python -m torch.distributed.launch --nproc_per_node 2 --master_port {port} train.py", room="old"),
    Provoke("start-slurm-ntasks", "launcher-slurm-env", (r"You set `--ntasks=\d+`",), PLAIN + """
import lightning as L
trainer = L.Trainer(accelerator="cpu", devices=2, num_nodes=1, strategy="ddp", max_epochs=1)
log.info("trainer ready %s", trainer.world_size)
""", room="lightning", env={"SLURM_NTASKS": "4", "SLURM_JOB_NAME": "train", "SLURM_JOB_ID": "4711", "SLURM_PROCID": "0",
                            "SLURM_LOCALID": "0", "SLURM_NODEID": "0", "SLURM_NODELIST": "node-1", "SLURM_JOB_NODELIST": "node-1"}),
    Provoke("start-gloo-ifname", "nccl-socket-ifname", (r"Unable to find address for: ib7",), SHORT, variant="gloo", env={"RANK": "0",
            "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "28996", "GLOO_SOCKET_IFNAME": "ib7"}),
    Provoke("start-data-network-cut", "node-network-broken", (r"connectFullMesh|[Tt]imed out|No route to host|Connection timed out",), SHORT,
            TWO_NODES, needs=("root", "ip"), deadline=150),
    Provoke("start-data-network-cut-old", "node-network-broken", (r"connectFullMesh|[Tt]imed out|No route to host|Connection timed out",), SHORT,
            TWO_NODES, needs=("root", "ip"), deadline=150, room="old"),
    Provoke("start-healthy-after-wait", "healthy", (r"rank 1 of 2 ready", r"loss"), GLOO + "dist.destroy_process_group()\n",
            "export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT={port}; (RANK=1 python train.py & "
            "sleep 6; RANK=0 python train.py; wait)", ends="ok"),
)  # fmt: skip
