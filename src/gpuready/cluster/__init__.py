"""Find out from a launcher's variables which process of which job this is.

Pure: a mapping in, a Rendezvous out; all problems are reported together. Launchers are tried in the order of
``LAUNCHERS``, the innermost first. An outer one that disagrees is either explained (srun started one torchrun
on each node) or refused with a table of what each says.
"""

from __future__ import annotations

from gpuready.cluster import sources
from gpuready.cluster.address import derived_port, host, port
from gpuready.cluster.sources import LAUNCHERS, Claim, Reader
from gpuready.noun import Noun

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["LAUNCHERS", "Claim", "Rendezvous", "Unclear", "discover"]

COMPARED = ("rank", "world_size", "local_rank", "local_world_size")
FILLED = ("world_size", "local_rank", "local_world_size", "node", "nodes", "hosts", "tasks", "key")
"""Fields a launcher does not give are taken from one that agrees with it (srun gives PMIx's rank beside its own)."""

HERE = "127.0.0.1"
TORCH_STYLE = ("torchrun", "ray", "kubernetes")


class Rendezvous(Noun):
    """Which rank this process is, of how many, and where they meet."""

    rank: int = 0
    world_size: int = 1
    local_rank: int | None = 0  # None: unknown, to be taken from the local devices
    local_world_size: int = 0  # 0: unknown; the roll-call counts
    node: int = 0
    nodes: int = 0  # 0: unknown
    address: str = HERE
    port: int = 0  # 0: no peers
    launcher: str = "single"
    run_id: str = ""
    hosts: tuple[str, ...] = ()  # as the launcher names the nodes
    tasks: tuple[int, ...] = ()  # ranks on each of them
    agent_store: bool = False  # torchrun's agent has a store at this address
    restart: int = 0
    counts: str = "ranks"  # or "nodes": each process stands for a node (ROLL's driver)
    notes: tuple[str, ...] = ()

    def expected(self, rank: int) -> str:
        """Describe a rank: ``rank 2 (expected on gpu-2, local rank 0, srun task 2)``."""
        words, first = [], 0
        for number, count in enumerate(self._layout()):
            if first <= rank < first + count:
                name = self.hosts[number] if number < len(self.hosts) else f"node {number}"
                words = [f"expected on {name}", f"local rank {rank - first}"]
            first += count
        task = {"slurm": "srun task", "openmpi": "mpirun rank", "mpich": "mpiexec rank"}.get(self.launcher)
        words += [f"{task} {rank}"] if task else []
        return f"rank {rank}" + (f" ({', '.join(words)})" if words else "")

    def _layout(self) -> tuple[int, ...]:
        if self.tasks:
            return self.tasks
        each = self.local_world_size
        return (each,) * (self.world_size // each) if each and self.world_size % each == 0 else ()


class Unclear(ValueError):
    """The variables do not identify this process: all problems, and a table if sources differ."""

    def __init__(
        self, problems: Sequence[str], table: Sequence[Claim] = (), partial: Rendezvous | None = None
    ):
        self.problems, self.table = tuple(problems), tuple(table)
        self.partial = partial or Rendezvous()  # as far as it could be read: where to report the problem
        self.code = _code(self.problems)
        super().__init__(_text(self.problems, self.table, self.code))


def discover(
    environ: Mapping[str, str],
    launcher: str | None = None,
    *,
    framework: str = "",
    given: Mapping[str, object] | None = None,
) -> Rendezvous:
    """Return the Rendezvous that the variables describe; RendezvousUnclear with all problems if they do not.

    ``launcher`` (or GPUREADY_LAUNCHER) makes only that launcher count. ``arguments`` (rank, world_size,
    local_rank, host, port) override every variable.
    """
    forced = launcher or environ.get("GPUREADY_LAUNCHER", "").strip() or None
    if forced is not None and forced not in LAUNCHERS:
        raise Unclear([f"no launcher is called {forced!r}: it is one of {', '.join(LAUNCHERS)}"])
    said = {name: value for name, value in (given or {}).items() if value is not None}
    read = Reader(environ)
    claims = _claims(read, forced, framework)
    chosen, rivals = _chosen(read, claims, forced, said)
    table = () if forced or _argued(said) else _contradicting(chosen, rivals)
    if table:
        read.problem(_contradiction(table))
    _complete(read, chosen)
    found = _meeting(read, chosen, said, framework)
    if read.problems:
        raise Unclear(read.problems, table, found)
    return found


def _claims(read: Reader, forced: str | None, framework: str) -> list[Claim]:
    """Read what each launcher says; a forced one is read alone."""
    if forced == "single":
        return []
    if forced in TORCH_STYLE:
        found = [sources.torch_style(read, forced, framework)]
    elif forced:
        found = [getattr(sources, forced)(read)]
    else:
        found = [sources.torch_style(read, "", framework), sources.openmpi(read), sources.mpich(read)]
        found.append(sources.slurm(read))
    present = [claim for claim in found if claim is not None]
    if forced and not present:
        read.problem(f"the launcher is said to be {forced}, and none of its variables is set")
    return present


def _argued(said: Mapping[str, object]) -> bool:
    return "rank" in said and "world_size" in said


def _chosen(
    read: Reader, claims: list[Claim], forced: str | None, said: Mapping[str, object]
) -> tuple[Claim, list[Claim]]:
    """Return the claim that counts, and the others. A complete one precedes one without rank or size."""
    numbers = {name: _given(read, name, said[name]) for name in COMPARED if name in said}
    order = sorted(claims, key=lambda claim: not claim.complete)
    if _argued(said):
        agreeing = [c for c in order if (c.rank, c.world_size) == (numbers["rank"], numbers["world_size"])]
        return (agreeing[0] if agreeing else Claim("arguments")).but(launcher="arguments", **numbers), claims
    if not order:
        return Claim(forced or "single", 0, 1, 0, 1, 0, 1).but(**numbers), []
    first, rest = order[0], order[1:]
    for other in rest:
        if first.rank == other.rank and first.world_size in (None, other.world_size):
            gaps = {name: getattr(other, name) for name in FILLED if getattr(first, name) in (None, (), "")}
            # srun speaks PMI and PMIx too; the tasks are still its own.
            by_srun = other.launcher == "slurm" and not other.outer and first.launcher in ("openmpi", "mpich")
            first = first.but(**gaps, **({"launcher": "slurm"} if by_srun else {}))
    return first.but(**numbers), rest


def _given(read: Reader, name: str, value: object) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    read.problem(f"the argument {name} is {value!r}, which is no whole number from 0 on")
    return None


def _complete(read: Reader, chosen: Claim) -> None:
    """Report missing values, and ranks that are not below their sizes."""
    asked = {"rank": chosen.rank, "world_size": chosen.world_size, "local_rank": chosen.local_rank}
    if chosen.launcher == "arguments" or chosen.world_size == 1:
        asked.pop("local_rank")
    for field, value in asked.items():
        name = _variable(chosen, field)
        if value is None and not any(
            said.startswith((f"{name} is", f"the argument {field}")) for said in read.problems
        ):
            read.problem(f"{name} is not set")
    for field, size in (("rank", "world_size"), ("local_rank", "local_world_size")):
        which, of = getattr(chosen, field), getattr(chosen, size)
        if which is not None and of is not None and which >= of > 0:
            read.problem(
                f"{_variable(chosen, field)} is {which} and {_variable(chosen, size)} {of}: ranks count from 0"
            )
    world, here = chosen.world_size, chosen.local_world_size
    if world and here and here > world:
        read.problem(
            f"{_variable(chosen, 'local_world_size')} is {here} and {_variable(chosen, 'world_size')} only {world}"
        )


NAMED = {
    "openmpi": ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    "mpich": ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    "slurm": ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_TASKS_PER_NODE"),
}  # fmt: skip
OF_ENVIRONMENT = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")


def _variable(chosen: Claim, field: str) -> str:
    return NAMED.get(chosen.launcher, OF_ENVIRONMENT)[COMPARED.index(field)]


# -- sources that contradict each other -----------------------------------------------------------------


def _contradicting(chosen: Claim, rivals: list[Claim]) -> tuple[Claim, ...]:
    against = [other for other in rivals if _differs(chosen, other) and not _explained(chosen, other)]
    return (chosen, *against) if against else ()


def _differs(one: Claim, other: Claim) -> bool:
    pairs = ((getattr(one, field), getattr(other, field)) for field in COMPARED)
    return any(a is not None and b is not None and a != b for a, b in pairs)


def _explained(inner: Claim, outer: Claim) -> bool:
    """Whether the outer launcher started the inner one: alone, from a batch script, or once on each node."""
    if outer.outer or outer.world_size == 1:
        return True
    return inner.nodes is not None and (outer.world_size, outer.rank) == (inner.nodes, inner.node)


def _contradiction(table: Sequence[Claim]) -> str:
    first, others = table[0], table[1:]
    said = f"{first.launcher} and {' and '.join(one.launcher for one in others)} say different things of this process"
    by_node = [
        o for o in others if o.node is not None and (o.node, o.nodes) == (first.rank, first.world_size)
    ]
    if by_node:
        return (
            f"{said}; RANK and WORLD_SIZE look like numbers of nodes, as ROLL means them (framework='roll')"
        )
    return said


# -- address and port -----------------------------------------------------------------------------------


def _meeting(read: Reader, chosen: Claim, said: Mapping[str, object], framework: str) -> Rendezvous:
    environ, notes = read.environ, []
    world = chosen.world_size or 1
    alone = chosen.world_size == 1
    where, note = _address(read, chosen, said, alone)
    notes += [note] if note else []
    if chosen.outer and world > 1 and chosen.launcher == "slurm":
        notes.append("this is the batch script itself, and no task of srun: start the ranks with srun")
    by_node = chosen.launcher in TORCH_STYLE and sources.node_meaning(environ, framework)
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
        _port(read, chosen, said, alone),
        chosen.launcher,
        _run_id(read, chosen),
        chosen.hosts,
        chosen.tasks,
        environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True" and chosen.launcher == "torchrun" and world > 1,
        read.number("TORCHELASTIC_RESTART_COUNT") or 0,
        "nodes" if by_node else "ranks",
        tuple(notes),
    )


def _run_id(read: Reader, chosen: Claim) -> str:
    """Return what distinguishes this job from another at the same address. torchrun's "none" does not."""
    own = read.text("GPUREADY_RUN_ID")
    return own or ("" if chosen.key == "none" else chosen.key)


def _address(read: Reader, chosen: Claim, said: Mapping[str, object], alone: bool) -> tuple[str, str]:
    """Return the normalized MASTER_ADDR, or the job's first host if the launcher names its hosts."""
    if "host" in said or "MASTER_ADDR" in read.environ:
        name = "the argument host" if "host" in said else "MASTER_ADDR"
        text = str(said["host"]) if "host" in said else read.environ["MASTER_ADDR"]
        try:
            return host(text, name)
        except ValueError as wrong:
            if not alone or "host" in said:
                read.problem(str(wrong))
            return HERE, ""
    if chosen.hosts:
        return chosen.hosts[0], ""
    one_node = chosen.nodes == 1 or (chosen.local_world_size or 0) >= (chosen.world_size or 2)
    unread = any("node list" in problem for problem in read.problems)
    if not alone and not unread and not (one_node and chosen.launcher not in TORCH_STYLE):
        read.problem("MASTER_ADDR is not set: name the host of rank 0")
    return HERE, ""


def _port(read: Reader, chosen: Claim, said: Mapping[str, object], alone: bool) -> int:
    """Return MASTER_PORT, or one that all ranks derive from the job's name if the launcher gives none."""
    text = str(said["port"]) if "port" in said else read.environ.get("MASTER_PORT")
    if text is not None:
        try:
            return port(text, "the argument port" if "port" in said else "MASTER_PORT")
        except ValueError as wrong:
            if not alone or "port" in said:
                read.problem(str(wrong))
            return 0
    if not alone and chosen.key and chosen.launcher not in TORCH_STYLE:
        return derived_port(f"{chosen.launcher} {chosen.key}")
    if not alone:
        read.problem("MASTER_PORT is not set: name a free port, the same for all ranks, such as 29500")
    return 0


# -- error text -----------------------------------------------------------------------------------------


def _code(problems: Sequence[str]) -> str:
    return _rule(problems[0])


def _rule(said: str) -> str:
    if "MASTER_PORT" in said and "MASTER_ADDR" not in said:
        return "NET007"
    if "Slurm" in said or "SLURM_" in said or "node list" in said:
        return "RUN004"
    return "NET006"


def _text(problems: Sequence[str], table: Sequence[Claim], code: str) -> str:
    said = f"this process cannot be placed in its job: {'; '.join(problems)} [{code}]"
    return "\n".join([said, *_rows(table), *([_advice(table)] if table else [])])


def _rows(table: Sequence[Claim]) -> list[str]:
    if not table:
        return []
    heads = ("source", "rank", "of", "local rank", "of", "from")
    rows: list[tuple[str, ...]] = [heads]
    for one in table:
        numbers = (one.rank, one.world_size, one.local_rank, one.local_world_size)
        shown = tuple("-" if n is None else str(n) for n in numbers)
        rows.append((one.launcher, *shown, ", ".join(one.names[:3])))
    widths = [max(len(row[at]) for row in rows) for at in range(len(heads) - 1)]
    return [
        "  " + "  ".join([*(c.ljust(w) for c, w in zip(row, widths, strict=False)), row[-1]]) for row in rows
    ]


def _advice(table: Sequence[Claim]) -> str:
    first = table[0].launcher
    return (
        f"{first} would win, because the innermost launcher is asked first ({', '.join(LAUNCHERS)}). "
        f"Unset what is left over from the others, or force one: launcher={first!r} or GPUREADY_LAUNCHER={first}"
    )
