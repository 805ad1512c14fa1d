"""The installed bitsandbytes has no Windows binaries.

Releases of bitsandbytes before 0.43 carry libraries for Linux only. On Windows they install without complaint, look for ``libcudart.so``, find
only files that Windows cannot load, and fail with long advice about ``LD_LIBRARY_PATH`` that does not help there, because there is no library to be found.

Upgrade bitsandbytes to 0.43 or newer, which has libraries for Windows, or work in WSL. On Linux the same advice means that CUDA's libraries are
not on the path: another cause.
"""

from __future__ import annotations

from gpuready.rules import log_findings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts, Finding

CODE = "PKG035"
SEVERITY = "error"
READS = log_findings.READS
PATTERNS = (
    "argument of type 'WindowsPath' is not iterable",
    {"says": "CUDA SETUP: Loading binary {}:\\{}libbitsandbytes"},
    {"says": "Could not find module '{}libbitsandbytes"},
    {"says": "libbitsandbytes_cpu.so", "with": (":\\",), "unless": ("/site-packages/bitsandbytes",)},
    {"says": "CUDA SETUP: ", "with": ("WindowsPath",)},
    {"says": "[WinError 193]", "with": ("bitsandbytes",)},
    {"says": "CUDA Setup failed despite GPU being available", "with": (":\\", "WindowsPath")},
    {"says": "CUDA SETUP: Required library version not found: libbitsandbytes_cpu.so", "with": (":\\", "WindowsPath")},
    {"says": "function 'cadam32bit_grad_fp32' not found"},
    {"says": "function 'cquantize_blockwise_{name}' not found"},
    {"says": "function 'cget_col_row_stats' not found"},
)
BROKEN, HEALTHY = log_findings.log_examples(CODE)


def judge(facts: Facts, contract: Contract) -> Finding | None:
    return log_findings.log_finding(facts, contract, CODE, SEVERITY)
