"""Assess whether an extension can be built here, and how: pure functions over a BuildEnvironment."""

from __future__ import annotations

from gpuready import versions
from gpuready.catalog import cuda as toolkits
from gpuready.extensions import arches
from gpuready.model import Noun

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

YES = ("1", "true", "yes", "on", "y", "t")
NO = ("", "0", "false", "no", "off", "n", "f", "none")
JOB_BYTES = 2 << 30
"""Upper bound for the memory of one nvcc; a kernel with a plain C interface takes a fraction of it."""

JOBS_UNKNOWN = 2


class Ground(Noun):
    """What a build has to work with. Empty text: looked for and not found."""

    machine: str  # x86_64, aarch64
    libc: str = ""
    home: str = ""  # CUDA_HOME
    home_by: str = ""  # which lookup found it
    nvcc: str = ""
    cuda: str = ""  # nvcc's release
    offered: tuple[str, ...] = ()  # targets that nvcc lists; empty: use the catalogue's
    compiler: tuple[str, ...] = ()  # command of the C++ compiler
    compiler_by: str = ""
    compiler_version: str = ""  # of gcc; empty for others
    torch: str = ""
    torch_cuda: str = ""
    torch_arch: tuple[str, ...] = ()
    abi: str = ""
    capabilities: tuple[str, ...] = ()  # of the visible GPUs
    cores: int = 0
    memory: int = 0
    variables: Mapping[str, str] = {}  # those in BUILD_VARIABLES


class Said(Noun):
    """One message about a build."""

    level: str  # error, warning, note
    says: str


class Outlook(Noun):
    """Whether the build is possible, why, for which GPUs, with how many jobs, and all messages."""

    kind: str  # cuda, cpu
    available: bool
    why: str
    said: tuple[Said, ...] = ()
    targets: arches.Targets | None = None
    jobs: int = 1
    jobs_why: str = ""

    @property
    def errors(self) -> tuple[str, ...]:
        return tuple(one.says for one in self.said if one.level == "error")

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(one.says for one in self.said if one.level == "warning")

    @property
    def possible(self) -> bool:
        return self.available and not self.errors


VARIABLES = (
    "FORCE_CUDA",
    "FORCE_ONLY_CUDA",
    "FORCE_ONLY_CPU",
    "TORCH_CUDA_ARCH_LIST",
    "MAX_JOBS",
    "NVCC_PREPEND_FLAGS",
    "NVCC_APPEND_FLAGS",
    "NVCC_CCBIN",
    "BUILD_EXT",
)
"""Environment variables that a build reads, beside CUDA_HOME, CUDA_PATH, CXX and PATH."""


def truth(name: str, value: str | None) -> bool:
    """Parse a switch: ``0``, ``false``, ``no``, ``off`` and unset are false. ValueError for other words."""
    word = (value or "").strip().lower()
    if word in NO or (word.isdecimal() and int(word) == 0):
        return False
    if word in YES or word.isdecimal():
        return True
    raise ValueError(f"{name}={value!r} is neither yes nor no: set it to 1 or 0, or unset it")


def available(kind: str, ground: Ground) -> tuple[bool, str]:
    """Return whether this kind of extension is wanted here, and why. ValueError if variables contradict."""
    told = {name: truth(name, ground.variables.get(name)) for name in VARIABLES[:3]}
    only_cuda, only_cpu = told["FORCE_ONLY_CUDA"], told["FORCE_ONLY_CPU"]
    if only_cuda and only_cpu:
        raise ValueError("FORCE_ONLY_CUDA and FORCE_ONLY_CPU are both set: unset one of them")
    if kind == "cpu":
        return (False, "FORCE_ONLY_CUDA is set") if only_cuda else (True, f"a CPU ({ground.machine})")
    if only_cpu:
        return False, "FORCE_ONLY_CPU is set"
    if ground.capabilities:
        return True, f"a GPU is visible (compute capability {', '.join(ground.capabilities)})"
    if told["FORCE_CUDA"] or only_cuda:
        name = "FORCE_CUDA" if told["FORCE_CUDA"] else "FORCE_ONLY_CUDA"
        return True, f"no GPU is visible; {name} asks for CUDA all the same"
    return False, "no GPU is visible, and FORCE_CUDA is not set"


def match(nvcc: str, torch_cuda: str) -> Said:
    """Compare nvcc with torch's CUDA: a different major is an error, a different minor works."""
    if not torch_cuda:
        return Said("note", "this torch names no CUDA: nothing to match")
    if versions.major(nvcc) != versions.major(torch_cuda):
        fix = f"install the CUDA {versions.major(torch_cuda)} toolkit and set CUDA_HOME to it"
        return Said("error", f"nvcc is of CUDA {nvcc} and torch of {torch_cuda}: the major differs; {fix}")
    if versions.minor(nvcc) != versions.minor(torch_cuda):
        return Said(
            "warning",
            f"nvcc is of CUDA {nvcc} and torch of {torch_cuda}: only the minor differs, which works",
        )
    return Said("note", f"nvcc and torch are both of CUDA {torch_cuda}")


def host_compiler(gcc: str, cuda: str) -> Said:
    """Check that this nvcc supports this gcc."""
    known = toolkits.gcc_range(cuda)
    if not gcc or known is None:
        return Said("note", "the host compiler is not gcc, or nvcc is not in the catalogue: not judged")
    low, high, source = known
    if low <= versions.major(gcc) <= high:
        return Said("note", f"nvcc {cuda} takes gcc {low} to {high}")
    fix = f"install g++-{high} or set CXX to a g++ in that range"
    return Said("error", f"gcc is {gcc}, and nvcc {cuda} takes {low} to {high} ({source}); {fix}")


def jobs(told: str | None, cores: int, memory: int, each: int = JOB_BYTES) -> tuple[int, str]:
    """Return the number of parallel compilers: MAX_JOBS, else what processors and memory allow. ValueError if
    MAX_JOBS is bad.
    """
    word = (told or "").strip()
    if word:
        if not (word.isdecimal() and int(word) > 0):
            raise ValueError(f"MAX_JOBS={told!r} is no number of jobs: set it to 1 or more, or unset it")
        return int(word), f"MAX_JOBS={word}"
    if not memory or not cores:
        lacking = "processors" if memory else "memory" if cores else "processors and memory"
        return JOBS_UNKNOWN, f"{lacking} not known: a careful {JOBS_UNKNOWN}"
    room = max(1, memory // each)
    if room < cores:
        return room, f"{memory / 2**30:.1f} GiB of memory, at {each / 2**30:.0f} GiB a job"
    return cores, f"{cores} processors"


def outlook(kind: str, ground: Ground, arch: str = "") -> Outlook:
    """Assess one kind of extension (cuda, cpu). ``arch`` takes precedence over TORCH_CUDA_ARCH_LIST."""
    try:
        yes, why = available(kind, ground)
        count, counted = jobs(ground.variables.get("MAX_JOBS"), ground.cores, ground.memory)
    except ValueError as bad:
        return Outlook(kind, False, str(bad), (Said("error", str(bad)),))
    if arch and kind == "cuda" and not yes and why.startswith("no GPU"):
        yes, why = True, "no GPU is visible; the architectures are named"
    said = [] if ground.compiler else [Said("error", "there is no C++ compiler: install g++, or set CXX")]
    if kind == "cpu":
        return Outlook(kind, yes, why, tuple(said), None, count, counted)
    if not ground.nvcc:
        return Outlook(kind, yes, why, (*said, _no_nvcc(ground)), None, count, counted)
    said += [match(ground.cuda, ground.torch_cuda), _compiler(ground)]
    targets = None
    try:
        listed = arch or ground.variables.get("TORCH_CUDA_ARCH_LIST", "")
        source = "the caller's list" if arch else "TORCH_CUDA_ARCH_LIST"
        targets = arches.choose(
            listed, ground.capabilities, ground.cuda, ground.torch_arch, ground.offered, source
        )
        said += [Said("warning", f"left out: {one}") for one in targets.dropped]
    except ValueError as bad:
        said.append(Said("error", str(bad)))
    return Outlook(kind, yes, why, tuple(said), targets, count, counted)


def _compiler(ground: Ground) -> Said:
    """Check the host compiler, unless NVCC_CCBIN or flags name another one or make nvcc accept any."""
    flags = " ".join(ground.variables.get(name, "") for name in ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS"))
    if ground.variables.get("NVCC_CCBIN") or any(
        word in flags for word in ("ccbin", "compiler-bindir", "allow-unsupported")
    ):
        return Said("note", "the host compiler is named by the environment: not judged")
    return host_compiler(ground.compiler_version, ground.cuda)


def _no_nvcc(ground: Ground) -> Said:
    order = "CUDA_HOME, CUDA_PATH, nvcc on the path, /usr/local/cuda"
    if not ground.home:
        return Said("error", f"no CUDA toolkit was found ({order}): install one with nvcc, or set CUDA_HOME")
    said = f"there is no {ground.home}/bin/nvcc (the folder is named by {ground.home_by})"
    return Said("error", f"{said}: install nvcc, or set CUDA_HOME to a toolkit that has it")
