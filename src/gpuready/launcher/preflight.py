"""What would make this start fail: the script, ranks, port, peers, memory, limits, leftovers."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from gpuready.launcher import process_status, rank_process, script
from gpuready.model import Facts, Record
from gpuready.model.node_names import fold_node_names
from gpuready.model.run import LaunchJob, PreflightItem
from gpuready.rollcall import endpoint
from gpuready.system import file_contents
from gpuready.system.process.inspection import ProcessIdentity, process_state

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


def run_preflight(
    job: LaunchJob,
    facts: Facts,
    which: Callable[[str], str | None],
    port_requested: bool,
    environ: Mapping[str, str] | None = None,
) -> list[PreflightItem]:
    """Run all checks in the order of the screen."""
    parts = (
        _check_script(job, facts, which),
        _check_engine(job, facts, which),
        _check_ranks(job, facts),
        _check_port(job, port_requested),
        _check_peers(job, in_pod="KUBERNETES_SERVICE_HOST" in (environ or {})),
        _check_shared_memory(job, facts),
        _check_limits(job, facts),
        _check_gpu_memory(facts),
        _check_file_store(job),
        _check_leftovers(),
    )
    return [item.replace(code=item.code or CODES.get(item.what, "")) for part in parts for item in part]


def visible_gpu_count(facts: Facts) -> int:
    """Return how many GPUs the ranks of this node may see."""
    visible, count = facts.value_if_known("gpu.visible"), facts.value_if_known("gpu.count")
    return len(visible) if isinstance(visible, (tuple, list)) else count if isinstance(count, int) else 0


def _check_script(job: LaunchJob, facts: Facts, which: Callable[[str], str | None]) -> Iterator[PreflightItem]:
    machine = str(facts.value_if_known("os.arch") or os.uname().machine)
    says, fix = script.why_not_runnable(job.kind, job.words, machine, which)
    if says:
        yield PreflightItem("script", ERROR, says, fix, usage=True)
    else:
        yield PreflightItem("script", OK, f"{job.words[0]}, {job.start or 'a process for each rank'}")


def _check_engine(job: LaunchJob, facts: Facts, which: Callable[[str], str | None]) -> Iterator[PreflightItem]:
    program = {"slurm": "srun", "mpi": "mpirun"}.get(job.engine)
    if program and not which(program):
        fix = f"load its module, or leave out --engine {job.engine}"
        yield PreflightItem("engine", ERROR, f"{program} is not on PATH", fix, usage=True)
    package = {"torchrun": "torch", "ray": "ray"}.get(job.engine)
    version = facts.value_if_known("torch.version") if package == "torch" else _find_package_folder(facts, package)
    if package and not version:
        yield PreflightItem("engine", ERROR, f"{job.python} has no {package}, which the engine {job.engine} is part of",
                    "name another environment with --python PATH", usage=True)  # fmt: skip


def _find_package_folder(facts: Facts, name: str | None) -> str:
    """Return the site-packages folder of the target that has the package."""
    if not name:
        return ""
    site = facts.value_if_known("python.site") or ()
    return next((p for p in ([site] if isinstance(site, str) else site) if os.path.isdir(f"{p}/{name}")), "")


def _check_ranks(job: LaunchJob, facts: Facts) -> Iterator[PreflightItem]:
    visible = visible_gpu_count(facts)
    which = "this one" if job.engine == "torchrun" else "each"  # where the others say how many they start
    where = f"{job.nproc} on {which} of {job.nnodes} nodes" if job.nnodes > 1 else f"{job.nproc}"
    if visible and job.nproc > visible and job.engine in ("local", "torchrun"):
        yield PreflightItem("ranks", ERROR, f"{job.nproc} ranks for {visible} visible GPUs: two ranks cannot share a GPU under NCCL",
                    f"--nproc {visible}, or CUDA_VISIBLE_DEVICES= for a run without GPUs")  # fmt: skip
    elif visible and job.nproc < visible:
        yield PreflightItem("ranks", OK, f"{where}; {visible - job.nproc} of {visible} GPUs stay idle")
    else:
        yield PreflightItem("ranks", OK, f"{where}, {'each with its GPU' if visible else 'no GPU here'}")


def _check_port(job: LaunchJob, port_requested: bool) -> Iterator[PreflightItem]:
    if job.engine not in ("local", "torchrun") or job.node_rank != 0:
        return
    port_holder = endpoint.find_port_holder(job.port)
    if port_holder is None:
        yield PreflightItem("port", OK, f"{job.port} is free" + ("" if port_requested else ", chosen for this run"))
        return
    who = "a process that cannot be seen from here"
    if port_holder.pid:
        who = f"pid {port_holder.pid}, {port_holder.command} ({port_holder.user}, {port_holder.age_s:.0f} s old)"
    yield PreflightItem("port", ERROR, f"port {job.port} is taken by {who}",
                f"--master {job.master}:{endpoint.find_free_port()} is free, or leave out the port: then a free one is chosen")  # fmt: skip


def _check_peers(job: LaunchJob, in_pod: bool) -> Iterator[PreflightItem]:
    """Check the way to node 0. In Kubernetes names appear late, and the address of a service is no node's own."""
    if job.nnodes < 2 or job.engine != "torchrun":
        return
    if job.node_rank == 0:
        if not in_pod:
            yield from _check_own_address(job)
        return
    reached = endpoint.test_reachability(job.master, job.port, 1.5)
    if reached.why == "name" and not in_pod:
        yield _name_unresolved(job, reached.detail)
    elif not reached.ok and reached.why != "refused":
        yield PreflightItem("peers", WARNING, f"node 0 does not answer on {job.master}:{job.port} yet ({reached.why}: {reached.detail})",
                    "start node 0, or open the port between the nodes")  # fmt: skip
    else:
        yield PreflightItem("peers", OK, f"node 0 is there: {job.master}:{job.port}")


def _name_unresolved(job: LaunchJob, detail: str) -> PreflightItem:
    return PreflightItem("peers", ERROR, f"the name {job.master} of node 0 does not resolve: {detail}",
                 f"add a line to /etc/hosts, or give its address: --master ADDRESS:{job.port}")  # fmt: skip


def _check_own_address(job: LaunchJob) -> Iterator[PreflightItem]:
    """Check on node 0 that others can reach it by --master; on a loopback those of this host can, as with torchrun."""
    try:
        addresses = [str(where[0]) for _, where in endpoint.resolve_host(job.master, job.port)]
    except OSError as error:
        yield _name_unresolved(job, str(error))
        return
    if all(map(endpoint.is_loopback_address, addresses)):
        yield PreflightItem("peers", WARNING, f"--master {job.master} is this host's loopback: nodes on other hosts cannot reach it",
                    f"where there are some: --master {next(iter(endpoint.list_own_addresses()), 'HOST')}:{job.port}", code="NET008")  # fmt: skip
    elif not any(map(endpoint.is_local_address, addresses)):
        yield PreflightItem("peers", ERROR, f"--master {job.master} is not an address of this node, which is node 0",
                    f"its addresses are {', '.join(endpoint.list_own_addresses()) or 'none'}; or this is not node 0: --node-rank R")  # fmt: skip


def _check_shared_memory(job: LaunchJob, facts: Facts) -> Iterator[PreflightItem]:
    size, free = facts.value_if_known("system.shm"), facts.value_if_known("system.shm_free")
    if not isinstance(size, int) or job.nproc < 2:
        return
    left = free if isinstance(free, int) else size
    need = 64 * MIB * job.nproc
    message = f"/dev/shm has {size / MIB:.0f} MiB, {left / MIB:.0f} MiB free; {job.nproc} ranks want about {need / MIB:.0f} MiB"
    how = "docker run --shm-size=8g, or mount -o remount,size=8g /dev/shm"
    if left < 8 * MIB * job.nproc:
        yield PreflightItem("memory", ERROR, message, how, code="SYS001")
    elif left < need:
        yield PreflightItem("memory", WARNING, message, how, code="SYS001")


def _check_limits(job: LaunchJob, facts: Facts) -> Iterator[PreflightItem]:
    files, processes, locked = (facts.value_if_known(f"limit.{name}") for name in ("nofile", "nproc", "memlock"))
    need = 256 + 4 * job.world
    if isinstance(files, int) and 0 <= files < need:
        says = f"{files} open files are allowed, and a world of {job.world} needs about {need}"
        yield PreflightItem("limits", ERROR, says, f"ulimit -n {max(need, 4096)}")
    wanted = 64 * job.nproc
    if isinstance(processes, int) and 0 <= processes < wanted and os.geteuid() != 0:
        says = f"{processes} processes are allowed, and {job.nproc} ranks with their threads need about {wanted}"
        yield PreflightItem("limits", ERROR, says, f"ulimit -u {wanted * 4}")
    if facts.value_if_known("net.ib") and isinstance(locked, int) and 0 <= locked < 64 * MIB:
        says = f"{locked / 1024:.0f} KiB of locked memory are allowed, and InfiniBand needs more"
        yield PreflightItem("limits", WARNING, says, "ulimit -l unlimited", code="SYS007")


_STORE_PLACE = re.compile(r"file://(/[^\s\"'{}]+)")
_STORE_START = b"\x09\0\0\0refcount/"
"""How torch begins the file of a FileStore."""


def _check_file_store(job: LaunchJob) -> Iterator[PreflightItem]:
    """``init_method="file:///shared/store"``: a store that an earlier run has left gives its addresses to this one."""
    text = (script.read_script(job.words[0]) or "") if job.kind == "script" else ""
    for path in dict.fromkeys(_STORE_PLACE.findall("\n".join((text, *job.words)))):
        head = file_contents.read_file_start(path, len(_STORE_START)) if os.path.isfile(path) else b""
        if head == _STORE_START:
            says = f"{path} is the store of an earlier run: torch would meet that run's ranks in it"
            yield PreflightItem("leftovers", WARNING, says, f"rm {path}, if no job uses it now")


def _check_gpu_memory(facts: Facts) -> Iterator[PreflightItem]:
    total, free = facts.value_if_known("gpu.memory") or (), facts.value_if_known("gpu.free") or ()
    holders = facts.value_if_known("gpu.processes") or ()
    for gpu in range(min(len(total), len(free))):
        used = (total[gpu] or 0) - (free[gpu] or 0)
        if used > GIB and used > (total[gpu] or 0) / 20:
            who = [f"pid {h.get('pid')} {h.get('command') or ''}".strip() for h in holders if h.get("gpu") == gpu]
            yield PreflightItem("memory", WARNING, f"{used / GIB:.1f} GiB of GPU {gpu} are held by {', '.join(who[:3]) or 'others'}",
                        "wait for them, or choose other GPUs with CUDA_VISIBLE_DEVICES", code="MEM002")  # fmt: skip


# -- leftovers of an earlier job ------------------------------------------------------------------------


INITS = ("systemd", "init", "tini", "docker-init", "dumb-init", "catatonit")
"""Their children are no ranks of theirs; in a pod the first process may be the launcher."""


class OrphanRank(Record):
    """A rank of this user that may have no launcher; ``proven``: the process that started it is recorded, and gone."""

    pid: int
    proven: bool
    says: str


def find_orphan_ranks() -> list[OrphanRank]:
    """Return our ranks whose recorded launcher is gone, and those without a record whose parent is the first process."""
    found = []
    for pid in process_status.list_process_ids():
        with suppress(OSError):
            if os.stat(f"/proc/{pid}").st_uid != os.getuid():
                continue
            with open(f"/proc/{pid}/environ", "rb") as file:
                text = file.read().decode("utf-8", "replace")
            names = dict(entry.split("=", 1) for entry in text.split("\0") if "=" in entry)
            is_rank = {"RANK", "WORLD_SIZE"} <= set(names) and {"TORCHELASTIC_RUN_ID", "GPUREADY_RUN_ID"} & set(names)
            state = _launcher_state(names.get(process_status.AGENT_PROCESS, "")) if is_rank else "running"
            parent = endpoint.read_text(f"/proc/{process_status.read_process_stat(pid)[2]}/comm").strip()
            if state == "dead" or (state == "elsewhere" and parent in INITS):
                says = f"pid {pid}, {endpoint.process_age(pid):.0f} s old, {endpoint.process_command(pid)[:60]}"
                found.append(OrphanRank(pid, state == "dead", says))
    return found


def _launcher_state(text: str) -> str:
    """running, stopped or dead; elsewhere where nothing is recorded, or not of this boot and pid namespace."""
    boot, space, pid, started = text.split() if text.count(" ") == 3 else ("", "", "0", "0")
    return process_state(ProcessIdentity("", boot, int(pid), int(started), space)) if boot else "elsewhere"


def _check_leftovers() -> Iterator[PreflightItem]:
    orphans = find_orphan_ranks()
    for proven, severity in ((True, ERROR), (False, WARNING)):
        rows = [one for one in orphans if one.proven == proven]
        if not rows:
            continue
        listed = "; ".join(one.says for one in rows[:8])
        says = f"{len(rows)} ranks of an earlier job live on without their launcher: {listed}"
        fix = f"end them first with gpuready run --reap, or kill {' '.join(str(one.pid) for one in rows[:8])}"
        if not proven:
            says = f"{len(rows)} ranks may be left over: init has them, and who started them is not recorded: {listed}"
            fix = "they are left alone: see whose they are"
        yield PreflightItem("leftovers", severity, says, fix)


def end_orphan_ranks() -> list[int]:
    """End the ranks whose launcher is proven to be gone; return their pids."""
    ended = [one.pid for one in find_orphan_ranks() if one.proven]
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in ended:
            rank_process.send_signal(pid, number)
        deadline = time.monotonic() + 1.0
        alive = ended
        while alive and time.monotonic() < deadline:
            time.sleep(0.02)
            alive = [pid for pid in alive if process_status.read_process_stat(pid)[0] not in ("", "Z")]
    return ended


Looks = Mapping[str, Mapping[str, Any]]
MAX_SENTENCES = 6


def summarize_errors(node_results: Looks) -> tuple[str, str, str]:
    """Return the errors with their nodes, the fix and the rule; empty strings if there are none."""
    rows = _group_by_finding(node_results, "error")
    if not rows:
        return "", "", ""
    sentences = [_format_finding(item, nodes) for item, nodes in rows[1:MAX_SENTENCES]]
    first, where = rows[0]
    more = [f"and {len(rows) - MAX_SENTENCES} things more"] if len(rows) > MAX_SENTENCES else []
    says = "; ".join([f"{_format_node_names(where)}: {first['says']}", *sentences, *more])
    return says, str(first.get("fix", "")), str(first.get("code", ""))


def summarize_warnings(node_results: Looks) -> list[str]:
    """Return warnings, and nodes whose preflight failed."""
    sentences = [_format_finding(item, nodes) for item, nodes in _group_by_finding(node_results, "warning")]
    gaps: dict[str, list[str]] = {}
    for node, result in node_results.items():
        if result.get("gap"):
            gaps.setdefault(str(result["gap"]), []).append(node)
    unknown = "could not be looked at before the start"
    return sentences + [f"{_format_node_names(nodes)} {unknown}: {why}" for why, nodes in gaps.items()]


def _group_by_finding(node_results: Looks, severity: str) -> list[tuple[Mapping[str, Any], list[str]]]:
    """Return one row for each finding with all its nodes, the most frequent first."""
    groups: dict[tuple[str, str], tuple[Mapping[str, Any], list[str]]] = {}
    for node, result in sorted(node_results.items()):
        for item in result.get("sights", ()):
            if item["severity"] == severity:
                groups.setdefault((item["what"], item["says"]), (item, []))[1].append(node)
    return sorted(groups.values(), key=lambda row: -len(row[1]))


def _format_node_names(names: list[str]) -> str:
    return f"node {names[0]}" if len(names) == 1 else f"nodes {fold_node_names(names)[:160]}"


def _format_finding(item: Mapping[str, Any], nodes: list[str]) -> str:
    code = f" [{item['code']}]" if item.get("code") else ""
    return f"{_format_node_names(nodes)}: {item['says']}{code}"
