"""``gpuready run``: preflight, start the ranks, and diagnose why they died."""

import os
import re
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gpuready import system, workflow
from gpuready.launcher import engines, flight_dumps, preflight, process_status, rank_votes, restart, run_events, script
from gpuready.launcher.peer_nodes import PeerNodes
from gpuready.launcher.rank_logs import EXITS, RankLogs
from gpuready.launcher.supervisor import RunReporter, Supervisor
from gpuready.model import Facts, Report
from gpuready.model.diagnosis import NOT_ENVIRONMENT, Diagnosis
from gpuready.model.facts import verdict_words
from gpuready.model.last_error import last_error_line
from gpuready.model.run import (
    EXIT_USELESS,
    LATER,
    REMOTE_ENGINES,
    LaunchAttempt,
    LaunchJob,
    PreflightItem,
    RankEnd,
    RankVariable,
    RunNote,
    RunOutcome,
)
from gpuready.rollcall import endpoint
from gpuready.system import own_folders, private_files
from gpuready.system.redaction.text import redact_json
from gpuready.workflow import launch_job, machine_facts, run_record
from gpuready.workflow.diagnose import diagnose_logs
from gpuready.workflow.refusal import Refused
from gpuready.workflow.step_pace import judge_run_pace

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
    """Do everything up to the start of the ranks; a dry run starts nothing of the environment, and ends no process."""
    if not words:
        raise Refused("gpuready run needs a SCRIPT after --, such as gpuready run --nproc 2 -- train.py --lr 1e-4")
    if flags.get("wants") and not framework:
        raise Refused(
            "--wants is judged by a framework's requirements: name the framework, as in gpuready run trl --wants cpu"
        )
    if script.is_in_deleted_folder():
        raise Refused("the current folder was deleted: change to one that exists, and start again")
    launch = launch_job.parse_command(words, flags, framework or "")
    flags = launch_job.split_spare_nodes(flags)
    environ = dict(system.LiveHost().get_environment())
    kind, words, python = launch.kind, launch.words, flags.get("python") or launch.python or None
    report, acts = None, not flags.get("dry-run")
    checks_here = launch_job.parse_places(flags, environ)[0] not in REMOTE_ENGINES  # else each node checks itself
    if framework and not flags.get("no-preflight") and checks_here:
        wants = flags.get("wants")
        imports = "needed" if acts else "never"
        report = workflow.check_machine([framework], python=python, wants=wants, run_python=acts, imports=imports)[0]
    facts = report.facts if report else machine_facts.start_probing(None, python, {}, None, run_python=acts)[0]()
    job, port_requested = launch_job.make_launch_job(kind, tuple(words), python, facts, environ, flags)
    job = launch_job.add_contract_variables(job, framework, python, environ, facts)
    if flags.get("check-collectives"):
        job = job.replace(variables=(*job.variables, CHECK_COLLECTIVES))
    if job.engine in REMOTE_ENGINES and not flags.get("no-preflight"):
        job = job.replace(looks=engines.node_preflight_command(job))
    if flags.get("reap") and acts:
        preflight.end_orphan_ranks()
    sights = [] if flags.get("no-preflight") else _run_preflight(job, facts, port_requested, report, environ)
    mpi = launch_job.detect_mpi() if job.engine == "mpi" else "open"
    return PreparedRun(job, sights, report, environ, mpi)


def _run_preflight(
    job: LaunchJob, facts: Facts, port_requested: bool, report: Report | None, environ: Mapping[str, str]
) -> list[PreflightItem]:
    which = system.LiveHost().find_program
    sights = preflight.run_preflight(job, facts, which, port_requested, environ)
    launcher = launch_job.find_launcher_in_script(job.words) if job.kind == "program" else ""
    if launcher:
        fix = "--no-preflight starts the script itself, once for each rank"
        found = PreflightItem("script", "error", launcher, fix, usage=True, code="RUN025")
        sights = [found, *(sight for sight in sights if sight.what != "script")]
    if job.engine in REMOTE_ENGINES:  # this may be a login node: the compute nodes check themselves
        message = f"{job.framework or 'each node'}: looked at on every node before its ranks begin"
        return [*(s for s in sights if s.what in ("script", "engine")), PreflightItem("nodes", "ok", message)]
    if report is None:
        return sights
    name = report.contract.name
    errors = [finding for finding in report.findings if finding.severity == "error"]
    if not errors:
        return [PreflightItem("framework", "ok", f"{name}: {verdict_words(report.verdict)}"), *sights]
    wanted = ",".join(report.facts.value_if_known("job.wants") or ())
    wants = ("--wants", wanted) if wanted else ()
    fix = f"gpuready check {shlex.join((report.contract.framework, *report.asked, *wants))}"
    return [*(PreflightItem("framework", "error", f"{name}: {e.says}", fix, code=e.code) for e in errors), *sights]


def tell_refusal(flags: Mapping[str, Any], says: str, tell: Callable[[str], object]) -> None:
    """Tell the other nodes of a torchrun job that this one does not start: else they wait for it."""
    environ = system.LiveHost().get_environment()
    try:
        engine, nodes, node, (master, port, named) = launch_job.parse_places(flags, environ)
    except Refused:
        return
    starts = not (flags.get("dry-run") or flags.get("preflight"))
    if engine != "torchrun" or not named or not starts or not node < nodes > 1:
        return
    tell("this node does not start: the others are told, for up to 10 s")
    run_id = launch_job.shared_id("", engine, nodes, master, port, environ) or environ["GPUREADY_RUN_ID"]
    PeerNodes(LaunchJob(engine, "", "script", (), 1, nodes, node, master, port, run_id), 0).tell_refusal(says)


# -- the run ----------------------------------------------------------------------------------------------


def describe_start(ready: PreparedRun) -> dict[str, Any]:
    """Return what would start where, with every variable: for --dry-run. Secrets in arguments are redacted."""
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


def open_events(path: str | None) -> Callable[[RunReporter], RunReporter]:
    """Return what makes a reporter write events to a file too; Refused where it cannot be written."""
    try:
        file = run_events.open_file(path) if path else None
    except OSError as error:
        raise Refused(f"--events {path} cannot be written: {error.strerror}") from None
    return lambda reporter: run_events.EventReporter(reporter, file) if file is not None else reporter


def run_job(
    ready: PreparedRun, make_reporter: Callable[[LaunchJob, RankLogs], RunReporter]
) -> tuple[RunOutcome, Diagnosis | None]:
    """Start the ranks, watch them, restart where that can help; then diagnose a failure."""
    job, attempts = ready.job, []  # type: LaunchJob, list[LaunchAttempt]
    started, useless_reason, diagnosis, first = time.monotonic(), "", None, None  # type: float, str, Diagnosis | None, Diagnosis | None
    began = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    while True:
        folder = job.logs if not attempts else os.path.join(job.logs, f"attempt-{len(attempts)}")
        book, elsewhere = _open_log_book(folder, ready.environ)
        folder = book.folder
        job = job.replace(logs=folder) if elsewhere else job
        reporter = make_reporter(job, book)
        if elsewhere:
            reporter.write_note(RunNote("logs", elsewhere))
        fixed = not attempts or job.engine in REMOTE_ENGINES or job.nnodes > 1  # else the old one may be in TIME_WAIT
        again = job if fixed else job.replace(port=endpoint.find_free_port())
        supervisor = Supervisor(again, ready.environ, reporter, len(attempts), ready.mpi)
        try:
            attempts.append(_add_limits(supervisor.run(), supervisor.job))
        except FileNotFoundError as error:
            raise Refused(f"{error.filename} cannot be started: {error.strerror}; is the engine installed?") from None
        finally:
            book.close()
        last = attempts[-1]
        if last.code == 0 or last.why == "interrupted":
            break
        diagnosis = _diagnose_failure(book, job, last)
        first = diagnosis if len(attempts) == 1 else first
        useless_reason = (
            restart.why_restart_is_useless(
                attempts, diagnosis.code if diagnosis else "", diagnosis.says if diagnosis else ""
            )
            if job.restarts
            else ""
        )
        if useless_reason or len(attempts) > job.restarts or (last.why == "hung" and job.on_hang == "kill"):
            break
        note = RunNote("restart", _describe_restart(last, diagnosis, len(attempts), job.restarts), seconds=last.seconds)
        attempts[-1] = last.replace(notes=(*last.notes, note))
        reporter.write_note(note)
        job = job.replace(avoided=(*job.avoided, *_find_lost_nodes(last))[: job.spares])
    last = attempts[-1]
    differs = restart.failure_signature(last) != restart.failure_signature(attempts[0])
    if differs and last.code and last.why != "interrupted":
        attempts[-1], diagnosis = _defer_to_first(attempts, first, diagnosis, ready.job.logs)
    attempts[-1] = _add_pace(attempts[-1], folder, job)
    shown = LaunchJob.from_json(redact_json(job.to_json()))  # an argument of the user's script may be a token
    outcome = _make_outcome(shown, attempts, useless_reason, time.monotonic() - started)
    run_record.write_record(outcome, diagnosis, began)
    return outcome, diagnosis


def _defer_to_first(
    attempts: list[LaunchAttempt], first: Diagnosis | None, last: Diagnosis | None, logs: str
) -> tuple[LaunchAttempt, Diagnosis | None]:
    """A later start may fail of what the first one left: then the cause is that of the first, and none that blames the program."""
    says = (
        f"start {len(attempts)} failed otherwise than start 1 and may only follow from it; the logs of that one: {logs}"
    )
    attempt = attempts[-1].replace(notes=(*attempts[-1].notes, RunNote(LATER, says, seconds=attempts[-1].seconds)))
    own = last if last is not None and last.cause != NOT_ENVIRONMENT else None
    return attempt, first if first is not None and first.verdict == "cause" else own


def _find_lost_nodes(last: LaunchAttempt) -> list[str]:
    """The node that an attempt has lost, or whose rank was killed or stands still: a spare one takes its place."""
    hosts = [end.host for end in last.first_ends if end.lost or end.signal]
    return list(dict.fromkeys([*hosts, *(note.host for note in last.notes if last.why == "hung" and note.host)]))[:1]


def _describe_restart(last: LaunchAttempt, diagnosis: Diagnosis | None, number: int, restarts: int) -> str:
    """Say why a start has failed, in one sentence."""
    why = next((f"{note.kind}: {note.says}" for note in last.notes if note.kind == last.why), last.why)
    who = rank_votes.describe_first(last.first, last.ends, len(last.ends)) if last.first_ends else why
    cause = f": {diagnosis.code} {diagnosis.says}" if diagnosis is not None and diagnosis.verdict == "cause" else ""
    return f"start {number} failed after {last.seconds:.0f} s: {who}{cause}; restart {number} of {restarts}"


def _add_pace(attempt: LaunchAttempt, folder: str, job: LaunchJob) -> LaunchAttempt:
    """Add a note whether the steps were as fast as fit predicts, where the command line has the job's file."""
    said = judge_run_pace(os.path.join(folder, f"rank-{job.expected_ranks[0]}.log"), job.words)
    note = RunNote("pace", said, sure=False, seconds=attempt.seconds)
    return attempt.replace(notes=(*attempt.notes, note)) if said else attempt


def _open_log_book(folder: str, environ: Mapping[str, str]) -> tuple[RankLogs, str]:
    """Open the logs; where their folder cannot be written, in the user's state folder or a temporary one, with a note."""
    try:
        return RankLogs(folder, new_run=True), ""
    except OSError as error:
        reason = error.strerror
    name = os.path.basename(folder.rstrip("/")) or "logs"
    for parent in own_folders.list_log_folders(environ):
        try:
            other = os.path.join(private_files.make_private_folder(parent), name)
            return RankLogs(other, new_run=True), f"the logs cannot be kept in {folder} ({reason}): they are in {other}"
        except (OSError, system.AccessError):
            continue
    raise Refused(f"the logs cannot be kept in {folder}: {reason}; choose another with --log-dir DIR")


FILE_WORDS = ("Too many open files", "[Errno 24]")
DISK_WORDS = ("No space left", "[Errno 28]", "iostream error", "PytorchStreamWriter", "inline_container.cc")
MEMORY_WORDS = ("allocate memory", "MemoryError", "bad_alloc", "[Errno 12]")
_LOCKS = re.compile(r"mlock|\b(?:pin|page-?lock|memlock|ibv_|regist)", re.IGNORECASE)
"""What an error says that wants memory which is never paged out, for a GPU or for InfiniBand."""
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")
_ASKED = re.compile(rf"(?<![\d.])(\d+(?:\.\d+)?) ({'|'.join(_UNITS)})\b")
"""``you tried to allocate 4294967296 bytes``, ``Unable to allocate 7.45 GiB for an array``"""
MUCH_MEMORY = 4 << 30
"""With so much left a second before, a host refuses no allocation that does not ask for more."""
THREAD_WORDS = ("can't start new thread", "Resource temporarily unavailable", "pthread_create", "[Errno 11]")


FILE_SIZE_WORDS, FOLDER_WORDS = ("[Errno 27]", "File too large"), ("No such file or directory",)
SIGBUS, SIGKILL, SIGTERM, SIGXCPU, SIGXFSZ = 7, 9, 15, 24, 25


def _describe_limit(end: RankEnd) -> tuple[str, str]:
    """Return which limit of the place where a rank died its end speaks of, and the fix; empty if none."""
    limits, text = end.limits, "\n".join(end.last[-40:])
    files, processes, pids, denied = (limits.get(name, 0) for name in ("files", "processes", "pids", "denied"))
    if limits and any(words in text for words in FILE_WORDS):
        return f"{files} open files are allowed to it (ulimit -n)", f"ulimit -n {max(4 * files, 65536)}"
    error = last_error_line(end.last)
    is_short = error.startswith("OSError") and "[Errno " not in error  # numpy: 512 requested and 130 written
    failed_write = is_short or any(words in text for words in DISK_WORDS)
    if end.full and (end.signal == SIGBUS or failed_write):
        mapped = "; to write into a file that is mapped from there ends with SIGBUS" if end.signal == SIGBUS else ""
        return f"no room is left on {', '.join(end.full)}{mapped}", "delete files there, or write elsewhere"
    size, seconds = limits.get("file_bytes", -1), limits.get("seconds", -1)
    if size >= 0 and (end.signal == SIGXFSZ or any(words in text for words in FILE_SIZE_WORDS + DISK_WORDS[2:])):
        return f"files of at most {size} bytes are allowed to it (ulimit -f)", "ulimit -f unlimited"
    if seconds >= 0 and end.signal == SIGXCPU:
        return f"{seconds} s of processor time are allowed to it (ulimit -t)", "ulimit -t unlimited"
    if end.folder and any(words in error for words in FOLDER_WORDS) and ": '/" not in error:
        return f"its working folder was deleted meanwhile: {end.folder}", "start it in a folder that stays"
    memory, kinds = limits.get("memory", 0), (("addresses", "addresses", "-v"), ("data_bytes", "data", "-d"))
    allowed = {flag: f"{_gib(limits[name])} GiB of {words}" for name, words, flag in kinds if limits.get(name, -1) >= 0}
    if allowed and not denied and any(words in text for words in (*MEMORY_WORDS, *THREAD_WORDS[::2])):
        raised = " && ".join(f"ulimit {flag} unlimited" for flag in allowed)
        return f"{' and '.join(allowed.values())} are allowed to it (ulimit {', '.join(allowed)})", raised
    locked = limits.get("locked_bytes", -1)
    if locked >= 0 and any(words in error for words in MEMORY_WORDS) and _LOCKS.search(error):
        return f"{locked} bytes of locked memory are allowed to it (ulimit -l)", "ulimit -l unlimited"
    if memory and (end.oom or any(words in text for words in MEMORY_WORDS)):
        return f"{_gib(memory)} GiB of memory are allowed to its control group", "give the job more memory"
    if denied or (limits and any(words in text for words in THREAD_WORDS)):
        says = f"no more processes or threads: the user may have {processes} (ulimit -u), its control group {pids} (pids.max; 0: any)"
        return says + (f", and {denied} were refused" if denied else ""), "raise that limit, or start fewer of them"
    return "", ""


def _lacked_room(end: RankEnd) -> bool:
    """Whether a disk had no bytes left, and its error is not of the size that a file may have, which has nothing to do with the disk."""
    is_too_large = any(words in last_error_line(end.last) for words in FILE_SIZE_WORDS)
    return not is_too_large and any(process_status.NO_INODES not in disk for disk in end.full)


def _gib(size: int) -> str:
    return f"{size / (1 << 30):.1f}"


_NOBODY_LISTENS = "the others found nobody at"


def _describe_other_place(attempt: LaunchAttempt, end: RankEnd, job: LaunchJob) -> str:
    """Say by which number or address of its own a rank missed the others."""
    other, error = rank_votes.find_other_numbers(end, job.world), last_error_line(end.last)
    if other or job.engine not in ("local", "torchrun"):  # the others choose an address later
        return other
    missed = next(filter(None, map(rank_votes.find_unreached_store, attempt.ends)), None)
    if missed and end.rank == 0 and (not error or " clients joined" in error):
        return f"{_NOBODY_LISTENS} {missed[0]} port {missed[1]}: rank 0 did not listen there yet, or listened elsewhere (MASTER_PORT)"
    return rank_votes.find_other_address(end, job.master, job.port)


def _add_limits(attempt: LaunchAttempt, job: LaunchJob) -> LaunchAttempt:
    """Add a note on the limit that the first failing rank reached, or on what it did not take from its launcher."""
    end = attempt.first_ends[0] if attempt.first_ends else RankEnd(0)
    kind, (says, fix) = "limit", _describe_limit(end)
    other = _describe_other_place(attempt, end, job) if job.nnodes == 1 and attempt.first else ""
    if other:
        says, fix = other, "find what sets it in the script or in what starts it"
        if other.startswith(_NOBODY_LISTENS):
            fix = "let rank 0 come to init_process_group sooner, or give it a longer timeout"
    if not says and end.errors and not last_error_line(end.last) and not end.signal:
        says, fix = f"its stderr led to {end.errors}: its log does not have what it said last", "leave its stderr"
        kind = "stderr"
    note = RunNote(kind, says, fix, end.rank, end.host, seconds=end.seconds)
    return attempt.replace(notes=(*attempt.notes, note)) if says else attempt


OUT_OF_MEMORY, SHARED_MEMORY, STOPPED_FROM_OUTSIDE, PROGRAM_ITSELF = "MEM003", "SYS001", "RUN029", "RUN019"
NO_DISK_SPACE, RANKS_MISSING, OTHER_COLLECTIVES = "SYS002", "RUN033", "RUN001"
MASTER_PORT, PROGRAM_PORT = "port-in-use", "program-port-in-use"
_OF_THE_PLACE = re.compile(r".*\[Errno \d+\]|AttributeError: (?:partially initialized )?module ")
_OF_THE_PROGRAM = re.compile(
    r"(?<![\w.])(?:\w+\.)*(?:Key|Value|Type|Index|Attribute|Name|UnboundLocal|Assertion|ZeroDivision|NotImplemented|Recursion|Lookup|"
    r"Overflow|FloatingPoint|Pickling|Unpickling|JSONDecode|Syntax|Indentation|Runtime)Error\b"
)
"""What code raises of itself: an error of another name may come from a server, a lock or a disk."""
_READS_VARIABLE = re.compile(r'(?:<frozen os>|/os\.py)", line \d+, in __getitem__')
"""The frame of ``os.environ["NAME"]``, which the place has not set."""
_VERSION = re.compile(r"(?<![\d.])\d+\.\d+\.\d+(?!\.?\d)")
"""``0.21.0``: an error with several of them compares versions."""
LEAST_SURE = 0.6
"""Below it a cause is a guess, which says less than the last words of the rank that failed first."""
ROOM_SHARE = 0.1
"""With more of /dev/shm free than this, it was not full."""


def _diagnose_failure(book: RankLogs, job: LaunchJob, attempt: LaunchAttempt) -> Diagnosis | None:
    """Diagnose a failed attempt: the logs of all ranks, and that of the first one alone where they would blame another."""
    first, folder = attempt.first, book.folder
    _log_rank_exits(folder, attempt)
    left = bool(attempt.first_ends) and attempt.first_ends[0].left_early
    paths = [
        path
        for path in (*book.paths, f"{folder}/{flight_dumps.FOLDER}")
        if system.LiveHost().stat_path(path) is not None
    ]
    diagnosis = None if left else _diagnose_logs(sorted(paths), job)
    if first and (left or (diagnosis is not None and diagnosis.rank is not None and diagnosis.rank not in first)):
        paths = [os.path.join(folder, f"rank-{rank}.log") for rank in first]
        own = [path for path in paths if system.LiveHost().stat_path(path) is not None]
        diagnosis = _diagnose_logs(own, job) if own else None
        diagnosis = diagnosis.replace(rank=first[0]) if diagnosis is not None and diagnosis.verdict == "cause" else None
    is_master = diagnosis is not None and diagnosis.cause == MASTER_PORT
    port = diagnosis.captures.get("port") or job.port if diagnosis is not None and is_master else None
    if diagnosis and port is not None and diagnosis.captures.get("port") == str(job.port) and 0 not in first:
        return None  # it takes itself for rank 0, which the note says
    if port is not None and (0 not in first or (job.port and str(port) != str(job.port))):  # it listens at one alone
        diagnosis = _diagnose_logs(sorted(paths), job, {MASTER_PORT: PROGRAM_PORT})
    if diagnosis is None or diagnosis.confidence < LEAST_SURE or _is_refuted(diagnosis.code, attempt):
        return None
    diagnosis = _drop_survived(diagnosis, attempt)
    if diagnosis.code == OTHER_COLLECTIVES and rank_votes.find_size_mismatch(attempt.ends):
        return None  # the verdict says it: the same collective, with tensors of other sizes
    if diagnosis.cause == NOT_ENVIRONMENT and not _is_environment_excluded(attempt):
        diagnosis = diagnosis.replace(so="")
    if diagnosis.code == RANKS_MISSING and len(first) == 1:
        diagnosis = diagnosis.replace(so="")  # that no message tells which: the verdict names it
    seen = diagnosis.replace(rank_confidence=0.0)  # the launcher saw which rank it was
    return seen if len(first) < 2 else seen.replace(rank=None, host="", confidence=0.0)


def _drop_survived(diagnosis: Diagnosis, attempt: LaunchAttempt) -> Diagnosis:
    """Without causes of which other lines speak than the error that ended the first rank: it has survived them."""
    own = {(line.source, line.line) for line in diagnosis.evidence}
    others = diagnosis.alternatives
    if any(last_error_line(end.last) for end in attempt.first_ends):
        others = tuple(a for a in others if not a.evidence or own & {(e.source, e.line) for e in a.evidence})
    return diagnosis.replace(alternatives=others)


def _is_environment_excluded(attempt: LaunchAttempt) -> bool:
    """Whether the limits were looked at, no rank differs from the others, and the error is not of a module or a file: another node may have it."""
    errors = [last_error_line(end.last) for end in attempt.first_ends]
    outside = not all(map(_OF_THE_PROGRAM.match, errors))
    outside = outside or any(_OF_THE_PLACE.match(line) or len(set(_VERSION.findall(line))) > 1 for line in errors)
    outside = outside or any(_READS_VARIABLE.search(line) for end in attempt.first_ends for line in end.last[-8:])
    return all(end.limits for end in attempt.first_ends) and not attempt.decided and not outside


def _is_refuted(code: str, attempt: LaunchAttempt) -> bool:
    """Whether what was seen of the machine refutes a cause that only the end of a process suggests."""
    if any(note.kind == "place" for note in attempt.notes):
        return True  # what is missing is there
    if any(note.kind == "limit" for note in attempt.notes) and (
        code == PROGRAM_ITSELF
        or (code == NO_DISK_SPACE and not any(map(_lacked_room, attempt.first_ends)))
        or (code == OUT_OF_MEMORY and not any(end.oom or end.signal == SIGKILL for end in attempt.ends))
    ):
        return True
    ended = [end for end in attempt.first_ends if end.signal in (SIGKILL, SIGTERM) and not end.stopped]
    if code == PROGRAM_ITSELF and ended:
        return True  # somebody ended it: it has survived the error that its log shows
    if code == STOPPED_FROM_OUTSIDE:
        return attempt.why in ("hung", "claimed", "missing", "unfit")  # gpuready itself ended it
    if code == OUT_OF_MEMORY:
        seen = [kills for end in attempt.ends for kills in (end.oom or None, end.memory_kills) if kills is not None]
        refused = any("memory" in last_error_line(end.last) for end in attempt.first_ends)  # it says so itself
        of_its_group = any(end.oom and end.limits.get("memory") for end in attempt.first_ends)
        return of_its_group or (bool(seen) and not any(seen) and not refused) or _had_memory(attempt)
    if code == SHARED_MEMORY:
        room = [end.shm_free for end in attempt.first_ends if end.shm_free is not None]
        return bool(room) and min(room) > ROOM_SHARE
    return False


def _had_memory(attempt: LaunchAttempt) -> bool:
    """Whether no rank was killed, and each that failed first had more left than it asked for: another limit refused it."""
    for end in attempt.first_ends:
        found = _ASKED.search(last_error_line(end.last))
        asked = float(found[1]) * 1024 ** _UNITS.index(found[2]) if found else 0
        if end.signal or end.oom or end.memory_kills or end.limits.get("free", 0) < max(MUCH_MEMORY, asked):
            return False
    return bool(attempt.first_ends)


def _diagnose_logs(paths: list[str], job: LaunchJob, read_as: Mapping[str, str] | None = None) -> Diagnosis | None:
    """An error in the diagnosis must not hide the failure itself."""
    try:
        framework = (job.framework or None) and job.framework.partition("=")[0].partition(":")[0]
        return diagnose_logs(paths, framework=framework, read_as=read_as)
    except Exception:
        return None


def _log_rank_exits(folder: str, attempt: LaunchAttempt) -> None:
    """Log what no rank could write itself: how each one ended, in the order observed."""
    lines = []
    for end in attempt.ends:
        if end.oom:
            lines.append(f"Out of memory: Killed process {end.pid} (rank {end.rank})")
        if end.failed and not end.stopped:
            code = -end.signal if end.signal else end.code
            lines.append(f"failed (exitcode: {code}) rank: {end.rank} (pid: {end.pid}) of {end.host}")
    try:
        book = RankLogs(folder)
    except OSError:
        return
    book.write_lines(EXITS, lines)
    book.close()


_VERDICTS = {name: name for name in ("interrupted", "hung", "missing")} | {"claimed": "missing", "unfit": "refused"}


def _make_outcome(job: LaunchJob, attempts: list[LaunchAttempt], useless: str, seconds: float) -> RunOutcome:
    last = attempts[-1]
    verdict = "done" if last.code == 0 else _VERDICTS.get(last.why, "failed")
    code = EXIT_USELESS if useless and last.code else last.code
    return RunOutcome(job, tuple(attempts), code, "useless" if useless else verdict, useless, round(seconds, 3))
