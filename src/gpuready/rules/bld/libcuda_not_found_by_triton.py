"""The libcuda that Triton links with is not found.

Triton compiles a small launcher in C when its first kernel runs, and links it with the driver's ``libcuda``. Where the library is
not in the loader's cache under the name ``libcuda.so`` (slim images, NixOS, a driver that was mounted without ``ldconfig``), or where there
is no C compiler, the launcher cannot be built, and ``torch.compile`` and every Triton kernel fail.

Run ldconfig, or name the folder in ``TRITON_LIBCUDA_PATH``, and install gcc. It is no case of this when Python.h is what the compiler
misses: those are Python's headers.
"""

from __future__ import annotations

from gpuready.rules import log_findings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts, Finding

CODE = "BLD019"
SEVERITY = "error"
READS = log_findings.READS
PATTERNS = (
    "libcuda.so cannot found!",
    "cannot find -lcuda",
    "cannot find -l cuda",
    "unable to find library -lcuda",
    "Please create a symlink of libcuda.so to any of the files",
    "libcuda.so cannot be found",
    {"says": "No such file or directory: '/sbin/ldconfig'", "with": ("triton",)},
    {"says": "No such file or directory: 'ldconfig'", "with": ("triton",)},
    {"says": "/main.c', '-O3'", "as": "clue", "without": ("Python.h",)},
    {"says": "/cuda_utils.c', '-O3'", "as": "clue", "without": ("Python.h",)},
)
BROKEN, HEALTHY = log_findings.log_examples(CODE)


def judge(facts: Facts, contract: Contract) -> Finding | None:
    return log_findings.log_finding(facts, contract, CODE, SEVERITY)
