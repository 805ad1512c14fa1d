"""Runs in the target environment beside its ranks: starts and watches them and reports to the supervisor.

    python rank_agent.py -- SCRIPT ARGS       (settings in GPUREADY_ATTEND, as JSON)

The local engine has one agent for all ranks, which imports torch once; torchrun, srun, mpirun and Ray start
one for each. As a separate process it can report on ranks in any state. It ends with its supervisor and
cleans up.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import time

if __name__ == "__main__":  # started by path: import only our own package
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from gpuready.launcher import child, litter, look, pulse, seat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TICK, FULL = 1.0, 1 << 20
_OMPI, _PMI = "OMPI_COMM_WORLD_", "PMI_"
_PLACES = {
    "slurm": ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS", "", "SLURM_NODEID", "SLURM_NNODES"),
    "mpi": (f"{_OMPI}RANK", f"{_OMPI}LOCAL_RANK", f"{_OMPI}SIZE", f"{_OMPI}LOCAL_SIZE", "", ""),
    "pmi": ("PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE", "MPI_LOCALNRANKS", "", ""),
}
_NAMES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE")


def own_seat(engine: str, environ: Any) -> dict[str, str]:
    """Read from the launcher's variables which rank this process is, under torchrun's names."""
    names = _PLACES.get("pmi" if engine == "mpi" and f"{_OMPI}RANK" not in environ else engine)
    if names is None:
        return {}
    told = {ours: environ[theirs] for ours, theirs in zip(_NAMES, names) if theirs in environ}  # noqa: B905
    if engine == "slurm" and "LOCAL_WORLD_SIZE" not in told:
        told["LOCAL_WORLD_SIZE"] = environ.get("SLURM_STEP_TASKS_PER_NODE", "1").split("(")[0].split(",")[0]
    return told


class Attendant:
    """The event loop beside the ranks."""

    def __init__(self, told: dict[str, Any], words: list[str]):
        self.told, self.words = told, words
        self.ranks: dict[int, child.Rank] = {}
        self.outgoing, self.incoming, self.link = b"", b"", self._connected()
        self.env: dict[str, str] | None = None
        self.killing: float | None = None
        self.leaving = False
        self.before, self.oom = litter.listed(), pulse.oom_kills()
        self.wake, wake = os.pipe()
        os.set_blocking(self.wake, False)
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._signal)

    # -- the supervisor ---------------------------------------------------------------------------------

    def _connected(self) -> socket.socket:
        hosts, port = self.told["hub"]
        last: OSError | None = None
        for host in hosts:
            try:
                link = socket.create_connection((host, port), 3.0)
                link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                link.setblocking(False)
                return link
            except OSError as error:
                last = error
        raise SystemExit(
            f"gpuready: {socket.gethostname()} cannot reach gpuready run on {hosts} port {port}: {last}"
        )

    def say(self, **message: Any) -> None:
        self.outgoing += json.dumps(message).encode() + b"\n"
        self._send()

    def _send(self) -> None:
        try:
            while self.outgoing:
                self.outgoing = self.outgoing[self.link.send(self.outgoing) :]
        except BlockingIOError:
            return
        except OSError:
            self._abandoned()

    def _receive(self) -> None:
        try:
            data = self.link.recv(child.PIECE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._abandoned()
            return
        *lines, self.incoming = (self.incoming + data).split(b"\n")
        for line in lines:
            self._obey(json.loads(line))

    def _abandoned(self) -> None:
        """The supervisor is gone: kill all ranks at once."""
        self.outgoing, self.leaving = b"", True
        self._kill(signal.SIGKILL)

    def _obey(self, order: dict[str, Any]) -> None:
        kind = order["t"]
        if kind == "go":
            self.env = order["env"]
        elif kind == "stop":
            self.leaving = self.leaving or not self.ranks
            self._stop(order["signal"], order["grace"])
        elif kind == "stacks":
            for rank in self.ranks.values():
                if rank.code is None and pulse.catches(rank.pid, seat.STACKS):
                    os.kill(rank.pid, seat.STACKS)
        elif kind == "bye":
            self.leaving = True

    # -- the ranks --------------------------------------------------------------------------------------

    def _signal(self, number: int, frame: object) -> None:
        """Stop this rank on a signal from torchrun, srun or mpirun. The wake-up pipe reports ended children."""
        if number != signal.SIGCHLD:
            if not self.ranks:
                os._exit(128 + number)
            self._stop(number, 10.0)

    def _stop(self, number: int, grace: float) -> None:
        for rank in self.ranks.values():
            if rank.code is None:
                child.signal_to(rank.pid, number)
                child.signal_to(rank.pid, signal.SIGCONT)  # a stopped process receives nothing else
        self.killing = time.monotonic() + grace if grace > 0 else 0.0

    def _kill(self, number: int) -> None:
        for rank in self.ranks.values():
            child.signal_to(-rank.pid, number)

    def seats(self) -> list[dict[str, str]]:
        if self.told["seats"] is not None:
            return list(self.told["seats"])
        return [own_seat(self.told["engine"], os.environ)]

    def hello(self) -> None:
        seats = [{**{n: os.environ[n] for n in _NAMES if n in os.environ}, **s} for s in self.seats()]
        seen = look.at_node(self.told["looks"], os.environ, seats)
        self.say(t="hello", token=self.told["token"], host=_hostname(), pid=os.getpid(), seats=seats,
                 port=_free_port(), addresses=_addresses(self.link), asks=int(self.told["attempt"]),
                 node=os.environ.get("SLURMD_NODENAME") or _hostname(), seen=seen)  # fmt: skip

    def start(self) -> tuple[str, int, int] | None:
        """Fork the ranks. In a rank, return how it starts and its pipes; in the agent, None."""
        kind, me = self.told["kind"], os.getpid()
        if self.told["preload"] and len(self.seats()) > 1:
            why = _unsafe()
            if why:
                self.say(t="note", d=f"torch is imported in each rank: {why}")
                self.words = ["-m", *self.words] if kind == "module" else self.words
                kind = "program" if kind == "program" else "fresh"
        for place in self.seats():
            number = int(place.get("RANK", os.environ.get("RANK", "0")))
            pipes = seat.Pipes()
            pid = os.fork()
            if pid == 0:
                return self._as_rank(kind, place, number, pipes, me)
            child.own_group(pid)
            pipes.keep_reading()
            self.ranks[number] = child.Rank(number, pid, pipes)
            self.say(t="born", r=number, pid=pid, host=_hostname())
        return None

    def _as_rank(
        self, kind: str, place: dict[str, str], number: int, pipes: seat.Pipes, parent: int
    ) -> tuple[str, int, int]:
        self.link.close()
        os.close(self.wake)
        for other in self.ranks.values():
            for fd in other.open:
                os.close(fd)
        given = {} if self.env is None else self.env
        os.environ.pop("GPUREADY_ATTEND", None)
        seat.settle({**given, **place}, f"rank {number}", parent)
        return (kind, *pipes.keep_writing())

    # -- the loop ---------------------------------------------------------------------------------------

    def wait_for_go(self) -> bool:
        while self.env is None and not self.leaving:
            select.select([self.link], [], [], 1.0)
            self._receive()
        return self.env is not None and not self.leaving

    def attend(self) -> int:
        ticked = time.monotonic()
        while not self._over():
            self._once()
            now = time.monotonic()
            if now - ticked >= TICK:
                ticked = now
                self._tick(now)
            if self.killing is not None and now >= self.killing:
                self.killing = None
                self._kill(signal.SIGKILL)
        return self._leave()

    def _over(self) -> bool:
        ended = all(rank.code is not None for rank in self.ranks.values())
        return ended and (
            self.leaving or (len(self.ranks) == 1 and self.told["engine"] != "local" and not self.outgoing)
        )

    def _once(self) -> None:
        poll = select.poll()
        poll.register(self.link, select.POLLIN | (select.POLLOUT if self.outgoing else 0))
        poll.register(self.wake, select.POLLIN)
        readable = {fd: rank for rank in self.ranks.values() for fd in rank.open}
        if len(self.outgoing) < FULL:
            for fd in readable:
                poll.register(fd, select.POLLIN)
        if self.leaving:
            poll.unregister(self.link)
        for fd, event in poll.poll(TICK * 1000 if self.killing is None else 50):
            if fd == self.wake:
                child.drained(self.wake)
            elif fd in readable:
                readable[fd].read(fd)
                self._pass_on(readable[fd])
            elif event & ~select.POLLOUT:
                self._receive()
        self._send()
        self._reap()

    def _pass_on(self, rank: child.Rank) -> None:
        for message in rank.said:
            self.say(**message)
        rank.said.clear()

    def _reap(self) -> None:
        """Reap ended ranks and the orphans that they left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for rank in self.ranks.values():
                if rank.pid == pid:
                    self._ended(rank, status)

    def _ended(self, rank: child.Rank, status: int) -> None:
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        rank.code = 128 + number if number else os.WEXITSTATUS(status)
        deadline = time.monotonic() + 0.3
        for fd in list(rank.open):  # drain its last output; a child of it may keep the pipe open
            while fd in rank.open and child.ready(fd, deadline) and rank.read(fd):
                pass
        if rank.code:
            child.signal_to(-rank.pid, signal.SIGKILL)
        self._pass_on(rank)
        killed = number == signal.SIGKILL and self.killing is None
        self.say(t="end", r=rank.number, code=rank.code, signal=number, done=rank.done,
                 oom=self._memory(rank.pid) if killed else False)  # fmt: skip

    def _memory(self, pid: int) -> bool | None:
        """Whether the kernel killed it because memory ran out; None if unknown."""
        now, told = pulse.oom_kills(), pulse.killed_for_memory(pid)
        if self.oom is None or now is None:
            return told
        return now > self.oom or bool(told)

    def _tick(self, now: float) -> None:
        beats = []
        for rank in self.ranks.values():
            if rank.code is not None:
                continue
            state, cpu, _ = pulse.stat(rank.pid)
            late = now - rank.beaten if rank.beaten else None
            beats.append([rank.number, state, round(cpu, 2), None if late is None else round(late, 1)])
        if beats and not self.leaving:
            self.say(t="beat", d=beats)

    def _leave(self) -> int:
        """Kill what is left of the ranks' process groups, remove leftovers, return the ranks' exit code."""
        self._kill(signal.SIGKILL)
        for pid in pulse.children(os.getpid()):
            child.signal_to(pid, signal.SIGKILL)
        time.sleep(0.01)
        litter.sweep(self.before, [rank.pid for rank in self.ranks.values()])
        codes = [rank.code or 0 for rank in self.ranks.values()]
        return next((code for code in codes if code), 0)


def _hostname() -> str:
    return os.environ.get("GPUREADY_HOSTNAME") or socket.gethostname()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def _addresses(link: socket.socket) -> list[str]:
    """The address by which the supervisor sees us; other nodes most likely can use it too."""
    return [str(link.getsockname()[0])]


def preload() -> None:
    """Import torch once for all ranks. If that fails, each rank fails by itself and reports it."""
    import faulthandler

    faulthandler.enable()
    try:
        __import__("torch")
    except Exception:
        return


def _unsafe() -> str:
    """Return why this process must not be forked into ranks; empty if it may."""
    if len(os.listdir("/proc/self/task")) > 1:
        return "importing it starts threads here"
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return "importing it touches the GPU here"
    held = [
        os.readlink(f"/proc/self/fd/{fd}")
        for fd in os.listdir("/proc/self/fd")
        if os.path.islink(f"/proc/self/fd/{fd}")
    ]
    devices = [
        path for path in held if path.startswith(("/dev/nvidia", "/dev/kfd", "/dev/dri", "/dev/davinci"))
    ]
    return f"importing it opens {devices[0]}" if devices else ""


def main() -> tuple[str, list[str], int, int] | None:
    """In a rank: return what it is to run. In the agent: never returns."""
    told = json.loads(os.environ["GPUREADY_ATTEND"])
    words = sys.argv[sys.argv.index("--") + 1 :]
    os.environ.update(told["shared"])
    seat.adopt_orphans()
    mine = Attendant(told, words)
    mine.hello()
    if told["preload"]:
        preload()
    if not mine.wait_for_go():
        os._exit(0)
    begun = mine.start()
    if begun is not None:
        return (begun[0], mine.words, begun[1], begun[2])
    code = mine.attend()
    if code > 128 and len(mine.ranks) == 1:
        signal.signal(code - 128, signal.SIG_DFL) if code - 128 not in (9, 19) else None
        os.kill(os.getpid(), code - 128)
    os._exit(code)


if __name__ == "__main__":
    rank = main()
    if rank is not None:
        seat.become(*rank)
