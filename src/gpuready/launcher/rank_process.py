"""A rank as its agent sees it: who it is, pipes, last state, signals, and the preflight of its node."""

import faulthandler
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from gpuready.launcher import process_status, rank_main
from gpuready.launcher.rank_watch import RankWatch, describe_polled_file
from gpuready.rollcall.interface_check import choose_gloo_interface

READ_SIZE = 1 << 18
PASSED_SIGNALS = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU)
"""Signals that reach the ranks as they are: for a requeue, a checkpoint, the end of a time limit."""


class RankProcess:
    """One child process with its pipes."""

    def __init__(self, number: int, pid: int, pipes: rank_main.RankPipes):
        self.number, self.pid, self.pipes = number, pid, pipes
        self.last_beat, self.done, self.code = 0.0, False, None  # type: float, bool, int | None
        self.watch: RankWatch | None = None
        self.crashed_at_exit = False
        self.handlers = {pipes.out: self._handle_output, pipes.beat: self._handle_beat, pipes.stack: self._handle_stack}
        self.messages: list[dict[str, Any]] = []

    def read_pipe(self, fd: int) -> bool:
        """Read what is available; False at the end of the pipe."""
        try:
            data = os.read(fd, READ_SIZE)
        except BlockingIOError:
            return True
        except OSError:
            data = b""
        if not data:
            self.handlers.pop(fd, None)
            os.close(fd)
            if fd == self.pipes.beat:  # the rank closed it, or became another program: it beats no more
                self.last_beat = 0.0
            return False
        self.handlers[fd](data)
        return True

    def _handle_output(self, data: bytes) -> None:
        self.messages.append({"t": "out", "r": self.number, "d": data.decode("utf-8", "surrogateescape")})

    def _handle_beat(self, data: bytes) -> None:
        self.last_beat, self.done = time.monotonic(), self.done or rank_main.DONE in data
        if rank_main.LEAVING in data or rank_main.DONE in data:
            self.messages.append({"t": "leaving", "r": self.number, "done": self.done})

    def _handle_stack(self, data: bytes) -> None:
        text = data.decode("utf-8", "replace").splitlines()
        told = (
            ("paths", rank_main.PATHS, str),
            ("call", rank_main.CALL, str),
            ("file", rank_main.POLLED, describe_polled_file),
        )
        for kind, mark, tell in told:
            begin = mark.decode()
            found = [line[len(begin) :] for line in text if line.startswith(begin)]
            self.messages += [{"t": kind, "r": self.number, "d": tell(one)} for one in found if one]
            text = [line for line in text if not line.startswith(begin)]
        self.messages += [{"t": "stack", "r": self.number, "d": text}] if text else []

    def read_error(self, engine: str) -> str:
        """Return the traceback that torch's @record has written: it is there where stderr was lost."""
        path = os.environ.get(rank_main.ERROR_FILE, "") if engine == "torchrun" else f"/proc/self/fd/{self.pipes.error}"
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                found = json.loads(file.read(1 << 20))["message"]
            return found if isinstance(found, str) else str(found["extraInfo"].get("py_callstack") or found["message"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return ""

    def ask_for(self, what: bytes) -> None:
        """Ask the rank itself: for its collective, and for its stack where its memory may not be read."""
        with suppress(OSError):
            os.write(self.pipes.ask, what)


def own_hostname() -> str:
    """The name of this node, under Slurm the one that Slurm knows."""
    return os.environ.get("GPUREADY_HOSTNAME") or os.environ.get("SLURMD_NODENAME") or socket.gethostname()


def send_signal(pid: int, number: int) -> None:
    with suppress(OSError):
        os.kill(pid, number)


_SHELLS = ("sh", "bash", "dash", "zsh", "ksh", "busybox")


def list_signalled(pid: int, number: int) -> list[int]:
    """The processes that get a signal for a rank: the programs of a shell, which would end before they can save, or wait for them."""
    is_shell = os.path.basename(process_status.read_link(f"/proc/{pid}/exe")) in _SHELLS
    programs = process_status.list_child_processes(pid) if is_shell else []
    return [*programs, pid] if number == signal.SIGINT or not programs else programs


def is_readable(fd: int, deadline: float) -> bool:
    return bool(select.select([fd], [], [], max(0.0, min(0.05, deadline - time.monotonic())))[0])


def drain_pipe(fd: int) -> None:
    with suppress(OSError):
        while os.read(fd, 4096):
            pass


def preload_torch() -> None:
    """Import torch once for all ranks. If that fails, each rank fails by itself and reports it."""
    faulthandler.enable()
    with suppress(Exception):
        __import__("torch")


def why_fork_is_unsafe() -> str:
    """Return why this process must not be forked into ranks; empty if it may."""
    if len(os.listdir("/proc/self/task")) > 1:
        return "importing it starts threads here"
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return "importing it touches the GPU here"
    open_files = [
        os.readlink(f"/proc/self/fd/{fd}")
        for fd in os.listdir("/proc/self/fd")
        if os.path.islink(f"/proc/self/fd/{fd}")
    ]
    devices = [path for path in open_files if path.startswith(("/dev/nvidia", "/dev/kfd", "/dev/dri", "/dev/davinci"))]
    return f"importing it opens {devices[0]}" if devices else ""


_OMPI, _PMI = "OMPI_COMM_WORLD_", "PMI_"
_RANK_VARIABLES = {
    "slurm": ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS", "", "SLURM_NODEID", "SLURM_NNODES"),
    "mpi": (f"{_OMPI}RANK", f"{_OMPI}LOCAL_RANK", f"{_OMPI}SIZE", f"{_OMPI}LOCAL_SIZE", "", ""),
    "pmi": ("PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE", "MPI_LOCALNRANKS", "", ""),
}
TORCHRUN_NAMES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE")


def read_own_rank(engine: str, environ: Any) -> dict[str, str]:
    """Read from the launcher's variables which rank this process is, under torchrun's names."""
    names = _RANK_VARIABLES.get("pmi" if engine == "mpi" and f"{_OMPI}RANK" not in environ else engine)
    if names is None:
        return {}
    variables = {ours: environ[theirs] for ours, theirs in zip(TORCHRUN_NAMES, names) if theirs in environ}  # noqa: B905
    if engine == "slurm" and "LOCAL_WORLD_SIZE" not in variables:
        variables["LOCAL_WORLD_SIZE"] = environ.get("SLURM_STEP_TASKS_PER_NODE", "1").split("(")[0].split(",")[0]
    return variables


def choose_interface(nnodes: int, environ: dict[str, str]) -> tuple[dict[str, str], str]:
    """Between hosts gloo needs an interface where the host's name leads to a loopback: its variable, and a note."""
    if nnodes < 2 or "MASTER_ADDR" not in environ:
        return {}, ""
    try:
        note = choose_gloo_interface(environ, environ["MASTER_ADDR"])
    except Exception:  # an older Python: the rank goes as it is
        return {}, ""
    return ({"GLOO_SOCKET_IFNAME": environ["GLOO_SOCKET_IFNAME"]} if note else {}), note


PREFLIGHT_SECONDS = 30.0
_GPU_VARIABLES = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


def preflight_node(
    command: Sequence[str], environ: Mapping[str, str], rank_variables: Sequence[Mapping[str, str]]
) -> dict[str, Any] | None:
    """Return this node's problems, or why they are unknown; None if another agent or none runs the preflight."""
    is_first = str(
        int(rank_variables[0].get("LOCAL_RANK", "0") == "0")
    )  # Ray's ranks with one GPU each are all local rank 0
    if not command or environ.get("GPUREADY_FIRST", is_first) != "1":
        return None
    try:
        items = _run_preflight_command(command, environ)
    except (OSError, ValueError) as error:
        return {"gap": str(error)[:300]}
    # A rank that sees only its own GPU cannot tell how many the node has.
    gpus_restricted = any(name in environ for name in _GPU_VARIABLES)
    return {"sights": [s for s in items if s["severity"] != "ok" and not (s["what"] == "ranks" and gpus_restricted)]}


def _run_preflight_command(command: Sequence[str], environ: Mapping[str, str]) -> list[dict[str, Any]]:
    env = {k: v for k, v in environ.items() if k != "GPUREADY_ATTEND"}
    try:
        completed = subprocess.run(
            list(command),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=env,
            timeout=PREFLIGHT_SECONDS,
            check=False,
        )
        items: list[dict[str, Any]] = json.loads(completed.stdout)["sights"]
    except subprocess.TimeoutExpired:
        raise ValueError(f"the look at it took longer than {PREFLIGHT_SECONDS:.0f} s") from None
    except (ValueError, KeyError):
        last = completed.stderr.decode("utf-8", "replace").strip().splitlines() or [f"exit {completed.returncode}"]
        raise ValueError(last[-1]) from None
    return items
