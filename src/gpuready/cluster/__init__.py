"""Find out from a launcher's variables which process of which job this is.

Pure: a mapping in, a Rendezvous out; all problems are reported together. Launchers are tried in the order of
``LAUNCHERS``, the innermost first. An outer one that disagrees is either explained (srun started one torchrun
on each node) or refused with a table of what each says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpuready.cluster import sources
from gpuready.cluster.address import derive_job_port, parse_host_address, parse_port
from gpuready.cluster.sources import LAUNCHERS, EnvironReader, LauncherClaim
from gpuready.model.record import Record

__all__ = ["LAUNCHERS", "LauncherClaim", "Rendezvous", "RendezvousUnclear", "discover_rendezvous"]

COMPARED_FIELDS = ("rank", "world_size", "local_rank", "local_world_size")
FILLED_FIELDS = ("world_size", "local_rank", "local_world_size", "node", "nodes", "hosts", "tasks", "key")
"""Fields a launcher does not give are taken from one that agrees with it (srun gives PMIx's rank beside its own)."""

LOOPBACK = "127.0.0.1"
TORCH_STYLE_LAUNCHERS = ("torchrun", "ray", "kubernetes")


class Rendezvous(Record):
    """Which rank this process is, of how many, and where they meet."""

    rank: int = 0
    world_size: int = 1
    local_rank: int | None = 0  # None: unknown, to be taken from the local devices
    local_world_size: int = 0  # 0: unknown; the roll-call counts
    node: int = 0
    nodes: int = 0  # 0: unknown
    address: str = LOOPBACK
    port: int = 0  # 0: no peers
    launcher: str = "single"
    run_id: str = ""
    hosts: tuple[str, ...] = ()  # as the launcher names the nodes
    tasks: tuple[int, ...] = ()  # ranks on each of them
    agent_store: bool = False  # torchrun's agent has a store at this address
    restart: int = 0
    counts: str = "ranks"  # or "nodes": each process stands for a node (ROLL's driver)
    notes: tuple[str, ...] = ()

    def describe_expected_rank(self, rank: int) -> str:
        """Describe a rank: ``rank 2 (expected on gpu-2, local rank 0, srun task 2)``."""
        words, first = [], 0
        for number, count in enumerate(self._ranks_per_node()):
            if first <= rank < first + count:
                name = self.hosts[number] if number < len(self.hosts) else f"node {number}"
                words = [f"expected on {name}", f"local rank {rank - first}"]
            first += count
        task = {"slurm": "srun task", "openmpi": "mpirun rank", "mpich": "mpiexec rank"}.get(self.launcher)
        words += [f"{task} {rank}"] if task else []
        return f"rank {rank}" + (f" ({', '.join(words)})" if words else "")

    def _ranks_per_node(self) -> tuple[int, ...]:
        if self.tasks:
            return self.tasks
        each = self.local_world_size
        return (each,) * (self.world_size // each) if each and self.world_size % each == 0 else ()


class RendezvousUnclear(ValueError):
    """The variables do not identify this process: all problems, and a table if sources differ."""

    def __init__(
        self, problems: Mapping[str, str], table: Sequence[LauncherClaim] = (), partial: Rendezvous | None = None
    ):
        self.problems, self.table = tuple(problems), tuple(table)
        self.partial = partial or Rendezvous()  # as far as it could be read: where to report the problem
        self.code = next(iter(problems.values()))
        super().__init__(_format_unclear(self.problems, self.table, self.code))


def discover_rendezvous(
    environ: Mapping[str, str],
    launcher: str | None = None,
    *,
    framework: str = "",
    arguments: Mapping[str, object] | None = None,
) -> Rendezvous:
    """Return the Rendezvous that the variables describe; RendezvousUnclear with all problems if they do not.

    ``launcher`` (or GPUREADY_LAUNCHER) makes only that launcher count. ``arguments`` (rank, world_size,
    local_rank, host, port) override every variable.
    """
    forced = launcher or environ.get("GPUREADY_LAUNCHER", "").strip() or None
    if forced is not None and forced not in LAUNCHERS:
        raise RendezvousUnclear({f"no launcher is called {forced!r}: it is one of {', '.join(LAUNCHERS)}": "NET006"})
    arguments_set = {name: value for name, value in (arguments or {}).items() if value is not None}
    reader = EnvironReader(environ)
    claims = _read_claims(reader, forced, framework)
    chosen, rivals = _choose_claim(reader, claims, forced, arguments_set)
    table = () if forced or _rank_is_argument(arguments_set) else _find_contradictions(chosen, rivals)
    if table:
        reader.add_problem(_contradiction_text(table))
    _check_completeness(reader, chosen)
    rendezvous = _build_rendezvous(reader, chosen, arguments_set, framework)
    if reader.problems:
        raise RendezvousUnclear(reader.problems, table, rendezvous)
    return rendezvous


def _read_claims(reader: EnvironReader, forced: str | None, framework: str) -> list[LauncherClaim]:
    """Read what each launcher says; a forced one is read alone."""
    if forced == "single":
        return []
    if forced in TORCH_STYLE_LAUNCHERS:
        claims = [sources.read_torch_style(reader, forced, framework)]
        claims += [sources.read_pod(reader)] if forced == "kubernetes" and claims == [None] else []
    elif forced:
        claims = [getattr(sources, f"read_{forced}")(reader)]
    else:
        claims = [sources.read_torch_style(reader, "", framework) or sources.read_pod(reader)]
        claims += [sources.read_openmpi(reader), sources.read_mpich(reader), sources.read_slurm(reader)]
    present = [claim for claim in claims if claim is not None]
    if forced and not present:
        reader.add_problem(f"the launcher is said to be {forced}, and none of its variables is set")
    return present


def _rank_is_argument(arguments_set: Mapping[str, object]) -> bool:
    return "rank" in arguments_set and "world_size" in arguments_set


def _choose_claim(
    reader: EnvironReader, claims: list[LauncherClaim], forced: str | None, arguments_set: Mapping[str, object]
) -> tuple[LauncherClaim, list[LauncherClaim]]:
    """Return the claim that counts, and the others. A complete one precedes one without rank or size."""
    numbers = {
        name: _number_argument(reader, name, arguments_set[name]) for name in COMPARED_FIELDS if name in arguments_set
    }
    order = sorted(claims, key=lambda claim: not claim.is_complete)
    if _rank_is_argument(arguments_set):
        agreeing = [c for c in order if (c.rank, c.world_size) == (numbers["rank"], numbers["world_size"])]
        return (agreeing[0] if agreeing else LauncherClaim("arguments")).replace(
            launcher="arguments", **numbers
        ), claims
    if not order:
        return LauncherClaim(forced or "single", 0, 1, 0, 1, 0, 1).replace(**numbers), []
    first, rest = order[0], order[1:]
    for other in rest:
        if first.rank == other.rank and first.world_size in (None, other.world_size):
            gaps = {name: getattr(other, name) for name in FILLED_FIELDS if getattr(first, name) in (None, (), "")}
            # srun speaks PMI and PMIx too; the tasks are still its own.
            by_srun = other.launcher == "slurm" and not other.outer and first.launcher in ("openmpi", "mpich")
            first = first.replace(**gaps, **({"launcher": "slurm"} if by_srun else {}))
    return first.replace(**numbers), rest


def _number_argument(reader: EnvironReader, name: str, value: object) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    reader.add_problem(f"the argument {name} is {value!r}, which is not a whole number of 0 or more", name=name)
    return None


def _check_completeness(reader: EnvironReader, chosen: LauncherClaim) -> None:
    """Report missing values, and ranks that are not below their sizes."""
    required = {"rank": chosen.rank, "world_size": chosen.world_size, "local_rank": chosen.local_rank}
    if chosen.launcher == "arguments" or chosen.world_size == 1:
        required.pop("local_rank")
    for field, value in required.items():
        name = _variable_name(chosen, field)
        if value is None and reader.invalid.isdisjoint((name, field)):
            reader.add_problem(f"{name} is not set")
    for field, size in (("rank", "world_size"), ("local_rank", "local_world_size")):
        which, of = getattr(chosen, field), getattr(chosen, size)
        if which is not None and of is not None and which >= of > 0:
            reader.add_problem(
                f"{_variable_name(chosen, field)} is {which} and {_variable_name(chosen, size)} {of}: ranks count from 0"
            )
    world, here = chosen.world_size, chosen.local_world_size
    if world and here and here > world:
        reader.add_problem(
            f"{_variable_name(chosen, 'local_world_size')} is {here} and {_variable_name(chosen, 'world_size')} only {world}"
        )


VARIABLES_OF_LAUNCHER = {
    "openmpi": ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    "mpich": ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    "slurm": ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_TASKS_PER_NODE"),
}  # fmt: skip


def _variable_name(chosen: LauncherClaim, field: str) -> str:
    return VARIABLES_OF_LAUNCHER.get(chosen.launcher, sources.TORCH_VARIABLES)[COMPARED_FIELDS.index(field)]


# -- sources that contradict each other -----------------------------------------------------------------


def _find_contradictions(chosen: LauncherClaim, rivals: list[LauncherClaim]) -> tuple[LauncherClaim, ...]:
    against = [other for other in rivals if _claims_differ(chosen, other) and not _outer_started_inner(chosen, other)]
    return (chosen, *against) if against else ()


def _claims_differ(one: LauncherClaim, other: LauncherClaim) -> bool:
    pairs = ((getattr(one, field), getattr(other, field)) for field in COMPARED_FIELDS)
    return any(a is not None and b is not None and a != b for a, b in pairs)


def _outer_started_inner(inner: LauncherClaim, outer: LauncherClaim) -> bool:
    """Whether the outer launcher started the inner one: alone, from a batch script, or once on each node."""
    if outer.outer or outer.world_size == 1:
        return True
    return inner.nodes is not None and (outer.world_size, outer.rank) == (inner.nodes, inner.node)


def _contradiction_text(table: Sequence[LauncherClaim]) -> str:
    first, others = table[0], table[1:]
    headline = (
        f"{first.launcher} and {' and '.join(one.launcher for one in others)} say different things of this process"
    )
    by_node = [o for o in others if o.node is not None and (o.node, o.nodes) == (first.rank, first.world_size)]
    if by_node:
        return f"{headline}; RANK and WORLD_SIZE look like numbers of nodes, as ROLL means them (framework='roll')"
    return headline


# -- address and port -----------------------------------------------------------------------------------


def _build_rendezvous(
    reader: EnvironReader, chosen: LauncherClaim, arguments_set: Mapping[str, object], framework: str
) -> Rendezvous:
    environ, notes = reader.environ, []
    world = chosen.world_size or 1
    alone = chosen.world_size == 1
    where, note = _find_address(reader, chosen, arguments_set, alone)
    notes += [note] if note else []
    if chosen.outer and world > 1 and chosen.launcher == "slurm":
        notes.append("this is the batch script itself, and no task of srun: start the ranks with srun")
    by_node = chosen.launcher in TORCH_STYLE_LAUNCHERS and sources.rank_counts_nodes(environ, framework)
    if by_node:
        notes.append("RANK and WORLD_SIZE count nodes here (ROLL)")
    return Rendezvous(
        chosen.rank or 0,
        world,
        chosen.local_rank if chosen.local_rank is not None or world > 1 else 0,
        chosen.local_world_size or (1 if world == 1 else 0),
        chosen.node or 0,
        chosen.nodes or 0,
        where,
        _find_port(reader, chosen, arguments_set, alone),
        chosen.launcher,
        _find_run_id(reader, chosen),
        chosen.hosts,
        chosen.tasks,
        environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True" and chosen.launcher == "torchrun" and world > 1,
        reader.read_number("TORCHELASTIC_RESTART_COUNT") or 0,
        "nodes" if by_node else "ranks",
        tuple(notes),
    )


def _find_run_id(reader: EnvironReader, chosen: LauncherClaim) -> str:
    """Return what distinguishes this job from another at the same address. torchrun's "none" does not."""
    own = reader.read_text("GPUREADY_RUN_ID")
    return own or ("" if chosen.key == "none" else chosen.key)


def _master_variable(reader: EnvironReader, chosen: LauncherClaim, which: str) -> str:
    """MASTER_ADDR or MASTER_PORT; in a TrainJob's pod only torchrun's own variable is set."""
    plain = f"MASTER_{which}"
    return f"PET_{plain}" if chosen.launcher == "kubernetes" and plain not in reader.environ else plain


def _find_address(
    reader: EnvironReader, chosen: LauncherClaim, arguments_set: Mapping[str, object], alone: bool
) -> tuple[str, str]:
    """Return the normalized MASTER_ADDR, or the job's first host if the launcher names its hosts."""
    variable = _master_variable(reader, chosen, "ADDR")
    if "host" in arguments_set or variable in reader.environ:
        name = "the argument host" if "host" in arguments_set else variable
        text = str(arguments_set["host"]) if "host" in arguments_set else reader.environ[variable]
        try:
            return parse_host_address(text, name)
        except ValueError as error:
            if not alone or "host" in arguments_set:
                reader.add_problem(str(error))
            return LOOPBACK, ""
    if chosen.hosts:
        return chosen.hosts[0], ""
    one_node = chosen.nodes == 1 or (chosen.local_world_size or 0) >= (chosen.world_size or 2)
    if (
        not alone
        and "node list" not in reader.invalid
        and not (one_node and chosen.launcher not in TORCH_STYLE_LAUNCHERS)
    ):
        reader.add_problem("MASTER_ADDR is not set: name the host of rank 0")
    return LOOPBACK, ""


def _find_port(reader: EnvironReader, chosen: LauncherClaim, arguments_set: Mapping[str, object], alone: bool) -> int:
    """Return MASTER_PORT, or one that all ranks derive from the job's name if the launcher gives none."""
    variable = _master_variable(reader, chosen, "PORT")
    text = str(arguments_set["port"]) if "port" in arguments_set else reader.environ.get(variable)
    if text is not None:
        try:
            return parse_port(text, "the argument port" if "port" in arguments_set else variable)
        except ValueError as error:
            if not alone or "port" in arguments_set:
                reader.add_problem(str(error), "NET007")
            return 0
    if not alone and chosen.key and chosen.launcher not in TORCH_STYLE_LAUNCHERS:
        return derive_job_port(f"{chosen.launcher} {chosen.key}")
    if not alone:
        reader.add_problem("MASTER_PORT is not set: name a free port, the same for all ranks, such as 29500", "NET007")
    return 0


# -- error text -----------------------------------------------------------------------------------------


def _format_unclear(problems: Sequence[str], table: Sequence[LauncherClaim], code: str) -> str:
    headline = f"this process cannot be placed in its job: {'; '.join(problems)} [{code}]"
    return "\n".join([headline, *_format_claim_table(table), *([_contradiction_advice(table)] if table else [])])


def _format_claim_table(table: Sequence[LauncherClaim]) -> list[str]:
    if not table:
        return []
    heads = ("source", "rank", "of", "local rank", "of", "from")
    rows: list[tuple[str, ...]] = [heads]
    for one in table:
        numbers = (one.rank, one.world_size, one.local_rank, one.local_world_size)
        cells = tuple("-" if n is None else str(n) for n in numbers)
        rows.append((one.launcher, *cells, ", ".join(one.names[:3])))
    widths = [max(len(row[at]) for row in rows) for at in range(len(heads) - 1)]
    return ["  " + "  ".join([*(c.ljust(w) for c, w in zip(row, widths, strict=False)), row[-1]]) for row in rows]


def _contradiction_advice(table: Sequence[LauncherClaim]) -> str:
    first = table[0].launcher
    return (
        f"{first} would win, because the innermost launcher is asked first ({', '.join(LAUNCHERS)}). "
        f"Unset what is left over from the others, or force one: launcher={first!r} or GPUREADY_LAUNCHER={first}"
    )
