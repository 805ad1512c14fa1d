"""Would torch and the frameworks of the target environment import? By their files, and by importing them where that is asked for."""

from collections.abc import Mapping, Sequence
from typing import Any

from gpuready.catalog.proofs import list_start_modules
from gpuready.model import Fact
from gpuready.probe.fact_helpers import EXTENSIONS, absent_facts, gap_facts, read_if_present
from gpuready.probe.fact_helpers import IMPORTS as KEYS
from gpuready.probe.packages import FRAMEWORKS
from gpuready.probe.target_environment import TargetEnvironment, skips_current_folder
from gpuready.system import AccessError, HostAccess

__all__ = ["KEYS", "is_users_own", "probe_imports", "run_imports"]

CHANGING_VARIABLES = (
    "LD_PRELOAD", "LD_AUDIT", "PYTHONHOME", "PYTHONPLATLIBDIR", "PYTHONWARNINGS", "PYTHONOPTIMIZE", "PYTHONMALLOC", "PYTHONDEVMODE",
    "PYTHONINTMAXSTRDIGITS", "TORCH_LOGS",
)  # fmt: skip
"""Variables that change what Python does before any file of the environment counts."""
OWN_WORD = ("--python", "VIRTUAL_ENV", "CONDA_PREFIX", "the Python that runs gpuready")
"""Where an environment was found that is the user's by his own word: named, active, or running."""


def is_users_own(target: TargetEnvironment) -> bool:
    """Whether an environment is the user's by his own word, so that its Python may be started; not one that was only found."""
    return target.source in OWN_WORD


def probe_imports(
    host: HostAccess, target: TargetEnvironment, frameworks: Sequence[str] = (), deep: bool = False
) -> list[Fact]:
    """Return what differs in the files of torch, the frameworks, and all that these require; ``deep``: by their contents."""
    source = ", ".join(target.site) or target.prefix
    if not target.site or not target.version:
        return absent_facts(KEYS, source)
    if target.machine and target.machine != read_if_present(host.get_uname, default={}).get("machine", ""):
        return []  # an environment for another architecture: its libraries load there
    try:
        answer = host.survey_imports(_survey_request(host, target, frameworks) | ({"deep": True} if deep else {}))
    except AccessError as error:
        # A recording that was made before this look has nothing to say of it.
        return gap_facts(KEYS, str(error), source) if host.is_live else []
    return _survey_facts(answer, source, deep) if answer.get("roots") else absent_facts(KEYS, source)


def run_imports(host: HostAccess, target: TargetEnvironment, modules: Mapping[str, Sequence[str]]) -> Fact:
    """Import the modules of each distribution for real, as a program in the current folder would."""
    from gpuready.system.imports.distributions import add_owners
    from gpuready.system.imports.real_import import ImportTask, import_roots

    tasks = [ImportTask(root, tuple(names)) for root, names in modules.items()]
    results = add_owners(import_roots(host, target.path, tasks), target.site)
    return Fact("import.result", results, target.path, "run")


def _survey_request(host: HostAccess, target: TargetEnvironment, frameworks: Sequence[str]) -> dict[str, Any]:
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
        "variables": [name for name in CHANGING_VARIABLES if read_if_present(host.get_env_var, name)],
        "stdlib": f"{target.base or target.prefix}/lib/python{minor}",
        "roots": list(dict.fromkeys(["torch", *(frameworks or FRAMEWORKS)])),
        "starts": {name: list(modules) for name, modules in list_start_modules().items()},
        "beside": list(EXTENSIONS),
    }


def _survey_facts(answer: dict[str, Any], source: str, deep: bool = False) -> list[Fact]:
    names = ("modules", "distributions", "files", "skipped", "extensions", "unchecked", "unjudged")
    looked = {name: answer.get(name) for name in names} | {k: answer[k] for k in ("kept",) if answer.get(k)}
    return [
        Fact("import.damage", tuple(answer.get("rows") or ()), source),
        Fact("import.hidden", tuple(answer.get("hidden") or ()), source),
        Fact("import.looked", looked | {"deep": deep}, source),
    ]
