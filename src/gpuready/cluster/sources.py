"""One small reader for each launcher's variables; none of them judges."""

from __future__ import annotations

from collections.abc import Mapping

from gpuready.cluster.address import is_pod, parse_whole_number, read_pod_nodes
from gpuready.model import node_names
from gpuready.model.record import Record

LAUNCHERS = ("torchrun", "ray", "kubernetes", "openmpi", "mpich", "slurm", "single")
"""In the order of reading, the innermost first: srun or mpirun may have started torchrun, never the other way
round. The first three set the same variables; other variables tell them apart."""

TORCH_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
RAY_VARIABLES = ("RAY_JOB_ID", "RAY_RAYLET_PID", "RAY_WORKER_ID", "RAY_ACTOR_ID", "RAY_TRAIN_WORLD_SIZE")


class LauncherClaim(Record):
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
    def is_complete(self) -> bool:
        return self.rank is not None and self.world_size is not None


def _rule_of_variable(name: str) -> str:
    return "RUN004" if name.startswith("SLURM_") else "NET006"


class EnvironReader:
    """Reads an environment and collects all problems."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.environ = environ
        self.problems: dict[str, str] = {}  # with the code of its rule
        self.invalid: set[str] = set()  # variables and arguments of which a problem tells
        self.names_read: list[str] = []

    def read_number(self, *names: str, least: int = 0) -> int | None:
        """Return the first of these variables that is set, as a whole number."""
        name = next((one for one in names if one in self.environ), None)
        if name is None:
            return None
        self.names_read.append(name)
        try:
            number = parse_whole_number(self.environ[name], name)
        except ValueError as error:
            self.add_problem(str(error), _rule_of_variable(name), name)
            return None
        if number < least:
            self.add_problem(f"{name} is {number}, and must be at least {least}", _rule_of_variable(name), name)
        return number

    def read_text(self, *names: str) -> str:
        return next((self.environ[one].strip() for one in names if self.environ.get(one, "").strip()), "")

    def add_problem(self, message: str, code: str = "NET006", name: str = "") -> None:
        self.problems.setdefault(message, code)
        self.invalid.add(name)

    def take_names_read(self) -> tuple[str, ...]:
        names, self.names_read = tuple(dict.fromkeys(self.names_read)), []
        return names


def read_torch_style(reader: EnvironReader, launcher: str = "", framework: str = "") -> LauncherClaim | None:
    """RANK and the like, as torchrun, accelerate, deepspeed, Ray Train, a PyTorchJob and gpuready set them."""
    if not any(name in reader.environ for name in TORCH_VARIABLES):
        return None
    counts_nodes = rank_counts_nodes(reader.environ, framework)
    claim = LauncherClaim(
        launcher or _torch_style_launcher(reader.environ),
        reader.read_number("RANK", *(["JOB_COMPLETION_INDEX"] if is_pod(reader.environ) else [])),
        reader.read_number("WORLD_SIZE", least=1),
        reader.read_number("LOCAL_RANK"),
        reader.read_number("LOCAL_WORLD_SIZE", least=1),
        reader.read_number("GROUP_RANK", "NODE_RANK"),
        reader.read_number("GROUP_WORLD_SIZE", "NNODES", least=1),
        names=reader.take_names_read(),
        key=reader.read_text("TORCHELASTIC_RUN_ID", "RAY_JOB_ID"),
    )
    in_pod = claim.launcher == "kubernetes" and claim.local_rank is None
    if in_pod and not counts_nodes:
        _check_processes_per_pod(reader)
    if counts_nodes or in_pod:
        return claim.replace(local_rank=0, local_world_size=1, node=claim.rank, nodes=claim.world_size)
    return _derive_nodes(claim)


def read_pod(reader: EnvironReader) -> LauncherClaim | None:
    """A TrainJob's pod, which has torchrun's PET_* variables alone: one process in a pod is a rank."""
    found = read_pod_nodes(reader.environ)
    if "PET_NNODES" not in reader.environ or not is_pod(reader.environ):
        return None
    if found.problem:
        reader.add_problem(found.problem)
    _check_processes_per_pod(reader)
    names = ("PET_NNODES", "PET_NODE_RANK")
    return LauncherClaim("kubernetes", found.node, found.nodes, 0, 1, found.node, found.nodes, names=names)


def _check_processes_per_pod(reader: EnvironReader) -> None:
    each = reader.environ.get("PET_NPROC_PER_NODE", "").strip()
    if each.isdigit() and int(each) > 1:
        start = "start the script with gpuready run or torchrun, which start them"
        reader.add_problem(f"PET_NPROC_PER_NODE is {each}, and this process is alone in its pod: {start}")


def rank_counts_nodes(environ: Mapping[str, str], framework: str) -> bool:
    """Whether RANK counts nodes and WORLD_SIZE all nodes (ROLL's driver). ROLL's workers have more variables."""
    return framework == "roll" and "LOCAL_RANK" not in environ and "WORKER_NAME" not in environ


def _torch_style_launcher(environ: Mapping[str, str]) -> str:
    if "TORCHELASTIC_RUN_ID" in environ:
        return "torchrun"
    if any(name in environ for name in RAY_VARIABLES):
        return "ray"
    in_pod = is_pod(environ) and "LOCAL_RANK" not in environ
    return "kubernetes" if in_pod else "torchrun"


def _derive_nodes(claim: LauncherClaim) -> LauncherClaim:
    """Derive the node and the number of nodes if the nodes are equal."""
    here, world, rank = claim.local_world_size, claim.world_size, claim.rank
    if not here or not world or rank is None or world % here:
        return claim
    nodes = claim.nodes if claim.nodes is not None else world // here
    return claim.replace(nodes=nodes, node=claim.node if claim.node is not None else rank // here)


def read_openmpi(reader: EnvironReader) -> LauncherClaim | None:
    """Open MPI's own variables, or only PMIx's rank (which srun sets too)."""
    claim = LauncherClaim(
        "openmpi",
        reader.read_number("OMPI_COMM_WORLD_RANK", "PMIX_RANK"),
        reader.read_number("OMPI_COMM_WORLD_SIZE", least=1),
        reader.read_number("OMPI_COMM_WORLD_LOCAL_RANK"),
        reader.read_number("OMPI_COMM_WORLD_LOCAL_SIZE", least=1),
        names=reader.take_names_read(),
        key=reader.read_text("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_ess_jobid"),
    )
    return _derive_nodes(claim) if claim.names else None


def read_mpich(reader: EnvironReader) -> LauncherClaim | None:
    """PMI, as MPICH, Intel MPI and MVAPICH set it."""
    claim = LauncherClaim(
        "mpich",
        reader.read_number("PMI_RANK", "MV2_COMM_WORLD_RANK"),
        reader.read_number("PMI_SIZE", "MV2_COMM_WORLD_SIZE", least=1),
        reader.read_number("MPI_LOCALRANKID", "MV2_COMM_WORLD_LOCAL_RANK"),
        reader.read_number("MPI_LOCALNRANKS", "MV2_COMM_WORLD_LOCAL_SIZE", least=1),
        names=reader.take_names_read(),
        key=reader.read_text("HYDRA_JOB_ID", "MPIEXEC_JOBID", "PBS_JOBID"),
    )
    return _derive_nodes(claim) if claim.names else None


def read_slurm(reader: EnvironReader) -> LauncherClaim | None:
    """A task of srun. Values of the step take precedence over those of the job."""
    if "SLURM_PROCID" not in reader.environ:
        return None
    hosts, tasks = _read_slurm_lists(reader)
    rank, node = reader.read_number("SLURM_PROCID"), reader.read_number("SLURM_NODEID")
    here = tasks[node] if node is not None and node < len(tasks) else None
    claim = LauncherClaim(
        "slurm",
        rank,
        reader.read_number("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS", least=1),
        reader.read_number("SLURM_LOCALID"),
        here,
        node,
        reader.read_number("SLURM_STEP_NUM_NODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES", least=1),
        hosts,
        tasks,
        reader.take_names_read(),
        ".".join(filter(None, (reader.read_text("SLURM_JOB_ID", "SLURM_JOBID"), _slurm_step_id(reader)))),
        _is_batch_script(reader, rank),
    )
    _check_slurm_counts(reader, claim)
    return claim if claim.local_world_size or claim.nodes != 1 else claim.replace(local_world_size=claim.world_size)


def _slurm_step_id(reader: EnvironReader) -> str:
    return reader.read_text("SLURM_STEP_ID", "SLURM_STEPID")


def _is_batch_script(reader: EnvironReader, rank: int | None) -> bool:
    """Whether this is an sbatch script: no step, or the step that Slurm reserves for scripts (2 ** 32 - 5)."""
    return rank == 0 and (not _slurm_step_id(reader) or _slurm_step_id(reader) == "4294967291")


def _read_slurm_lists(reader: EnvironReader) -> tuple[tuple[str, ...], tuple[int, ...]]:
    names = ("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST")
    texts = (reader.read_text(*names), reader.read_text("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"))
    hosts: tuple[str, ...] = ()
    tasks: tuple[int, ...] = ()
    try:
        hosts = node_names.expand_nodelist(texts[0]) if texts[0] else ()
        tasks = node_names.parse_tasks_per_node(texts[1]) if texts[1] else ()
    except ValueError as error:
        reader.add_problem(str(error), "RUN004", "node list")
    return hosts, tasks


def _check_slurm_counts(reader: EnvironReader, claim: LauncherClaim) -> None:
    """Check that the counts that Slurm gives twice agree."""
    world, nodes = claim.world_size, claim.nodes
    each = reader.read_number("SLURM_NTASKS_PER_NODE", least=1)
    reader.take_names_read()
    if claim.hosts and nodes and len(claim.hosts) != nodes:
        named = ", ".join(claim.hosts[:4]) + (" …" if len(claim.hosts) > 4 else "")
        message = f"the node list of Slurm names {len(claim.hosts)} hosts ({named}) and the job has {nodes}"
        reader.add_problem(message, "RUN004", "node list")
    if claim.tasks and world and sum(claim.tasks) != world:
        reader.add_problem(f"SLURM_TASKS_PER_NODE adds up to {sum(claim.tasks)} and SLURM_NTASKS is {world}", "RUN004")
    elif not claim.tasks and each and nodes and world and each * nodes != world:
        message = f"SLURM_NTASKS is {world}, and {each} tasks on each of {nodes} nodes are {each * nodes}"
        reader.add_problem(message, "RUN004")
