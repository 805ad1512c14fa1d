"""No packet without being asked: the kernel counts, in a network of its own, for the command and for all that it starts.

A network namespace without routes has counters that begin at nothing, and a packet that has nowhere to go counts as well. So what is
read afterwards is every attempt over IPv4, of whatever program: ours, uv, nvidia-smi, a library in C. A look-up of a name is one too.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.running import QUIET, SRC

MACHINES = Path(__file__).parents[1] / "machines"
UNSHARE = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--net"]
AFTERWARDS = '"$@" >&2; code=$?; cat /proc/net/snmp; exit $code'
MAIN = "from gpuready.cli import main; main()"
ASKED = ("Ip.OutRequests", "Ip.OutNoRoutes", "Tcp.ActiveOpens", "Udp.OutDatagrams")


def _permitted() -> bool:
    return bool(shutil.which("unshare")) and not subprocess.run([*UNSHARE, "true"], capture_output=True).returncode


pytestmark = pytest.mark.skipif(not _permitted(), reason="no network namespace can be made here")


def _alone(*words: str) -> tuple[dict[str, int], subprocess.CompletedProcess[str]]:
    """Run Python in an empty network; what the kernel counted, and what came out."""
    argv = [*UNSHARE, "sh", "-c", AFTERWARDS, "sh", sys.executable, *words]
    env = {**QUIET, "PYTHONPATH": str(SRC)}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
    rows = [line.replace(":", "").split() for line in done.stdout.splitlines()]
    counted = {
        f"{names[0]}.{name}": int(value)
        for names, values in zip(rows[::2], rows[1::2], strict=True)
        for name, value in zip(names[1:], values[1:], strict=True)
    }
    return {name: counted[name] for name in ASKED if counted[name]}, done


@pytest.mark.parametrize(
    "code",
    [
        "import socket; socket.create_connection(('192.0.2.1', 80), 1)",
        "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'?', ('192.0.2.1', 53))",
        "import subprocess, sys; subprocess.run([sys.executable, '-c', \"import socket; socket.create_connection(('127.0.0.1', 9), 1)\"])",
    ],
    ids=["a connection", "a datagram", "of a child"],
)
def test_an_attempt_is_counted(code):
    counted, _ = _alone("-c", code)
    assert counted


@pytest.mark.parametrize(
    "words",
    [
        ["check"],
        ["check", "transformers", "--json"],
        ["check", "colossalai", "-v"],
        ["check", "transformers", "--on", "h100x8"],
        ["probe"],
        ["plan", "transformers", "--on", "h100x8", "--no-resolve"],
        ["fit", "llama-3.1-8b", "--on", "h200"],
        ["env", "transformers", "--on", str(MACHINES / "h200.json")],
        ["diff", str(MACHINES / "old-driver.json"), str(MACHINES / "h200.json")],
        ["diagnose", str(Path(__file__))],
        ["explain", "DRV001"],
        ["contract", "list"],
        ["prove", "--list"],
    ],
    ids=lambda words: " ".join(Path(word).name for word in words),
)
def test_a_command_asks_nobody(words):
    counted, done = _alone("-c", MAIN, *words)
    assert not counted, counted
    assert "Traceback" not in done.stderr and done.returncode in (0, 1, 3), done.stderr[-500:]


def test_an_import_of_everything_asks_nobody():
    code = "import gpuready, gpuready.cli, gpuready.workflow, gpuready.commands.check, gpuready.model, gpuready.runtime"
    counted, done = _alone("-c", code)
    assert not counted and done.returncode == 0, done.stderr[-500:]
