"""Records of a plan, an install, a fix, and a set of environment variables.

Separate from ``model.py`` so that a check, which plans nothing, does not import them.
"""

from __future__ import annotations

from typing import Any

from gpuready.model import Fact, FixStep, Record, Requirement
from gpuready.model.record import field

NOT_RESOLVED = "not resolved here"


class PlanReason(Record):
    """One reason for a choice, with its source."""

    about: str  # torch, python, cuda, index, framework, a package, a kernel
    says: str
    cite: str = ""
    step: int = 0  # of a fix: the step that it is a reason for
    kind: str = ""  # of a fix: fixes, should fix, prevents


class RejectedChoice(Record):
    """A choice that was rejected, with the first reason against it."""

    choice: str  # such as "torch 2.15.0+cu130, Python 3.12"
    why: str
    cite: str = ""


ASSUMED_SYSTEM = "operating system not given: planned for Linux with glibc 2.35 (Ubuntu 22.04) or newer (--as os=NAME states another)"
"""The note of a plan for a system that nobody stated."""


class PlanConflict(Record):
    """A minimal set of facts and needs that contradict each other."""

    says: str
    facts: tuple[Fact, ...] = ()
    needs: tuple[Requirement, ...] = ()
    kind: str = ""  # "platform-tag" or "python-tag": a package has no wheel for the platform, or for the Python
    about: str = ""  # of a fix: the code of the finding that stays


class UnresolvedCause(Record):
    """Why a plan has no resolution, where another plan may have one."""

    kind: str  # index-unread, index-refuses: names has the index; no-wheel, missing: names has the packages
    names: tuple[str, ...] = ()


class PlanAlternative(Record):
    """A change that would make a plan possible."""

    kind: str  # image, flag, index, python, framework, release, system, driver, gpu
    change: str
    then: str  # the resulting plan
    run: tuple[str, ...] = ()  # the command that plans it
    about: str = ""  # of a fix: the code of the finding that it clears elsewhere


class KernelPlan(Record):
    """How one compiled package gets into the environment."""

    package: str
    version: str
    how: str  # index (a wheel from an index), release (a ready-made wheel elsewhere), build, jit, none
    why: str
    cite: str = ""
    wheel: str = ""  # the name of the ready-made wheel
    toolkit: str = ""  # for a build: the CUDA that nvcc must have
    compiler: str = ""  # for a build: the range of gcc
    arch_list: str = ""  # for a build: TORCH_CUDA_ARCH_LIST
    max_jobs: int = 0  # for a build: MAX_JOBS, from cores and memory
    seconds: tuple[int, int] = ()  # type: ignore[assignment]  # for a build: about how long, from and to
    steps: tuple[FixStep, ...] = ()


class LockedPackage(Record):
    """One exactly pinned distribution of a resolution."""

    name: str
    version: str
    hashes: tuple[str, ...] = ()  # sha256:..., of every file that may be taken
    index: str = ""  # its name in the catalogue, find-links, pip-N, or own:HOST; empty is the default
    origin: str = ""  # a path or URL where it does not come from an index
    via: tuple[str, ...] = ()
    size: int = 0  # bytes of the chosen file, where the index states it
    built: bool = False  # no wheel of it fits: an install builds it from its sources


class Plan(Record):
    """The environment for one framework on one machine, or why there is none."""

    framework: str
    version: str
    verdict: str  # plan, impossible; of a fix also undecided
    variant: str = ""
    machine: str = ""
    python: str = ""
    torch: str = ""  # with its build: 2.13.0+cu126
    cuda: str = ""
    index: str = ""  # the name of torch's index in the catalogue: pypi, cu126, cpu
    platform: str = ""  # the resolver's platform: x86_64-manylinux_2_28
    packages: dict[str, str] = field(default_factory=dict)  # every decided version; all of them after a resolution
    kernels: tuple[KernelPlan, ...] = ()
    steps: tuple[FixStep, ...] = ()
    because: tuple[PlanReason, ...] = ()
    fell: tuple[RejectedChoice, ...] = ()
    conflicts: tuple[PlanConflict, ...] = ()
    opens: tuple[PlanAlternative, ...] = ()
    lock: tuple[LockedPackage, ...] = ()
    held: tuple[
        str, ...
    ] = ()  # packages of the lock for which a check asked for another version than uv's first choice
    resolved: str = ""  # "resolved", "not resolved here: why", or what another tool made
    unresolved: UnresolvedCause | None = None
    image: str = ""  # the base container image
    image_has: str = ""  # for a framework's own image: what it contains
    image_flags: tuple[str, ...] = ()  # flags for `docker run`
    tools: dict[str, str] = field(default_factory=dict)  # other programs to install, with versions: uv
    indexes: dict[str, str] = field(default_factory=dict)  # index name -> URL
    variables: dict[str, str] = field(default_factory=dict)  # variables to set for a job
    unset: tuple[str, ...] = ()  # variables to unset
    start: tuple[str, ...] = ()  # the framework's own command for the user's file
    host: dict[str, int] = field(default_factory=dict)  # machine sizes: gpus, cpus, memory (bytes)
    catalog: str = ""
    notes: tuple[str, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)  # the command-line flags, so that a lock can be made again
    undecided: str = ""  # of a fix: why nobody can tell whether anything is wrong
    contract_note: str = ""  # whose contract it was planned by, where that is a file, and what was not taken from it

    @property
    def exit(self) -> int:
        return {"plan": 0, "undecided": 3}.get(self.verdict, 1)

    @property
    def brackets(self) -> str:
        """The extras as a requirement has them: ``[peft,vlm]``; empty without any."""
        return f"[{self.options['extras']}]" if self.options.get("extras") else ""

    @property
    def wanted_words(self) -> tuple[str, ...]:
        """What the job asks for, with the extras."""
        wants = self.options.get("wants") or ()
        words = wants.split(",") if isinstance(wants, str) else wants
        return (*words, *filter(None, str(self.options.get("extras") or "").split(",")))

    @property
    def spec(self) -> str:
        """The framework as written on the command line."""
        version = f"=={self.version}" if self.options.get("version") else ""
        return self.framework + self.brackets + version + (f":{self.variant}" if self.variant else "")

    @property
    def why_unresolved(self) -> str:
        """Why there is no resolution, without the words of ``resolved`` before it; empty where nothing is said, or there is one."""
        return (
            "" if self.resolved in ("", "resolved", NOT_RESOLVED) else self.resolved.removeprefix(f"{NOT_RESOLVED}: ")
        )

    @property
    def is_image_alone(self) -> bool:
        """Whether the framework comes as an image with everything in it, and nothing is installed."""
        return bool(self.image) and not self.torch


class InstallFault(Record):
    """A deviation of an installed environment from what was published."""

    kind: str  # missing, changed, extra, overlap, overreach, drift, outside, interpreter
    path: str
    package: str = ""
    says: str = ""


class InstallResult(Record):
    """The result of an install; only ``installed`` and ``unchanged`` mean that the environment is usable."""

    verdict: str  # installed, unchanged, failed, dry-run, rolled-back, intact, damaged, undecided
    environment: str
    stored_as: str = ""
    previous: str = ""
    plan: Any = None
    steps: tuple[FixStep, ...] = ()
    says: str = ""
    seconds: float = 0.0
    faults: tuple[InstallFault, ...] = ()
    notes: tuple[str, ...] = ()
    need: dict[str, Any] = field(default_factory=dict)  # bytes, files, and how they were estimated
    report: Any = None
    exit: int = 0


class VariableSetting(Record):
    """One environment variable, who wants it, and why."""

    name: str
    value: str
    by: str  # the framework of the contract, or torch, NCCL, CUDA
    why: str = ""
    cite: str = ""
    state: str = "set"  # or "held": already has this value


class VariableConflict(Record):
    """A variable that the user has set to another value; the user's value stays."""

    name: str
    have: str
    wants: str
    by: str
    then: str  # the consequence
    why: str = ""
    cite: str = ""


class EnvironmentSettings(Record):
    """The environment variables of one kind of process of one framework on one machine."""

    framework: str
    version: str
    variant: str = ""
    role: str = ""
    roles: tuple[str, ...] = ()  # the framework's kinds of process
    machine: str = ""
    torch: str = ""  # the version the names were chosen for; empty if unknown
    variables: tuple[VariableSetting, ...] = ()
    conflicts: tuple[VariableConflict, ...] = ()
    left: tuple[VariableSetting, ...] = ()  # set by the framework itself, per process or temporarily
    notes: tuple[str, ...] = ()
    contract_note: str = ""  # whose contract, where that is a file, and what was not taken from it

    @property
    def name(self) -> str:
        return f"{self.framework} {self.version}" + (f":{self.variant}" if self.variant else "")


class FixItem(Record):
    """One numbered change."""

    number: int
    does: str
    by: str  # gpuready, or you
    codes: tuple[str, ...] = ()  # the findings it clears
    why: tuple[str, ...] = ()  # one sentence for each of them
    commands: tuple[tuple[str, ...], ...] = ()
    undo: str = ""
    note: str = ""
    state: str = "planned"  # planned, applied, ineffective (made, and still found), unneeded, failed, skipped (--only)


class FixOutcome(Record):
    """The result of a fix."""

    verdict: str  # fixed, partly, nothing-to-fix, undecided, by-hand, dry-run, failed, undone
    framework: str = ""
    environment: str = ""
    kind: str = ""  # venv, conda, system, gpuready
    items: tuple[FixItem, ...] = ()
    says: str = ""
    settings_file: str = ""  # the variables that were written, to be sourced before the job
    copy: str = ""  # the environment as it was before
    undo: tuple[str, ...] = ()  # the command that takes it back
    is_unchanged: bool = False  # of one that failed: the environment was looked at again, and is as it was
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    before: Any = None  # the Report before
    report: Any = None  # the Report after
    foreseen: str = ""  # of a dry run: the verdict that the run is expected to have

    @property
    def exit(self) -> int:
        """0 where no error is left, or nothing was to be changed; 1 where something is left; 2 where it failed; 3 as of a check. A dry run has that of the run."""
        return {"failed": 2, "partly": 1, "by-hand": 1, "undecided": 3}.get(self.foreseen or self.verdict, 0)
