"""Several ranks under torchrun with gloo: one fails first, the others only suffer."""

from __future__ import annotations

from tests.induce.scripts import GLOO, PLAIN
from tests.induce.stage import TORCHRUN, Provoke

CLOSED = "more = 6\nsteps(model, data, target, more, first=4)\nlog.info('rank %d done', rank)\n"
SLOW = GLOO.replace("steps(model, data, target, 3)\n", "")
RAISE = "if rank == {rank}:\n    {what}\n" + CLOSED
UNEVEN = (
    SLOW
    + """
count = 6 if rank else 4
for step in range(1, count + 1):
    loss = ((model(data) - target) ** 2).mean()
    loss.backward()
    log.info("rank %d step %d loss %.4f", rank, step, loss.item())
log.info("rank %d epoch done", rank)
dist.all_gather([torch.zeros(1) for _ in range(world)], torch.zeros(1))
dist.destroy_process_group()
"""
)
TOKENISE = (
    SLOW
    + """
if rank == 0:
    log.info("tokenizing the dataset on the main process first")
    for part in range(1, 31):
        time.sleep(1)
        log.info("Running tokenizer on dataset: %d%%", part * 3)
dist.barrier()
steps(model, data, target, 3)
"""
)
GROUP = (
    PLAIN
    + """
import torch.distributed as dist
dist.init_process_group("gloo")
flag = torch.ones(4)
for step in range(1, 4):
    dist.all_reduce(flag)
    log.info("rank %d step %d", rank, step)
"""
)
CGROUP = (
    "g=/sys/fs/cgroup/memory/induce-$$; mkdir $g && echo {limit} > $g/memory.limit_in_bytes && "
    "echo $BASHPID > $g/cgroup.procs; {run}; code=$?; echo $BASHPID > /sys/fs/cgroup/memory/cgroup.procs; rmdir $g; exit $code"
)
EAT = """
import resource
held = []
while rank == {rank}:
    held.append(torch.ones(1 << 26))
    log.info("rank %d holds %d MiB of samples", rank, len(held) * 256)
"""


def first(cause: str, name: str, rank: int, what: str, decisive: str, **more: object) -> Provoke:
    """One rank fails for that cause, while its peers go on until they miss it."""
    script = GLOO + RAISE.replace("{rank}", str(rank)).replace("{what}", what)
    return Provoke(name, cause, (decisive,), script, rank=rank, **{"ranks": 2, **more})  # type: ignore[arg-type]


def raising(name: str, rank: int, what: str, decisive: str, cause: str = "not-environment", **more: object) -> Provoke:
    """The same by the user's own code."""
    return first(cause, name, rank, what, decisive, **more)


RAISING = (
    raising("ranks-keyerror", 1, 'row = {"text": "a"}["labels"]', r"KeyError: 'labels'"),
    raising("ranks-keyerror-old", 0, 'row = {"text": "a"}["labels"]', r"KeyError: 'labels'", room="old", bare=True),
    raising("ranks-shape", 2, "model(torch.randn(8, 32))", r"mat1 and mat2 shapes cannot be multiplied", ranks=4),
    raising("ranks-shape-bare", 0, "model(torch.randn(8, 32))", r"mat1 and mat2 shapes cannot be multiplied", bare=True),
    raising("ranks-index", 1, "data[9]", r"IndexError: index 9 is out of bounds", ranks=3),
    raising("ranks-file-missing", 3, 'open("data/shard-00003.jsonl")', r"FileNotFoundError", ranks=4),
    raising("ranks-json", 1, 'import json; json.loads(\'{"text": "a", \')', r"JSONDecodeError", ranks=2),
    raising("ranks-chained", 1, """
    try:
        {"a": 1}["b"]
    except KeyError as missing:
        raise RuntimeError("cannot build batch 17") from missing""", r"RuntimeError: cannot build batch 17", ranks=3),
    raising("ranks-exit-code", 2, 'log.error("validation failed: no rows left after filtering"); sys.exit(3)',
            r"no rows left after filtering", ranks=3),
    raising("ranks-nan-assert", 1, 'loss = torch.tensor(float("nan")); assert torch.isfinite(loss), f"loss is {loss}"',
            r"AssertionError: loss is nan", "loss-diverged"),
    raising("ranks-unicode", 0, 'bytes([0xff, 0xfe]).decode("utf-8")', r"UnicodeDecodeError", ranks=2),
    raising("ranks-attribute-old", 2, "model.module.lm_head", r"^AttributeError: ", room="old", ranks=3),
    raising("ranks-zero-division", 0, "len(data) / (world - world)", r"ZeroDivisionError", ranks=4, bare=True),
    raising("ranks-argument", 1, "steps(model, data, target)", r"TypeError: steps\(\) missing 1 required positional", room="cuda"),
)  # fmt: skip

POINTER = "version https://git-lfs.github.com/spec/v1\\noid sha256:0f3a\\nsize 4976698672\\n"
MACHINE = (
    first("disk-full", "ranks-disk-full", 0, 'log.info("saving"); torch.save(model.state_dict(), "/dev/full")',
          r"No space left on device|iostream error|PytorchStreamWriter failed", ranks=3),
    first("disk-full", "ranks-disk-full-old", 0, 'open("/dev/full", "wb", buffering=0).write(bytes(4096))', r"No space left on device",
          room="old", bare=True),
    first("too-many-open-files", "ranks-files", 1, "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)); "
          "shards = [open(__file__) for _ in range(99)]", r"Too many open files", ranks=2),
    first("missing-python-package", "ranks-missing-package", 2, "import liger_kernel", r"No module named 'liger_kernel'", ranks=4, bare=True),
    first("torch-cpu-only", "ranks-cpu-torch", 1, "model.module.cuda()", r"Torch not compiled with CUDA enabled", ranks=2),
    first("no-gpu-visible", "ranks-no-driver", 0, "model.module.cuda()", r"Found no NVIDIA driver", ranks=2, room="cuda"),
    first("corrupt-or-lfs-weights", "ranks-lfs-pointer", 1, f'open("w.bin", "w").write("{POINTER}"); torch.load("w.bin", weights_only=False)',
          r"UnpicklingError: invalid load key, 'v'", ranks=3),
    first("torch26-weights-only", "ranks-weights-only", 0, 'torch.save(log, "c.pt"); torch.load("c.pt")', r"Weights only load failed", ranks=2,
          bare=True),
    first("dtype-mismatch", "ranks-dtype", 3, "model.module(data.bfloat16())", r"must have the same dtype", ranks=4),
    first("flash-attn-missing", "ranks-flash-attn", 1, "from flash_attn import flash_attn_func", r"No module named 'flash_attn'", ranks=3,
          room="old"),
    first("rendezvous-unreachable", "ranks-second-store", 1, 'dist.TCPStore("127.0.0.1", 9, 2, False, timeout=timedelta(seconds=4))',
          r"(failed to connect|[Tt]imed out|[Tt]imeout)", ranks=2),
)  # fmt: skip

RANKS = (
    *RAISING,
    *MACHINE,
    Provoke("ranks-oom-killed", "host-oom-killed", (r"Signal 9 \(SIGKILL\)|exitcode: -9",), GLOO + EAT.replace("{rank}", "1")
            + CLOSED, CGROUP.replace("{limit}", "2500M").replace("{run}", TORCHRUN), ranks=2, rank=1, needs=("root",),
            deadline=120),
    Provoke("ranks-oom-killed-dmesg", "host-oom-killed", (r"Signal 9 \(SIGKILL\)|exitcode: -9",), GLOO
            + EAT.replace("{rank}", "0") + CLOSED, CGROUP.replace("{limit}", "2500M").replace("{run}", TORCHRUN + "; code=$?; "
            "dmesg 2>/dev/null | grep -iE 'out of memory|oom-kill|killed process' | tail -3; (exit $code)"), ranks=2, rank=0,
            needs=("root",), deadline=120, bare=True),
    Provoke("ranks-oom-killed-old", "host-oom-killed", (r"Signal 9 \(SIGKILL\)|exitcode: -9",), GLOO
            + EAT.replace("{rank}", "2") + CLOSED, CGROUP.replace("{limit}", "2500M").replace("{run}", TORCHRUN), ranks=3,
            rank=2, room="old", needs=("root",), deadline=120),
    Provoke("ranks-hup", "sighup-terminal-closed", (r"SignalException: Process \d+ got signal: 1",), GLOO
            + "time.sleep(30)\n", "nohup " + TORCHRUN + " & p=$!; sleep 9; kill -HUP $p; wait $p", ranks=2),
    Provoke("ranks-hup-old", "sighup-terminal-closed", (r"SignalException: Process \d+ got signal: 1",), GLOO
            + "time.sleep(30)\n", TORCHRUN + " & p=$!; sleep 10; kill -HUP $p; wait $p", ranks=2, room="old", bare=True),
    Provoke("ranks-collective-mismatch", "collective-mismatch", (r"Detected mismatch between collectives on ranks",), GROUP + """
if rank == 1:
    dist.all_reduce(torch.ones(4))
else:
    dist.broadcast(torch.ones(4), 0)
""", ranks=2, env={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}),
    Provoke("ranks-collective-shape", "collective-mismatch", (r"Detected mismatch between collectives on ranks",), GROUP + """
dist.all_reduce(torch.ones(4 if rank else 8))
""", ranks=3, env={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}, bare=True),
    Provoke("ranks-collective-mismatch-old", "collective-mismatch", (r"Detected mismatch between collectives on ranks",), GLOO + """
if rank == 0:
    dist.barrier()
else:
    dist.all_reduce(torch.ones(4))
""", ranks=2, room="old", env={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}),
    Provoke("ranks-uneven-batches", "collective-mismatch", (r"epoch done", r"Timed out waiting|[Tt]imeout|Connection closed by peer"),
            UNEVEN, ranks=2, env={"PG_TIMEOUT": "10"}, variant="uneven"),
    Provoke("ranks-verify-params", "ranks-with-other-models", (r"appears not to match|has different number of params|params? .*match|"
            r"DDP expects same model across all ranks",), PLAIN + """
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo")
model = DDP(nn.Linear(64, 64, bias=rank != 1))
""", ranks=2, variant="model differs"),
    Provoke("ranks-slow-tokeniser", "timeout-slow-preprocess", (r"Running tokenizer on dataset", r"[Tt]imed? ?out"), TOKENISE,
            ranks=3, env={"PG_TIMEOUT": "8"}),
    Provoke("ranks-slow-tokeniser-bare", "timeout-slow-preprocess", (r"Running tokenizer on dataset", r"[Tt]imed? ?out"), TOKENISE,
            ranks=2, env={"PG_TIMEOUT": "8"}, room="old", bare=True),
    Provoke("ranks-slow-map", "timeout-slow-preprocess", (r"Map|map", r"[Tt]imed? ?out"), SLOW + """
import datasets
rows = datasets.Dataset.from_dict({"text": ["a b c"] * 40})
def tokenise(row):
    time.sleep(0.5)
    return {"ids": [ord(c) for c in row["text"]]}
if rank == 0:
    log.info("rank 0 maps the dataset, the others wait for its cache")
    rows = rows.map(tokenise, desc="Tokenizing (map)")
dist.barrier()
""", ranks=2, env={"PG_TIMEOUT": "8"}),
    Provoke("ranks-monitored-barrier", "timeout-slow-preprocess", (r"failed to pass monitoredBarrier",), SLOW + """
from datetime import timedelta
if rank == 2:
    log.info("rank 2 packs its shard of the corpus")
    time.sleep(25)
dist.monitored_barrier(timeout=timedelta(seconds=6))
""", ranks=3),
    Provoke("ranks-healthy", "healthy", (r"rank 1 done",), GLOO + CLOSED + "dist.destroy_process_group()\n", ranks=2, ends="ok"),
    Provoke("ranks-healthy-leaked-group", "healthy", (r"destroy_process_group\(\) was not called|rank 1 done",), GLOO + CLOSED,
            ranks=2, ends="ok", bare=True),
    Provoke("ranks-healthy-retries", "healthy", (r"ConnectionRefusedError", r"rank 0 done"), GLOO + """
import socket
for attempt in range(3):
    try:
        socket.create_connection(("127.0.0.1", 9), 1)
    except OSError:
        log.warning("metrics server not reachable, attempt %d", attempt, exc_info=True)
""" + CLOSED + "dist.destroy_process_group()\n", ranks=2, ends="ok"),
    Provoke("ranks-healthy-restart", "healthy", (r"resumed from checkpoint", r"rank 1 done"), GLOO + """
if rank == 1 and not os.path.exists("checkpoint"):
    open("checkpoint", "w").write("3")
    log.warning("simulated spot notice: rank 1 leaves")
    time.sleep(1)
    os._exit(1)
if os.path.exists("checkpoint"):
    log.info("rank %d resumed from checkpoint", rank)
""" + CLOSED + "dist.destroy_process_group()\n", TORCHRUN.replace("--master-addr 127.0.0.1 --master-port {port}", "--standalone --max-restarts 1"), ranks=2, ends="ok"),
)  # fmt: skip
