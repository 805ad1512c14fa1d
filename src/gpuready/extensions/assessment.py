"""Assess whether an extension can be built here, and how: pure functions over a BuildEnvironment."""

from __future__ import annotations

from collections.abc import Mapping

from gpuready.catalog import cuda as toolkits
from gpuready.extensions import cuda_targets
from gpuready.model import Record, versions
from gpuready.model.record import field

TRUE_WORDS = ("1", "true", "yes", "on", "y", "t")
FALSE_WORDS = ("", "0", "false", "no", "off", "n", "f", "none")
BYTES_PER_JOB = 2 << 30
"""Upper bound for the memory of one nvcc; a kernel with a plain C interface takes a fraction of it."""

DEFAULT_JOBS = 2


class BuildEnvironment(Record):
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
    variables: Mapping[str, str] = field(default_factory=dict)  # those in BUILD_VARIABLES


class BuildMessage(Record):
    """One message about a build."""

    level: str  # error, warning, note
    says: str


class BuildAssessment(Record):
    """Whether the build is possible, why, for which GPUs, with how many jobs, and all messages."""

    kind: str  # cuda, cpu
    available: bool
    why: str
    said: tuple[BuildMessage, ...] = ()
    targets: cuda_targets.BuildTargets | None = None
    jobs: int = 1
    jobs_why: str = ""

    @property
    def errors(self) -> tuple[str, ...]:
        return tuple(one.says for one in self.said if one.level == "error")

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(one.says for one in self.said if one.level == "warning")

    @property
    def is_possible(self) -> bool:
        return self.available and not self.errors


BUILD_VARIABLES = (
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


def parse_env_switch(name: str, value: str | None) -> bool:
    """Parse a switch: ``0``, ``false``, ``no``, ``off`` and unset are false. ValueError for other words."""
    word = (value or "").strip().lower()
    if word in FALSE_WORDS or (word.isdecimal() and int(word) == 0):
        return False
    if word in TRUE_WORDS or word.isdecimal():
        return True
    raise ValueError(f"{name}={value!r} is neither yes nor no: set it to 1 or 0, or unset it")


def is_kind_wanted(kind: str, environment: BuildEnvironment, arch: str = "") -> tuple[bool, str]:
    """Return whether this kind of extension is wanted here, and why; ``arch`` asks for CUDA. ValueError if variables contradict."""
    switches = {name: parse_env_switch(name, environment.variables.get(name)) for name in BUILD_VARIABLES[:3]}
    only_cuda, only_cpu = switches["FORCE_ONLY_CUDA"], switches["FORCE_ONLY_CPU"]
    if only_cuda and only_cpu:
        raise ValueError("FORCE_ONLY_CUDA and FORCE_ONLY_CPU are both set: unset one of them")
    if kind == "cpu":
        return (False, "FORCE_ONLY_CUDA is set") if only_cuda else (True, f"a CPU ({environment.machine})")
    if only_cpu:
        return False, "FORCE_ONLY_CPU is set"
    if environment.capabilities:
        return True, f"a GPU is visible (compute capability {', '.join(environment.capabilities)})"
    if switches["FORCE_CUDA"] or only_cuda:
        name = "FORCE_CUDA" if switches["FORCE_CUDA"] else "FORCE_ONLY_CUDA"
        return True, f"no GPU is visible; {name} asks for CUDA all the same"
    if arch:
        return True, "no GPU is visible; the architectures are named"
    return False, "no GPU is visible, and FORCE_CUDA is not set"


def compare_cuda_versions(nvcc: str, torch_cuda: str) -> BuildMessage:
    """Compare nvcc with torch's CUDA: a different major is an error, a different minor works."""
    if not torch_cuda:
        return BuildMessage("note", "this torch names no CUDA: nothing to match")
    if versions.major_version(nvcc) != versions.major_version(torch_cuda):
        fix = f"install the CUDA {versions.major_version(torch_cuda)} toolkit and set CUDA_HOME to it"
        return BuildMessage("error", f"nvcc is of CUDA {nvcc} and torch of {torch_cuda}: the major differs; {fix}")
    if versions.major_minor(nvcc) != versions.major_minor(torch_cuda):
        return BuildMessage(
            "warning", f"nvcc is of CUDA {nvcc} and torch of {torch_cuda}: only the minor differs, which works"
        )
    return BuildMessage("note", f"nvcc and torch are both of CUDA {torch_cuda}")


def check_host_compiler(gcc: str, cuda: str) -> BuildMessage:
    """Check that this nvcc supports this gcc."""
    known = toolkits.supported_gcc_range(cuda)
    if not gcc or known is None:
        return BuildMessage("note", "the host compiler is not gcc, or nvcc is not in the catalogue: not judged")
    low, high, source = known
    if low <= versions.major_version(gcc) <= high:
        return BuildMessage("note", f"nvcc {cuda} takes gcc {low} to {high}")
    fix = f"install g++-{high} or set CXX to a g++ in that range"
    return BuildMessage("error", f"gcc is {gcc}, and nvcc {cuda} takes {low} to {high} ({source}); {fix}")


def choose_job_count(max_jobs: str | None, cores: int, memory: int, each: int = BYTES_PER_JOB) -> tuple[int, str]:
    """Return the number of parallel compilers: MAX_JOBS, else what processors and memory allow. ValueError if
    MAX_JOBS is bad.
    """
    word = (max_jobs or "").strip()
    if word:
        if not (word.isdecimal() and int(word) > 0):
            raise ValueError(f"MAX_JOBS={max_jobs!r} is not a number of jobs: set it to 1 or more, or unset it")
        return int(word), f"MAX_JOBS={word}"
    if not memory or not cores:
        lacking = "processors" if memory else "memory" if cores else "processors and memory"
        return DEFAULT_JOBS, f"{lacking} not known: a careful {DEFAULT_JOBS}"
    by_memory = max(1, memory // each)
    if by_memory < cores:
        return by_memory, f"{memory / 2**30:.1f} GiB of memory, at {each / 2**30:.0f} GiB a job"
    return cores, f"{cores} processors"


def assess_build(kind: str, environment: BuildEnvironment, arch: str = "") -> BuildAssessment:
    """Assess one kind of extension (cuda, cpu). ``arch`` takes precedence over TORCH_CUDA_ARCH_LIST."""
    try:
        wanted, why = is_kind_wanted(kind, environment, arch)
        count, counted = choose_job_count(environment.variables.get("MAX_JOBS"), environment.cores, environment.memory)
    except ValueError as error:
        return BuildAssessment(kind, False, str(error), (BuildMessage("error", str(error)),))
    messages = (
        [] if environment.compiler else [BuildMessage("error", "there is no C++ compiler: install g++, or set CXX")]
    )
    if kind == "cpu":
        return BuildAssessment(kind, wanted, why, tuple(messages), None, count, counted)
    if not environment.nvcc:
        return BuildAssessment(kind, wanted, why, (*messages, _missing_nvcc_message(environment)), None, count, counted)
    messages += [compare_cuda_versions(environment.cuda, environment.torch_cuda), _check_compiler(environment)]
    targets = None
    try:
        listed = arch or environment.variables.get("TORCH_CUDA_ARCH_LIST", "")
        source = "the caller's list" if arch else "TORCH_CUDA_ARCH_LIST"
        targets = cuda_targets.choose_targets(
            listed, environment.capabilities, environment.cuda, environment.torch_arch, environment.offered, source
        )
        messages += [BuildMessage("warning", f"left out: {one}") for one in targets.dropped]
    except ValueError as error:
        messages.append(BuildMessage("error", str(error)))
    return BuildAssessment(kind, wanted, why, tuple(messages), targets, count, counted)


def _check_compiler(environment: BuildEnvironment) -> BuildMessage:
    """Check the host compiler, unless NVCC_CCBIN or flags name another one or make nvcc accept any."""
    flags = " ".join(environment.variables.get(name, "") for name in ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS"))
    if environment.variables.get("NVCC_CCBIN") or any(
        word in flags for word in ("ccbin", "compiler-bindir", "allow-unsupported")
    ):
        return BuildMessage("note", "the host compiler is named by the environment: not judged")
    return check_host_compiler(environment.compiler_version, environment.cuda)


def _missing_nvcc_message(environment: BuildEnvironment) -> BuildMessage:
    order = "CUDA_HOME, CUDA_PATH, nvcc on the path, /usr/local/cuda"
    if not environment.home:
        return BuildMessage("error", f"no CUDA toolkit was found ({order}): install one with nvcc, or set CUDA_HOME")
    missing = f"there is no {environment.home}/bin/nvcc (the folder is named by {environment.home_by})"
    return BuildMessage("error", f"{missing}: install nvcc, or set CUDA_HOME to a toolkit that has it")
