"""``gpuready run``: preflight, start the ranks, and diagnose why they died."""

from __future__ import annotations

import os

from gpuready import system
from gpuready.launcher import engines, preflight, restart, script
from gpuready.launcher.rank_logs import RankLogs
from gpuready.model.run import ENGINES, EXIT_USELESS, REMOTE_ENGINES, LaunchJob, PreflightItem, RankVariable, RunOutcome
from gpuready.workflow import machine_facts
from gpuready.workflow.refusal import Refused, call_or_refuse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from gpuready.launcher.supervisor import RunReporter
    from gpuready.model import Facts, Report
    from gpuready.model.diagnosis import Diagnosis
    from gpuready.model.run import LaunchAttempt


CHECK_COLLECTIVES = RankVariable(
    "TORCH_DISTRIBUTED_DEBUG", "DETAIL", "--check-collectives: torch compares each collective of all ranks"
)


class PreparedRun:
    """A run ready to start: the job, its preflight, and the contract's report where one was named."""

    def __init__(
        self, job: LaunchJob, sights: list[PreflightItem], report: Report | None, environ: dict[str, str], mpi: str
    ):
        self.job, self.sights, self.report, self.environ, self.mpi = job, sights, report, environ, mpi

    @property
    def refused(self) -> int:
        """Exit code of the refusal; 0 where nothing prevents the start."""
        errors = [sight for sight in self.sights if sight.severity == "error"]
        return 0 if not errors else 2 if any(sight.usage for sight in errors) else 1


def prepare_run(words: Sequence[str], framework: str | None = None, *, flags: Mapping[str, Any]) -> PreparedRun:
    """Do everything up to the start; nothing is started."""
    if not words:
        raise Refused("gpuready run needs a SCRIPT after --, such as gpuready run --nproc 2 -- train.py --lr 1e-4")
    environ = dict(system.LiveHost().get_environment())
    kind, words, python = script.classify_command(words, flags.get("python"))
    report = None
    if framework and not flags.get("no-preflight") and not _starts_remote_ranks(flags, environ):
        from gpuready import workflow

        report = workflow.check_machine([framework], python=python, run_python=True)[0]
    facts = report.facts if report else _probe_python(python)
    job, port_requested = _make_launch_job(kind, tuple(words), python, facts, environ, flags)
    job = _add_contract_variables(job, framework, python, environ, facts)
    if flags.get("check-collectives"):
        job = job.replace(variables=(*job.variables, CHECK_COLLECTIVES))
    if job.engine in REMOTE_ENGINES and not flags.get("no-preflight"):
        job = job.replace(looks=engines.node_preflight_command(job))
    if flags.get("reap"):
        preflight.end_orphan_ranks()
    sights = [] if flags.get("no-preflight") else _run_preflight(job, facts, port_requested, report, environ)
    mpi = _detect_mpi() if job.engine == "mpi" else "open"
    return PreparedRun(job, sights, report, environ, mpi)


def _starts_remote_ranks(flags: Mapping[str, Any], environ: Mapping[str, str]) -> bool:
    """Return whether the engine starts ranks on other nodes by itself."""
    nodes = _parse_count_flag(flags, "nnodes", None, 1), _parse_count_flag(flags, "node-rank", None, 0)
    return _choose_run_engine(flags.get("engine"), *nodes, environ)[0] in REMOTE_ENGINES


def _probe_python(python: str | None) -> Facts:
    return machine_facts.start_probing(None, python, {}, None, run_python=True)[0]()


def _run_preflight(
    job: LaunchJob, facts: Facts, port_requested: bool, report: Report | None, environ: Mapping[str, str]
) -> list[PreflightItem]:
    which = system.LiveHost().find_program
    sights = preflight.run_preflight(job, facts, which, port_requested, environ)
    if job.engine in REMOTE_ENGINES:  # this may be a login node: the compute nodes check themselves
        message = f"{job.framework or 'each node'}: looked at on every node before its ranks begin"
        return [*(s for s in sights if s.what in ("script", "engine")), PreflightItem("nodes", "ok", message)]
    if report is None:
        return sights
    name = report.contract.name
    errors = [finding for finding in report.findings if finding.severity == "error"]
    if not errors:
        return [PreflightItem("contract", "ok", f"{name}: {report.verdict}"), *sights]
    fix = f"gpuready check {report.contract.framework} tells all of it; gpuready plan {report.contract.framework} --fix mends it"
    return [*(PreflightItem("contract", "error", f"{name}: {e.says}", fix, code=e.code) for e in errors), *sights]


# -- the job ----------------------------------------------------------------------------------------------


def _make_launch_job(
    kind: str,
    words: tuple[str, ...],
    python: str | None,
    facts: Facts,
    environ: Mapping[str, str],
    flags: Mapping[str, Any],
) -> tuple[LaunchJob, bool]:
    """Return the requested job, and whether its port was named."""
    nodes, node = _parse_count_flag(flags, "nnodes", None, 1), _parse_count_flag(flags, "node-rank", None, 0)
    engine, nodes, node, slurm_master = _choose_run_engine(flags.get("engine"), nodes, node, environ)
    nnodes, node_rank = nodes or 1, node or 0
    nproc = _ranks_per_node(flags.get("nproc"), facts, engine, environ)
    master, port, port_requested = _parse_master(flags.get("master") or slurm_master, nnodes, engine)
    if nnodes > 1 and engine in ("local", "torchrun") and not port_requested:
        raise Refused(f"--nnodes {nnodes} needs --master HOST:PORT, the same on every node, and --node-rank R on each")
    if node_rank >= nnodes:
        raise Refused(f"--node-rank {node_rank} is outside the {nnodes} nodes: ranks count from 0")
    forks, why = script.can_fork_ranks(kind, words, nproc, _has_torch(facts))
    if flags.get("fork") and (not forks or engine != "local"):
        raise Refused(f"--fork cannot be: {why if engine == 'local' else f'{engine} starts each rank by itself'}")
    run_id = _make_run_id(environ)
    job = LaunchJob(
        engine=engine,
        python=machine_facts.require_interpreter(facts),
        kind=kind,
        words=words,
        nproc=nproc,
        nnodes=nnodes,
        node_rank=node_rank,
        master=master,
        port=port,
        run_id=_shared_id(run_id, engine, nnodes, master, port, environ),
        logs=os.path.abspath(str(flags.get("log-dir") or os.path.join("gpuready-logs", run_id))),
        restarts=_parse_count_flag(flags, "restarts", 0, 0) or 0,
        window=_parse_seconds_flag(flags, "window", environ.get("GPUREADY_START_WINDOW"), 60.0),
        hang=_parse_seconds_flag(flags, "hang-timeout", None, 0.0),
        preload=forks and engine == "local",
        start=why if engine == "local" else f"started by {engine}",
    )
    return job, port_requested


def _choose_run_engine(
    requested: str | None, nnodes: int | None, node: int | None, environ: Mapping[str, str]
) -> tuple[str, int | None, int | None, str]:
    """Choose the engine; inside Slurm also the nodes and the first node's address."""
    if requested is not None and requested not in ENGINES:
        raise Refused(f"--engine takes {', '.join(ENGINES)}, not {requested!r}")
    job, step = environ.get("SLURM_JOB_ID"), environ.get("SLURM_STEP_ID")
    slurm_nodes = int(environ.get("SLURM_NNODES") or environ.get("SLURM_JOB_NUM_NODES") or 1)
    if job and step and requested in (None, "torchrun") and slurm_nodes > 1 and nnodes is None:
        return _nodes_in_slurm_step(environ, slurm_nodes)
    if requested == "slurm" or (requested is None and job and not step and slurm_nodes > 1):
        return "slurm", nnodes or slurm_nodes, 0, ""
    if requested is not None:
        if requested == "local" and (nnodes or 1) > 1:
            raise Refused(f"--engine local starts ranks on this node alone: leave it out for --nnodes {nnodes}")
        return requested, nnodes, node, ""
    return ("torchrun" if (nnodes or 1) > 1 else "local"), nnodes, node, ""


def _nodes_in_slurm_step(environ: Mapping[str, str], nodes: int) -> tuple[str, int, int, str]:
    """Return the nodes of an srun step with one gpuready per node: torchrun's agents find each other."""
    tasks = environ.get("SLURM_STEP_NUM_TASKS") or environ.get("SLURM_NTASKS") or "1"
    if int(tasks) != nodes:
        raise Refused(
            f"gpuready run is a task of srun ({tasks} tasks on {nodes} nodes): start it once in the batch script, "
            "or once on each node with srun --ntasks-per-node=1"
        )
    from gpuready.model.node_names import expand_nodelist

    hosts = call_or_refuse(
        expand_nodelist, environ.get("SLURM_STEP_NODELIST") or environ.get("SLURM_JOB_NODELIST") or ""
    )
    port = 20000 + int(environ.get("SLURM_JOB_ID", "0")) % 10000
    return "torchrun", nodes, int(environ.get("SLURM_NODEID", "0")), f"{hosts[0]}:{port}" if hosts else ""


def _ranks_per_node(requested: str | None, facts: Facts, engine: str, environ: Mapping[str, str]) -> int:
    if requested is not None and requested not in ("gpu", "auto"):
        return _parse_count_flag({"nproc": requested}, "nproc", None, 1) or 1
    gpus = preflight.visible_gpu_count(facts)
    if requested == "gpu" and not gpus:
        raise Refused("--nproc gpu: no GPU is visible here; name a number of ranks")
    if engine == "slurm" and not gpus and environ.get("SLURM_NTASKS_PER_NODE", "").isdigit():
        return int(environ["SLURM_NTASKS_PER_NODE"])
    return gpus or 1


def _parse_count_flag(flags: Mapping[str, Any], name: str, default: int | None, least: int) -> int | None:
    text = flags.get(name)
    if text is None:
        return default
    if not str(text).isascii() or not str(text).isdigit() or not least <= int(text) <= 1_000_000:
        raise Refused(f"--{name} takes a whole number from {least} on, not {text!r}")
    return int(text)


def _parse_seconds_flag(flags: Mapping[str, Any], name: str, other: str | None, default: float) -> float:
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


def _parse_master(text: str | None, nnodes: int, engine: str) -> tuple[str, int, bool]:
    from gpuready.cluster import address
    from gpuready.rollcall import endpoint

    if not text:
        free = endpoint.find_free_port() if engine in ("local", "torchrun") else 0
        return "127.0.0.1", free, False
    host, colon, port = text.rpartition(":")
    if not colon or (host.count(":") and not host.endswith("]")):
        raise Refused(f"--master takes HOST:PORT, not {text!r} (an IPv6 address in brackets)")
    return (
        call_or_refuse(address.parse_host_address, host, "--master")[0],
        call_or_refuse(address.parse_port, port, "--master"),
        True,
    )


def _has_torch(facts: Facts) -> bool:
    return bool(facts.value_if_known("torch.version"))


def _make_run_id(environ: Mapping[str, str]) -> str:
    import time

    return environ.get("GPUREADY_RUN_ID") or time.strftime("%Y%m%d-%H%M%S-") + os.urandom(2).hex()


def _shared_id(own: str, engine: str, nnodes: int, master: str, port: int, environ: Mapping[str, str]) -> str:
    """Return a run id known to all nodes: under torchrun each node has a gpuready of its own."""
    if engine != "torchrun" or nnodes < 2 or environ.get("GPUREADY_RUN_ID"):
        return own
    return f"{master}-{port}"


def _add_contract_variables(
    job: LaunchJob, framework: str | None, python: str | None, environ: Mapping[str, str], facts: Facts
) -> LaunchJob:
    """Add the contract's variables that the user has not set, where a framework is named."""
    if not framework:
        return job
    from gpuready.workflow.env import framework_variables

    wanted = framework_variables(framework, python=python)
    rows = [
        RankVariable(s.name, s.value, s.why or f"{s.by} wants it") for s in wanted.variables if s.name not in environ
    ]
    return job.replace(variables=tuple(rows), framework=framework)


def _detect_mpi() -> str:
    result = system.LiveHost().run(["mpirun", "--version"], 3.0)
    return "open" if "open mpi" in (result.out or "").lower() or "open-mpi" in (result.out or "").lower() else "other"


# -- the run ----------------------------------------------------------------------------------------------


def describe_start(ready: PreparedRun) -> dict[str, Any]:
    """Return what would start where, with every variable: for --dry-run. Secrets in arguments are redacted."""
    from gpuready.system.redaction.text import redact_json

    job = ready.job
    shared = [*engines.common_variables(job, ready.environ), *job.variables]
    start: dict[str, Any] = redact_json(
        {
            "job": job.to_json(),
            "command": engines.engine_command(job, ready.mpi),
            "variables": [v.to_json() for v in shared],
            "seats": engines.local_rank_variables(job) if job.engine in ("local", "torchrun") else [],
            "sights": [s.to_json() for s in ready.sights],
        }
    )
    return start


def run_job(
    ready: PreparedRun, make_reporter: Callable[[LaunchJob, RankLogs], RunReporter]
) -> tuple[RunOutcome, Diagnosis | None]:
    """Start the ranks, watch them, restart where that can help; then diagnose a failure."""
    import time

    from gpuready.launcher.supervisor import Supervisor

    job, attempts = ready.job, []  # type: LaunchJob, list[LaunchAttempt]
    started, useless_reason, diagnosis = time.monotonic(), "", None
    while True:
        folder = job.logs if not attempts else os.path.join(job.logs, f"attempt-{len(attempts)}")
        book = _open_log_book(folder)
        supervisor = Supervisor(
            _with_new_port(job, len(attempts)), ready.environ, make_reporter(job, book), len(attempts), ready.mpi
        )
        try:
            attempts.append(supervisor.run())
        except FileNotFoundError as error:
            raise Refused(f"{error.filename} cannot be started: {error.strerror}; is the engine installed?") from None
        finally:
            book.close()
        last = attempts[-1]
        if last.code == 0 or last.why in ("interrupted",):
            break
        diagnosis = _diagnose_failure(folder, job, last)
        useless_reason = (
            restart.why_restart_is_useless(
                attempts, diagnosis.code if diagnosis else "", diagnosis.says if diagnosis else ""
            )
            if job.restarts
            else ""
        )
        if useless_reason or len(attempts) > job.restarts:
            break
    return _make_outcome(_redact_job(job), attempts, useless_reason, time.monotonic() - started), diagnosis


def _redact_job(job: LaunchJob) -> LaunchJob:
    """Return the job as it is shown and kept: an argument of the user's script may be a token."""
    from gpuready.system.redaction.text import redact_json

    return LaunchJob.from_json(redact_json(job.to_json()))


def _with_new_port(job: LaunchJob, number: int) -> LaunchJob:
    """Use another port for a restart: the old one may still be in TIME_WAIT."""
    if not number or job.engine != "local" or job.nnodes > 1:
        return job
    from gpuready.rollcall import endpoint

    return job.replace(port=endpoint.find_free_port())


def _open_log_book(folder: str) -> RankLogs:
    try:
        return RankLogs(folder)
    except OSError as error:
        raise Refused(
            f"the logs cannot be kept in {folder}: {error.strerror}; choose another with --log-dir DIR"
        ) from None


OUT_OF_MEMORY = "MEM003"


def _diagnose_failure(folder: str, job: LaunchJob, attempt: LaunchAttempt) -> Diagnosis | None:
    """Diagnose a failed attempt. An error in the diagnosis must not hide the failure itself."""
    diagnosis = _diagnose_attempt(folder, job, attempt)
    first = attempt.end(attempt.first[0]) if attempt.first else None
    if diagnosis is not None and first is not None and first.signal == 9 and first.oom is False:
        return None if diagnosis.code == OUT_OF_MEMORY else diagnosis  # the kernel reports no OOM kill
    return diagnosis


def _diagnose_attempt(folder: str, job: LaunchJob, attempt: LaunchAttempt) -> Diagnosis | None:
    from gpuready.workflow.diagnose import diagnose_logs

    try:
        _log_rank_exits(folder, attempt)
        return diagnose_logs(
            [folder], framework=(job.framework or None) and job.framework.partition("=")[0].partition(":")[0]
        )
    except Exception:
        return None


def _log_rank_exits(folder: str, attempt: LaunchAttempt) -> None:
    """Log what no rank could write itself: how each one ended, in the order observed."""
    book = RankLogs(folder)
    for end in attempt.ends:
        if end.oom:
            book.write_line("gpuready", f"Out of memory: Killed process {end.pid} (rank {end.rank})")
        if end.failed and not end.stopped:
            code = -end.signal if end.signal else end.code
            book.write_line("gpuready", f"failed (exitcode: {code}) rank: {end.rank} (pid: {end.pid}) of {end.host}")
    book.close()


_VERDICTS = {
    "interrupted": "interrupted",
    "hung": "hung",
    "missing": "missing",
    "claimed": "missing",
    "unfit": "refused",
}


def _make_outcome(job: LaunchJob, attempts: list[LaunchAttempt], useless: str, seconds: float) -> RunOutcome:
    last = attempts[-1]
    verdict = "done" if last.code == 0 else _VERDICTS.get(last.why, "failed")
    code = EXIT_USELESS if useless and last.code else last.code
    return RunOutcome(job, tuple(attempts), code, "useless" if useless else verdict, useless, round(seconds, 3))
