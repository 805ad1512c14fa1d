"""Slurm: one step over all nodes inside an allocation, or one that srun allocates itself. No shell, no
daemon.

A failing task leaves the others alone, a node that Slurm does not give is reported with Slurm's reason, and
``sinfo`` has a deadline too.
"""

from __future__ import annotations

import time

from gpuready.cluster import nodelist
from gpuready.fleet import parcel
from gpuready.fleet.transport import LATE, PARALLEL, Hearing, Unreached, checked, last_line
from gpuready.fleeted import DEAD, GARBLED, REFUSED, SLOW, Node
from gpuready.system.crowd import Task, crowd
from gpuready.system.live import Live
from gpuready.system.scratch import Scratch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from gpuready.fleeted import Answer
    from gpuready.system import Door
    from gpuready.system.crowd import Ended

SINFO = 15.0
LAUNCH, ALONE = 20.0, 30.0
"""Seconds that Slurm may take to give all nodes and start tasks, and to give one node alone.

The second applies after a step that a dead node made fail: Slurm returns the others only when it has given
that node up.
"""

_FIELDS = "%N|%T|%P|%o|%G|%E"
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


class Slurm:
    name = "slurm"

    def __init__(
        self,
        door: Door,
        token: str,
        *,
        only: str = "",
        python: str = "",
        parallel: int = PARALLEL,
        environ: Mapping[str, str] | None = None,
        partition: str = "",
    ):
        self.door, self.token, self.only, self.parallel = door, token, only, parallel
        self.environ = door.environ() if environ is None else environ
        self.python = python or door.interpreter()["executable"]
        self.partition = partition
        self.inside = bool(self.environ.get("SLURM_JOB_ID"))

    # -- listing nodes ----------------------------------------------------------------------------------------

    def nodes(self) -> list[Node]:
        """List the requested nodes, else those of the allocation, else all, each with its state."""
        wanted = self._wanted()
        words = ["sinfo", "--noheader", "--Node", f"--format={_FIELDS}"]
        words += [f"--partition={checked(self.partition, '--partition')}"] if self.partition else []
        ran = self.door.run(words, SINFO, 64 << 20)
        if ran.end == "not found":
            raise Unreached("there is no sinfo here: this machine does not belong to a Slurm cluster")
        if ran.end or ran.rc:
            why = f"no answer within {SINFO:g} s" if ran.end == "deadline" else last_line(ran.err) or ran.end
            if not wanted:
                raise Unreached(f"sinfo: {why}; name the nodes with --nodes to ask them all the same")
            return [Node(name, "unknown", f"sinfo: {why}", address=name) for name in wanted]
        known = states(ran.out)
        if not wanted:
            return list(known.values())
        return [known.get(n) or Node(n, "unknown", "Slurm does not know it", address=n) for n in wanted]

    def _wanted(self) -> list[str]:
        listed = (
            self.only or self.environ.get("SLURM_JOB_NODELIST") or self.environ.get("SLURM_NODELIST") or ""
        )
        if not listed:
            return []
        names = nodelist.expand(listed)
        return [checked(name, "--nodes" if self.only else "SLURM_JOB_NODELIST") for name in names]

    # -- asking nodes -----------------------------------------------------------------------------------------

    def ask(
        self,
        nodes: Sequence[Node],
        request: dict[str, Any],
        deadline: float,
        heard: Callable[[Answer], None],
    ) -> None:
        orders = parcel.Orders(request, deadline, self.token)
        hearing = Hearing([node.name for node in nodes], orders.mark, heard, time.monotonic())
        for node in nodes:
            if node.state == "down":
                hearing.tell(node.name, DEAD, why=node.why or "Slurm has it down", now=time.monotonic())
            elif node.state not in ("up", "unknown") and not self.inside:
                why = node.why or f"Slurm has it {node.state}"
                hearing.tell(node.name, REFUSED, why=why, now=time.monotonic())
        with Scratch(Live().variables) as folder:
            self._steps(hearing, orders, folder)
            if hearing.needy:
                again, hearing.needy = hearing.needy, []
                self._step_each([again], hearing, orders.but(send=True), folder)
        for name in list(hearing.left):
            hearing.tell(name, DEAD, why="no task of it was heard of", now=time.monotonic())

    def _steps(self, hearing: Hearing, orders: parcel.Orders, folder: str) -> None:
        """Run one step over all nodes; if Slurm refuses it, one for each node, so that one cannot fail them all."""
        names = list(hearing.left)
        if not names:
            return
        silent = self._step_each([names], hearing, orders, folder)
        if len(names) > 1 and silent:
            self._newly_down(hearing)
            left = [name for name in names if name in hearing.left and name not in hearing.needy]
            self._step_each([[name] for name in left], hearing, orders, folder)

    def _newly_down(self, hearing: Hearing) -> None:
        """Report nodes that Slurm has marked down since they were listed, so that they are not waited for again."""
        ran = self.door.run(["sinfo", "--noheader", "--Node", f"--format={_FIELDS}"], SINFO, 64 << 20)
        for name, node in states(ran.out).items():
            if node.state == "down" and name in hearing.left:
                hearing.tell(name, DEAD, why=node.why, now=time.monotonic())

    def _step_each(self, sets: list[list[str]], hearing: Hearing, orders: parcel.Orders, folder: str) -> bool:
        """Run one srun for each set; return whether one over several nodes ended before any of them began."""
        path = f"{folder}/{'with' if orders.send else 'without'}"
        with open(path, "wb") as file:
            file.write(parcel.stdin(orders, "__import__('os').environ['SLURMD_NODENAME']"))
        silent = False
        steps = {str(number): _Step(names) for number, names in enumerate(sets)}

        def line(key: str, text: str) -> bool:
            return steps[key].line(text, hearing)

        def ended(one: Ended) -> None:
            nonlocal silent
            silent = steps[one.key].ended(one, hearing) or silent

        launch = LAUNCH if len(sets) == 1 else ALONE
        limit = orders.deadline + launch + LATE
        tasks = [
            Task(key, self.command(step.names, limit, launch), limit, path) for key, step in steps.items()
        ]
        crowd(tasks, self.parallel, line, ended)
        return silent

    def command(self, names: Sequence[str], limit: float, launch: float = LAUNCH) -> tuple[str, ...]:
        """srun with one task on each node. Names were validated; nothing goes through a shell."""
        words = [
            "srun", f"--nodelist={','.join(names)}", f"--nodes={len(names)}", f"--ntasks={len(names)}",
            "--ntasks-per-node=1", "--kill-on-bad-exit=0", "--wait=0", "--no-kill", "--label", "--quiet",
            "--job-name=gpuready-fleet", "--mpi=none", "--export=ALL", "--input=all", "--open-mode=append",
        ]  # fmt: skip
        if self.inside:
            words += ["--overlap"]
        else:
            words += [f"--immediate={int(launch)}", f"--time={max(1, int(limit) // 60 + 1)}"]
            words += [f"--partition={self.partition}"] if self.partition else []
        return (*words, self.python, "-c", parcel.STARTER)


class _Step:
    def __init__(self, names: Sequence[str]):
        self.names, self.said = list(names), 0
        self.of_task: dict[str, str] = {}  # a task speaks for the first node that it named

    def line(self, text: str, hearing: Hearing) -> bool:
        task, _, rest = text.partition(": ")
        if not rest.startswith(hearing.mark):
            return False
        told = rest.split(" ", 3)[2:3]
        node = self.of_task.setdefault(task.strip(), told[0] if told else "")
        if node in self.names:
            self.said += 1
            hearing.line(rest, time.monotonic(), node)
        return not any(name in hearing.left and name not in hearing.needy for name in self.names)

    def ended(self, one: Ended, hearing: Hearing) -> bool:
        """Report the nodes that did not answer; True if they should be asked one by one."""
        left = [name for name in self.names if name in hearing.left and name not in hearing.needy]
        named = blamed(one.err)
        if not self.said and len(self.names) > 1 and one.end in ("", "deadline"):
            for name in left:
                if name in named:
                    hearing.tell(name, DEAD, why=named[name], now=time.monotonic())
            return True
        for name in left:
            kind, why = judged(one, hearing.began(name))
            if name in named and kind != SLOW:
                kind, why = DEAD, named[name]
            hearing.tell(name, kind, why=why, now=time.monotonic())
        return False


def judged(one: Ended, began: bool) -> tuple[str, str]:
    """Return kind and reason for a node whose step brought no answer."""
    if one.end == "deadline":
        stuck = "gpuready began there and did not end" if began else "Slurm did not start its task"
        return SLOW, f"{stuck} within {one.seconds:.0f} s"
    if one.end == "a line too long":
        return GARBLED, "it wrote without end"
    if one.end == "not found":
        return DEAD, "there is no srun here: this machine does not belong to a Slurm cluster"
    said = last_line(one.err)
    if "Unable to allocate" in one.err or "Requested nodes are busy" in one.err or "Immediate" in one.err:
        return REFUSED, f"Slurm would not give it: {said}"
    if "execve" in one.err or "No such file" in one.err:
        return REFUSED, f"no such Python there: {said}; name one with --python PATH"
    return DEAD if not began else REFUSED, f"srun: {said or one.end or f'exit {one.rc}'}"


def blamed(err: str) -> dict[str, str]:
    """Return the nodes that srun names in its errors, with the error of each."""
    found: dict[str, str] = {}
    for line in err.splitlines():
        for sign in (
            "failed on node ",
            "error: Node failure on ",
            "error: Timed out waiting for job step to complete on ",
        ):
            _, hit, rest = line.partition(sign)
            if hit:
                listed, _, why = rest.partition(":")
                for name in _expanded(listed.strip()):
                    found.setdefault(name, f"srun: {(why or line).strip()[:200]}")
    return found


def _expanded(text: str) -> tuple[str, ...]:
    try:
        return nodelist.expand(text)
    except ValueError:
        return ()


def states(text: str) -> dict[str, Node]:
    """Parse the output of sinfo. A node in several partitions is listed once."""
    found: dict[str, Node] = {}
    for line in text.splitlines():
        fields = [field.strip() for field in line.split("|", 5)]
        if len(fields) < 5 or not fields[0]:
            continue
        name, state, partition, address, gres = fields[:5]
        if name in found:
            continue
        kind, why = state_of(state, fields[5] if len(fields) > 5 else "")
        labels = {"partition": partition.rstrip("*"), "slurm": state}
        try:
            checked(name, "sinfo")
        except ValueError:
            continue
        found[name] = Node(name, kind, why, _gpus(gres), labels, address or name)
    return found


def state_of(state: str, reason: str = "") -> tuple[str, str]:
    """Map Slurm's state with its flags to one of ours, with the reason."""
    plain, flags = state.lower().rstrip("*~#%$@^!+-"), state[len(state.rstrip("*~#%$@^!+-")) :]
    kind, why = _STATES.get(plain, "unknown"), ""
    for flag in flags:
        worse, said = _FLAGS[flag]
        if kind == "up" and worse != "up":
            kind = worse
        why = why or said
    told = "" if reason.lower() in ("", "none", "(null)") else reason[:120]
    if kind == "up" and not why:
        return kind, ""
    return kind, f"Slurm has it {state}" + (f": {told}" if told else f": {why}" if why else "")


def _gpus(gres: str) -> int:
    """Count the GPUs in a gres: ``gpu:h100:8(S:0-1),shard:4``."""
    count = 0
    for part in gres.split(","):
        words = part.partition("(")[0].split(":")
        if words[0] == "gpu":
            count += int(words[-1]) if words[-1].isdecimal() and len(words[-1]) < 5 else int(len(words) == 1)
    return count
