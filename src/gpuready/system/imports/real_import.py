"""Import modules with the Python of an environment, in a process of its own. What happened is the answer."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from gpuready.model import Record
from gpuready.system.host_access import HostAccess, RunResult
from gpuready.system.process.runner import DROPPED_VARIABLES, unredacted_variables
from gpuready.system.redaction.text import redact_text

SECONDS = 120.0
SECONDS_VARIABLE = "GPUREADY_IMPORT_DEADLINE"
MAX_SECONDS = 1e6
MAX_TEXT, MAX_CHAIN = 4000, 40
OFFLINE = dict.fromkeys(("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE", "DO_NOT_TRACK"), "1")
"""Variables by which hubs are not asked and nothing is reported."""
HIDDEN_GPUS = {
    "CUDA_VISIBLE_DEVICES": "",
    "HIP_VISIBLE_DEVICES": "",
    "ROCR_VISIBLE_DEVICES": "",
    "ZE_AFFINITY_MASK": "",
}
GPU_FILES = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg", "/dev/dri")
ANSWER = "gpuready-import "
"""How the line of the answer begins; what an import prints may stand before it."""
SCRIPT = """
import gc, sys
gc.disable()  # nothing is garbage so early, and looking for some takes a tenth of the time

def describe(error):
    while error.__cause__ is not None:  # transformers: "Failed to import ... because of the following error"
        error = error.__cause__
    steps, at = [], error.__traceback__
    while at is not None:
        file = at.tb_frame.f_code.co_filename
        steps += [] if file.startswith("<") else [(file, at.tb_lineno)]
        at = at.tb_next
    text = str(error)
    if isinstance(error, SyntaxError):
        text = str(error.msg)
        steps += [(error.filename, error.lineno or 0)] if error.filename else []
    file, line = steps[-1] if steps else ("", 0)
    kind = type(error).__name__
    name = str(error.name or "") if isinstance(error, ImportError) else ""
    return {"error": "%s: %s" % (kind, text) if text else kind, "file": str(file), "line": line, "name": name,
            "chain": ["%s:%s" % step for step in steps]}

def answer(row):
    sys.stdout.flush()
    sys.stdout.write("\\n" + sys.argv[1] + ascii(row) + "\\n")
    sys.stdout.flush()

modules, others = sys.argv[2].split(","), sys.argv[3].split(",")
for module in modules:
    try:
        __import__(module)
    except BaseException as error:
        answer(dict(describe(error), module=module))
        break
else:
    answer({"module": modules[0], "error": "", "imported": [one for one in others if one in sys.modules]})
gc.freeze()
"""
"""It imports nothing else first, so that no module is found earlier than for any other program."""
_CRASHED_AT = re.compile(r'most recent call first\):\n  File "([^"\n]{1,4096})", line (\d{1,9})')


class ImportTask(Record):
    """What to import: the module of a distribution, and those that its commands start from."""

    root: str
    modules: tuple[str, ...]


def import_roots(
    host: HostAccess, python: str, tasks: Sequence[ImportTask], flags: Sequence[str] = ()
) -> dict[str, dict[str, Any]]:
    """Import each task in a process of its own; one whose modules another has imported needs none."""
    seconds = read_time_limit(host)
    results: dict[str, dict[str, Any]] = {}
    imported: set[str] = set()
    for task in tasks:
        others = [module for other in tasks for module in other.modules]
        if imported.issuperset(task.modules):
            results[task.root] = {"module": task.modules[0], "error": "", "seconds": 0.0, "timed_out": False}
            continue
        results[task.root] = _import_task(host, python, task, others, flags, seconds)
        imported.update(results[task.root].pop("imported", ()))
    return results


def read_time_limit(host: HostAccess) -> float:
    """Seconds that one import may take: of the variable, where it is a number above 0."""
    try:
        seconds = float(host.get_env_var(SECONDS_VARIABLE) or SECONDS)
    except ValueError:
        return SECONDS
    return seconds if 0 < seconds <= MAX_SECONDS else SECONDS


def _import_task(
    host: HostAccess, python: str, task: ImportTask, others: Sequence[str], flags: Sequence[str], seconds: float
) -> dict[str, Any]:
    """Import with the GPUs hidden; what fails is tried again with them, where there are any."""
    words = [python, *flags, "-X", "faulthandler", "-c", SCRIPT, ANSWER, ",".join(task.modules), ",".join(others)]
    variables = _users_variables(host)
    ran = host.run(words, seconds, env=variables | HIDDEN_GPUS)
    result = _parse_result(ran, task.modules[0])
    if result["error"] and not result["timed_out"] and any(host.stat_path(path) for path in GPU_FILES):
        ran = host.run(words, seconds, env=variables)
        result = _parse_result(ran, task.modules[0])
    return result


def _users_variables(host: HostAccess) -> dict[str, str | None]:
    """The changes that make the environment of a child that of the user's own programs, offline."""
    known: Mapping[str, str] = unredacted_variables(host)
    own = {name: known.get(name) for name in (*DROPPED_VARIABLES, "LC_ALL")}
    return own | {"PYTHONDONTWRITEBYTECODE": "1"} | OFFLINE


def _parse_result(ran: RunResult, module: str) -> dict[str, Any]:
    lines = ran.out.splitlines()
    answers = [line for line in lines if line.startswith(ANSWER)]
    result = _read_answer(answers[-1]) if answers else _describe_end(ran, module)
    texts = {key: redact_text(str(result.get(key) or ""))[:MAX_TEXT] for key in ("error", "file", "name")}
    printed = "\n".join([*(line for line in lines if line not in answers), ran.err]).strip()
    output = redact_text(printed)[-MAX_TEXT:] if result["error"] else ""
    chain = tuple(redact_text(str(step)) for step in result.get("chain") or ())[-MAX_CHAIN:]
    kept = {"module": str(result["module"]), "line": int(result.get("line") or 0), "chain": chain, "output": output}
    timed = {"seconds": round(ran.seconds, 2), "timed_out": not answers and _is_out_of_time(ran)}
    return kept | texts | timed | {"imported": tuple(result.get("imported") or ())}


def _is_out_of_time(ran: RunResult) -> bool:
    """Whether it was killed at the limit; on a busy machine it may then still be dying."""
    return ran.end.startswith(("deadline", "unkillable"))


def _read_answer(line: str) -> dict[str, Any]:
    import ast

    try:
        found = ast.literal_eval(line.removeprefix(ANSWER))
        return {"module": found["module"], "error": found["error"], **found}
    except (ValueError, TypeError, KeyError, SyntaxError, RecursionError, MemoryError):
        return {"module": "", "error": "the answer of the import cannot be read"}


def _describe_end(ran: RunResult, module: str) -> dict[str, Any]:
    """A process that ended without an answer: a crash, a time limit, or code that ends the process."""
    lines = [line.strip() for line in ran.err.splitlines() if line.strip()]
    said = next((line for line in lines if line.startswith("Fatal Python error")), lines[-1] if lines else "")
    crash = _CRASHED_AT.search(ran.err)
    place = {"file": crash[1], "line": int(crash[2])} if crash else {}
    if _is_out_of_time(ran):
        longer = f"{SECONDS_VARIABLE}=SECONDS waits longer"
        return {"module": module, "error": f"it did not end within {ran.seconds:.0f} s; {longer}"}
    ended = f"ended by {ran.end}" if ran.end else f"ended with exit status {ran.rc}"
    return {"module": module, "error": f"the process {ended}{said and f': {said}'}", **place}
