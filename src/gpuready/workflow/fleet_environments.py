"""Environments of one machine as the nodes of a fleet: which of them break, as by another driver."""

import time
from collections.abc import Sequence

from gpuready import contracts, system, workflow
from gpuready.catalog.packages import find_package
from gpuready.model import worst_verdict
from gpuready.model.fleet import ANSWERED, ENVIRONMENTS, UNREAD, FleetReport
from gpuready.model.node_names import fold_node_names
from gpuready.probe.fact_helpers import read_if_present
from gpuready.workflow.fleet import rule_meaning
from gpuready.workflow.fleet_node import verdict_codes
from gpuready.workflow.fleet_recordings import require_any_read, shorten_refusal
from gpuready.workflow.fleet_run import FleetTask, ShowProgress, suggest_check
from gpuready.workflow.refusal import Refused, suggest_nearest


def is_environment(word: str) -> bool:
    """Whether a word without a slash names the folder of an environment here."""
    host = system.LiveHost()
    return any(
        read_if_present(host.stat_path, f"{word}/{name}") for name in ("pyvenv.cfg", "conda-meta", "bin/python3")
    )


def name_recordings(words: Sequence[str], has_nodes: bool) -> list[str]:
    """The words, with a folder of recordings as its recordings; ``has_nodes``: nodes are named, which may have packages of their own."""
    places = [word for word in words if not _is_known_package(word)]
    return [name for word in words for name in ([word] if word not in places else _find_files(word, places, has_nodes))]


def _is_known_package(word: str) -> bool:
    name = word.partition("=")[0].partition(":")[0].partition("[")[0]
    return contracts.has_contract(name) or bool(find_package(name))


def _find_files(word: str, places: Sequence[str], has_nodes: bool) -> list[str]:
    if word.endswith(".json") or is_environment(word):
        return [word]
    names = read_if_present(system.LiveHost().list_directory, word)
    if names is None and not has_nodes and "/" not in word:
        near = suggest_nearest(word, [*contracts.list_frameworks(), *(system.LiveHost().list_directory(".") or ())])
        raise Refused(f"{word} is no framework that gpuready knows, and no file or folder here{near}")
    found = [f"{word.rstrip('/')}/{name}" for name in sorted(names or ()) if name.endswith(".json")]
    if names is not None and not found and len(places) == 1:
        raise Refused(f"{word} holds no recordings (*.json), and no Python environment")
    return found or [word if names is None or "/" in word else f"./{word}"]


def check_environments(
    task: FleetTask, environments: Sequence[str], machines: Sequence[str], show_progress: ShowProgress
) -> FleetReport:
    """Check each environment on this machine, or on the named one, as if it had another driver."""
    what_if = task.options.get("what_if") or {}
    if len(machines) > 1:
        raise Refused("environments are checked for one machine: name one")
    started, gpus = time.monotonic(), 0
    verdicts: dict[str, list[str]] = {}
    codes: dict[str, list[str]] = {}
    judged: dict[str, None] = {}
    lacking: dict[str, None] = {}
    unread: dict[str, Refused] = {}
    for number, path in enumerate(environments):
        show_progress("checking environments", number, len(environments))
        try:
            reports = workflow.check_machine(
                task.frameworks,
                on=next(iter(machines), None),
                python=path,
                what_if=what_if,
                wants=task.options.get("wants"),
                strict=task.strict,
            )
        except Refused as error:
            unread[path] = error
            continue
        verdict = worst_verdict(report.verdict for report in reports)
        verdicts.setdefault(verdict, []).append(path)
        for code in dict.fromkeys(verdict_codes(reports, verdict)):
            codes.setdefault(code, []).append(path)
        judged |= dict.fromkeys(report.contract.judged_name for report in reports)
        lacking |= dict.fromkeys(
            f"not given: {one}; state it with --as {one}=VERSION" for r in reports for one in r.lacking
        )
        gpus = reports[0].facts.value_if_known("gpu.count") or 0
    require_any_read(unread, environments)
    troubled = [*verdicts.get("not-ready", ()), *verdicts.get("undecided", ())]
    on = tuple(word for machine in machines for word in ("--on", machine))
    return FleetReport(
        "check",
        ENVIRONMENTS,
        len(environments),
        verdicts={verdict: fold_node_names(paths) for verdict, paths in verdicts.items()},
        states={ANSWERED: fold_node_names(path for path in environments if path not in unread)}
        | ({UNREAD: fold_node_names(unread)} if unread else {}),
        reasons={f"{UNREAD}: {shorten_refusal(error, path)}": path for path, error in unread.items()},
        codes={code: fold_node_names(paths) for code, paths in codes.items()},
        meanings={code: rule_meaning(code) for code in codes},
        seconds=time.monotonic() - started,
        strict=task.strict,
        gpus=gpus,
        judged=tuple(judged),
        environment="each environment",
        next=suggest_check(task, "--python", troubled[0], *on) if troubled else (),
        notes=(*task.assumptions, *lacking),
    )
