"""``gpuready run``: preflight, start the ranks, and diagnose why they died."""

from __future__ import annotations

import os

from gpuready import system
from gpuready.launcher import again, engines, preflight, script
from gpuready.launcher.book import Book
from gpuready.launcher.job import ENGINES, FAR, USELESS, Job, Outcome, Sight, Variable
from gpuready.workflow import looking
from gpuready.workflow.refusal import Refused, refusing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from gpuready.diagnosed import Diagnosis
    from gpuready.launcher.job import Attempt
    from gpuready.launcher.supervise import Teller
    from gpuready.model import Facts, Report


CHECKED = Variable(
    "TORCH_DISTRIBUTED_DEBUG", "DETAIL", "--check-collectives: torch compares each collective of all ranks"
)


class Prepared:
    """A run ready to start: the job, its preflight, and the contract's report where one was named."""

    def __init__(
        self, job: Job, sights: list[Sight], report: Report | None, environ: dict[str, str], mpi: str
    ):
        self.job, self.sights, self.report, self.environ, self.mpi = job, sights, report, environ, mpi

    @property
    def refused(self) -> int:
        """Exit code of the refusal; 0 where nothing prevents the start."""
        errors = [sight for sight in self.sights if sight.severity == "error"]
        return 0 if not errors else 2 if any(sight.usage for sight in errors) else 1


def prepare(words: Sequence[str], framework: str | None = None, *, flags: Mapping[str, Any]) -> Prepared:
    """Do everything up to the start; nothing is started."""
    if not words:
        raise Refused(
            "gpuready run needs a SCRIPT after --, such as gpuready run --nproc 2 -- train.py --lr 1e-4"
        )
    environ = dict(system.Live().environ())
    kind, words, python = script.kind_of(words, flags.get("python"))
    report = None
    if framework and not flags.get("no-preflight") and not _far(flags, environ):
        from gpuready import workflow

        report = workflow.check([framework], python=python)[0]
    facts = report.facts if report else _facts(python)
    job, given = _job(kind, tuple(words), python, facts, environ, flags)
    job = _with_variables(job, framework, python, environ, facts)
    if flags.get("check-collectives"):
        job = job.but(variables=(*job.variables, CHECKED))
    if job.engine in FAR and not flags.get("no-preflight"):
        job = job.but(looks=engines.looks(job))
    if flags.get("reap"):
        preflight.reap()
    sights = [] if flags.get("no-preflight") else _sights(job, facts, given, report, environ)
    mpi = _whose_mpi() if job.engine == "mpi" else "open"
    return Prepared(job, sights, report, environ, mpi)


def _far(flags: Mapping[str, Any], environ: Mapping[str, str]) -> bool:
    """Return whether the engine starts ranks on other nodes by itself."""
    nodes = _number(flags, "nnodes", None, 1), _number(flags, "node-rank", None, 0)
    return _engine(flags.get("engine"), *nodes, environ)[0] in FAR


def _facts(python: str | None) -> Facts:
    return looking.start(None, python, {}, None)[0]()


def _sights(
    job: Job, facts: Facts, given: bool, report: Report | None, environ: Mapping[str, str]
) -> list[Sight]:
    which = system.Live().which
    sights = preflight.looked(job, facts, which, given, environ)
    if job.engine in FAR:  # this may be a login node: the compute nodes check themselves
        told = f"{job.framework or 'each node'}: looked at on every node before its ranks begin"
        return [*(s for s in sights if s.what in ("script", "engine")), Sight("nodes", "ok", told)]
    if report is None:
        return sights
    name = report.contract.name
    errors = [finding for finding in report.findings if finding.severity == "error"]
    if not errors:
        return [Sight("contract", "ok", f"{name}: {report.verdict}"), *sights]
    fix = f"gpuready check {report.contract.framework} tells all of it; gpuready plan {report.contract.framework} --fix mends it"
    return [*(Sight("contract", "error", f"{name}: {e.says}", fix, code=e.code) for e in errors), *sights]


# -- the job ----------------------------------------------------------------------------------------------


def _job(
    kind: str,
    words: tuple[str, ...],
    python: str | None,
    facts: Facts,
    environ: Mapping[str, str],
    flags: Mapping[str, Any],
) -> tuple[Job, bool]:
    """Return the requested job, and whether its port was named."""
    nodes, node = _number(flags, "nnodes", None, 1), _number(flags, "node-rank", None, 0)
    engine, nodes, node, told = _engine(flags.get("engine"), nodes, node, environ)
    nnodes, node_rank = nodes or 1, node or 0
    nproc = _nproc(flags.get("nproc"), facts, engine, environ)
    master, port, given = _master(flags.get("master") or told, nnodes, engine)
    if nnodes > 1 and engine in ("local", "torchrun") and not given:
        raise Refused(
            f"--nnodes {nnodes} needs --master HOST:PORT, the same on every node, and --node-rank R on each"
        )
    if node_rank >= nnodes:
        raise Refused(f"--node-rank {node_rank} is none of {nnodes} nodes: they count from 0")
    forks, why = script.forked(kind, words, nproc, _has_torch(facts))
    if flags.get("fork") and (not forks or engine != "local"):
        raise Refused(
            f"--fork cannot be: {why if engine == 'local' else f'{engine} starts each rank by itself'}"
        )
    run_id = _run_id(environ)
    job = Job(
        engine=engine,
        python=_python(python, facts),
        kind=kind,
        words=words,
        nproc=nproc,
        nnodes=nnodes,
        node_rank=node_rank,
        master=master,
        port=port,
        run_id=_shared_id(run_id, engine, nnodes, master, port, environ),
        logs=os.path.abspath(str(flags.get("log-dir") or os.path.join("gpuready-logs", run_id))),
        restarts=_number(flags, "restarts", 0, 0) or 0,
        window=_seconds(flags, "window", environ.get("GPUREADY_START_WINDOW"), 60.0),
        hang=_seconds(flags, "hang-timeout", None, 0.0),
        preload=forks and engine == "local",
        start=why if engine == "local" else f"started by {engine}",
    )
    return job, given


def _engine(
    asked: str | None, nnodes: int | None, node: int | None, environ: Mapping[str, str]
) -> tuple[str, int | None, int | None, str]:
    """Choose the engine; inside Slurm also the nodes and the first node's address."""
    if asked is not None and asked not in ENGINES:
        raise Refused(f"--engine takes {', '.join(ENGINES)}, not {asked!r}")
    job, step = environ.get("SLURM_JOB_ID"), environ.get("SLURM_STEP_ID")
    slurm_nodes = int(environ.get("SLURM_NNODES") or environ.get("SLURM_JOB_NUM_NODES") or 1)
    if job and step and asked in (None, "torchrun") and slurm_nodes > 1 and nnodes is None:
        return _in_a_step(environ, slurm_nodes)
    if asked == "slurm" or (asked is None and job and not step and slurm_nodes > 1):
        return "slurm", nnodes or slurm_nodes, 0, ""
    if asked is not None:
        if asked == "local" and (nnodes or 1) > 1:
            raise Refused(
                f"--engine local starts ranks on this node alone: leave it out for --nnodes {nnodes}"
            )
        return asked, nnodes, node, ""
    return ("torchrun" if (nnodes or 1) > 1 else "local"), nnodes, node, ""


def _in_a_step(environ: Mapping[str, str], nodes: int) -> tuple[str, int, int, str]:
    """Return the nodes of an srun step with one gpuready per node: torchrun's agents find each other."""
    tasks = environ.get("SLURM_STEP_NUM_TASKS") or environ.get("SLURM_NTASKS") or "1"
    if int(tasks) != nodes:
        raise Refused(
            f"gpuready run is a task of srun ({tasks} tasks on {nodes} nodes): start it once in the batch script, "
            "or once on each node with srun --ntasks-per-node=1"
        )
    from gpuready.cluster.nodelist import expand

    hosts = refusing(expand, environ.get("SLURM_STEP_NODELIST") or environ.get("SLURM_JOB_NODELIST") or "")
    port = 20000 + int(environ.get("SLURM_JOB_ID", "0")) % 10000
    return "torchrun", nodes, int(environ.get("SLURM_NODEID", "0")), f"{hosts[0]}:{port}" if hosts else ""


def _nproc(asked: str | None, facts: Facts, engine: str, environ: Mapping[str, str]) -> int:
    if asked is not None and asked not in ("gpu", "auto"):
        return _number({"nproc": asked}, "nproc", None, 1) or 1
    gpus = preflight.gpus(facts)
    if asked == "gpu" and not gpus:
        raise Refused("--nproc gpu: no GPU is visible here; name a number of ranks")
    if engine == "slurm" and not gpus and environ.get("SLURM_NTASKS_PER_NODE", "").isdigit():
        return int(environ["SLURM_NTASKS_PER_NODE"])
    return gpus or 1


def _number(flags: Mapping[str, Any], name: str, default: int | None, least: int) -> int | None:
    text = flags.get(name)
    if text is None:
        return default
    if not str(text).isascii() or not str(text).isdigit() or not least <= int(text) <= 1_000_000:
        raise Refused(f"--{name} takes a whole number from {least} on, not {text!r}")
    return int(text)


def _seconds(flags: Mapping[str, Any], name: str, other: str | None, default: float) -> float:
    text = flags.get(name) or other
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < 1e9:
        raise Refused(f"--{name} takes seconds, not {text!r}")
    return value


def _master(text: str | None, nnodes: int, engine: str) -> tuple[str, int, bool]:
    from gpuready.cluster import address
    from gpuready.rollcall import endpoint

    if not text:
        free = endpoint.free_port() if engine in ("local", "torchrun") else 0
        return "127.0.0.1", free, False
    host, colon, port = text.rpartition(":")
    if not colon or (host.count(":") and not host.endswith("]")):
        raise Refused(f"--master takes HOST:PORT, not {text!r} (an IPv6 address in brackets)")
    return refusing(address.host, host, "--master")[0], refusing(address.port, port, "--master"), True


def _python(python: str | None, facts: Facts) -> str:
    path = str(facts.known("python.path") or "") or python
    if not path:
        raise Refused("there is no Python to run it with: name one with --python PATH")
    return path


def _has_torch(facts: Facts) -> bool:
    return bool(facts.known("torch.version"))


def _run_id(environ: Mapping[str, str]) -> str:
    import time

    return environ.get("GPUREADY_RUN_ID") or time.strftime("%Y%m%d-%H%M%S-") + os.urandom(2).hex()


def _shared_id(own: str, engine: str, nnodes: int, master: str, port: int, environ: Mapping[str, str]) -> str:
    """Return a run id known to all nodes: under torchrun each node has a gpuready of its own."""
    if engine != "torchrun" or nnodes < 2 or environ.get("GPUREADY_RUN_ID"):
        return own
    return f"{master}-{port}"


def _with_variables(
    job: Job, framework: str | None, python: str | None, environ: Mapping[str, str], facts: Facts
) -> Job:
    """Add the contract's variables that the user has not set, where a framework is named."""
    if not framework:
        return job
    from gpuready.workflow.setting import env

    wanted = env(framework, python=python)
    rows = [
        Variable(s.name, s.value, s.why or f"{s.by} wants it")
        for s in wanted.variables
        if s.name not in environ
    ]
    return job.but(variables=tuple(rows), framework=framework)


def _whose_mpi() -> str:
    ran = system.Live().run(["mpirun", "--version"], 3.0)
    return (
        "open" if "open mpi" in (ran.out or "").lower() or "open-mpi" in (ran.out or "").lower() else "other"
    )


# -- the run ----------------------------------------------------------------------------------------------


def planned(ready: Prepared) -> dict[str, Any]:
    """Return what would start where, with every variable: for --dry-run."""
    job = ready.job
    shared = [*engines.shared(job, ready.environ), *job.variables]
    return {
        "job": job.to_json(),
        "command": engines.command(job, ready.mpi),
        "variables": [v.to_json() for v in shared],
        "seats": engines.seats(job) if job.engine in ("local", "torchrun") else [],
        "sights": [s.to_json() for s in ready.sights],
    }


def run(ready: Prepared, teller: Callable[[Job, Book], Teller]) -> tuple[Outcome, Diagnosis | None]:
    """Start the ranks, watch them, restart where that can help; then diagnose a failure."""
    import time

    from gpuready.launcher.supervise import Supervisor

    job, attempts = ready.job, []  # type: Job, list[Attempt]
    started, why, found = time.monotonic(), "", None
    while True:
        folder = job.logs if not attempts else os.path.join(job.logs, f"attempt-{len(attempts)}")
        book = _book(folder)
        supervisor = Supervisor(
            _fresh(job, len(attempts)), ready.environ, teller(job, book), len(attempts), ready.mpi
        )
        try:
            attempts.append(supervisor.run())
        except FileNotFoundError as error:
            raise Refused(
                f"{error.filename} cannot be started: {error.strerror}; is the engine installed?"
            ) from None
        finally:
            book.close()
        last = attempts[-1]
        if last.code == 0 or last.why in ("interrupted",):
            break
        found = _post_mortem(folder, job, last)
        why = (
            again.useless(attempts, found.code if found else "", found.says if found else "")
            if job.restarts
            else ""
        )
        if why or len(attempts) > job.restarts:
            break
    return _outcome(job, attempts, why, time.monotonic() - started), found


def _fresh(job: Job, number: int) -> Job:
    """Use another port for a restart: the old one may still be in TIME_WAIT."""
    if not number or job.engine != "local" or job.nnodes > 1:
        return job
    from gpuready.rollcall import endpoint

    return job.but(port=endpoint.free_port())


def _book(folder: str) -> Book:
    try:
        return Book(folder)
    except OSError as error:
        raise Refused(
            f"the logs cannot be kept in {folder}: {error.strerror}; choose another with --log-dir DIR"
        ) from None


OUT_OF_MEMORY = "MEM003"


def _post_mortem(folder: str, job: Job, attempt: Attempt) -> Diagnosis | None:
    """Diagnose a failed attempt. An error in the diagnosis must not hide the failure itself."""
    found = _diagnosed(folder, job, attempt)
    first = attempt.end(attempt.first[0]) if attempt.first else None
    if found is not None and first is not None and first.signal == 9 and first.oom is False:
        return None if found.code == OUT_OF_MEMORY else found  # the kernel reports no OOM kill
    return found


def _diagnosed(folder: str, job: Job, attempt: Attempt) -> Diagnosis | None:
    from gpuready.workflow.diagnosing import diagnose

    try:
        _tell_what_we_saw(folder, attempt)
        return diagnose(
            [folder], framework=(job.framework or None) and job.framework.partition("=")[0].partition(":")[0]
        )
    except Exception:
        return None


def _tell_what_we_saw(folder: str, attempt: Attempt) -> None:
    """Log what no rank could write itself: how each one ended, in the order observed."""
    book = Book(folder)
    for end in attempt.ends:
        if end.oom:
            book.write("gpuready", f"Out of memory: Killed process {end.pid} (rank {end.rank})")
        if end.failed and not end.stopped:
            code = -end.signal if end.signal else end.code
            book.write(
                "gpuready", f"failed (exitcode: {code}) rank: {end.rank} (pid: {end.pid}) of {end.host}"
            )
    book.close()


_VERDICTS = {
    "interrupted": "interrupted",
    "hung": "hung",
    "missing": "missing",
    "claimed": "missing",
    "unfit": "refused",
}


def _outcome(job: Job, attempts: list[Attempt], useless: str, seconds: float) -> Outcome:
    last = attempts[-1]
    verdict = "done" if last.code == 0 else _VERDICTS.get(last.why, "failed")
    code = USELESS if useless and last.code else last.code
    return Outcome(job, tuple(attempts), code, "useless" if useless else verdict, useless, round(seconds, 3))
