"""Would the import of a root fail? One answer for each: error, module, cause, the chain of imports; or a gap."""

from __future__ import annotations

import gc
import sys

from gpuready.system.imports.module_finder import ModuleFinder
from gpuready.system.imports.module_records import ImportFailure, find_cut_module
from gpuready.system.imports.simulation import MAX_MODULES, Simulation

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from gpuready.system.imports.damage import Survey


def simulate_roots(survey: Survey, roots: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return for each root whether its import fails: error, module, cause, and the chain of imports that leads there."""
    limit, collects = sys.getrecursionlimit(), gc.isenabled()
    sys.setrecursionlimit(max(limit, 30000))
    gc.disable()  # thousands of trees, none of them garbage until the end
    try:
        finder = ModuleFinder(survey)
        return (
            _simulate_alone(survey, finder, roots)
            if finder.follows_stdlib
            else _simulate_together(survey, finder, roots)
        )
    finally:
        sys.setrecursionlimit(limit)
        if collects:
            gc.enable()


def _simulate_together(survey: Survey, finder: ModuleFinder, roots: Sequence[str]) -> dict[str, dict[str, Any]]:
    simulation, starts = Simulation(finder), survey.request.get("starts") or {}
    return {root: _simulate_modules(simulation, [survey.choose_module(root), *starts.get(root, ())]) for root in roots}


def _simulate_alone(survey: Survey, finder: ModuleFinder, roots: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Simulate each root in a Python of its own, frameworks first: what hides a module of the standard library is run by the first that imports that.

    One that fails is enough, since everything is followed then, which takes long.
    """
    found: dict[str, dict[str, Any]] = {}
    for root in sorted(roots, key=lambda root: root == "torch"):
        found |= _simulate_together(survey, finder, [root])
        if found[root]["error"]:
            break
    return found


def _simulate_modules(simulation: Simulation, names: Sequence[str]) -> dict[str, Any]:
    """Return the outcome of the first module; if it imports, of the first that its commands start from and that fails."""
    outcome = _simulate_module(simulation, names[0])
    if not names[0] or outcome["error"]:
        return outcome
    for start in names[1:]:
        later = _simulate_module(simulation, start)
        if later["error"] and not _is_of_another_release(simulation, later):
            return later
        if later.get("gap") and not outcome.get("gap"):
            outcome = later
    return outcome


def _is_of_another_release(simulation: Simulation, outcome: dict[str, Any]) -> bool:
    """Whether a start is not there because this release starts elsewhere, and not because a file is missing."""
    start = outcome["module"]
    own = [start, *(start[:at] for at, letter in enumerate(start) if letter == ".")]
    names_start = outcome["error"] in [f"ModuleNotFoundError: No module named {name!r}" for name in own]
    return names_start and outcome["cause"] not in simulation.finder.missing


def _simulate_module(simulation: Simulation, name: str) -> dict[str, Any]:
    outcome: dict[str, Any] = {"module": name, "error": "", "cause": "", "chain": [], "modules": 0}
    if not name:  # no file says what it is imported by, and the survey says that it was not looked at
        return outcome
    try:
        simulation.import_name(name, certain=True)
    except ImportFailure as failure:
        outcome |= _describe_failure(simulation, failure)
    except RecursionError:
        return outcome | {"gap": "its imports are nested too deeply to follow"}
    if simulation.modules_followed > MAX_MODULES:
        return outcome | {"gap": f"it imports more than {MAX_MODULES} modules"}
    if simulation.possible and not outcome["error"]:
        first, why = simulation.possible[0]
        text = f"{first.kind}: {first.text}"
        return outcome | {"gap": f"it may fail, which only running tells{why and f' ({why})'}: {text}"[:300]}
    if not outcome["error"] and (cut := find_cut_module(simulation.modules.values(), simulation.finder.short)):
        return outcome | {"gap": f"it imports {cut}, which is cut off: what that lacks, only running tells"[:300]}
    return outcome | {"modules": simulation.modules_followed}


def _describe_failure(simulation: Simulation, failure: ImportFailure) -> dict[str, Any]:
    """Describe a failure; a gap where the code of a .pth file may provide the module that is not found."""
    text = f"{failure.kind}: {failure.text}"
    hooks = simulation.finder.path.unread_hooks
    if hooks and failure.kind == "ModuleNotFoundError" and failure.cause == failure.text.split("'")[1::2][-1]:
        return {"gap": f"{text}, unless {hooks[0]} provides it: it runs code when Python starts"}
    return {"error": text, "cause": failure.cause, "chain": failure.chain[::-1][:12]}
