"""What would make this start fail: the script, ranks, port, peers, memory, limits, leftovers."""

from __future__ import annotations

import os

from gpuready.launcher import pulse, script, stale
from gpuready.launcher.job import Sight
from gpuready.rollcall import endpoint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from gpuready.launcher.job import Job
    from gpuready.model import Facts

MIB, GIB = 1 << 20, 1 << 30
OK, WARNING, ERROR = "ok", "warning", "error"
CODES = {
    "script": "RUN025",
    "engine": "RUN025",
    "ranks": "NET012",
    "port": "NET018",
    "peers": "NET016",
    "limits": "SYS006",
    "leftovers": "RUN023",
}
"""The rule that explains each item."""


def looked(
    job: Job,
    facts: Facts,
    which: Callable[[str], str | None],
    port_given: bool,
    environ: Mapping[str, str] | None = None,
) -> list[Sight]:
    """Run all checks in the order of the screen."""
    parts = (
        _script(job, facts, which),
        _engine(job, facts, which),
        _ranks(job, facts),
        _port(job, port_given),
        _peers(job),
        _shared_memory(job, facts),
        _limits(job, facts),
        _held(facts),
        _leftovers(),
        _stores(job, environ or {}),
    )
    return [sight.but(code=sight.code or CODES.get(sight.what, "")) for part in parts for sight in part]


def gpus(facts: Facts) -> int:
    """Return how many GPUs the ranks of this node may see."""
    visible, count = facts.known("gpu.visible"), facts.known("gpu.count")
    return len(visible) if isinstance(visible, (tuple, list)) else count if isinstance(count, int) else 0


def _script(job: Job, facts: Facts, which: Callable[[str], str | None]) -> Iterator[Sight]:
    says, fix = script.wrong(job.kind, job.words, str(facts.known("os.arch") or os.uname().machine), which)
    if says:
        yield Sight("script", ERROR, says, fix, usage=True)
    else:
        yield Sight("script", OK, f"{job.words[0]}, {job.start or 'a process for each rank'}")


def _engine(job: Job, facts: Facts, which: Callable[[str], str | None]) -> Iterator[Sight]:
    program = {"slurm": "srun", "mpi": "mpirun"}.get(job.engine)
    if program and not which(program):
        yield Sight(
            "engine",
            ERROR,
            f"{program} is not on PATH",
            f"load its module, or leave out --engine {job.engine}",
            usage=True,
        )
    package = {"torchrun": "torch", "ray": "ray"}.get(job.engine)
    version = facts.known("torch.version") if package == "torch" else _distribution(facts, package)
    if package and not version:
        yield Sight("engine", ERROR, f"{job.python} has no {package}, which the engine {job.engine} is part of",
                    "name another environment with --python PATH", usage=True)  # fmt: skip


def _distribution(facts: Facts, name: str | None) -> str:
    """Return the site-packages folder of the target that has the package."""
    if not name:
        return ""
    folders = [facts.known("python.site") or ()]
    paths = [p for f in folders for p in ([f] if isinstance(f, str) else f)]
    return next((p for p in paths if os.path.isdir(f"{p}/{name}")), "")


def _ranks(job: Job, facts: Facts) -> Iterator[Sight]:
    seen = gpus(facts)
    where = f"{job.world} on {job.nnodes} nodes" if job.nnodes > 1 else f"{job.world}"
    if seen and job.nproc > seen and job.engine in ("local", "torchrun"):
        yield Sight("ranks", ERROR, f"{job.nproc} ranks for {seen} visible GPUs: two ranks cannot share a GPU under NCCL",
                    f"--nproc {seen}, or CUDA_VISIBLE_DEVICES= for a run without GPUs")  # fmt: skip
    elif seen and job.nproc < seen:
        yield Sight("ranks", OK, f"{where}; {seen - job.nproc} of {seen} GPUs stay idle")
    else:
        yield Sight("ranks", OK, f"{where}, {'each with its GPU' if seen else 'no GPU here'}")


def _port(job: Job, given: bool) -> Iterator[Sight]:
    if job.engine not in ("local", "torchrun") or job.node_rank != 0:
        return
    held = endpoint.holder(job.port)
    if held is None:
        yield Sight("port", OK, f"{job.port} is free" + ("" if given else ", chosen for this run"))
        return
    who = (
        f"pid {held.pid}, {held.command} ({held.user}, {held.age_s:.0f} s old)"
        if held.pid
        else "a process that cannot be seen from here"
    )
    yield Sight("port", ERROR, f"port {job.port} is taken by {who}",
                f"--master {job.master}:{endpoint.free_port()} is free, or leave out the port: then a free one is chosen")  # fmt: skip


def _peers(job: Job) -> Iterator[Sight]:
    if job.nnodes < 2 or job.engine != "torchrun":
        return
    if job.node_rank == 0:
        if endpoint.is_loopback(job.master):
            yield Sight("peers", ERROR, f"--master {job.master} is this host's loopback: other nodes cannot reach it",
                        f"--master {next(iter(endpoint.addresses()), 'HOST')}:{job.port}", usage=True, code="NET008")  # fmt: skip
        elif not endpoint.is_local(job.master):
            yield Sight("peers", ERROR, f"--master {job.master} is no address of this node, which is node 0",
                        f"its addresses are {', '.join(endpoint.addresses()) or 'none'}; or this is not node 0: --node-rank R")  # fmt: skip
        return
    reached = endpoint.reach(job.master, job.port, 1.5)
    if reached.why == "name":
        yield Sight("peers", ERROR, f"the name {job.master} of node 0 does not resolve: {reached.told}",
                    f"add a line to /etc/hosts, or give its address: --master ADDRESS:{job.port}")  # fmt: skip
    elif not reached.ok and reached.why != "refused":
        yield Sight("peers", WARNING, f"node 0 does not answer on {job.master}:{job.port} yet ({reached.why}: {reached.told})",
                    "start node 0, or open the port between the nodes")  # fmt: skip
    else:
        yield Sight("peers", OK, f"node 0 is there: {job.master}:{job.port}")


def _shared_memory(job: Job, facts: Facts) -> Iterator[Sight]:
    size, free = facts.known("system.shm"), facts.known("system.shm_free")
    if not isinstance(size, int) or job.nproc < 2:
        return
    left = free if isinstance(free, int) else size
    need = 64 * MIB * job.nproc
    told = f"/dev/shm has {size / MIB:.0f} MiB, {left / MIB:.0f} MiB free; {job.nproc} ranks want about {need / MIB:.0f} MiB"
    how = "docker run --shm-size=8g, or mount -o remount,size=8g /dev/shm"
    if left < 8 * MIB * job.nproc:
        yield Sight("memory", ERROR, told, how, code="SYS001")
    elif left < need:
        yield Sight("memory", WARNING, told, how, code="SYS001")


def _limits(job: Job, facts: Facts) -> Iterator[Sight]:
    files, processes, locked = (facts.known(f"limit.{name}") for name in ("nofile", "nproc", "memlock"))
    need = 256 + 4 * job.world
    if isinstance(files, int) and 0 <= files < need:
        yield Sight(
            "limits",
            ERROR,
            f"{files} open files are allowed, and a world of {job.world} needs about {need}",
            f"ulimit -n {max(need, 4096)}",
        )
    wanted = 64 * job.nproc
    if isinstance(processes, int) and 0 <= processes < wanted and os.geteuid() != 0:
        yield Sight(
            "limits",
            ERROR,
            f"{processes} processes are allowed, and {job.nproc} ranks with their threads need about {wanted}",
            f"ulimit -u {wanted * 4}",
        )
    if facts.known("net.ib") and isinstance(locked, int) and 0 <= locked < 64 * MIB:
        yield Sight(
            "limits",
            WARNING,
            f"{locked / 1024:.0f} KiB of locked memory are allowed, and InfiniBand needs more",
            "ulimit -l unlimited",
            code="SYS007",
        )


def _held(facts: Facts) -> Iterator[Sight]:
    total, free = facts.known("gpu.memory") or (), facts.known("gpu.free") or ()
    holders = facts.known("gpu.processes") or ()
    for gpu in range(min(len(total), len(free))):
        used = (total[gpu] or 0) - (free[gpu] or 0)
        if used > GIB and used > (total[gpu] or 0) / 20:
            who = [
                f"pid {h.get('pid')} {h.get('command') or ''}".strip() for h in holders if h.get("gpu") == gpu
            ]
            yield Sight("memory", WARNING, f"{used / GIB:.1f} GiB of GPU {gpu} are held by {', '.join(who[:3]) or 'others'}",
                        "wait for them, or choose other GPUs with CUDA_VISIBLE_DEVICES", code="MEM002")  # fmt: skip


# -- leftovers of an earlier job ------------------------------------------------------------------------


def orphans() -> list[tuple[int, float, str]]:
    """Return our ranks whose launcher is dead: pid, age in seconds, command."""
    me, found = os.getuid(), []
    for pid in pulse.pids():
        try:
            if os.stat(f"/proc/{pid}").st_uid != me or not _abandoned(pid):
                continue
            with open(f"/proc/{pid}/environ", "rb") as file:
                names = {entry.partition(b"=")[0] for entry in file.read().split(b"\0")}
        except OSError:
            continue
        if {b"RANK", b"WORLD_SIZE"} <= names and names & {b"TORCHELASTIC_RUN_ID", b"GPUREADY_RUN_ID"}:
            found.append((pid, endpoint._age(pid), endpoint._command(pid)))
    return found


def _abandoned(pid: int) -> bool:
    """Whether the launcher is gone: the parent is init or the user's systemd."""
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        parent = int(file.read().rpartition(")")[2].split()[1])
    if parent == 1:
        return True
    with open(f"/proc/{parent}/comm", encoding="utf-8", errors="replace") as file:
        return file.read().strip() == "systemd"


def _leftovers() -> Iterator[Sight]:
    found = orphans()
    if found:
        told = "; ".join(f"pid {pid}, {age:.0f} s old, {command[:60]}" for pid, age, command in found[:8])
        yield Sight("leftovers", ERROR, f"{len(found)} ranks of an earlier job live on without their launcher: {told}",
                    f"gpuready run --reap ends them first, or kill {' '.join(str(pid) for pid, _, _ in found[:8])}")  # fmt: skip


def _stores(job: Job, environ: Mapping[str, str]) -> Iterator[Sight]:
    """Report file stores that exist before the start."""
    text = ""
    if job.kind == "script":
        try:
            with open(job.words[0], encoding="utf-8", errors="replace") as file:
                text = file.read(script.HEAD)
        except OSError:
            pass
    asked = stale.run_id(job.words)
    for left in stale.found(job.words, environ, text):
        age = stale.told(left.age_s)
        if asked and asked in left.closed:
            yield Sight("leftovers", ERROR, f"the rendezvous {asked} was closed {age} ago, in {left.path}: nobody can join it again",
                        f"give this run another name: --rdzv-id {asked}-2, or remove the file")  # fmt: skip
        elif not asked:
            severity = ERROR if left.age_s > job.window or job.nnodes == 1 else WARNING
            yield Sight("leftovers", severity, f"the file store {left.path} was left over by an earlier run: {left.size} bytes, last written {age} ago",
                        f"rm {left.path}, or name another file for each run")  # fmt: skip


def reap() -> list[int]:
    """End the processes of ``find_orphan_ranks``; return their pids."""
    import signal
    import time

    ended = [pid for pid, _, _ in orphans()]
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in ended:
            try:
                os.kill(pid, number)
            except OSError:
                continue
        deadline = time.monotonic() + 1.0
        while any(pulse.stat(pid)[0] not in ("", "Z") for pid in ended) and time.monotonic() < deadline:
            time.sleep(0.02)
    return ended
