"""Slurm: one step over all nodes inside an allocation, or one that srun allocates itself. No shell, no
daemon.

A failing task leaves the others alone, a node that Slurm does not give is reported with Slurm's reason, and
``sinfo`` has a deadline too.
"""

from collections.abc import Mapping, Sequence

from gpuready.fleet import node_payload
from gpuready.fleet.transport import (
    GRACE_SECONDS,
    PARALLEL,
    AnswerTracker,
    OnAnswer,
    Request,
    TransportUnavailable,
    last_output_line,
    validate_host_name,
)
from gpuready.model import node_names
from gpuready.model.fleet import ABSENT, BUSY, DEAD, GARBLED, REFUSED, SLOW, FleetNode
from gpuready.system import HostAccess
from gpuready.system.live_host import LiveHost
from gpuready.system.own_folders import TemporaryFolder, write_scratch_file
from gpuready.system.process.parallel_programs import ProgramEnd, ProgramTask, run_programs

SINFO = 15.0
LAUNCH_SECONDS, SINGLE_NODE_SECONDS = 20.0, 30.0
"""Seconds that Slurm may take to give all nodes and start tasks, and to give one node alone.

The second applies after a step that a dead node made fail: Slurm returns the others only when it gives
that node up.
"""

_BUSY_PHRASES = (
    "Unable to allocate", "Requested nodes are busy", "Immediate", "Unable to create step", "temporarily unavailable",
    "Socket timed out", "Zero Bytes were transmitted", "Unable to contact slurm controller",
)  # fmt: skip
"""What srun says where a node is taken, or its controller overloaded."""
_SINFO_FORMAT = "%N|%T|%P|%o|%G|%E"
_STATES = {
    "idle": "up", "allocated": "up", "mixed": "up", "completing": "up", "alloc": "up", "planned": "up", "maint": "reserved",
    "drained": "drained", "draining": "drained", "drng": "drained", "drain": "drained", "fail": "drained", "failing": "drained",
    "down": "down", "reserved": "reserved", "resv": "reserved", "powering_up": "booting", "reboot": "booting",
    "powered_down": "booting", "powering_down": "booting", "power_down": "booting", "power_up": "booting",
    "reboot_issued": "booting", "reboot_requested": "booting", "future": "unknown", "unknown": "unknown", "perfctrs": "up",
}  # fmt: skip
_FLAGS = {
    "*": ("down", "it does not answer Slurm"), "~": ("booting", "it is powered off to save energy"),
    "#": ("booting", "it is powering up"), "%": ("booting", "it is powering down"), "$": ("reserved", "it is reserved for maintenance"),
    "@": ("up", "it waits for a reboot"), "^": ("booting", "it is being rebooted"), "!": ("up", "it waits to be powered down"),
    "-": ("up", ""), "+": ("up", ""),
}  # fmt: skip


class SlurmTransport:
    name = "slurm"

    def __init__(
        self,
        host: HostAccess,
        token: str,
        *,
        node_list: str = "",
        python: str = "",
        parallel: int = PARALLEL,
        environ: Mapping[str, str] | None = None,
    ):
        self.host, self.token, self.node_list, self.parallel = host, token, node_list, parallel
        self.environ = host.get_environment() if environ is None else environ
        self.python = python or host.get_interpreter()["executable"]
        self.in_allocation = bool(self.environ.get("SLURM_JOB_ID"))

    # -- listing nodes ----------------------------------------------------------------------------------------

    def list_nodes(self) -> list[FleetNode]:
        """List the requested nodes, else those of the allocation, else all, each with its state."""
        wanted = self._requested_names()
        words = ["sinfo", "--noheader", "--Node", f"--format={_SINFO_FORMAT}"]
        ran = self.host.run(words, SINFO, 64 << 20)
        if ran.end == "not found":
            raise TransportUnavailable("there is no sinfo here: this machine does not belong to a Slurm cluster")
        if ran.end or ran.rc:
            why = f"no answer within {SINFO:g} s" if ran.end == "deadline" else last_output_line(ran.err) or ran.end
            why = why.removeprefix("sinfo: ")
            if not wanted:
                raise TransportUnavailable(
                    f"sinfo: {why}; name the nodes with --nodes, or reach them over ssh with --hosts"
                )
            return [FleetNode(name, "unknown", f"sinfo: {why}", address=name) for name in wanted]
        known = parse_sinfo(ran.out)
        if not wanted:
            return list(known.values())
        return [known.get(n) or FleetNode(n, "unknown", "Slurm does not know it", address=n) for n in wanted]

    def _requested_names(self) -> list[str]:
        node_list = self.node_list or self.environ.get("SLURM_JOB_NODELIST") or self.environ.get("SLURM_NODELIST") or ""
        if not node_list:
            return []
        names = node_names.expand_nodelist(node_list)
        return [validate_host_name(name, "--nodes" if self.node_list else "SLURM_JOB_NODELIST") for name in names]

    # -- asking nodes -----------------------------------------------------------------------------------------

    def ask_nodes(self, nodes: Sequence[FleetNode], request: Request, deadline: float, on_answer: OnAnswer) -> None:
        orders = node_payload.NodeOrders(request, deadline, self.token)
        tracker = AnswerTracker([node.name for node in nodes], orders.line_mark, on_answer)
        for node in nodes:
            if node.state == "down":
                tracker.report_answer(node.name, DEAD, why=node.why or "Slurm has it down")
            elif node.state not in ("up", "unknown") and not self.in_allocation:
                why = node.why or f"Slurm has it {node.state}"
                tracker.report_answer(node.name, REFUSED, why=why)
        with TemporaryFolder(LiveHost().variables) as folder:
            self._run_steps(tracker, orders, folder)
            if needing := tracker.take_needing():
                self._run_srun_each([needing], tracker, orders.replace(send=True), folder)
        tracker.report_left("no task of it was heard of")

    def _run_steps(self, tracker: AnswerTracker, orders: node_payload.NodeOrders, folder: str) -> None:
        """Run one step over all nodes; if Slurm refuses it, one for each node, so that one cannot fail them all."""
        names = list(tracker.unanswered)
        if not names:
            return
        silent = self._run_srun_each([names], tracker, orders, folder)
        if len(names) > 1 and silent:
            self._report_newly_down(tracker)
            left = [name for name in names if name in tracker.unanswered and name not in tracker.needing_gpuready]
            self._run_srun_each([[name] for name in left], tracker, orders, folder)

    def _report_newly_down(self, tracker: AnswerTracker) -> None:
        """Report nodes that Slurm has marked down since they were listed, so that they are not waited for again."""
        ran = self.host.run(["sinfo", "--noheader", "--Node", f"--format={_SINFO_FORMAT}"], SINFO, 64 << 20)
        for name, node in parse_sinfo(ran.out).items():
            if node.state == "down" and name in tracker.unanswered:
                tracker.report_answer(name, DEAD, why=node.why)

    def _run_srun_each(
        self, sets: list[list[str]], tracker: AnswerTracker, orders: node_payload.NodeOrders, folder: str
    ) -> bool:
        """Run one srun for each set; return whether one over several nodes ended before any of them began."""
        stdin = node_payload.build_stdin(orders, "__import__('os').environ['SLURMD_NODENAME']")
        path = write_scratch_file(f"{folder}/{'with' if orders.send else 'without'}", stdin)
        silent = False
        steps = {str(number): _SrunStep(names) for number, names in enumerate(sets)}

        def route_line(key: str, text: str) -> bool:
            return steps[key].handle_task_line(text, tracker)

        def route_ended(result: ProgramEnd) -> None:
            nonlocal silent
            silent = steps[result.key].handle_step_end(result, tracker) or silent

        launch = LAUNCH_SECONDS if len(sets) == 1 else SINGLE_NODE_SECONDS
        limit = orders.deadline + launch + GRACE_SECONDS
        tasks = [
            ProgramTask(key, self.srun_command(step.names, limit, launch), limit, path) for key, step in steps.items()
        ]
        run_programs(tasks, self.parallel, route_line, route_ended)
        return silent

    def srun_command(self, names: Sequence[str], limit: float, launch: float = LAUNCH_SECONDS) -> tuple[str, ...]:
        """srun with one task on each node. Names were validated; nothing goes through a shell."""
        words = [
            "srun", f"--nodelist={','.join(names)}", f"--nodes={len(names)}", f"--ntasks={len(names)}",
            "--ntasks-per-node=1", "--kill-on-bad-exit=0", "--wait=0", "--no-kill", "--label", "--quiet",
            "--job-name=gpuready-fleet", "--mpi=none", "--export=ALL", "--input=all", "--open-mode=append",
        ]  # fmt: skip
        if self.in_allocation:
            words += ["--overlap"]
        else:
            words += [f"--immediate={int(launch)}", f"--time={max(1, int(limit) // 60 + 1)}"]
        return (*words, self.python, "-I", "-c", node_payload.STARTER)


class _SrunStep:
    def __init__(self, names: Sequence[str]):
        self.names, self.line_count = list(names), 0
        self.of_task: dict[str, str] = {}  # a task speaks for the first node that it named

    def handle_task_line(self, text: str, tracker: AnswerTracker) -> bool:
        task, _, rest = text.partition(": ")
        if not rest.startswith(tracker.mark):
            return False
        node_field = rest.split(" ", 3)[2:3]
        node = self.of_task.setdefault(task.strip(), node_field[0] if node_field else "")
        if node in self.names:
            self.line_count += 1
            tracker.track_line(rest, node)
        return not any(name in tracker.unanswered and name not in tracker.needing_gpuready for name in self.names)

    def handle_step_end(self, result: ProgramEnd, tracker: AnswerTracker) -> bool:
        """Report the nodes that did not answer; True if they should be asked one by one."""
        left = [name for name in self.names if name in tracker.unanswered and name not in tracker.needing_gpuready]
        named = nodes_blamed_by_srun(result.err)
        if not self.line_count and len(self.names) > 1 and result.end in ("", "deadline"):
            for name in left:
                if name in named:
                    tracker.report_answer(name, DEAD, why=named[name])
            return True
        for name in left:
            kind, why = classify_srun_failure(result, tracker.has_begun(name))
            if name in named and kind not in (SLOW, BUSY):
                kind, why = DEAD, named[name]
            tracker.report_answer(name, kind, why=why, for_now=kind == BUSY)
        return False


def classify_srun_failure(ended: ProgramEnd, has_begun: bool) -> tuple[str, str]:
    """Return kind and reason for a node whose step brought no answer."""
    if ended.end == "deadline":
        if not has_begun:
            return BUSY, f"Slurm did not start its task within {ended.seconds:.0f} s"
        return SLOW, f"gpuready began there and did not end within {ended.seconds:.0f} s"
    if ended.end == "a line too long":
        return GARBLED, "it wrote without end"
    if ended.end == "not found":
        return DEAD, "there is no srun here: this machine does not belong to a Slurm cluster"
    last_error = last_output_line(ended.err)
    if any(phrase in ended.err for phrase in _BUSY_PHRASES):
        return BUSY, f"Slurm would not give it now: {last_error}"
    if "execve" in ended.err or "No such file" in ended.err:
        return ABSENT, f"no such Python there: {last_error}; name one with --python PATH"
    return (
        DEAD if not has_begun else REFUSED,
        f"srun: {last_error.removeprefix('srun: ') or ended.end or f'exit {ended.rc}'}",
    )


def nodes_blamed_by_srun(err: str) -> dict[str, str]:
    """Return the nodes that srun names in its errors, with the error of each."""
    found: dict[str, str] = {}
    for line in err.splitlines():
        for phrase in (
            "failed on node ",
            "error: Node failure on ",
            "error: Timed out waiting for job step to complete on ",
        ):
            _, hit, rest = line.partition(phrase)
            if hit:
                node_list, _, why = rest.partition(":")
                for name in _expand_or_empty(node_list.strip()):
                    found.setdefault(name, f"srun: {(why or line).strip().removeprefix('srun: ')[:200]}")
    return found


def _expand_or_empty(text: str) -> tuple[str, ...]:
    try:
        return node_names.expand_nodelist(text)
    except ValueError:
        return ()


def parse_sinfo(text: str) -> dict[str, FleetNode]:
    """Parse the output of sinfo. A node in several partitions is listed once."""
    found: dict[str, FleetNode] = {}
    for line in text.splitlines():
        fields = [field.strip() for field in line.split("|", 5)]
        if len(fields) < 5 or not fields[0]:
            continue
        name, state, partition, address, gres = fields[:5]
        if name in found:
            continue
        kind, why = parse_slurm_state(state, fields[5] if len(fields) > 5 else "")
        labels = {"partition": partition.rstrip("*"), "slurm": state}
        try:
            validate_host_name(name, "sinfo")
        except ValueError:
            continue
        found[name] = FleetNode(name, kind, why, _count_gres_gpus(gres), labels, address or name)
    return found


def parse_slurm_state(state: str, reason: str = "") -> tuple[str, str]:
    """Map Slurm's state with its flags to one of ours, with the reason."""
    plain, flags = state.lower().rstrip("*~#%$@^!+-"), state[len(state.rstrip("*~#%$@^!+-")) :]
    kind, why = _STATES.get(plain, "unknown"), ""
    for flag in flags:
        worse, flag_reason = _FLAGS[flag]
        if kind == "up" and worse != "up":
            kind = worse
        why = why or flag_reason
    reason_text = "" if reason.lower() in ("", "none", "(null)") else reason[:120]
    if kind == "up" and not why:
        return kind, ""
    return kind, f"Slurm has it {state}" + (f": {reason_text}" if reason_text else f": {why}" if why else "")


def _count_gres_gpus(gres: str) -> int:
    """Count the GPUs in a gres: ``gpu:h100:8(S:0-1),shard:4``."""
    count = 0
    for part in gres.split(","):
        words = part.partition("(")[0].split(":")
        if words[0] == "gpu":
            count += int(words[-1]) if words[-1].isdecimal() and len(words[-1]) < 5 else int(len(words) == 1)
    return count
