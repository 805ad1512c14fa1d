"""Would torch and the frameworks of the target environment import? From files alone, in two looks.

The first is part of every check: it compares files, libraries and requirements. The second follows import statements, and is
only taken where something differs, or is asked for.
"""

from __future__ import annotations

from gpuready.model import Fact
from gpuready.probe.fact_helpers import absent_facts, gap_facts, read_if_present
from gpuready.probe.fact_keys import EXTENSIONS
from gpuready.probe.fact_keys import IMPORTS as KEYS
from gpuready.probe.packages import FRAMEWORKS
from gpuready.probe.target_environment import skips_current_folder
from gpuready.system import AccessError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from gpuready.probe.target_environment import TargetEnvironment
    from gpuready.system import HostAccess

__all__ = ["KEYS", "probe_imports", "run_imports", "trace_imports"]

IMPORT_SCRIPT = "import importlib, sys; importlib.import_module(sys.argv[1])"
IMPORT_SECONDS = 600.0


def probe_imports(host: HostAccess, target: TargetEnvironment, frameworks: Sequence[str] = ()) -> list[Fact]:
    """Return what differs in the files of torch, the frameworks, and all that these require."""
    source = ", ".join(target.site) or target.prefix
    if not target.site or not target.version:
        return absent_facts(KEYS, source)
    if target.machine and target.machine != read_if_present(host.get_uname, default={}).get("machine", ""):
        return []  # an environment for another architecture: its libraries load there
    try:
        answer = host.survey_imports(_survey_request(host, target, frameworks))
    except AccessError as error:
        # A recording that was made before this look has nothing to say of it.
        return gap_facts(KEYS, str(error), source) if host.is_live else []
    return _survey_facts(answer, source) if answer.get("roots") else absent_facts(KEYS, source)


def trace_imports(
    host: HostAccess, target: TargetEnvironment, frameworks: Sequence[str] = (), deep: bool = False
) -> list[Fact]:
    """Return the same, and what following the import statements says; with ``deep``, by the contents of every file."""
    source = ", ".join(target.site)
    request = _survey_request(host, target, frameworks) | {"simulate": True, "deep": deep}
    try:
        answer = host.survey_imports(request)
    except AccessError as error:
        return gap_facts((*KEYS, "import.outcome"), str(error), source)
    if not answer.get("roots"):
        return []
    return [*_survey_facts(answer, source, deep), Fact("import.outcome", answer.get("outcome") or {}, source)]


def run_imports(host: HostAccess, target: TargetEnvironment, modules: Mapping[str, str]) -> Fact:
    """Import modules for real, each in a process of its own, as a program in the current folder would."""
    results = {name: _import_module(host, target.path, module) for name, module in modules.items()}
    return Fact("import.result", results, target.path, "run")


def _import_module(host: HostAccess, interpreter: str, module: str) -> dict[str, Any]:
    ran = host.run([interpreter, "-c", IMPORT_SCRIPT, module], IMPORT_SECONDS)
    lines = [line.strip() for line in ran.err.splitlines() if line.strip()]
    said = lines[-1] if lines else ""
    error = (
        ""
        if ran.rc == 0
        else (f"{ran.end}: {said}" if ran.end and said else ran.end or said or f"exit status {ran.rc}")
    )
    return {"module": module, "error": error[:400], "seconds": round(ran.seconds, 2)}


def _survey_request(host: HostAccess, target: TargetEnvironment, frameworks: Sequence[str]) -> dict[str, Any]:
    from gpuready.catalog.proofs import list_start_modules

    uname = read_if_present(host.get_uname, default={})
    minor = ".".join((target.version or "").split(".")[:2])
    return {
        "python": target.version,
        "machine": uname.get("machine", ""),
        "release": uname.get("release", ""),
        "interpreter": target.path,
        "first": list(target.python_path),
        "sites": [folder for folder in target.site if folder not in target.python_path],
        "cwd": "" if skips_current_folder(host, target) else read_if_present(host.get_cwd) or "",
        "library_path": read_if_present(host.get_env_var, "LD_LIBRARY_PATH") or "",
        "stdlib": f"{target.base or target.prefix}/lib/python{minor}",
        "roots": list(dict.fromkeys(["torch", *(frameworks or FRAMEWORKS)])),
        "beside": list(EXTENSIONS),
        "starts": {name: list(modules) for name, modules in list_start_modules().items()},
    }


def _survey_facts(answer: dict[str, Any], source: str, deep: bool = False) -> list[Fact]:
    looked = {
        name: answer.get(name) for name in ("distributions", "files", "skipped", "extensions", "unchecked", "on_demand")
    }
    return [
        Fact("import.damage", tuple(answer.get("rows") or ()), source),
        Fact("import.hidden", tuple(answer.get("hidden") or ()), source),
        Fact("import.looked", looked | {"deep": deep}, source),
    ]
