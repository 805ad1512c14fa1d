"""The script or program cannot be started.

The script does not exist, is a folder, is empty or may not be read; a program is not executable, was built for another machine, or has the line
ends of Windows behind its first line; the engine that was asked for (srun, mpirun, torchrun, Ray) is not installed. Each is seen before
anything is started.

Correct the path, make the file executable (``chmod +x``), convert its line ends, or load the module of the engine.
"""

from __future__ import annotations

from gpuready.rules import log_findings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts, Finding

CODE = "RUN025"
SEVERITY = "error"
READS = log_findings.READS
PATTERNS = (
    {"says": "has the line ends of Windows (CRLF) after its #! line"},
    {"says": "python{}: can't open file {path}: [Errno 2]"},
    {"says": "/bin/bash^M: bad interpreter"},
    {"says": "cannot execute binary file: Exec format error"},
)
BROKEN, HEALTHY = log_findings.log_examples(CODE)


def judge(facts: Facts, contract: Contract) -> Finding | None:
    return log_findings.log_finding(facts, contract, CODE, SEVERITY)
