"""The nouns of a plan: what is to stand in an environment, why, and what stands in the way.

Apart from ``model.py`` so that a check, which plans nothing, does not pay for them.
"""

from __future__ import annotations

from gpuready.model import Fact, Need, Noun, Step

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Because(Noun):
    """One reason for the choice: what it is about, what it says, and who says so."""

    about: str  # torch, python, cuda, index, framework, a package, a kernel
    says: str
    cite: str = ""


class Fallen(Noun):
    """A choice that was not taken, and the first thing that speaks against it."""

    choice: str  # such as "torch 2.15.0+cu130, Python 3.12"
    why: str
    cite: str = ""


class Conflict(Noun):
    """A smallest set of things that cannot hold together: leave any one out, and the rest can."""

    says: str
    facts: tuple[Fact, ...] = ()
    needs: tuple[Need, ...] = ()

    _nested = {"facts": Fact, "needs": Need}


class Opening(Noun):
    """A change that would make a plan possible; the cheapest comes first."""

    kind: str  # flag, index, python, framework, system, driver, gpu
    change: str
    then: str  # what the plan would be
    run: tuple[str, ...] = ()  # the command that plans it


class Kernel(Noun):
    """How one compiled package comes into the environment."""

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
    steps: tuple[Step, ...] = ()

    _nested = {"steps": Step}


class Locked(Noun):
    """One distribution of a resolution, exactly."""

    name: str
    version: str
    hashes: tuple[str, ...] = ()  # sha256:..., of every file that may be taken
    index: str = ""  # the name of the index in the catalogue; empty is the default index
    origin: str = ""  # a path or an address where it comes from no index
    via: tuple[str, ...] = ()
    size: int = 0  # bytes of the file that is taken, where the index says so


class Plan(Noun):
    """The environment for one framework on one machine, or why there is none."""

    framework: str
    version: str
    verdict: str  # plan, impossible
    variant: str = ""
    machine: str = ""
    python: str = ""
    torch: str = ""  # with its build: 2.13.0+cu126
    cuda: str = ""
    index: str = ""  # the name of torch's index in the catalogue: pypi, cu126, cpu
    platform: str = ""  # what the resolver is told: x86_64-manylinux_2_28
    packages: dict[str, str] = {}  # every version that is decided; with a resolution, all of them
    kernels: tuple[Kernel, ...] = ()
    steps: tuple[Step, ...] = ()
    because: tuple[Because, ...] = ()
    fell: tuple[Fallen, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    opens: tuple[Opening, ...] = ()
    lock: tuple[Locked, ...] = ()
    resolved: str = ""  # "resolved", or "not resolved here: why"
    image: str = ""  # the container image to stand on
    image_has: str = ""  # for a framework's own image: what is in it already
    image_flags: tuple[str, ...] = ()  # what `docker run` is given for it
    tools: dict[str, str] = {}  # programs that a file installs besides, by their version: uv
    indexes: dict[str, str] = {}  # where a file must hold an index: its name -> its address
    variables: dict[str, str] = {}  # what the environment of a job is to hold
    unset: tuple[str, ...] = ()  # variables that must not be there
    host: dict[str, int] = {}  # what is known of the machine: gpus, cpus, memory (bytes)
    catalog: str = ""
    notes: tuple[str, ...] = ()
    options: dict[str, Any] = {}  # the flags that it was made with: a lock says how to make it again

    _nested = {
        "kernels": Kernel,
        "steps": Step,
        "because": Because,
        "fell": Fallen,
        "conflicts": Conflict,
        "opens": Opening,
        "lock": Locked,
    }

    @property
    def exit(self) -> int:
        return 0 if self.verdict == "plan" else 1


class Fault(Noun):
    """Something of an installed environment that is not as it was published."""

    kind: str  # missing, changed, extra, overlap, drift, outside, interpreter
    path: str
    package: str = ""
    says: str = ""


class Installed(Noun):
    """What an install came to: nothing but ``installed`` and ``unchanged`` says that the environment stands."""

    verdict: str  # installed, unchanged, failed, dry-run, rolled-back, intact, damaged
    environment: str
    generation: str = ""
    previous: str = ""
    plan: Any = None
    steps: tuple[Step, ...] = ()
    says: str = ""
    seconds: float = 0.0
    faults: tuple[Fault, ...] = ()
    notes: tuple[str, ...] = ()
    need: dict[str, Any] = {}  # bytes, files, and how they were estimated
    report: Any = None
    exit: int = 0

    _nested = {"steps": Step, "faults": Fault}


class Setting(Noun):
    """One environment variable: its value, who wants it, and why."""

    name: str
    value: str
    by: str  # the framework of the contract, or torch, NCCL, CUDA
    why: str = ""
    cite: str = ""
    state: str = "set"  # set: it was not; held: it stands there so already


class Clash(Noun):
    """A variable that the user has set to something else; the user's value stays."""

    name: str
    have: str
    wants: str
    by: str
    then: str  # what comes of it
    why: str = ""
    cite: str = ""


class Settings(Noun):
    """The environment variables for one framework, in one kind of process, on one machine."""

    framework: str
    version: str
    variant: str = ""
    role: str = ""
    roles: tuple[str, ...] = ()  # the kinds of process that the framework has
    machine: str = ""
    torch: str = ""  # what the names were chosen for; empty where it is not known
    variables: tuple[Setting, ...] = ()
    conflicts: tuple[Clash, ...] = ()
    left: tuple[Setting, ...] = ()  # what the framework sets itself, process by process or for a moment
    notes: tuple[str, ...] = ()

    _nested = {"variables": Setting, "conflicts": Clash, "left": Setting}

    @property
    def name(self) -> str:
        return f"{self.framework} {self.version}" + (f":{self.variant}" if self.variant else "")
