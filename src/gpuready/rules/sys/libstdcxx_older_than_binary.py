"""The libstdc++ that is loaded is older than a binary needs.

A compiled module needs symbols of the C++ library in a version that the loaded ``libstdc++`` has not got. Mostly the system has a new one and conda, a module of the
cluster or ``LD_LIBRARY_PATH`` brings an older one that is found first; or the module was built on a newer distribution. What is loaded
first in a process stays, so the order of imports can decide.

Install a newer libstdc++ into the environment (``conda install -c conda-forge libstdcxx-ng``), or take the older one from the path. GLIBC, without
XX, is the C library: that one comes with the distribution only.
"""

from __future__ import annotations

from gpuready.rules import log_findings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts, Finding

CODE = "SYS023"
SEVERITY = "error"
READS = log_findings.READS
ONLY_WARNED = ("Failed to load image Python extension", "Could not load dynamic library")
PATTERNS = (
    {"says": "version `GLIBCXX_{need}' not found (required by {file})", "without": ONLY_WARNED},
    {"says": "version `GLIBCXX_{need}' not found", "without": ONLY_WARNED},
    "version 'GLIBCXX_{need}' not found",
    {"says": "version `CXXABI_{need}' not found (required by {file})", "without": ONLY_WARNED},
    {"says": "version `CXXABI_{need}' not found", "without": ONLY_WARNED},
    "version `GCC_{need}' not found",
    {"says": "libstdc++.so.6: cannot open shared object file"},
    {"says": "GLIBCXX_3.4.{need} not found", "without": ONLY_WARNED},
    {"says": "CXXABI_1.3.{need} not found", "without": ONLY_WARNED},
    {"says": "GLIBCXX_{need} not found (required by", "without": ONLY_WARNED},
    {"says": "undefined symbol: {symbol}, version GLIBCXX_{need}", "without": ("Could not load dynamic library",)},
    {"says": "undefined symbol: {symbol}, version CXXABI_{need}", "without": ("Could not load dynamic library",)},
    {"says": "version `GOMP_{need}' not found", "as": "clue"},
)
BROKEN, HEALTHY = log_findings.log_examples(CODE)


def judge(facts: Facts, contract: Contract) -> Finding | None:
    return log_findings.log_finding(facts, contract, CODE, SEVERITY)
