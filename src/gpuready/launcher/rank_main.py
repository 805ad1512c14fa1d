"""One rank in the target environment: forked from its agent, it runs the script. Standard library only,
Python 3.8 and newer.

A fork costs nothing if the agent has imported torch, and equals a start of its own if not. The rank gives
two signs of life: its output, and a beat each second from a thread that needs the GIL. That thread also writes
the stacks of all threads if the agent asks for them: only where it may not read them from the rank's memory.
No signal is ever sent to a rank to look at it.
"""

from __future__ import annotations

import _thread
import atexit
import builtins
import faulthandler
import gc
import io
import json
import os
import runpy
import select
import signal
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.machinery import SourceFileLoader
from types import FrameType, ModuleType, TracebackType

BEAT, DONE, LEAVING = b".", b"D", b"X"
"""The rank is alive; its script ended successfully; its script failed and Python begins to exit."""
PATHS = b"paths "
"""Begins where the rank has looked when its script failed: its sys.path, that at the start, and its folder."""
CALL, POLLED, ASK_CALL, ASK_STACK = b"call ", b"file ", b"c", b"?"
"""Begins which collective a rank is in, and which file it looks at again and again; what the agent asks for."""
ERROR_FILE = "TORCHELASTIC_ERROR_FILE"
_SET_PDEATHSIG, _SET_NAME, SET_SUBREAPER = 1, 15, 36
_SET_PIPE_SIZE, PIPE_BYTES = 1031, 1 << 20


def call_libc(name: str, *arguments: object) -> None:
    """Call a function of the C library; without it (not Linux) the pipes must suffice."""
    with suppress(OSError, AttributeError, ImportError):
        import ctypes

        getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments)


def _widen_pipe(fd: int) -> None:
    """A rank that writes much waits less often; as it is where the kernel allows no more."""
    with suppress(OSError):
        import fcntl

        fcntl.fcntl(fd, _SET_PIPE_SIZE, PIPE_BYTES)


class RankPipes:
    """Pipes for a rank's output, beats, stacks, and the request for stacks. The agent has the other ends."""

    def __init__(self) -> None:
        self.out, self._out = os.pipe()
        self.beat, self._beat = os.pipe()
        self.stack, self._stack = os.pipe()
        self._ask, self.ask = os.pipe()
        self.error = os.memfd_create("error", 0)  # where torch's @record writes what ended the rank
        _widen_pipe(self._out)
        for fd in (self.out, self.beat, self.stack, self._beat, self.ask):
            os.set_blocking(fd, False)

    def keep_reading(self) -> None:
        for fd in (self._out, self._beat, self._stack, self._ask):
            os.close(fd)

    def keep_writing(self, keeps_stdin: bool) -> tuple[int, int, int]:
        """In the rank: redirect stdout and stderr to the pipe; stdin is that of ``gpuready run``, or nothing."""
        for fd in (self.out, self.beat, self.stack, self.ask):
            os.close(fd)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for fd, name in ((0 if keeps_stdin else nothing, 0), (self._out, 1), (self._out, 2)):
            os.dup2(fd, name)
        for fd in (nothing, self._out):
            if fd > 2:
                os.close(fd)
        return self._beat, self._stack, self._ask


def prepare_rank(variables: Mapping[str, str], name: str, parent: int) -> None:
    """In the rank, right after the fork: set its own process group, variables and default signal handlers."""
    os.setpgid(0, 0)
    call_libc("prctl", _SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:  # it died before prctl was called
        os._exit(137)
    call_libc("prctl", _SET_NAME, name.encode()[:15], 0, 0, 0)
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.update(variables)


def run_rank_script(kind: str, command: Sequence[str], beat: int, stack: int, ask: int) -> None:
    """Run the script as Python would; return when it is done, so that the interpreter exits as usual."""
    if kind == "program":
        _exec_program(command[0], command)
    if kind == "fresh":  # a Python of its own: forking this one would not be safe
        _exec_program(sys.executable, [sys.executable, *command])
    for name in [n for n in sys.modules if n.partition(".")[0] == "gpuready"]:  # the script may use its own
        del sys.modules[name]
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # last words must reach the log
    faulthandler.enable(file=sys.stderr)
    _thread.start_new_thread(_beat_loop, (beat, stack, ask, os.getpid()))
    if "numpy.random" in sys.modules:  # or all ranks would draw the same numbers; Python reseeds ``random`` itself
        sys.modules["numpy.random"].seed()
    before = list(sys.path)
    try:
        _run_script_or_module(kind, list(command))
    except SystemExit as exit_error:
        if exit_error.code in (None, 0):
            _write_beat(beat, DONE)
            raise
        _write_beat(beat, LEAVING)
        if not isinstance(exit_error.code, int):
            sys.stderr.write(f"{exit_error.code}\n")
        _end_process(exit_error.code if isinstance(exit_error.code, int) else 1)
    except BaseException as error:
        for _ in range(2):
            with suppress(Exception):
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # a handler of the script's would raise here
                _write_beat(beat, LEAVING)  # before the peers notice that it exits
                break
        _record_error(error)
        _write_beat(stack, CALL + describe_call(list(traceback.walk_tb(error.__traceback__))[::-1]).encode() + b"\n")
        paths = [[os.path.realpath(path) for path in map(str, one)] for one in (sys.path, before, ["."])]
        _write_beat(stack, PATHS + json.dumps(paths).encode() + b"\n")
        _print_traceback(error)
    _write_beat(beat, DONE)


def _exec_program(program: str, command: Sequence[str]) -> None:
    try:
        os.execvp(program, list(command))
    except OSError as error:
        sys.stderr.write(f"{program}: {error.strerror}\n")
        sys.stderr.flush()
        os._exit(127 if isinstance(error, FileNotFoundError) else 126)


def _beat_loop(beat: int, stack: int, ask: int, own_pid: int) -> None:
    """Beat each second when the GIL is free. A fork of the rank has no such thread."""
    poll = select.poll()
    poll.register(ask, select.POLLIN)
    with suppress(OSError, ValueError):  # the script has closed our pipes, or the agent is gone
        while os.getpid() == own_pid:
            _write_beat(beat, BEAT)
            asked = os.read(ask, 1) if poll.poll(1000) else b""
            if asked == ASK_STACK:
                faulthandler.dump_traceback(file=stack, all_threads=True)
            elif asked:
                here = sys._current_frames().get(threading.main_thread().ident or 0)
                _write_beat(stack, CALL + describe_call(list(traceback.walk_stack(here))).encode() + b"\n")
                _write_beat(stack, POLLED + os.fsencode(find_polled_file(here)) + b"\n")


def describe_call(frames: Sequence[tuple[FrameType, int]]) -> str:
    """``all_reduce(float32 [8]) at train.py:7``: the collective that frames, innermost first, are in; empty where sizes may differ."""
    calls = [
        frame for frame, _ in frames if frame.f_code.co_filename.endswith("/torch/distributed/distributed_c10d.py")
    ]
    frame = next((one for one in calls if not one.f_code.co_name.startswith(("_", "wrapper", "wait"))), None)
    if frame is None or "to_all" in frame.f_code.co_name:
        return ""
    values = [(name, frame.f_locals.get(name)) for name in frame.f_code.co_varnames[: frame.f_code.co_argcount]]
    tensors = [f"{str(v.dtype)[6:]} {list(v.shape)}" for _, v in values if v is not None and hasattr(v, "dtype")]
    numbers = [f"{name} {v}" for name, v in values if type(v) is int]
    around = [(one.f_code.co_filename, line) for one, line in frames if "/torch/" not in one.f_code.co_filename]
    place = f" at {os.path.basename(around[0][0])}:{around[0][1]}" if around else ""
    return f"{frame.f_code.co_name}({', '.join((*tensors, *numbers))}){place}"


_LOOKS = frozenset(["exists", "isfile", "is_file", "stat", "getsize", "open", "flock", "lockf", "glob", "O_EXCL"])
"""What code calls to look whether a file is there, or free."""


def find_polled_file(frame: FrameType | None) -> str:
    """The one file that a function names which sleeps and looks again, as FileBaton and filelock do; empty if it names none or several."""
    code = frame.f_code if frame is not None else None
    if frame is None or code is None or "sleep" not in code.co_names:
        return ""
    own, names = frame.f_locals.get("self"), (*code.co_varnames, *code.co_freevars, *code.co_names)
    values = {**frame.f_globals, **getattr(own, "__dict__", {}), **frame.f_locals}
    looks = not _LOOKS.isdisjoint(names)
    found = {
        os.path.abspath(os.fspath(value))
        for name in names
        for value in (values.get(name),)
        if isinstance(value, (str, os.PathLike)) and (looks or "lock" in name)
        if os.sep in os.fspath(value) or os.path.exists(value)
    }
    return found.pop() if len(found) == 1 else ""


def _write_beat(fd: int, beat_byte: bytes) -> None:
    with suppress(OSError):
        os.write(fd, beat_byte)


def _run_script_or_module(kind: str, command: list[str]) -> None:
    sys.argv = command
    if kind == "module":
        sys.path[0] = os.getcwd()
        runpy.run_module(command[0], run_name="__main__", alter_sys=True)
        return
    path = command[0]
    sys.path[0] = os.path.dirname(os.path.realpath(path))
    _run_as_main(os.path.abspath(path))


def _run_as_main(path: str) -> None:
    """Run the file as ``python FILE`` does, in a module that stays loaded, so that exit handlers find their names."""
    main = ModuleType("__main__")
    main.__dict__.update(
        __file__=path, __builtins__=builtins, __loader__=SourceFileLoader("__main__", path), __cached__=None
    )
    with io.open_code(path) as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)
    sys.modules["__main__"] = main
    exec(code, main.__dict__)


def _record_error(error: BaseException) -> None:
    """Write the traceback where torch's @record does, which has come first where it was used: stderr may lead nowhere."""
    error.__traceback__ = _skip_own_frames(error.__traceback__)
    with suppress(OSError, KeyError, ValueError), open(os.environ[ERROR_FILE], "a", encoding="utf-8") as file:
        if not file.tell():
            text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
            json.dump({"message": {"message": text, "extraInfo": {"py_callstack": text}}}, file)


def _print_traceback(error: BaseException) -> None:
    """Print the traceback without our frames, then exit as after an uncaught exception."""
    sys.excepthook(type(error), error, error.__traceback__)
    if isinstance(error, KeyboardInterrupt):
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        sys.stdout.flush()
        os.kill(os.getpid(), signal.SIGINT)
    _end_process(1)


def _end_process(code: int) -> None:
    """Wait for threads, run exit handlers and write what files still hold, as Python does when it exits; but do not take its modules
    apart, for which torch needs a second of processor time in each rank.
    """
    with suppress(BaseException):  # Python has shown it
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
    files = io.IOBase.__bases__[0]
    with suppress(MemoryError):  # which may be what has ended the script
        for one in gc.get_objects():
            with suppress(Exception):  # closed meanwhile, or no room on the disk
                one.flush() if issubclass(type(one), files) and not one.closed else None
    call_libc("fflush", None)
    os._exit(code & 0xFF)


def _skip_own_frames(trace: TracebackType | None) -> TracebackType | None:
    ours = {__file__, "<frozen runpy>"}
    here = trace
    while here is not None and here.tb_frame.f_code.co_filename in ours:
        here = here.tb_next
    return here if here is not None else None
