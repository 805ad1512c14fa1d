"""One run over a fleet: what to do on the nodes, the transport, the answers."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from shlex import join
from typing import Any

from gpuready import __version__, system
from gpuready.fleet.answer_collector import AnswerCollector
from gpuready.fleet.journal import AnswerJournal
from gpuready.fleet.transport import TransportUnavailable
from gpuready.model import validation
from gpuready.model.flag_words import as_words
from gpuready.model.fleet import FleetNode, NodeAnswer
from gpuready.model.node_names import expand_node_set, fold_node_names
from gpuready.model.record import Record, field
from gpuready.system import own_folders
from gpuready.workflow import fleet_transport
from gpuready.workflow.fleet_transport import NO_CLUSTER, ReachOptions
from gpuready.workflow.refusal import Refused, call_or_refuse, read_named_file

ShowProgress = Callable[[str, int, int], None]


RETRY_PAUSES, RETRY_THINNING, RETRIES = (2.0, 5.0, 10.0, 20.0, 30.0, 60.0), 4, 3
"""Seconds before nodes that failed for now are asked again, and how many times fewer of them at once each time."""


FLUSH_EACH_LIMIT = 256
"""Up to this many nodes, every answer is written to disk at once."""


MAX_KEPT_RUNS, RECENT_SECONDS = 50, 600.0
"""Runs kept in the cache, besides those written to within RECENT_SECONDS."""


class FleetTask(Record):
    """What to do on the nodes."""

    do: str
    frameworks: tuple[str, ...] = ()
    timeout: float = 0.0
    reference: str = ""
    resume: str = ""
    strict: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    retries: int = RETRIES
    runs: str = ""  # a folder with records of earlier runs

    @property
    def assumptions(self) -> list[str]:
        return [f"as if: {name} {value}" for name, value in (self.options.get("what_if") or {}).items()]

    @property
    def node_seconds(self) -> float:
        return self.timeout or NODE_SECONDS[self.do]


def suggest_check(task: FleetTask, *where: str) -> tuple[str, ...]:
    """The words of the check that shows all of one node; ``where`` names its machine."""
    wants = task.options.get("wants")
    flags = (*(("--wants", str(wants)) if wants else ()), *as_words(task.options.get("what_if") or {}))
    return ("gpuready", "check", *task.frameworks, *where, *flags)


class FleetRun:
    """One run over a fleet: the transport, the answers, and the folder that it can be resumed from."""

    def __init__(self, task: FleetTask, reach: ReachOptions, show_progress: ShowProgress):
        self.folder = task.resume.rstrip("/")
        self.saved = _read_run_file(task) if task.resume else None
        names_nodes = bool(reach.nodes or reach.hosts or reach.hostfile)
        if self.saved:
            task, reach = _complete_by_run(task, reach, self.saved, names_nodes)
        if reach.hostfile and not reach.host_lines:
            reach = reach.replace(host_lines=read_named_file(reach.hostfile))
        self.task, self.reach, self.show_progress, self.started = task, reach, show_progress, time.monotonic()
        token = self.saved.run if self.saved else _random_token()
        self.transport, self.transport_reason = fleet_transport.open_transport(reach, token, task.frameworks)
        self.token = str(getattr(self.transport, "token", token))
        if task.timeout and hasattr(self.transport, "begin_seconds"):
            self.transport.begin_seconds = task.timeout
        self.nodes: list[FleetNode] = []
        self.notes = self.task.assumptions
        self.failed_for_now: set[str] = set()
        self.python = reach.python
        self.has_named_nodes = bool(reach.nodes or reach.hosts)

    def list_nodes(self) -> None:
        """Find the nodes, and open the journal of their answers."""
        self.show_progress("looking for nodes", 0, 0)
        try:
            self.nodes = self.transport.list_nodes()
        except ValueError as error:
            raise Refused(NO_CLUSTER.format(error) if isinstance(error, TransportUnavailable) else str(error)) from None
        if not self.nodes:
            raise Refused(f"{self.transport.name} knows no node")
        if self.task.do == "bisect" and len(self.nodes) < 2:
            raise Refused(f"bisect compares pairs of nodes, and there is only {self.nodes[0].name}: name two or more")
        self.notes += getattr(self.transport, "notes", ())
        names = [node.name for node in self.nodes]
        if self.saved and (others := sorted(set(names).difference(expand_node_set(self.saved.nodes)))):
            raise Refused(f"--resume {self.folder}: {fold_node_names(others)} was not in that run: start another one")
        self.folder = self.folder or _make_run_folder()
        if not self.saved:
            run = SavedRun(self.token, self.task, self.reach, fold_node_names(names), __version__)
            call_or_refuse(
                system.save_atomically, f"{self.folder}/run.json", f"{json.dumps(run.to_json(), indent=1)}\n"
            )
        self.journal = AnswerJournal(self.folder)
        self.gather = AnswerCollector(self.nodes, self.token, self.journal)

    def query_nodes(self) -> AnswerCollector:
        """Ask all nodes that have not answered yet; those that fail for now several times."""
        unanswered = [node for node in self.gather.list_unanswered() if self._should_ask(node)]
        if self.task.resume and len(unanswered) < len(self.nodes):
            self.notes.append(
                f"{len(self.nodes) - len(unanswered)} nodes had answered before: only {len(unanswered)} were asked"
            )
        request = self.make_request(REQUEST_KINDS[self.task.do])
        self.ask_nodes(unanswered, request)
        self._ask_again(request)
        return self.gather

    def _ask_again(self, request: dict[str, Any]) -> None:
        """Ask nodes again that failed for now: after a pause that grows, and fewer at once."""
        parallel = getattr(self.transport, "parallel", 0)
        for pause in RETRY_PAUSES[: self.task.retries]:
            again = [node for node in self.gather.list_unanswered() if node.name in self.failed_for_now]
            if not again:
                break
            self.show_progress(f"asking {len(again)} nodes again in {pause:g} s", 0, 0)
            time.sleep(pause)
            if parallel:
                self.transport.parallel = max(1, self.transport.parallel // RETRY_THINNING)  # type: ignore[attr-defined]
            self.ask_nodes(again, request)
        if parallel:
            self.transport.parallel = parallel  # type: ignore[attr-defined]

    def _should_ask(self, node: FleetNode) -> bool:
        """Skip nodes that the scheduler reports as down or drained, unless they were named."""
        return (
            node.state in ("up", "unknown")
            or self.has_named_nodes
            or self.transport.name not in ("slurm", "ray", "kubernetes")
        )

    def make_request(self, do: str, **more: Any) -> dict[str, Any]:
        options = {**self.task.options, **({"strict": True} if self.task.strict else {})}
        if self.python:
            options["python"] = self.python
        words = {"schema": 1, "do": do, "framework": list(self.task.frameworks), "token": self.token}
        return {**words, "options": options, **more}

    def ask_nodes(self, nodes: Sequence[FleetNode], request: dict[str, Any]) -> None:
        """Ask some nodes; gather their answers and write them to disk."""
        done = 0

        def record_answer(answer: NodeAnswer) -> None:
            nonlocal done
            done += 1
            self.failed_for_now.discard(answer.node)
            if answer.for_now:
                self.failed_for_now.add(answer.node)
            self.gather.add_answer(answer)
            if len(nodes) <= FLUSH_EACH_LIMIT:
                self.journal.flush_to_disk()
            self.show_progress(f"nodes ({request['do']})", done, len(nodes))

        if nodes:
            self.show_progress(f"nodes ({request['do']})", 0, len(nodes))
            self.transport.ask_nodes(nodes, request, self.task.node_seconds, record_answer)
            self.journal.flush_to_disk()

    def close(self) -> None:
        close = getattr(self.transport, "close", None)
        if close is not None:
            close()


def _random_token() -> str:
    return os.urandom(8).hex()


def _make_run_folder() -> str:
    name = f"{time.strftime('%Y%m%d-%H%M%S')}-{_random_token()[:6]}"
    try:
        folder = own_folders.make_cache_folder(system.LiveHost().variables, "fleet", name)
    except system.AccessError as error:
        raise Refused(f"a run keeps its answers in a folder: {error}; XDG_CACHE_HOME names one") from None
    own_folders.prune_old_folders(folder.rpartition("/")[0], MAX_KEPT_RUNS, RECENT_SECONDS)
    return folder


class SavedRun(Record):
    """The run.json of a run: what was asked, and how its nodes are reached, to resume it without a word."""

    run: str
    task: FleetTask
    reach: ReachOptions
    nodes: str  # folded
    gpuready: str = ""


def _read_run_file(task: FleetTask) -> SavedRun:
    """Return the contents of the run.json of a run to resume."""
    path = f"{task.resume.rstrip('/')}/run.json"
    try:
        saved = validation.parse_record(SavedRun, json.loads(read_named_file(path)))
        expand_node_set(saved.nodes)
    except (ValueError, RecursionError):
        raise Refused(f"{path} tells of no run of this gpuready fleet") from None
    was = saved.task
    given = (task.do, task.frameworks or was.frameworks, task.options or was.options, task.strict or was.strict)
    if given != (was.do, was.frameworks, was.options, was.strict):
        command = join(suggest_check(was)).replace("gpuready check", f"gpuready fleet {was.do}")
        raise Refused(f"--resume {task.resume}: that run was `{command}`: leave out what it was asked, which it keeps")
    return saved


def _complete_by_run(
    task: FleetTask, reach: ReachOptions, saved: SavedRun, names_nodes: bool
) -> tuple[FleetTask, ReachOptions]:
    """Return the task and the way to the nodes of the run that is resumed, with what is said anew."""
    usual = ReachOptions()
    anew = {name: getattr(reach, name) for name in ReachOptions._fields if getattr(reach, name) != getattr(usual, name)}
    unnamed = dict.fromkeys(("hosts", "hostfile", "host_lines", "nodes"), "") if names_nodes else {}
    kept = {name: getattr(task, name) or getattr(saved.task, name) for name in ("timeout", "reference", "runs")}
    return saved.task.replace(resume=task.resume, retries=task.retries, **kept), saved.reach.replace(**(unnamed | anew))


REQUEST_KINDS = {"check": "check", "prove": "prove", "bench": "bench", "drift": "fingerprint", "bisect": "fingerprint"}


NODE_SECONDS = {"check": 60.0, "prove": 900.0, "bench": 1200.0, "drift": 60.0, "bisect": 60.0}
"""Seconds that a node may take, unless --timeout is set."""
