"""The command line over a workflow that answers at once: only the command line is under test."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parents[2]
PROLOGUE = """
import sys, time, types, os
import gpuready
from gpuready.model import Contract, Fact, Facts, Finding, Report
fake = types.ModuleType("gpuready.workflow")
class Refused(Exception): pass
fake.Refused = Refused
fake.__path__ = [os.path.join(os.path.dirname(gpuready.__file__), "workflow")]  # its modules are the real ones
def report(severity="error", name="demo"):
    found = (Finding("GPU001", severity, "it is wrong \\u2717"),) if severity else ()
    return Report(Contract(name, "1.0"), Facts([Fact("gpu.count", 0, "sysfs")], "here"), found)
fake.sort_asked_files = lambda words: (list(words), {{}})
fake.check_machine = lambda *a, **k: [report()]
fake.make_fixes_runnable = lambda reports, here: reports
sys.modules["gpuready.workflow"] = gpuready.workflow = fake
{body}
from gpuready.cli import main
main()
"""


def environment(**extra: str) -> dict[str, str]:
    return {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "PYTHONPATH": str(HERE / "src"), **extra}


def start(*argv: str, body: str = "", env: dict[str, str] | None = None, **options: object) -> subprocess.Popen[bytes]:
    """Start gpuready with the faked workflow; ``body`` may change it."""
    return subprocess.Popen(
        [sys.executable, "-c", PROLOGUE.format(body=body), *argv],
        env=environment(**(env or {})),
        **{"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options},  # type: ignore[call-overload]
    )


def run(*argv: str, **options: object) -> tuple[int, str, str]:
    """Exit code, stdout and stderr."""
    process = start(*argv, **options)  # type: ignore[arg-type]
    out, err = process.communicate(timeout=60)
    return process.returncode, (out or b"").decode(), (err or b"").decode()


def closing(*numbers: int) -> dict[str, object]:
    """Start with these standard streams closed."""
    return {"preexec_fn": lambda: [os.close(n) for n in numbers]}
