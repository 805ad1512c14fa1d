"""``gpuready fleet``: run a command on many nodes, compare them, and name the outliers."""

from __future__ import annotations

import time

from gpuready import system
from gpuready.fleet.gather import Gather
from gpuready.fleet.journal import Journal
from gpuready.fleet.transport import Unreached
from gpuready.noun import Noun
from gpuready.workflow import reaching
from gpuready.workflow.refusal import Refused, refusing, text_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from gpuready.fleeted import Answer, FleetReport, Node
    from gpuready.workflow.reaching import Reach

    Say = Callable[[str, int, int], None]

DOES = {"check": "check", "prove": "prove", "bench": "bench", "drift": "fingerprint", "bisect": "fingerprint"}
SECONDS = {"check": 60.0, "prove": 900.0, "bench": 1200.0, "drift": 60.0, "bisect": 60.0}
"""Seconds that a node may take, unless --timeout is set."""


FEW = 256
"""Up to this many nodes, every answer is written to disk at once."""

RUNS_KEPT, QUIET = 50, 600.0
"""Runs kept in the cache, besides those written to within RECENT_SECONDS."""


class Asked(Noun):
    """What to do on the nodes."""

    do: str
    frameworks: tuple[str, ...] = ()
    timeout: float = 0.0
    reference: str = ""
    resume: str = ""
    strict: bool = False
    options: dict[str, Any] = {}

    @property
    def seconds(self) -> float:
        return self.timeout or SECONDS[self.do]


class Run:
    """One run over a fleet: the transport, the answers, and the folder that it can be resumed from."""

    def __init__(self, asked: Asked, reach: Reach, say: Say):
        self.asked, self.say, self.begun = asked, say, time.monotonic()
        self.folder, kept = _folder(asked)
        token = str(kept.get("run") or _token())
        self.transport, self.why = reaching.transport(reach, token, asked.frameworks)
        self.token = str(getattr(self.transport, "token", token))
        self.nodes: list[Node] = []
        self.notes: list[str] = []
        self.python = reach.python
        self.named = bool(reach.nodes or reach.hosts)

    def look(self) -> Gather:
        """List the nodes, and ask all that have not answered yet."""
        self.say("looking for nodes", 0, 0)
        try:
            self.nodes = refusing(self.transport.nodes)
        except Unreached as cannot:
            raise Refused(str(cannot)) from None
        if not self.nodes:
            raise Refused(f"{self.transport.name} knows no node")
        _keep(self.folder, self.asked, self.token, self.transport.name)
        self.journal = Journal(self.folder)
        self.gather = Gather(self.nodes, self.token, self.journal)
        left = [node for node in self.gather.missing() if self._wanted(node)]
        if self.asked.resume and len(left) < len(self.nodes):
            self.notes.append(
                f"{len(self.nodes) - len(left)} nodes had answered before: only {len(left)} were asked"
            )
        self.ask(left, self.request(DOES[self.asked.do]))
        return self.gather

    def _wanted(self, node: Node) -> bool:
        """Skip nodes that the scheduler reports as down or drained, unless they were named."""
        return node.state in ("up", "unknown") or self.named or self.transport.name not in ("slurm", "ray")

    def request(self, do: str, **more: Any) -> dict[str, Any]:
        options = {**self.asked.options, **({"strict": True} if self.asked.strict else {})}
        if self.python and self.transport.name != "ray":
            options["python"] = self.python
        words = {"schema": 1, "do": do, "framework": list(self.asked.frameworks), "token": self.token}
        return {**words, "options": options, **more}

    def ask(self, nodes: Sequence[Node], request: dict[str, Any]) -> None:
        """Ask some nodes; gather their answers and write them to disk."""
        done = 0

        def heard(answer: Answer) -> None:
            nonlocal done
            done += 1
            self.gather.heard(answer)
            if len(nodes) <= FEW:
                self.journal.flush()
            self.say(request["do"], done, len(nodes))

        if nodes:
            self.say(request["do"], 0, len(nodes))
            self.transport.ask(nodes, request, self.asked.seconds, heard)
            self.journal.flush()

    def close(self) -> None:
        close = getattr(self.transport, "close", None)
        if close is not None:
            close()


def fleet(asked: Asked, reach: Reach, say: Say = lambda *_: None) -> tuple[FleetReport, str]:
    """Run on every node, compare, and judge. Return the report, and the folder that the run is kept in."""
    reference = _reference(asked.reference) if asked.reference else None
    run = Run(asked, reach, say)
    try:
        run.look()
        if asked.do == "bench":
            _again(run)
        search = _search(run) if asked.do == "bisect" else None
        from gpuready.workflow import comparing

        report = comparing.report(run, reference, search)
    finally:
        run.close()
    return report, run.folder


def serves(reach: Reach) -> int | None:
    """On a torchrun rank other than the first: answer until the end, and return the exit code. None elsewhere."""
    door = system.Live()
    environ = door.environ()
    try:
        name, _ = reaching.engine(reach, door, environ)
    except Refused:
        return None
    if name != "elastic":
        return None
    if environ.get("LOCAL_RANK", "0") != "0":
        return 0
    transport, _ = reaching.transport(reach, "")
    from gpuready.fleet.elastic import Elastic

    if not isinstance(transport, Elastic) or transport.first:
        return None
    trouble = transport.serve()
    if trouble:
        raise Refused(f"the store of torchrun: {trouble}")
    return 0


# -- bench and bisect ---------------------------------------------------------------------------------------


def _again(run: Run) -> None:
    """Measure outliers again, until they are confirmed or cleared."""
    from gpuready.fleet import outliers, strata

    for attempt in range(2, outliers.TRIES + 1):
        weighed = outliers.weigh(run.gather.tries, strata.strata(run.gather.nodes, run.gather.records))
        again = [node for node in run.nodes if node.name in weighed.again]
        if not again:
            return
        run.ask(again, run.request("bench", **{"try": attempt}))


def _search(run: Run) -> Any:
    """Run rounds of pairs, until the bad node is found or cleared."""
    from gpuready.fleet.pairs import Search, graded
    from gpuready.fleet.rounds import Rounds

    here = [node for node in run.nodes if node.name in run.gather.records]
    if len(here) < 2:
        raise Refused(f"bisect needs two nodes that answer, and has {len(here)}")
    counts = {node.name: run.gather.records[node.name].gpus for node in here}
    backend = "nccl" if all(counts.values()) else "gloo"
    here = [node.but(gpus=counts[node.name]) for node in here]
    limit = run.asked.timeout or 60.0
    rounds = Rounds(run.transport, here, run.token, backend=backend, seconds=limit, python=run.python or None)
    search = Search(counts, {node.name: node.labels.get("switch", "") for node in here})
    # gloo runs on the CPU, which has other work: only a large loss is one of the link.
    share = 0.6 if backend == "nccl" else 0.2
    while pairs := search.round():
        run.say(f"round {search.number}", 0, len(pairs))
        for pair in graded(rounds(search.number, pairs), share):
            search.heard(pair)
        for name in rounds.lost:
            search.lost(name)
        if len(rounds.absent) == len(here):
            why = next(iter(rounds.absent.values()))
            raise Refused(
                f"bisect needs torch on the nodes: {why}; name the Python that has it with --python"
            )
        run.say(f"round {search.number}", len(pairs), len(pairs))
    run.notes.append(f"{search.number} rounds of pairs over {backend}")
    run.notes += [f"{name} was lost: {why}" for name, why in rounds.lost.items()]
    return search


# -- the run folder -------------------------------------------------------------------------------------------


def _token() -> str:
    import os

    return os.urandom(8).hex()


def _list(value: object) -> bool:
    return value is None or isinstance(value, list)


def _folder(asked: Asked) -> tuple[str, dict[str, Any]]:
    """Return the folder of the run, new or resumed, and the contents of its run.json."""
    import json

    from gpuready.system import scratch

    if not asked.resume:
        name = f"{time.strftime('%Y%m%d-%H%M%S')}-{_token()[:6]}"
        try:
            folder = scratch.cache(system.Live().variables, "fleet", name)
        except system.Blind as blind:
            raise Refused(f"a run needs a folder in the cache: {blind}") from None
        scratch.thin(folder.rpartition("/")[0], RUNS_KEPT, QUIET)
        return folder, {}
    path = f"{asked.resume.rstrip('/')}/run.json"
    try:
        kept = json.loads(text_of(path))
    except (ValueError, RecursionError):
        raise Refused(f"{path} is not JSON: this folder is no run of gpuready fleet") from None
    if (
        not isinstance(kept, dict)
        or not isinstance(kept.get("run"), str)
        or not _list(kept.get("frameworks"))
    ):
        raise Refused(f"{path} tells of no run of gpuready fleet")
    mine = (asked.do, list(asked.frameworks))
    if (kept.get("do"), kept.get("frameworks")) != mine:
        was = " ".join(["gpuready fleet", str(kept.get("do")), *map(str, kept.get("frameworks") or [])])
        raise Refused(f"--resume {asked.resume}: that run was `{was}`; resume it with the same words")
    return asked.resume.rstrip("/"), kept


def _keep(folder: str, asked: Asked, token: str, engine: str) -> None:
    import json

    from gpuready import __version__

    told = {"schema": 1, "gpuready": __version__, "run": token, "do": asked.do, "engine": engine}
    text = json.dumps(told | {"frameworks": list(asked.frameworks)}, indent=1)
    refusing(system.save, f"{folder}/run.json", text + "\n")


def _reference(path: str) -> Any:
    """Read the recording that every node is compared with."""
    from gpuready.workflow.looking import recording

    return recording(path)
