"""``gpuready fleet``: run a command on many nodes, compare them, and name the outliers."""

import time
from collections.abc import Callable
from shlex import quote
from typing import Any

from gpuready import __version__, catalog, rules
from gpuready.catalog import bands, kernels
from gpuready.check.evaluate import judge, rule_title
from gpuready.fleet import areas, drift, outliers, verdict
from gpuready.fleet.drift import AreaDifference
from gpuready.fleet.outliers import LOWER_IS_BETTER, SHARED_PREFIX
from gpuready.fleet.pair_rounds import PairRounds
from gpuready.fleet.pair_search import PairSearch
from gpuready.fleet.peers import assign_peers
from gpuready.model import Contract, Facts, Report
from gpuready.model.fleet import Drift, FleetReport
from gpuready.system.process.termination import note_interrupt
from gpuready.workflow import contract_choice, machine_facts
from gpuready.workflow.bench import choose_measures
from gpuready.workflow.fleet_run import FleetRun, FleetTask, ShowProgress, suggest_check
from gpuready.workflow.fleet_transport import ReachOptions
from gpuready.workflow.machine_facts import read_recording
from gpuready.workflow.prove import classify_words
from gpuready.workflow.refusal import Refused
from gpuready.workflow.run_record import describe_earlier_runs


def run_fleet(
    task: FleetTask,
    reach: ReachOptions,
    show_progress: ShowProgress = lambda *_: None,
    tell: Callable[[str], None] = lambda text: None,
) -> FleetReport:
    """Run on every node, compare, and judge. ``tell`` gets the folder to resume from, before any node is asked."""
    _require_known_words(task)
    run = FleetRun(task, reach, show_progress)
    task = run.task
    try:
        reference = read_recording(task.reference) if task.reference else None
        run.notes += describe_earlier_runs(task.runs) if task.runs else []
        run.list_nodes()
        resume = f"gpuready fleet {task.do} --resume {quote(run.folder)}"
        if not reach.recordings:
            tell(f"answers are kept in {run.folder}; if this is interrupted, {resume} asks only the other nodes")
        run.query_nodes()
        if task.do == "bench":
            _remeasure_outliers(run)
        search = _bisect_nodes(run) if task.do == "bisect" else None
        report = build_fleet_report(run, reference, search)
    except BaseException as error:
        if hasattr(run, "gather"):
            count = f"{len(run.gather.records):,} of {len(run.nodes):,} nodes had answered, which is kept"
            note_interrupt(error, f"{count}: gpuready fleet {task.do} --resume {quote(run.folder)} asks the others")
        raise
    finally:
        run.close()
    return report


def _require_known_words(task: FleetTask) -> None:
    """Refuse here what every node would refuse: a framework, a proof, a feature or a measure that nobody knows."""
    if task.do == "prove":
        specs, _ = classify_words(task.frameworks)
    else:
        specs = list(task.frameworks)
    for spec in specs:  # a package without a contract may be installed on the nodes
        contract_choice.parse_framework_spec(spec, sees_packages=True)
    if "wants" in task.options:
        machine_facts.job_facts(task.options["wants"], None, None)
    if "only" in task.options:
        choose_measures(task.options["only"], quick=False)


# -- bench and bisect ---------------------------------------------------------------------------------------


def _remeasure_outliers(run: FleetRun) -> None:
    """Measure outliers again, until they are confirmed or cleared."""
    for attempt in range(2, outliers.MAX_TRIES + 1):
        weighed = outliers.find_outliers(run.gather.measured_tries, assign_peers(run.gather.nodes, run.gather.records))
        again = [node for node in run.nodes if node.name in weighed.measure_again]
        if not again:
            return
        run.ask_nodes(again, run.make_request("bench", **{"try": attempt}))


def _bisect_nodes(run: FleetRun) -> Any:
    """Run rounds of pairs, until the bad node is found or cleared; None where fewer than two nodes answer."""
    answering = [node for node in run.nodes if node.name in run.gather.records]
    if len(answering) < 2:
        run.notes.append(f"no pair was run: bisect needs two nodes that answer, and has {len(answering)}")
        return None
    counts = {node.name: run.gather.records[node.name].gpus for node in answering}
    backend = "nccl" if all(counts.values()) else "gloo"
    places = getattr(run.transport, "addresses", {})  # of pods, which differ from those of their nodes
    answering = [n.replace(gpus=counts[n.name], address=places.get(n.name) or n.address) for n in answering]
    limit = run.task.timeout or 60.0
    rounds = PairRounds(run.transport, answering, run.token, backend=backend, seconds=limit, python=run.python or None)
    # gloo runs on the CPU, which has other work: only a large loss is one of the link.
    search = PairSearch(counts, slow_share=0.6 if backend == "nccl" else 0.35)
    for pair in run.journal.read_pairs():
        search.add_outcome(pair)
    while pairs := search.next_round():
        rounds.on_answer = _make_round_progress(run, search.round_number, 2 * len(pairs))
        outcomes = rounds(search.round_number, pairs)
        if len(rounds.without_torch) == len(answering):
            why = next(iter(rounds.without_torch.values()))
            raise Refused(f"bisect needs torch on the nodes: {why}; name the Python that has it with --python")
        for pair in outcomes:
            search.add_outcome(pair)
            run.journal.add_pair(pair)
        run.journal.flush_to_disk()
        for name in rounds.unreachable:
            search.drop_node(name)
    run.notes.append(f"{search.round_number} rounds of pairs over {backend}")
    run.notes += [f"{name} was lost: {why}" for name, why in rounds.unreachable.items()]
    return search


def _make_round_progress(run: FleetRun, number: int, nodes: int) -> Callable[[], None]:
    """Return what shows that one more node of a round has answered."""
    done = 0

    def count_answer() -> None:
        nonlocal done
        done += 1
        run.show_progress(f"round {number} of pairs, nodes", min(done, nodes), nodes)

    run.show_progress(f"round {number} of pairs, nodes", 0, nodes)
    return count_answer


# -- the run folder -------------------------------------------------------------------------------------------


DETAIL_ROUNDS = 3
"""How often details are requested: a node that does not answer is skipped, and another of its group asked."""


def build_fleet_report(run: FleetRun, reference: Facts | None = None, search: PairSearch | None = None) -> FleetReport:
    gather = run.gather
    peers_of = assign_peers(gather.nodes, gather.records)
    differ, drifts = find_drift(run, peers_of, reference)
    pieces = verdict.FleetEvidence(
        gather,
        peers_of,
        differ,
        drifts,
        outliers.find_outliers(gather.measured_tries, peers_of),
        search.list_suspects() if search else (),
        search.mark_slow_pairs() if search else (),
    )
    report = verdict.build_fleet_report(
        pieces,
        lambda known: judge_fleet(known, run.task.strict),
        did=run.task.do,
        transport=run.transport.name,
        seconds=time.monotonic() - run.started,
        rounds=search.round_number if search else 0,
        notes=(f"{run.transport.name}: {run.transport_reason}", *run.notes),
    )
    units = {figure: figure_unit(figure) for figure in report.figures}
    looked = "no environment" if run.task.options.get("hardware") else run.python or "each node's own environment"
    paths = getattr(run.transport, "paths", {})  # of recordings
    records = {name: record for name, record in run.gather.records.items() if name in paths}
    troubled = [name for name, record in records.items() if record.verdict in ("not-ready", "undecided")]
    shows = suggest_check(run.task, "--on", paths[troubled[0]]) if troubled and looked != "no environment" else ()
    meanings = {code: rule_meaning(code) for code in (*report.codes, *report.blames)}
    told = {"environment": looked, "reference": run.task.reference, "next": shows}
    return report.replace(meanings=meanings, units=units, **told)


def figure_unit(figure: str) -> str:
    """The unit of a figure of bench; empty for one that this version does not know."""
    name = figure.removeprefix(SHARED_PREFIX)
    for suffix in LOWER_IS_BETTER:
        name = name.removesuffix(suffix)
    spec = bands.find_measure(name)
    return spec.unit if spec is not None else ""


def rule_meaning(code: str) -> str:
    """The title of a rule; empty for a code that this version does not know."""
    try:
        return rule_title(rules.load_rule(code))
    except KeyError:
        return ""


def judge_fleet(known: Facts, strict: bool) -> Report:
    """Apply the FLT rules to the facts of a fleet."""
    contract = Contract("fleet", __version__, title="every node like the others")
    fleet_rules = [rules.load_rule(code) for code in rules.list_rule_modules() if code.startswith("FLT")]
    return judge(fleet_rules, known, contract, strict=strict, catalog=catalog.catalog_date())


def find_drift(
    run: FleetRun, peers_of: dict[str, str], reference: Facts | None
) -> tuple[list[AreaDifference], list[Drift]]:
    """Find in what the nodes differ: one node of each group is asked for the facts."""
    rows: dict[str, dict[str, Any]] | None = None
    if reference is not None:
        rows = {area: areas.reference_values(area, reference, kernels.list_kernels()) for area in areas.AREAS}
    kind = areas.classify_node(reference) if reference is not None else None
    differ = drift.find_area_differences(run.gather.records, peers_of, rows, kind)
    avoid: set[str] = set()
    for _ in range(DETAIL_ROUNDS):
        questions = drift.plan_detail_requests(differ, run.gather.details, avoid)
        if not questions:
            break
        avoid |= set(questions)
        _request_details(run, questions)
    return differ, drift.explain_differences(differ, run.gather.details)


def _request_details(run: FleetRun, questions: dict[str, tuple[str, ...]]) -> None:
    """Ask for details; nodes with the same areas are asked together."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, keys in questions.items():
        groups.setdefault(tuple(sorted(keys)), []).append(name)
    for keys, names in groups.items():
        nodes = [run.gather.nodes[name] for name in names]
        run.ask_nodes(nodes, run.make_request("details", keys=list(keys)))
