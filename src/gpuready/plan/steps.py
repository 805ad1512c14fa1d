"""Turn a plan into ordered commands, each an argument list; manual steps are marked as such."""

from collections.abc import Iterator

from gpuready.catalog import images
from gpuready.catalog import packages as catalogue
from gpuready.contracts import want as wanting
from gpuready.contracts import when as conditions
from gpuready.contracts.pin_conflicts import is_installed_by_image_alone
from gpuready.model import Contract, Facts, FixStep, Requirement, UnknownFactError
from gpuready.model.plan import KernelPlan, Plan

VENV_FOLDER = ".venv"
TORCH_FAMILY = ("torch", "torchvision", "torchaudio")
BROUGHT_BY_PERSON = ("toolkit.", "compiler.", "disk.", "system.")
"""What the user must provide before anything is installed."""


def make_plan_steps(plan: Plan, contract: Contract, facts: Facts, folder: str = "") -> tuple[FixStep, ...]:
    """Return all steps from an empty folder to a checked environment; ``folder`` holds torch's wheel, if set."""
    if is_installed_by_image_alone(contract):
        return (*_manual_steps(contract, facts), _image_step(contract))
    venv_step = FixStep(
        f"make an environment with Python {plan.python}",
        ("uv", "venv", "--python", plan.python, VENV_FOLDER),
        "safe",
        note="uv downloads this Python if it is missing",
    )
    framework_steps = _framework_steps(plan, contract, folder)
    compiled = [_in_new_environment(step) for kernel in plan.kernels for step in _kernel_steps(kernel, contract)]
    # A requirements file lists the compiled packages too, so these must be installed before it.
    requirements_at = next((i for i, step in enumerate(framework_steps) if "-r" in step.run), len(framework_steps))
    install_steps = [
        *_manual_steps(contract, facts),
        venv_step,
        *([_torch_step(plan, folder)] if plan.torch else ()),
        *framework_steps[:requirements_at],
        *dict.fromkeys(compiled),  # several builds need one toolkit
        *framework_steps[requirements_at:],
    ]
    return (*install_steps, _variables_step(plan), _check_step(plan))


def _image_step(contract: Contract) -> FixStep:
    """Return the step that starts the project's own image, as its documentation says."""
    row = images.find_framework_image(contract.framework, contract.variant) or {}
    run = ("docker", "run", "--rm", "-it", *images.container_flags(contract.framework)["flags"], str(row["image"]))
    return FixStep(f"start the image of {contract.name}: torch {row['torch']}, {row['has']}", run, "ask")


def _kernel_steps(kernel: KernelPlan, contract: Contract) -> list[FixStep]:
    """Return the steps that a kernel adds: none if an index has it, or if it is the framework itself."""
    if kernel.how == "index":
        return []
    own = kernel.package == (contract.distribution or contract.framework) and kernel.how == "jit"
    return [s for s in kernel.steps if not (own and any(w.startswith(f"{kernel.package}==") for w in s.run))]


def _manual_steps(contract: Contract, facts: Facts) -> Iterator[FixStep]:
    """Yield machine requirements that are missing and that no package installer provides."""
    for need in contract.needs:
        if need.level == "required" and need.key.startswith(BROUGHT_BY_PERSON) and _is_need_missing(facts, need):
            wanted = wanting.describe_want(need.want)
            yield FixStep(f"bring {need.key}: {wanted}", safety="manual", note=need.cite)


def _is_need_missing(facts: Facts, need: Requirement) -> bool:
    fact = facts.fact(need.key)
    try:
        return (
            not fact.gap
            and conditions.condition_applies(need.when, facts)
            and not wanting.value_meets_want(need.want, fact.value)
        )
    except (UnknownFactError, ValueError):
        return False


def _pin_torch_family(plan: Plan, folder: str) -> tuple[list[str], tuple[str, ...], str]:
    """Return torch's family as requirements, the flag for their source, and that source in words."""
    known = {name: plan.packages[name] for name in TORCH_FAMILY if name in plan.packages}
    if folder:
        exact = [f"{name}=={version}" for name, version in known.items()]
        return exact, ("--find-links", folder), f"the folder {folder}"
    names = [f"{name}=={version.partition('+')[0]}" for name, version in known.items()]
    if plan.index == "pypi":
        return names, (), "PyPI"
    return names, ("--torch-backend", plan.index), f"the PyTorch index {plan.index}"


def _torch_step(plan: Plan, folder: str) -> FixStep:
    names, place, where = _pin_torch_family(plan, folder)
    run = ("uv", "pip", "install", "--python", VENV_FOLDER, *place, *names)
    return FixStep(f"install torch {plan.torch} from {where}", run, "ask", note="torch first: nothing may replace it")


def _framework_steps(plan: Plan, contract: Contract, folder: str) -> list[FixStep]:
    name = contract.distribution or contract.framework
    if catalogue.find_lookalike(name):
        # The index has another project under this name: the contract has the install steps.
        return [
            _in_new_environment(step)
            for step in contract.steps
            if not _installs_torch(step) and step.run != ("nvidia-smi",)
        ]
    version = plan.packages.get(name, "")
    pin = f"{name}{plan.brackets}==" + (version or f"{contract.version}.*")
    pinned, place, _ = _pin_torch_family(plan, folder)
    if name in TORCH_FAMILY or any(k.package == name and k.how in ("release", "build") for k in plan.kernels):
        return []  # its own step installs it
    added = () if plan.lock else plan.options.get("additions", ())  # a lock has them
    until = ["--exclude-newer", plan.options["until"]] if plan.options.get("until") else []
    until += [word for one in plan.options.get("ageless", ()) for word in ("--exclude-newer-package", f"{one}=false")]
    run = (
        "uv",
        "pip",
        "install",
        "--python",
        VENV_FOLDER,
        *place,
        *until,
        pin,
        *pinned,
        *added,
        *_pin_others(plan, name),
    )
    return [
        FixStep(f"install {pin} and its dependencies", run, "ask", note="torch stays as it is" if plan.torch else "")
    ]


def _pin_others(plan: Plan, own: str) -> list[str]:
    """Return what nothing else brings in the version of the plan: kernels, the job's wants, what a check held back."""
    chosen = {k.package: k.version for k in plan.kernels if k.how == "index"}
    chosen |= {row.name: row.version for row in plan.lock if row.version and (not row.via or row.name in plan.held)}
    left = {*TORCH_FAMILY, own}
    return [f"{name}=={plan.packages.get(name, version)}" for name, version in chosen.items() if name not in left]


def _in_new_environment(step: FixStep) -> FixStep:
    """Rewrite a contract's step for uv and the new environment."""
    words = list(step.run)
    if "pip" not in words or "install" not in words:
        return step
    pip, install = words.index("pip"), words.index("install")
    uv = [] if words[pip - 1 : pip] == ["uv"] else ["uv"]
    return step.replace(run=(*words[:pip], *uv, "pip", "install", "--python", VENV_FOLDER, *words[install + 1 :]))


def _installs_torch(step: FixStep) -> bool:
    return "install" in step.run and any(w.partition("=")[0] in TORCH_FAMILY for w in step.run)


def _variables_step(plan: Plan) -> FixStep:
    run = ("gpuready", "env", plan.spec, "--python", VENV_FOLDER, *_repeat_option(plan, "contract"))
    return FixStep("print the variables to set before the job", run, "safe")


def _check_step(plan: Plan) -> FixStep:
    # A contract of the user's own replaces the framework's name: with both, check would look for a shipped one too.
    own = _repeat_option(plan, "contract")
    subject = own or (plan.spec, *plan.options.get("additions", ()))
    run = ("gpuready", "check", *subject, "--python", VENV_FOLDER, *_repeat_option(plan, "wants"))
    return FixStep("check it", run, "safe")


def _repeat_option(plan: Plan, name: str) -> tuple[str, ...]:
    return (f"--{name}", str(plan.options[name])) if plan.options.get(name) else ()
