"""Faults of running jobs that take tens of seconds, and the real engines: srun on several nodes, mpirun, Ray, torchrun."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from benchmarks import log_speed

from tests import target_environment
from tests.faults import mounts
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
    return Stage(tmp_path, target_environment.python())


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
    text, taken = noted(stage, process, "rank 1 on here holds the GIL and", 20)
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
    done = torch_stage.ended(process)  # its seconds are held to those of the case
    assert done.code == 137 and "failed: rank 0 on here" in done.out
    seen("A54, B01", "rank 0 gone, all others end", "named first, exit 137", done.seconds)


def test_b08_no_destroy_process_group_is_no_failure(torch_stage, seen):
    torch_stage.script(REDUCE)
    done = torch_stage.run("--nproc", "4", "--", "train.py")
    assert done.code == 0
    seen("B08", "exit 0, at most a warning", "exit 0", done.seconds)


FAULT = REDUCE + "import time\nopen(f'fault-{dist.get_rank()}', 'w').write(str(time.monotonic()))\n"
"""Each rank notes when it comes to the fault: what the start and the imports took is none of its seconds."""


def since(stage: Stage) -> float:
    """The seconds since the last rank came to the fault, which is when it can be seen."""
    return time.monotonic() - max(float(one.read_text()) for one in stage.folder.glob("fault-*"))


def test_b04_shapes_that_differ(torch_stage, seen):
    torch_stage.script(FAULT + "dist.all_reduce(torch.ones(4 if dist.get_rank() else 8))\ndist.barrier()\n")
    done = torch_stage.run("--nproc", "2", "--", "train.py")
    assert done.code not in (0, 2) and "failed: rank 1 on here" in done.words and "RUN001" in done.words
    assert "bytes for" in done.words and "--check-collectives" in done.words
    # A folder of its own: logs are appended to, and those of the run before have the other words.
    exact = torch_stage.run("--nproc", "2", "--log-dir", "exact", "--check-collectives", "--", "train.py")
    taken = since(torch_stage)
    said = "rank 0 is in ALLREDUCE of shape [8], rank 1 in ALLREDUCE of shape [4]"
    other = "rank 1 is in ALLREDUCE of shape [4], rank 0 in ALLREDUCE of shape [8]"
    result = exact.words.replace("RUN001 ", "")  # its code stands at the right of the first line
    assert exact.code == 1 and (said in result or other in result), exact.words
    seen("B04", "both shapes and ranks", said, taken)


OTHERWISE = {
    "dtype": ("dist.all_reduce(torch.ones(8, dtype=torch.float64 if dist.get_rank() else torch.float32))", "dtype"),
    "operation": ("dist.all_reduce(value) if dist.get_rank() else dist.broadcast(value, 0)", "BROADCAST"),
}


@pytest.mark.parametrize("what", OTHERWISE)
def test_b05_a_collective_that_is_another_on_one_rank(torch_stage, seen, what):
    line, word = OTHERWISE[what]
    torch_stage.script(FAULT + f"{line}\ndist.barrier()\n")
    done = torch_stage.run("--nproc", "2", "--check-collectives", "--", "train.py")
    taken = since(torch_stage)
    assert done.code == 1 and "RUN001" in done.words and word in done.words and "ALLREDUCE" in done.words, done.words
    said = " ".join(line for line in done.out.splitlines() if "ALLREDUCE" in line)
    seen("B05", "both collectives and their ranks", said[:160], taken)


class Group:
    """A control group with little memory, of either version; gone at the end."""

    def __init__(self, size: int) -> None:
        old = Path("/sys/fs/cgroup/memory")
        self.folder = (old if old.is_dir() else Path("/sys/fs/cgroup")) / f"gpuready-{os.getpid()}"
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


# A process of its own starts it: the peak of a child counts that of whoever forks it, and pytest is large.
MEASURED = """
import os, sys
_, status, used = os.wait4(os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ), 0)
print(os.waitstatus_to_exitcode(status), used.ru_maxrss)
"""


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
    words = [sys.executable, "-c", "from gpuready.cli import main; main()", "diagnose", str(log)]
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", MEASURED, *words], env=env, capture_output=True, text=True)
    taken = time.monotonic() - began
    out, _, reported = done.stdout.rstrip().rpartition("\n")
    code, kib = map(int, reported.split())
    rate, peak = log.stat().st_size / taken / 1e6, kib / 1024
    assert code == 1 and "rank 17" in out and "MEM001" in out
    assert peak <= 256 and (rate >= 50 or os.getloadavg()[0] > os.cpu_count()), (rate, peak)
    seen("B11", "at least 50 MB/s, at most 256 MiB, rank 17", f"{rate:.0f} MB/s, {peak:.0f} MiB, rank 17", taken)


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
