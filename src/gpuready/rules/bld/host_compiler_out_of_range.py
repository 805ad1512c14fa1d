"""The C++ compiler is not supported by this CUDA toolkit.

## What it checks
The gcc version against the range that the toolkit supports. A newer gcc is an error if something is to be
built, else a warning; an older one is a warning. Nothing is reported if NVCC_CCBIN, CUDAHOSTCXX, ``-ccbin``
or ``-allow-unsupported-compiler`` in NVCC_PREPEND_FLAGS, or CC=clang selects another compiler.

## Why it matters
nvcc refuses a gcc that is too new in its own headers, before anything is compiled. A gcc that is too old is
untested and lacks C++ features that torch's headers need.

## How to fix
Install a supported gcc beside the present one and select it with CC and CXX, or use a newer toolkit.

## References
- include/crt/host_config.h of the toolkit
- CUDA installation guide for Linux, host compiler support policy
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding, versions
from gpuready.rules import compilation

CODE = "BLD005"
SEVERITY = "error"
READS = ("compiler.gcc", *compilation.READS)
BROKEN = {"job.wants": ("build",), "toolkit.version": "12.1", "compiler.gcc": "13.2.0"}
HEALTHY = {"job.wants": ("build",), "toolkit.version": "12.4", "compiler.gcc": "13.2.0"}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if not compilation.build_needed(facts, contract):
        return None
    row = compilation.find_toolkit_row(facts)
    if row is None:
        return None
    gcc = facts.value("compiler.gcc")
    if gcc is None or compilation.has_other_compiler(facts):
        return None
    low, high, major = row["gcc_min"], row["gcc_max"], versions.major_version(gcc)
    if low <= major <= high:
        return None
    new = major > high
    return make_finding(
        f"gcc {gcc} is too {'new' if new else 'old'} for CUDA {facts.value('toolkit.version')}",
        found=(facts.fact("compiler.gcc"), facts.fact("toolkit.version")),
        needs=(Requirement("compiler.gcc", f">={low},<{high + 1}", cite=str(row["source"]["gcc"])),),
        so="nvcc refuses this compiler, so nothing can be built"
        if new
        else "this combination is untested, and torch's headers need a newer C++",
        fix=(_other_gcc_step(high),),
        severity=compilation.build_severity(facts, contract) if new else "warning",
    )


def _other_gcc_step(major: int) -> FixStep:
    return FixStep(f"install gcc-{major} and g++-{major}, and set CC=gcc-{major} CXX=g++-{major}", note="needs root")
