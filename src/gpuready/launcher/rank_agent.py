"""Runs in the target environment beside its ranks: starts and watches them and reports to the supervisor.

    python rank_agent.py -- SCRIPT ARGS       (settings in GPUREADY_ATTEND, as JSON)

The local engine has one agent for all ranks, which imports torch once; torchrun, srun, mpirun and Ray start
one for each. As a separate process it can report on ranks in any state. It ends with its supervisor and
cleans up.
"""

import json
import os
import re
import select
import signal
import socket
import sys
import time
from collections import deque
from contextlib import suppress
from typing import Any

if __name__ == "__main__":  # started by path: import only our own package
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from gpuready.launcher import flight_dumps, process_status, rank_main, rank_process, shared_memory
from gpuready.launcher.memory_stacks import StackReader
from gpuready.launcher.process_status import MemoryWatch
from gpuready.launcher.rank_watch import RankWatch
from gpuready.rollcall import endpoint

TICK_SECONDS, AGREE_SECONDS, MAX_BUFFER = 1.0, 30.0, 64 << 20
"""Seconds between looks, and for the nodes to agree; bytes of output that wait here before a rank that writes must wait."""


class RankAgent:
    """The event loop beside the ranks."""

    def __init__(self, settings: dict[str, Any], command: list[str]):
        self.settings, self.command = settings, command
        self.ranks: dict[int, rank_process.RankProcess] = {}
        self.outgoing: deque[bytes] = deque()
        self.outgoing_bytes, self.incoming, self.connection = 0, b"", self._connect_to_supervisor()
        self.env: dict[str, str] | None = None
        self.kill_deadline: float | None = None
        self.stop_signal, self.signalled = 0, set()  # type: int, set[int]
        self.leaving = self.is_forked = False
        self.stack_reader: StackReader | None = None
        self.memory = MemoryWatch()
        self.ended_at, self.interface = 0.0, {}  # type: float, dict[str, str]
        self.shared_memory_before = shared_memory.list_shared_memory()
        self.oom_kills_before = process_status.count_oom_kills()
        self.limits_before = process_status.read_limits()
        self.wake, wake = os.pipe()
        os.set_blocking(self.wake, False)
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, *rank_process.PASSED_SIGNALS):
            signal.signal(number, self._handle_signal)

    # -- the supervisor ---------------------------------------------------------------------------------

    def _connect_to_supervisor(self) -> socket.socket:
        hosts, port = self.settings["hub"]
        last: OSError | None = None
        for host in hosts:
            try:
                link = socket.create_connection((host, port), 3.0)
                link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                link.setblocking(False)
                return link
            except OSError as error:
                last = error
        raise SystemExit(f"gpuready: {socket.gethostname()} cannot reach gpuready run on {hosts} port {port}: {last}")

    def send_message(self, **message: Any) -> None:
        line = json.dumps(message).encode() + b"\n"
        self.outgoing.append(line)
        self.outgoing_bytes += len(line)
        self._flush_outgoing()

    def _flush_outgoing(self) -> None:
        try:
            while self.outgoing:
                sent = self.connection.send(self.outgoing[0])
                self.outgoing_bytes -= sent
                line = self.outgoing.popleft()
                if sent < len(line):
                    self.outgoing.appendleft(line[sent:])
        except BlockingIOError:
            return
        except OSError:
            self._handle_lost_supervisor()

    def _receive_orders(self) -> None:
        try:
            data = self.connection.recv(rank_process.READ_SIZE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._handle_lost_supervisor()
            return
        *lines, self.incoming = (self.incoming + data).split(b"\n")
        for line in lines:
            self._handle_order(json.loads(line))

    def _handle_lost_supervisor(self) -> None:
        """The supervisor is gone: kill all ranks at once."""
        self.outgoing.clear()
        self.leaving = True
        self._signal_rank_groups(signal.SIGKILL)

    def _handle_order(self, order: dict[str, Any]) -> None:
        kind = order["t"]
        if kind == "go":
            self.env = order["env"]
        elif kind == "stop":
            self.leaving = self.leaving or all(rank.code is not None for rank in self.ranks.values())
            self._stop_ranks(order["signal"], order["grace"])
        elif kind == "stacks":
            self._send_stacks()
        elif kind == "signal":
            self._pass_signal(order["signal"])
        elif kind == "bye":
            self.leaving = True

    def _send_stacks(self) -> None:
        for rank in self.ranks.values():
            if rank.code is None:
                place = self._watch_of(rank, time.monotonic()).describe()
                self.send_message(t="stack", r=rank.number, **place)
                rank.ask_for(rank_main.ASK_CALL if place["d"] else rank_main.ASK_STACK)

    # -- the ranks --------------------------------------------------------------------------------------

    def _handle_signal(self, number: int, frame: object) -> None:
        """Stop this rank on a signal from torchrun, srun or mpirun. The wake-up pipe reports ended children."""
        if number in rank_process.PASSED_SIGNALS:
            self._pass_signal(number)
        elif number != signal.SIGCHLD:
            if not self.ranks:
                os._exit(128 + number)
            self._stop_ranks(number, self.settings["grace"])

    def _pass_signal(self, number: int) -> None:
        for rank in self.ranks.values():
            if rank.code is None:
                rank_process.send_signal(rank.pid, number)

    def _stop_ranks(self, number: int, grace: float) -> None:
        self.stop_signal, self.signalled = number, set()
        self.kill_deadline = time.monotonic() + grace if grace > 0 else 0.0
        self._signal_ranks()

    def _signal_ranks(self) -> None:
        """Send the signal by which ranks are stopped to each process once that has not got it yet."""
        living = [rank.pid for rank in self.ranks.values() if rank.code is None]
        targets = {pid for rank in living for pid in rank_process.list_signalled(rank, self.stop_signal)}
        for pid in targets - self.signalled:
            self.signalled.add(pid)
            rank_process.send_signal(pid, self.stop_signal)
            rank_process.send_signal(pid, signal.SIGCONT)  # a stopped process receives nothing else

    def _signal_rank_groups(self, number: int) -> None:
        for rank in self.ranks.values():
            rank_process.send_signal(-rank.pid, number)

    def rank_variables(self) -> list[dict[str, str]]:
        if self.settings["seats"] is not None:
            return list(self.settings["seats"])
        return [rank_process.read_own_rank(self.settings["engine"], os.environ)]

    def send_hello(self) -> None:
        rank_rows = [
            {**{n: os.environ[n] for n in rank_process.TORCHRUN_NAMES if n in os.environ}, **s}
            for s in self.rank_variables()
        ]
        preflight = rank_process.preflight_node(self.settings["looks"], os.environ, rank_rows)
        self.send_message(t="hello", token=self.settings["token"], host=rank_process.own_hostname(), pid=os.getpid(), ranks=rank_rows,
                 port=endpoint.find_free_port(), addresses=[str(self.connection.getsockname()[0])], asks=int(self.settings["attempt"]),
                 node=rank_process.own_hostname(), seen=preflight)  # fmt: skip

    def fork_ranks(self) -> tuple[str, int, int, int] | None:
        """Fork the ranks. In a rank, return how it starts and its pipes; in the agent, None."""
        kind, me = self.settings["kind"], os.getpid()
        if self.settings["preload"] and len(self.rank_variables()) > 1:
            why = rank_process.why_fork_is_unsafe()
            if why:
                self.send_message(t="note", d=f"torch is imported in each rank: {why}")
                self.command = ["-m", *self.command] if kind == "module" else self.command
                kind = "program" if kind == "program" else "fresh"
        self.interface, note = rank_process.choose_interface(
            self.settings["nnodes"], {**os.environ, **(self.env or {})}
        )
        if note:
            self.send_message(t="note", d=note)
        for variables_of_rank in self.rank_variables():
            number = int(variables_of_rank.get("RANK", os.environ.get("RANK", "0")))
            pipes = rank_main.RankPipes()
            pid = os.fork()
            if pid == 0:
                return self._enter_rank(kind, variables_of_rank, number, pipes, me)
            with suppress(OSError):  # it has done so itself, or has ended
                os.setpgid(pid, pid)
            pipes.keep_reading()
            self.ranks[number] = rank_process.RankProcess(number, pid, pipes)
            self.is_forked = kind in ("script", "module")
            self.send_message(t="born", r=number, pid=pid, host=rank_process.own_hostname())
        return None

    def _enter_rank(
        self, kind: str, rank_variables: dict[str, str], number: int, pipes: rank_main.RankPipes, parent: int
    ) -> tuple[str, int, int, int]:
        self.connection.close()
        os.close(self.wake)
        for other in self.ranks.values():
            for fd in (*other.handlers, other.pipes.ask):
                os.close(fd)
        variables = {} if self.env is None else self.env
        os.environ.pop("GPUREADY_ATTEND", None)
        variables = {**variables, **rank_variables, **self.interface}
        if self.settings["engine"] != "torchrun":  # which has files of its own
            variables[rank_main.ERROR_FILE] = f"/proc/{parent}/fd/{pipes.error}"
        rank_main.prepare_rank(variables, f"rank {number}", parent)
        return (kind, *pipes.keep_writing(keeps_stdin=number == 0))

    # -- the loop ---------------------------------------------------------------------------------------

    def wait_for_go(self) -> bool:
        while self.env is None and not self.leaving:
            select.select([self.connection], [], [], 1.0)
            self._receive_orders()
        return self.env is not None and not self.leaving

    def watch_ranks(self) -> int:
        ticked = time.monotonic()
        while not self._is_finished():
            self._poll_once()
            now = time.monotonic()
            if now - ticked >= TICK_SECONDS:
                ticked = now
                self._send_heartbeats(now)
                if self.kill_deadline is not None:
                    self._signal_ranks()
            if self.kill_deadline is not None and now >= self.kill_deadline:
                self.kill_deadline = None
                self._signal_rank_groups(signal.SIGKILL)
        return self._clean_up()

    def _is_finished(self) -> bool:
        if not all(rank.code is not None for rank in self.ranks.values()):
            return False
        self.ended_at = self.ended_at or time.monotonic()
        if self.leaving:
            return True
        if self.settings["engine"] == "local" or len(self.ranks) > 1 or self.outgoing:
            return False
        # torchrun ends its store with the first failure: the nodes first agree who failed.
        agree = self.settings["engine"] == "torchrun" and self.settings["nnodes"] > 1
        failed = any(rank.code for rank in self.ranks.values())
        return not (agree and failed) or time.monotonic() - self.ended_at > AGREE_SECONDS

    def _poll_once(self) -> None:
        poll = select.poll()
        poll.register(self.connection, select.POLLIN | (select.POLLOUT if self.outgoing else 0))
        poll.register(self.wake, select.POLLIN)
        readable = {fd: rank for rank in self.ranks.values() for fd in rank.handlers}
        if self.outgoing_bytes < MAX_BUFFER:
            for fd in readable:
                poll.register(fd, select.POLLIN)
        if self.leaving:
            poll.unregister(self.connection)
        for fd, event in poll.poll(TICK_SECONDS * 1000 if self.kill_deadline is None else 50):
            if fd == self.wake:
                rank_process.drain_pipe(self.wake)
            elif fd in readable:
                readable[fd].read_pipe(fd)
                self._forward_messages(readable[fd])
            elif event & ~select.POLLOUT:
                self._receive_orders()
        self._flush_outgoing()
        self._reap_children()

    def _forward_messages(self, rank: rank_process.RankProcess) -> None:
        for message in rank.messages:
            if message["t"] == "leaving":
                self._watch_of(rank, time.monotonic()).look_at_places()
            self.send_message(**message)
        rank.messages.clear()

    def _reap_children(self) -> None:
        """Reap ended ranks and the orphans that they left."""
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None:
                return
            limits = process_status.read_limits(pid=ended.si_pid)  # gone once it is reaped
            status = os.waitpid(ended.si_pid, 0)[1]
            for rank in self.ranks.values():
                if rank.pid == ended.si_pid:
                    self._handle_rank_end(rank, status, limits)

    def _handle_rank_end(self, rank: rank_process.RankProcess, status: int, limits: dict[str, int]) -> None:
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        rank.code = 128 + number if number else os.WEXITSTATUS(status)
        deadline = time.monotonic() + 0.3
        for fd in list(rank.handlers):  # drain its last output; a child of it may keep the pipe open
            while fd in rank.handlers and rank_process.is_readable(fd, deadline) and rank.read_pipe(fd):
                pass
        rank.crashed_at_exit = bool(number and rank.done)  # of which no engine has to end the others
        if rank.code:
            rank_process.send_signal(-rank.pid, signal.SIGKILL)
        self._forward_messages(rank)
        dump = flight_dumps.read_dump(os.environ, rank.number) if rank.code else ""
        if dump:
            self.send_message(t="dump", r=rank.number, d=dump)
        killed = number == signal.SIGKILL and self.kill_deadline is None
        error = rank.read_error(self.settings["engine"]) if rank.code else ""
        seen = self._describe_surroundings(rank, limits, error) if rank.code and self.kill_deadline is None else {}
        self.send_message(t="end", r=rank.number, code=rank.code, signal=number, done=rank.done,
                 oom=self._killed_for_memory(rank.pid) if killed else False, error=error, **seen)  # fmt: skip

    def _describe_surroundings(
        self, rank: rank_process.RankProcess, limits: dict[str, int], error: str
    ) -> dict[str, Any]:
        """What only now can be known of why a rank failed: whether the kernel killed for memory, the room in /dev/shm, the limits."""
        before, now = self.oom_kills_before, process_status.count_oom_kills()
        kills = None if before is None or now is None else now > before
        limits = {**limits, "denied": limits["denied"] - self.limits_before["denied"], "free": self.memory.left}
        watch = self._watch_of(rank, time.monotonic())
        words = "\n".join([*self.command, *(line for line in error.splitlines() if not line.startswith('  File "'))])
        named = re.findall(r"(?<![\w./])/[^\s'\"=:,()]+", words)
        places = {
            "folder": "" if os.path.isdir(watch.folder) else watch.folder.replace(" (deleted)", ""),
            "errors": "" if watch.errors.startswith("pipe:") else watch.errors,
            "full": process_status.list_full_disks(watch.places.union(named)),
        }
        return {"memory_kills": kills, "shm_free": shared_memory.free_share(), "limits": limits, **places}

    def _killed_for_memory(self, pid: int) -> bool | None:
        """Whether the kernel killed it because memory ran out; None if unknown."""
        now, in_kernel_log = process_status.count_oom_kills(), process_status.killed_for_memory(pid)
        if self.oom_kills_before is None or now is None:
            return in_kernel_log
        return now > self.oom_kills_before or bool(in_kernel_log)

    def _watch_of(self, rank: rank_process.RankProcess, now: float) -> RankWatch:
        if rank.watch is None:
            self.stack_reader = self.stack_reader or StackReader()
            rank.watch = RankWatch(rank.pid, self.is_forked, self.stack_reader, now)
        return rank.watch

    def _send_heartbeats(self, now: float) -> None:
        beats = []
        for rank in self.ranks.values():
            if rank.code is not None:
                continue
            late = round(now - rank.last_beat, 1) if rank.last_beat else None
            state, seconds, *more = self._watch_of(rank, now).look(now)
            beats.append([rank.number, state, seconds, late, *more])
        if beats and not self.leaving:
            self.send_message(t="beat", d=beats)
        grown = self.memory.look({r.number: r.pid for r in self.ranks.values() if r.code is None}, now)
        if grown is not None:
            self.send_message(t="memory", r=grown[0], d=grown[1])

    def _clean_up(self) -> int:
        """Kill what is left of the ranks' process groups, remove leftovers, return the ranks' exit code."""
        self._signal_rank_groups(signal.SIGKILL)
        for pid in process_status.list_child_processes(os.getpid()):
            rank_process.send_signal(pid, signal.SIGKILL)
        time.sleep(0.01)
        shared_memory.remove_leftovers(self.shared_memory_before, [rank.pid for rank in self.ranks.values()])
        codes = [0 if rank.crashed_at_exit else rank.code or 0 for rank in self.ranks.values()]
        return next((code for code in codes if code), 0)


def main() -> tuple[str, list[str], int, int, int] | None:
    """In a rank: return what it is to run. In the agent: never returns."""
    settings = json.loads(os.environ["GPUREADY_ATTEND"])
    command = sys.argv[sys.argv.index("--") + 1 :]
    os.environ.update(settings["shared"])
    os.environ[process_status.AGENT_PROCESS] = process_status.describe_own_process()
    rank_main.call_libc(
        "prctl", rank_main.SET_SUBREAPER, 1, 0, 0, 0
    )  # orphans of a rank become children, which it can end
    flight_dumps.make_folder(os.environ)
    agent = RankAgent(settings, command)
    agent.send_hello()
    if settings["preload"]:
        rank_process.preload_torch()
    if not agent.wait_for_go():
        os._exit(0)
    rank_start = agent.fork_ranks()
    if rank_start is not None:
        return (rank_start[0], agent.command, *rank_start[1:])
    code = agent.watch_ranks()
    if code > 128 and len(agent.ranks) == 1:
        signal.signal(code - 128, signal.SIG_DFL) if code - 128 not in (9, 19) else None
        os.kill(os.getpid(), code - 128)
    os._exit(code)


if __name__ == "__main__":
    rank = main()
    if rank is not None:
        rank_main.run_rank_script(*rank)
