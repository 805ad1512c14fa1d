"""One small reader for each launcher's variables; none of them judges."""

from __future__ import annotations

from gpuready.cluster import nodelist
from gpuready.cluster.address import whole
from gpuready.noun import Noun

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

LAUNCHERS = ("torchrun", "ray", "kubernetes", "openmpi", "mpich", "slurm", "single")
"""In the order of reading, the innermost first: srun or mpirun may have started torchrun, never the other way
round. The first three set the same variables; other variables tell them apart."""

OF_TORCH = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
OF_RAY = ("RAY_JOB_ID", "RAY_RAYLET_PID", "RAY_WORKER_ID", "RAY_ACTOR_ID", "RAY_TRAIN_WORLD_SIZE")


class Claim(Noun):
    """What one launcher says about this process; None if it says nothing."""

    launcher: str
    rank: int | None = None
    world_size: int | None = None
    local_rank: int | None = None
    local_world_size: int | None = None
    node: int | None = None
    nodes: int | None = None
    hosts: tuple[str, ...] = ()
    tasks: tuple[int, ...] = ()
    names: tuple[str, ...] = ()  # the variables that it was read from
    key: str = ""  # what distinguishes this job from another
    outer: bool = False  # a batch script: the process from which others are started

    @property
    def complete(self) -> bool:
        return self.rank is not None and self.world_size is not None


class Reader:
    """Reads an environment and collects all problems."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.environ = environ
        self.problems: list[str] = []
        self.read: list[str] = []

    def number(self, *names: str, least: int = 0) -> int | None:
        """Return the first of these variables that is set, as a whole number."""
        name = next((one for one in names if one in self.environ), None)
        if name is None:
            return None
        self.read.append(name)
        try:
            found = whole(self.environ[name], name)
        except ValueError as wrong:
            self.problem(str(wrong))
            return None
        if found < least:
            self.problem(f"{name} is {found}, and must be at least {least}")
        return found

    def text(self, *names: str) -> str:
        return next((self.environ[one].strip() for one in names if self.environ.get(one, "").strip()), "")

    def problem(self, said: str) -> None:
        if said not in self.problems:
            self.problems.append(said)

    def taken(self) -> tuple[str, ...]:
        names, self.read = tuple(dict.fromkeys(self.read)), []
        return names


def torch_style(read: Reader, launcher: str = "", framework: str = "") -> Claim | None:
    """RANK and the like, as torchrun, accelerate, deepspeed, Ray Train, a PyTorchJob and gpuready set them."""
    if not any(name in read.environ for name in OF_TORCH):
        return None
    counts_nodes = node_meaning(read.environ, framework)
    claim = Claim(
        launcher or _of_torch(read.environ),
        read.number("RANK"),
        read.number("WORLD_SIZE", least=1),
        read.number("LOCAL_RANK"),
        read.number("LOCAL_WORLD_SIZE", least=1),
        read.number("GROUP_RANK", "NODE_RANK"),
        read.number("GROUP_WORLD_SIZE", "NNODES", least=1),
        names=read.taken(),
        key=read.text("TORCHELASTIC_RUN_ID", "RAY_JOB_ID"),
    )
    if counts_nodes or (claim.launcher == "kubernetes" and claim.local_rank is None):
        return claim.but(local_rank=0, local_world_size=1, node=claim.rank, nodes=claim.world_size)
    return _with_nodes(claim)


def node_meaning(environ: Mapping[str, str], framework: str) -> bool:
    """Whether RANK counts nodes and WORLD_SIZE all nodes (ROLL's driver). ROLL's workers have more variables."""
    return framework == "roll" and "LOCAL_RANK" not in environ and "WORKER_NAME" not in environ


def _of_torch(environ: Mapping[str, str]) -> str:
    if "TORCHELASTIC_RUN_ID" in environ:
        return "torchrun"
    if any(name in environ for name in OF_RAY):
        return "ray"
    in_pod = "KUBERNETES_SERVICE_HOST" in environ and "LOCAL_RANK" not in environ
    return "kubernetes" if in_pod else "torchrun"


def _with_nodes(claim: Claim) -> Claim:
    """Derive the node and the number of nodes if the nodes are equal."""
    here, world, rank = claim.local_world_size, claim.world_size, claim.rank
    if not here or not world or rank is None or world % here:
        return claim
    nodes = claim.nodes if claim.nodes is not None else world // here
    return claim.but(nodes=nodes, node=claim.node if claim.node is not None else rank // here)


def openmpi(read: Reader) -> Claim | None:
    """Open MPI's own variables, or only PMIx's rank (which srun sets too)."""
    claim = Claim(
        "openmpi",
        read.number("OMPI_COMM_WORLD_RANK", "PMIX_RANK"),
        read.number("OMPI_COMM_WORLD_SIZE", least=1),
        read.number("OMPI_COMM_WORLD_LOCAL_RANK"),
        read.number("OMPI_COMM_WORLD_LOCAL_SIZE", least=1),
        names=read.taken(),
        key=read.text("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_ess_jobid"),
    )
    return _with_nodes(claim) if claim.names else None


def mpich(read: Reader) -> Claim | None:
    """PMI, as MPICH, Intel MPI and MVAPICH set it."""
    claim = Claim(
        "mpich",
        read.number("PMI_RANK", "MV2_COMM_WORLD_RANK"),
        read.number("PMI_SIZE", "MV2_COMM_WORLD_SIZE", least=1),
        read.number("MPI_LOCALRANKID", "MV2_COMM_WORLD_LOCAL_RANK"),
        read.number("MPI_LOCALNRANKS", "MV2_COMM_WORLD_LOCAL_SIZE", least=1),
        names=read.taken(),
        key=read.text("HYDRA_JOB_ID", "MPIEXEC_JOBID", "PBS_JOBID"),
    )
    return _with_nodes(claim) if claim.names else None


def slurm(read: Reader) -> Claim | None:
    """A task of srun. Values of the step take precedence over those of the job."""
    if "SLURM_PROCID" not in read.environ:
        return None
    hosts, tasks = _slurm_lists(read)
    rank, node = read.number("SLURM_PROCID"), read.number("SLURM_NODEID")
    here = tasks[node] if node is not None and node < len(tasks) else None
    claim = Claim(
        "slurm",
        rank,
        read.number("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS", least=1),
        read.number("SLURM_LOCALID"),
        here,
        node,
        read.number("SLURM_STEP_NUM_NODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES", least=1),
        hosts,
        tasks,
        read.taken(),
        ".".join(filter(None, (read.text("SLURM_JOB_ID", "SLURM_JOBID"), _step(read)))),
        _batch(read, rank),
    )
    _slurm_sums(read, claim)
    return (
        claim if claim.local_world_size or claim.nodes != 1 else claim.but(local_world_size=claim.world_size)
    )


def _step(read: Reader) -> str:
    return read.text("SLURM_STEP_ID", "SLURM_STEPID")


def _batch(read: Reader, rank: int | None) -> bool:
    """Whether this is an sbatch script: no step, or the step that Slurm reserves for scripts (2 ** 32 - 5)."""
    return rank == 0 and (not _step(read) or _step(read) == "4294967291")


def _slurm_lists(read: Reader) -> tuple[tuple[str, ...], tuple[int, ...]]:
    names = ("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST")
    texts = (read.text(*names), read.text("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"))
    hosts: tuple[str, ...] = ()
    tasks: tuple[int, ...] = ()
    try:
        hosts = nodelist.expand(texts[0]) if texts[0] else ()
        tasks = nodelist.tasks(texts[1]) if texts[1] else ()
    except ValueError as wrong:
        read.problem(str(wrong))
    return hosts, tasks


def _slurm_sums(read: Reader, claim: Claim) -> None:
    """Check that the counts that Slurm gives twice agree."""
    world, nodes = claim.world_size, claim.nodes
    each = read.number("SLURM_NTASKS_PER_NODE", least=1)
    read.taken()
    if claim.hosts and nodes and len(claim.hosts) != nodes:
        named = ", ".join(claim.hosts[:4]) + (" …" if len(claim.hosts) > 4 else "")
        read.problem(
            f"the node list of Slurm names {len(claim.hosts)} hosts ({named}) and the job has {nodes}"
        )
    if claim.tasks and world and sum(claim.tasks) != world:
        read.problem(f"SLURM_TASKS_PER_NODE adds up to {sum(claim.tasks)} and SLURM_NTASKS is {world}")
    elif not claim.tasks and each and nodes and world and each * nodes != world:
        said = f"SLURM_NTASKS is {world}, and {each} tasks on each of {nodes} nodes are {each * nodes}"
        read.problem(said)
