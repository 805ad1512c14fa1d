"""The terminal of the job was closed.

When a terminal or an SSH session ends, everything that was started in it gets SIGHUP. torchrun handles that signal itself and ends its
workers, also under nohup, which has only told the process to ignore it. The run was healthy until then.

Start it in tmux or screen, or through a scheduler; with setsid it has no terminal that could end. SIGTERM and SIGINT, which look alike
in the log, come from a scheduler or from somebody at the keyboard.
"""

from __future__ import annotations

from gpuready.rules import log_findings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts, Finding

CODE = "RUN006"
SEVERITY = "error"
READS = log_findings.READS
PATTERNS = (
    "Received 1 death signal, shutting down workers",
    "Received Signals.SIGHUP death signal",
    "Received SIGHUP death signal",
    {"says": "Sending process {pid} closing signal SIGHUP"},
    {"says": "SignalException: Process {pid} got signal: 1", "without": ("got signal: 15", "got signal: 10")},
    "got signal: Signals.SIGHUP",
    {"says": "derived: a process was killed by signal 1", "in": "derived", "without": ("signal 11",), "as": "clue"},
    {"says": "(SIGHUP) received by PID", "as": "clue"},
    {"says": "died with <Signals.SIGHUP: 1>", "as": "root"},
    {"says": "terminated with signal SIGHUP", "as": "root"},
    {"says": "client_loop: send disconnect: ", "as": "clue"},
    {"says": "packet_write_wait: Connection to {host} port {port}: Broken pipe", "as": "clue"},
    {"says": "Connection to {host} closed by remote host", "as": "clue"},
)
BROKEN, HEALTHY = log_findings.log_examples(CODE)


def judge(facts: Facts, contract: Contract) -> Finding | None:
    return log_findings.log_finding(facts, contract, CODE, SEVERITY)
