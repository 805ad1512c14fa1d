"""Turn a plan into ordered commands, each an argument list; manual steps are marked as such."""

from __future__ import annotations

from gpuready.catalog import packages as catalogue
from gpuready.contracts import want as wanting
from gpuready.contracts import when as conditions
from gpuready.model import Step, Unknown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuready.model import Contract, Facts, Need
    from gpuready.planned import Kernel, Plan

FOLDER = ".venv"
TORCH = ("torch", "torchvision", "torchaudio")
BROUGHT = ("toolkit.", "compiler.", "disk.", "system.")
"""What the user must provide before anything is installed."""


def steps(plan: Plan, contract: Contract, facts: Facts, folder: str = "") -> tuple[Step, ...]:
    """Return all steps from an empty folder to a checked environment; ``folder`` holds torch's wheel, if set."""
    made = Step(
        f"make an environment with Python {plan.python}",
        ("uv", "venv", "--python", plan.python, FOLDER),
        "safe",
        note="uv fetches this Python where it is missing",
    )
    own = _framework(plan, contract, folder)
    compiled = [_here(step) for kernel in plan.kernels for step in _kernel(kernel, contract)]
    # A requirements file lists the compiled packages too, so these must be installed before it.
    at = next((i for i, step in enumerate(own) if "-r" in step.run), len(own))
    found = [*_first(contract, facts), made, _torch(plan, folder), *own[:at], *compiled, *own[at:]]
    return (*found, _variables(plan), _check(plan))


def _kernel(kernel: Kernel, contract: Contract) -> list[Step]:
    """Return the steps that a kernel adds: none if an index has it, or if it is the framework itself."""
    if kernel.how == "index":
        return []
    own = kernel.package == (contract.distribution or contract.framework) and kernel.how == "jit"
    return [s for s in kernel.steps if not (own and any(w.startswith(f"{kernel.package}==") for w in s.run))]


def spec(plan: Plan) -> str:
    """Return the framework as written on the command line."""
    version = f"=={plan.version}" if plan.options.get("version") else ""
    return plan.framework + version + (f":{plan.variant}" if plan.variant else "")


def _first(contract: Contract, facts: Facts) -> Iterator[Step]:
    """Yield machine requirements that are missing and that no package installer provides."""
    for need in contract.needs:
        if need.level == "required" and need.key.startswith(BROUGHT) and _missing(facts, need):
            wanted = wanting.describe(need.want)
            yield Step(f"bring {need.key}: {wanted}", safety="manual", note=need.cite)


def _missing(facts: Facts, need: Need) -> bool:
    fact = facts.fact(need.key)
    try:
        return (
            not fact.gap and conditions.applies(need.when, facts) and not wanting.holds(need.want, fact.value)
        )
    except (Unknown, ValueError):
        return False


def _pinned(plan: Plan, folder: str) -> tuple[list[str], tuple[str, ...], str]:
    """Return torch's family as requirements, the flag for their source, and that source in words."""
    known = {name: plan.packages[name] for name in TORCH if name in plan.packages}
    if folder:
        exact = [f"{name}=={version}" for name, version in known.items()]
        return exact, ("--find-links", folder), f"the folder {folder}"
    names = [f"{name}=={version.partition('+')[0]}" for name, version in known.items()]
    if plan.index == "pypi":
        return names, (), "PyPI"
    return names, ("--torch-backend", plan.index), f"the PyTorch index {plan.index}"


def _torch(plan: Plan, folder: str) -> Step:
    names, place, where = _pinned(plan, folder)
    run = ("uv", "pip", "install", "--python", FOLDER, *place, *names)
    return Step(
        f"install torch {plan.torch} from {where}", run, "ask", note="torch first: nothing may replace it"
    )


def _framework(plan: Plan, contract: Contract, folder: str) -> list[Step]:
    name = contract.distribution or contract.framework
    if catalogue.lookalike(name):
        # The index has another project under this name: the contract has the install steps.
        return [
            _here(step)
            for step in contract.steps
            if not _installs_torch(step) and step.run != ("nvidia-smi",)
        ]
    version = plan.packages.get(name, "")
    pin = f"{name}=={version}" if version else f"{name}=={contract.version}.*"
    pinned, place, _ = _pinned(plan, folder)
    if name in TORCH:
        return []
    ready = [f"{k.package}=={k.version}" for k in plan.kernels if k.how == "index" and k.package != name]
    run = ("uv", "pip", "install", "--python", FOLDER, *place, pin, *pinned, *ready)
    return [Step(f"install {pin}, and what it asks for", run, "ask", note="torch stays as it is")]


def _here(step: Step) -> Step:
    """Rewrite a contract's step for uv and the new environment."""
    words = list(step.run)
    if "pip" not in words or "install" not in words:
        return step
    pip, install = words.index("pip"), words.index("install")
    uv = [] if words[pip - 1 : pip] == ["uv"] else ["uv"]
    return step.but(run=(*words[:pip], *uv, "pip", "install", "--python", FOLDER, *words[install + 1 :]))


def _installs_torch(step: Step) -> bool:
    return "install" in step.run and any(w.partition("=")[0] in TORCH for w in step.run)


def _variables(plan: Plan) -> Step:
    run = ("gpuready", "env", spec(plan), "--python", FOLDER)
    return Step("take its variables into the shell that starts it", run, "safe")


def _check(plan: Plan) -> Step:
    wants = ("--wants", str(plan.options["wants"])) if plan.options.get("wants") else ()
    return Step("see that it is clear", ("gpuready", "check", spec(plan), "--python", FOLDER, *wants), "safe")
