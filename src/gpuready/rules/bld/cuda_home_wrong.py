"""The variable CUDA_HOME leads to no compiler.

torch takes what CUDA_HOME or CUDA_PATH says without asking whether it is there; it does not go on to look
for nvcc elsewhere. A variable that a module file or an image has left behind, or /usr/local/cuda as a link
to a toolkit that was removed, so hides a toolkit that would serve. The folder of a runtime (an image
without ``devel`` in its name) has libraries and no ``bin/nvcc``.

It is an error where something is to be built, a warning where the contract requires a toolkit, and a line
of information elsewhere. A dead link does no harm while a variable or the path leads to a toolkit, nor does
CUDA_HOME where PYTORCH_NVCC names the compiler. Point the variable to a toolkit with ``bin/nvcc``, or unset
it.
"""

from __future__ import annotations

from gpuready.model import Finding, Need, Step
from gpuready.rules import building, needs
from gpuready.rules.bld.cuda_home_missing import ways_out

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts

CODE = "BLD007"
SEVERITY = "error"
HOME = ("toolkit.home_missing", "toolkit.path", "toolkit.chosen_by", "toolkit.nvcc")
READS = (*HOME, "toolkit.others", "torch.cuda", *building.READS)
SIGNS = (
    "[extension] The nvcc compiler is not found in",
    "bin/nvcc: No such file or directory",
    "/bin/nvcc: not found",
    {"says": "nvcc: command not found", "as": "clue"},
    {"says": "nvcc: not found", "as": "clue"},
    "nvcc not found at '",
    "No such file or directory: '{}bin/nvcc'",
    "No such file or directory: '{}bin\\nvcc",
    "No such file or directory: 'nvcc'",
    {"says": "cannot find CUDA compiler: nvcc"},
    {"says": "fatal error: cuda_runtime.h: No such file or directory"},
    {"says": "fatal error: cuda_runtime_api.h: No such file or directory"},
    {"says": "fatal error: cuda.h: No such file or directory"},
    {"says": "fatal error: cusparse.h: No such file or directory"},
    {"says": "fatal error: cublas_v2.h: No such file or directory"},
)
BROKEN = {
    "job.wants": ("build",),
    "toolkit.home_missing": "/opt/cuda-11",
    "toolkit.path": "/opt/cuda-11",
    "toolkit.chosen_by": "CUDA_HOME",
    "toolkit.nvcc": None,
}
HEALTHY = {
    "job.wants": ("build",),
    "toolkit.home_missing": None,
    "toolkit.path": "/opt/cuda-12",
    "toolkit.chosen_by": "CUDA_HOME",
    "toolkit.nvcc": "/opt/cuda-12/bin/nvcc",
}
CITE = "torch/utils/cpp_extension.py, _find_cuda_home"


def judge(facts: Facts, contract: Contract) -> Finding | None:
    due = building.due(facts, contract)
    if "cuda" not in contract.platforms or (not due and not _seen(facts)):
        return None
    wrong = _wrong(facts)
    if wrong is None or facts.known("env.PYTORCH_NVCC"):
        return None
    return Finding(
        CODE,
        building.severity(facts, contract) if due else "info",
        wrong,
        found=tuple(facts.fact(key) for key in HOME),
        needs=(Need("toolkit.nvcc", "*", cite=CITE),),
        so="every build stops where it calls nvcc, though there may be a toolkit elsewhere",
        fix=(*ways_out(facts)[:1], *_unset(facts)),
    )


def _seen(facts: Facts) -> bool:
    """Return whether every fact is known: information must not leave the verdict undecided."""
    return not any(facts.fact(key).gap for key in HOME)


def _wrong(facts: Facts) -> str | None:
    path = facts.value("toolkit.path")
    missing = facts.value("toolkit.home_missing")
    if missing is not None and (path is None or str(path).rstrip("/") == str(missing).rstrip("/")):
        what = "the link" if path is None else f"the variable {facts.value('toolkit.chosen_by')}"
        return f"{what} leads to {missing}, where there is no toolkit"
    if path is None or facts.value("toolkit.chosen_by") not in ("CUDA_HOME", "CUDA_PATH"):
        return None
    if facts.value("toolkit.nvcc") is not None:
        return None
    return f"the variable {facts.value('toolkit.chosen_by')} leads to {path}, which has no bin/nvcc"


def _unset(facts: Facts) -> list[Step]:
    by = needs.glimpse(facts, "toolkit.chosen_by")
    named = by in ("CUDA_HOME", "CUDA_PATH")
    return [Step(f"unset {by}: torch then takes the nvcc on the path, or /usr/local/cuda")] if named else []
