"""Faults of running jobs that take tens of seconds, and the real engines: srun on several nodes, mpirun, Ray, torchrun."""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from pathlib import Path

import pytest
from benchmarks import log_speed

from tests import patient
from tests.faults import mounts
from tests.launcher import engines
from tests.launcher.stage import Stage, kill
from tests.launcher.test_torch import REDUCE
from tests.running import SRC

pytestmark = pytest.mark.faults

COLLECT = (
    REDUCE
    + "print('pid', os.getpid(), flush=True)\nimport time\nwhile True:\n    dist.all_reduce(value); time.sleep(0.05)\n"
)
SPIN = "import os, re, time\nprint('pid', os.getpid(), flush=True)\nif os.environ['RANK'] == '1':\n    re.match('(a+)+$', 'a' * 64 + 'b')\ntime.sleep(1000)\n"
SKIP = (
    REDUCE
    + "import time\ndef elsewhere():\n    time.sleep(1000)\nelsewhere() if dist.get_rank() == 2 else dist.barrier()\n"
)
SLOW = (
    REDUCE
    + """
import time
def work(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end: pass
while True:
    work(0.15 if dist.get_rank() == 1 else 0.01)
    dist.all_reduce(value)
"""
)

TRAINED = """
import hashlib
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
torch.manual_seed(5)
model = DistributedDataParallel(torch.nn.Linear(8, 1))
start = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()
optimiser = torch.optim.SGD(model.parameters(), 0.1)
data = torch.Generator().manual_seed(dist.get_rank())
for step in range(4):
    x = torch.randn(16, 8, generator=data)
    loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
    optimiser.zero_grad(); loss.backward(); optimiser.step()
    dist.all_reduce(loss.detach())
    print("loss", loss.item().hex(), start, flush=True)
dist.destroy_process_group()
"""


@pytest.fixture
def torch_stage(tmp_path):
    return Stage(tmp_path, patient.python())


def noted(stage: Stage, process, words: str, within: float, then: int = signal.SIGINT) -> tuple[str, float]:
    """The first note with these words, and the seconds until it came; the run is ended."""
    began, text, taken = time.monotonic(), "", 0.0
    while time.monotonic() - began < within + 10 and (not taken or time.monotonic() - began < taken + 0.5):
        if select.select([process.stderr], [], [], 0.1)[0]:
            text += os.read(process.stderr.fileno(), 1 << 16).decode()
        taken = taken or (words in text and time.monotonic() - began) or 0.0
    process.send_signal(then)
    ended = stage.ended(process, 20)
    assert taken and taken < within, (text, ended.out)
    return text, taken


def test_a25_b03_a_rank_that_is_elsewhere_than_the_others(torch_stage, seen):
    torch_stage.script(SKIP)
    process = torch_stage.start("--nproc", "3", "--", "train.py")
    torch_stage.until("sum", 2)
    text, taken = noted(torch_stage, process, "nothing has moved", 25)
    assert "rank 2 in train.py" in text and "elsewhere" in text and "ranks 0, 1 in barrier" in text
    seen("A25, B03", "rank 2 named with its stack", "named, the others in barrier", taken)


def test_a26_a_rank_that_holds_the_gil(tmp_path, seen):
    stage = Stage(tmp_path)
    stage.script(SPIN)
    process = stage.start("--nproc", "2", "--", "train.py")
    stage.until("pid", 1)
    text, taken = noted(stage, process, "rank 1 on here holds the GIL and spins", 20)
    assert "re/" in text or "train.py" in text
    seen("A26", "rank 1 holds the GIL, its stack", "named with its call", taken)


def test_b02_a_peer_that_is_stopped_in_a_collective(torch_stage, seen):
    torch_stage.script(COLLECT)
    process = torch_stage.start("--nproc", "2", "--", "train.py")
    torch_stage.until("pid", 0)
    torch_stage.until("pid", 1)
    kill(torch_stage.pid(1), signal.SIGSTOP)
    _, taken = noted(torch_stage, process, "rank 1 on here is stopped (state T", 20)
    seen("B02, A27", "rank 1 stopped, kill -CONT", "named with its fix", taken)


def test_b16_a_straggler_is_told_apart(torch_stage, seen):
    torch_stage.script(SLOW)
    process = torch_stage.start("--nproc", "2", "--", "train.py")
    torch_stage.until("sum", 1)
    _, taken = noted(torch_stage, process, "rank 1 on here computes", 40)
    seen("B16", "rank 1 as the slowest, a hint", "named as a hint", taken)


def test_a54_b01_rank_0_is_killed_in_a_collective(torch_stage, seen):
    torch_stage.script(COLLECT)
    process = torch_stage.start("--nproc", "3", "--", "train.py")
    for rank in range(3):
        torch_stage.until("pid", rank)
    kill(torch_stage.pid(0))
    done = torch_stage.ended(process, 20)
    assert done.code == 137 and "failed: rank 0 on here" in done.out and done.seconds < 10
    seen("A54, B01", "rank 0 gone, all others end", "named first, exit 137", done.seconds)


def test_b08_no_destroy_process_group_is_no_failure(torch_stage, seen):
    torch_stage.script(REDUCE)
    done = torch_stage.run("--nproc", "4", "--", "train.py")
    assert done.code == 0
    seen("B08", "exit 0, at most a warning", "exit 0", done.seconds)


def test_b04_shapes_that_differ(torch_stage, seen):
    torch_stage.script(REDUCE + "dist.all_reduce(torch.ones(4 if dist.get_rank() else 8))\ndist.barrier()\n")
    done = torch_stage.run("--nproc", "2", "--", "train.py")
    assert done.code not in (0, 2) and "failed: rank 1 on here" in done.words and "RUN001" in done.words
    assert "bytes for" in done.words and "--check-collectives" in done.words
    exact = torch_stage.run("--nproc", "2", "--check-collectives", "--", "train.py")
    said = "rank 0 is in ALLREDUCE of shape [8], rank 1 in ALLREDUCE of shape [4]"
    other = "rank 1 is in ALLREDUCE of shape [4], rank 0 in ALLREDUCE of shape [8]"
    assert exact.code == 1 and (said in exact.words or other in exact.words), exact.words
    seen("B04", "both shapes and ranks", said, exact.seconds)


class Group:
    """A control group with little memory, of either version; gone at the end."""

    def __init__(self, size: int) -> None:
        old = Path("/sys/fs/cgroup/memory")
        self.folder = (old if old.is_dir() else Path("/sys/fs/cgroup")) / f"tarmac-{os.getpid()}"
        limits = ("memory.limit_in_bytes",) if old.is_dir() else ("memory.max",)
        try:
            self.folder.mkdir()
            for name in limits:
                (self.folder / name).write_text(str(size))
        except OSError as error:
            pytest.skip(f"NO CONTROL GROUP of our own ({error}): the kernel kills nobody for memory")

    def join(self) -> None:
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    def close(self) -> None:
        self.folder.rmdir()


def test_a24_the_kernel_kills_a_rank_for_memory(tmp_path, seen):
    """For real: a control group of 200 MiB, and a rank that wants more."""
    group = Group(200 << 20)
    stage = Stage(tmp_path)
    stage.script("import os, time\nkept = [bytearray(b'x' * (1 << 20)) for _ in range(1000 if os.environ['RANK'] == '1' else 1)]\ntime.sleep(60)\n")  # fmt: skip
    stage.before = group.join
    try:
        done = stage.run("--nproc", "2", "--no-preflight", "--", "train.py")
    finally:
        group.close()
    assert (
        done.code == 137
        and "rank 1 on here" in done.words
        and "the kernel killed it because memory ran out" in done.words
    )
    assert "MEM003" in done.words
    seen("A24", "the kernel's OOM killer named, with the rank", "named, MEM003", done.seconds)


def test_a_training_gives_the_same_losses_again(torch_stage):
    torch_stage.script(TRAINED)
    logs = []
    for _ in range(2):
        assert torch_stage.run("--nproc", "2", "--", "train.py").code == 0
        logs.append([torch_stage.log(rank).splitlines()[-4:] for rank in (0, 1)])
    assert logs[0] == logs[1], "bit for bit"
    assert len({line.split()[2] for log in logs[0] for line in log}) == 1, "the same weights on every rank"


def test_b11_a_log_of_two_gibibytes(tmp_path, seen):
    """64 ranks interleaved, one of which runs out of memory near the end: read in bounds, and the rank is right."""
    log, piece = tmp_path / "train.log", tmp_path / "piece"
    log_speed.made(piece, 32 << 20)
    text = piece.read_bytes()
    quiet = text[: text.index(b"[rank17]: Traceback")]
    with log.open("wb") as file:
        while file.tell() < (2 << 30):
            file.write(quiet)
        file.write(text[len(quiet) :])
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(SRC)}
    began, out = time.monotonic(), tmp_path / "out"
    words = [sys.executable, "-c", "from tarmac.cli import main; main()", "diagnose", str(log)]
    to = [(os.POSIX_SPAWN_OPEN, 1, str(out), os.O_WRONLY | os.O_CREAT, 0o600)]
    _, status, used = os.wait4(os.posix_spawn(sys.executable, words, env, file_actions=to), 0)
    taken = time.monotonic() - began
    rate, peak = log.stat().st_size / taken / 1e6, used.ru_maxrss / 1024
    assert (
        os.waitstatus_to_exitcode(status) == 1
        and "rank 17" in out.read_text()
        and "MEM001" in out.read_text()
    )
    assert peak <= 256 and (rate >= 50 or os.getloadavg()[0] > os.cpu_count()), (rate, peak)
    seen(
        "B11",
        "at least 50 MB/s, at most 256 MiB, rank 17",
        f"{rate:.0f} MB/s, {peak:.0f} MiB, rank 17",
        taken,
    )


# -- real engines -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    engines.program("srun")
    with engines.Slurm(tmp_path_factory.mktemp("slurm"), 4) as made:
        yield made


def test_real_srun_on_four_nodes(slurm, torch_stage, seen):
    torch_stage.script(REDUCE)
    done = torch_stage.run(
        "--engine", "slurm", "--nnodes", "4", "--nproc", "1", "--", "train.py", **slurm.environ
    )
    assert done.code == 0 and done.out.count("sum 10.0") == 4
    seen("srun", "4 nodes reduce", "sum 10", done.seconds)


def test_real_srun_a_task_that_fails(slurm, torch_stage, seen):
    torch_stage.script(REDUCE + "sys.exit(9) if dist.get_rank() == 2 else dist.barrier()\n")
    done = torch_stage.run(
        "--engine", "slurm", "--nnodes", "2", "--nproc", "2", "--json", "--", "train.py", **slurm.environ
    )
    assert done.code == 9 and done.found["attempts"][0]["first"] == [2]
    seen("srun, A21", "rank 2 first, exit 9", "named, exit 9", done.seconds)


def test_real_srun_every_node_is_looked_at_before_its_ranks_begin(tmp_path_factory, torch_stage, seen):
    """One node of three allows few open files; and no node has the GPU that a contract needs."""
    engines.program("srun")
    torch_stage.script("print('began', flush=True)\n")
    given = ("--engine", "slurm", "--nnodes", "3", "--nproc", "1", "--json")
    with engines.Slurm(tmp_path_factory.mktemp("slurm"), 3, {"n02": 200}) as slurm:
        narrow = torch_stage.run(*given, "--", "train.py", **slurm.environ)
        bare = torch_stage.run("colossalai", *given, "--", "train.py", **slurm.environ)
    (note,) = [note for note in narrow.found["attempts"][0]["notes"] if note["kind"] == "unfit"]
    assert narrow.code == 1 and note["says"].startswith("node n02: 200 open files are allowed"), note
    assert note["code"] == "SYS006" and "ulimit -n" in note["fix"] and "began" not in narrow.out
    (note,) = [note for note in bare.found["attempts"][0]["notes"] if note["kind"] == "unfit"]
    assert bare.code == 1 and "nodes n01, n02, n03: colossalai" in note["says"] and note["code"], note
    seen(
        "srun, preflight",
        "the node and the contract named",
        note["says"].replace("|", "/")[:120],
        bare.seconds,
    )


def test_real_srun_that_cannot_be_placed_is_told_in_time(slurm, torch_stage, seen):
    torch_stage.script("print(1)\n")
    done = torch_stage.run(
        "--engine",
        "slurm",
        "--nnodes",
        "9",
        "--nproc",
        "1",
        "--window",
        "5",
        "--",
        "train.py",
        **slurm.environ,
    )
    assert done.code not in (0, 2) and "srun:" in done.words
    seen("srun, A18", "refused by Slurm, its words shown", "shown", done.seconds)


def test_a19_real_srun_nodes_that_never_come(slurm, torch_stage, seen):
    """One of four tasks cannot start its attendant: its rank is named after the start window."""
    late = "import os, time\nif os.environ.get('SLURM_PROCID') == '3': time.sleep(60)\n"
    (torch_stage.folder / "sitecustomize.py").write_text(late)
    torch_stage.script("print(1)\n")
    given = ("--engine", "slurm", "--nnodes", "4", "--nproc", "1", "--window", "5", "--no-preflight")
    began = time.monotonic()
    process = torch_stage.start(
        *given, "--", "train.py", PYTHONPATH=f"{SRC}:{torch_stage.folder}", **slurm.environ
    )
    done = torch_stage.ended(process, 40)
    assert done.code == 1 and "missing after 5 s: rank 3" in done.words and "3 of 4 came" in done.words
    seen("A18, A19", "rank 3 named after the window of 5 s", "named", time.monotonic() - began)


def test_real_mpirun(torch_stage, seen):
    engines.program("mpirun")
    torch_stage.script(REDUCE)
    done = torch_stage.run("--engine", "mpi", "--nproc", "3", "--", "train.py")
    assert done.code == 0 and done.out.count("sum 6.0") == 3
    torch_stage.script(REDUCE + "sys.exit(9) if dist.get_rank() == 2 else dist.barrier()\n")
    failed = torch_stage.run("--engine", "mpi", "--nproc", "3", "--json", "--", "train.py")
    assert failed.code == 9 and failed.found["attempts"][0]["first"] == [2]
    seen("mpirun, A21", "sum, then rank 2 first with exit 9", "both", failed.seconds)


def test_real_mpiexec_of_mpich(tmp_path_factory, torch_stage, seen):
    """Hydra gives PMI_RANK and its kin; nothing of Open MPI is there."""
    folder = engines.hydra(tmp_path_factory.mktemp("mpich"))
    libraries = next(folder.glob("root/usr/lib/*-linux-gnu"))
    own = {"PATH": f"{folder}/bin:{os.environ['PATH']}", "LD_LIBRARY_PATH": str(libraries)}
    torch_stage.script(REDUCE)
    done = torch_stage.run("--engine", "mpi", "--nproc", "2", "--", "train.py", **own)
    assert done.code == 0 and done.out.count("sum 3.0") == 2, done.words
    torch_stage.script(REDUCE + "sys.exit(9) if dist.get_rank() == 1 else dist.barrier()\n")
    failed = torch_stage.run("--engine", "mpi", "--nproc", "2", "--json", "--", "train.py", **own)
    assert failed.code == 9 and failed.found["attempts"][0]["first"] == [1]
    seen("mpiexec.hydra, A21", "sum, then rank 1 first with exit 9", "both", failed.seconds)


def test_real_ray(tmp_path, tmp_path_factory, seen):
    python = engines.environment(tmp_path_factory.mktemp("ray"), "ray")
    stage = Stage(tmp_path, str(python))
    stage.script(
        "import os, sys, time\nprint('here', os.environ['RANK'], os.environ['MASTER_PORT'])\nsys.exit(9) if os.environ['RANK'] == '1' else time.sleep(20)\n"
    )
    done = stage.run(
        "--engine",
        "ray",
        "--nproc",
        "2",
        "--json",
        "--",
        "train.py",
        timeout=120,
        RAY_AUTH_MODE="disabled",
        TMPDIR="/tmp",
        HOME=str(tmp_path),
    )
    assert done.code == 9 and done.found["attempts"][0]["first"] == [1]
    seen("ray, A21", "rank 1 first with exit 9", "named", done.seconds)


def test_a19_a_whole_node_is_missing_under_torchrun(torch_stage, seen):
    from tarmac.rollcall import endpoint

    address = next((a for a in endpoint.addresses() if ":" not in a), "")
    if not address:
        pytest.skip("NO ADDRESS: this host has none but the loopback")
    torch_stage.script(REDUCE)
    given = (
        "--nnodes",
        "2",
        "--nproc",
        "1",
        "--node-rank",
        "0",
        "--master",
        f"{address}:{endpoint.free_port()}",
        "--window",
        "5",
    )
    done = torch_stage.run(*given, "--", "train.py")
    assert done.code == 1 and "node 1 is missing at" in done.words and "--node-rank R" in done.words
    assert done.seconds < 5 + 5
    seen("A19", "node 1 named after the window of 5 s", "named", done.seconds)


def test_real_torchrun_on_two_nodes(torch_stage, seen):
    """Two supervisors, each with torchrun's agent, as on two nodes."""
    torch_stage.script(REDUCE + "sys.exit(9) if dist.get_rank() == 3 else dist.barrier()\n")
    from tarmac.rollcall import endpoint

    address = next(iter(endpoint.addresses()), "")
    if not address:
        pytest.skip("NO ADDRESS: this host has none but the loopback")
    master = (
        f"{address}:{endpoint.free_port()}" if ":" not in address else f"[{address}]:{endpoint.free_port()}"
    )
    began = time.monotonic()
    both = [
        torch_stage.start(
            "--nnodes",
            "2",
            "--nproc",
            "2",
            "--node-rank",
            str(node),
            "--master",
            master,
            "--log-dir",
            f"node-{node}",
            "--",
            "train.py",
        )
        for node in (0, 1)
    ]
    out = [process.communicate(timeout=90)[0].decode() for process in both]
    assert both[1].returncode == 9 and "failed: rank 3 on here" in " ".join(out[1].split()), out
    assert both[0].returncode != 0 and not torch_stage.left()
    seen("torchrun on 2 nodes", "rank 3 first with exit 9 on its node", "named", time.monotonic() - began)


def test_a46_a_shared_memory_of_one_mebibyte(tmp_path, seen):
    """As in a container without --shm-size: in mounts of its own the command has a /dev/shm of 1 MiB."""
    stage = Stage(tmp_path)

    def little() -> None:
        mounts.apart()
        mounts.sh("mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", "/dev/shm")

    stage.before = little
    stage.script("print('started', flush=True)\n")
    ran = stage.run("--nproc", "2", "--", "train.py")
    line = next((line for line in ran.words.split(";") if "/dev/shm" in line), "")
    seen("A46", "size, need, --shm-size", line[-160:], ran.seconds)
    assert "1 MiB" in ran.words and "--shm-size" in ran.words and "/dev/shm" in ran.words
