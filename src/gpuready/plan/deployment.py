"""Add what a plan needs to be written as a file: image, indexes, variables, machine sizes."""

from collections.abc import Callable, Sequence
from typing import Any

from gpuready import catalog
from gpuready.catalog import cuda as toolkits
from gpuready.catalog import images, indexes
from gpuready.catalog import images as catalogue
from gpuready.catalog.releases import find_release, list_releases
from gpuready.contracts import covers_version, foreign_note
from gpuready.contracts import variables as wishes
from gpuready.model import Contract, Fact, Facts, Finding, FixStep, versions
from gpuready.model.plan import Plan, PlanReason
from gpuready.plan.platform import PlanRequest, plan_device

SIZE_FACTS = {"gpus": "gpu.count", "cpus": "host.cores_usable", "memory": "memory.total"}


def add_deployment(plan: Plan, contract: Contract, facts: Facts) -> Plan:
    """Return the plan with everything its files need; unchanged if there is no environment."""
    if plan.verdict != "plan":
        return plan
    ready = plan.replace(
        indexes=index_addresses(plan),
        host=machine_sizes(facts),
        variables=plan.variables or planned_variables(plan, contract, facts),
    )
    return add_container_image(ready, facts)


def index_addresses(plan: Plan) -> dict[str, str]:
    """Return the indexes that the plan uses, besides the default one."""
    index_names = {plan.index, *(one.index for one in plan.lock)} - {"", indexes.DEFAULT_INDEX}
    return {name: indexes.index_url(name) for name in sorted(index_names) if name in indexes.list_indexes()}


def machine_sizes(facts: Facts) -> dict[str, int]:
    """Return the machine sizes that a scheduler is asked for."""
    known = {name: facts.value_if_known(key) for name, key in SIZE_FACTS.items()}
    limit = facts.value_if_known("memory.limit")
    if limit and known["memory"]:
        known["memory"] = min(limit, known["memory"])
    return {name: int(value) for name, value in known.items() if value}


def planned_variables(plan: Plan, contract: Contract, facts: Facts) -> dict[str, str]:
    """Return the contract's variables, under the names that the planned torch reads."""
    torch = [Fact(key, plan.torch, "planned", "stated") for key in ("package.torch", "torch.version")]
    settings = wishes.framework_settings(facts.with_facts(*torch), contract, None, {})
    return {one.name: one.value for one in settings.variables}


NEEDS_NVCC = ("build", "jit")
"""Kinds of kernel installation that need nvcc inside the container."""


def add_container_image(plan: Plan, facts: Facts | None = None) -> Plan:
    """Return the plan with its image, ``docker run`` flags and reasons; unchanged if there is no environment.

    NVIDIA's images refuse to start if the host's driver does not support their CUDA, though torch would run there by
    minor-version compatibility: on such a driver an image of an older minor release of the same major is used.
    """
    if plan.verdict != "plan" or plan.is_image_alone:
        return plan
    if plan.platform.endswith("apple-darwin"):
        return plan.replace(notes=(*plan.notes, "no image: containers on a Mac run Linux, which has no Metal"))
    driver = facts.value_if_known("driver.version") if facts is not None else None
    own = _framework_image(plan, driver)
    if own is not None:
        has = f"torch {own['torch']}, CUDA {own['cuda']}, {own['has']}"
        whose = f"{plan.framework}'s own image, with {has}"
        return _with_image(plan, own["image"], own, whose).replace(image_has=has)
    if not plan.cuda:
        row = catalogue.cpu_base_image()
        return _with_image(plan, row["image"], row, "no GPU is planned for")
    fitting = _choose_cuda_image(plan.cuda, driver)
    if fitting is None:
        return plan.replace(notes=(*plan.notes, f"no container image of CUDA {plan.cuda} is known"))
    kind = "devel" if any(kernel.how in NEEDS_NVCC for kernel in plan.kernels) else "runtime"
    image = f"{fitting['image']}-{kind}-{fitting['systems'][0]}"
    return _with_image(plan, image, fitting, _explain_image(plan, fitting, kind, driver))


def _with_image(plan: Plan, image: str, row: dict[str, Any], why: str) -> Plan:
    flags = catalogue.container_flags(plan.framework)
    mine = tuple(flags["flags"]) if plan.cuda else _drop_gpu_flags(flags["flags"])
    reasons = (
        PlanReason("image", f"{image}: {why}", str(row["source"])),
        PlanReason("image flags", "docker run " + " ".join(mine), str(flags["source"])),
    )
    return plan.replace(
        image=image, image_flags=mine, tools=catalogue.list_image_tools(), because=(*plan.because, *reasons)
    )


def _drop_gpu_flags(flags: list[str]) -> tuple[str, ...]:
    at = flags.index("--gpus") if "--gpus" in flags else len(flags)
    return (*flags[:at], *flags[at + 2 :])


def _framework_image(plan: Plan, driver: str | None) -> dict[str, Any] | None:
    """Return the framework's image if it has this plan's torch and its CUDA runs on this driver."""
    row = catalogue.find_framework_image(plan.framework, plan.variant)
    if row is None or not plan.torch or plan.platform.startswith("aarch64"):
        return None  # all of them are for x86_64
    same = versions.compare_versions(row["torch"], plan.torch.partition("+")[0]) == 0
    starts = driver is None or toolkits.driver_runs_cuda(driver, row["cuda"]) is not False
    return row if same and starts else None


def _choose_cuda_image(cuda: str, driver: str | None) -> dict[str, Any] | None:
    """Return the image of a CUDA release, else the nearest of the same major that the driver supports."""
    same = [
        r for r in catalogue.list_cuda_images() if versions.major_version(r["cuda"]) == versions.major_version(cuda)
    ]
    reach = toolkits.newest_cuda_for_driver(driver) if driver else None
    allowed = [r for r in same if reach is None or versions.compare_versions(r["cuda"], reach) <= 0] or same[:1]
    older = [r for r in allowed if versions.major_minor(r["cuda"]) <= versions.major_minor(cuda)]
    return older[-1] if older else allowed[0] if allowed else None


def _explain_image(plan: Plan, row: dict[str, Any], kind: str, driver: str | None) -> str:
    needed = (
        "the toolkit is in it, because something is built"
        if kind == "devel"
        else "nothing is built in it, and torch brings its own CUDA libraries"
    )
    if versions.major_minor(row["cuda"]) == versions.major_minor(plan.cuda):
        return f"CUDA {row['cuda']} as torch has; {needed}"
    reason = f"the driver {driver} has no more than it" if driver else f"there is none of {plan.cuda}"
    return f"CUDA {row['cuda']}, minor-compatible with {plan.cuda}, because {reason}; {needed}"


PlanJudge = Callable[[Plan, Contract], Sequence[Finding]]


def choose_own_image(facts: Facts, contract: Contract, request: PlanRequest, judge: PlanJudge | None) -> Plan | None:
    """Return the plan to start a project's image; None where there is none, or a check objects to this machine.

    An image has its own torch and Python: it is no answer to a request for others.
    """
    row = None if request.torch or request.python or request.contract else find_own_image(facts, contract)
    if row is None:
        return None
    plan = _make_image_plan(facts, contract, row)
    return None if judge is not None and judge(plan, contract) else plan


def find_own_image(facts: Facts, contract: Contract) -> dict[str, Any] | None:
    """Return the image that a framework's project publishes for this machine's platform and the asked version."""
    name, version = contract.distribution or contract.framework, _asked_version(contract)
    exists = not version or not list_releases(name) or find_release(name, version) is not None
    return _find_image(facts, contract, version) if exists else None


def find_newest_image(facts: Facts, contract: Contract) -> dict[str, Any] | None:
    """Return the image that a framework's project publishes for this machine's platform, whatever version was asked for."""
    return _find_image(facts, contract, "")


def _find_image(facts: Facts, contract: Contract, version: str) -> dict[str, Any] | None:
    if facts.value_if_known("os.system") not in (None, "linux") or facts.value_if_known("os.arch") == "aarch64":
        return None
    gpus = facts.value_if_known("accelerator.name") or ()
    return images.find_platform_image(contract.framework, plan_device(facts, contract), gpus, version)


def _asked_version(contract: Contract) -> str:
    """The version that was asked for, in full: ``0.18.0`` of ``==0.18.*``; empty where none was."""
    name = contract.distribution or contract.framework
    pins = [n.want for n in contract.requirements_for(f"package.{name}") if n.want.startswith("==")]
    if not pins:
        return ""
    asked = pins[0].removeprefix("==").removesuffix(".*")
    patches = [one for one in list_releases(name) if covers_version(asked, one)]
    if pins[0].endswith(".*") and patches:
        return patches[-1]
    found = find_release(name, asked.removeprefix("v"))
    return found[0] if found else asked


def _make_image_plan(facts: Facts, contract: Contract, row: dict[str, Any]) -> Plan:
    title, flags = contract.title or contract.framework, [flag for flag in row["flags"] if flag != "--rm"]
    holds = f"{contract.framework} and torch"
    why = f"{title}'s own image, with {holds}: its wheels on the default index are for CUDA"
    step = FixStep(f"start {title}'s own image", ("docker", "run", *row["flags"], row["image"]), "ask")
    return Plan(
        framework=contract.framework,
        version=row["release"] or contract.version,
        variant=contract.variant,
        verdict="plan",
        machine=facts.host,
        steps=(step,),
        because=(PlanReason("image", f"{row['image']}: {why}", str(row["source"])),),
        resolved=f"not resolved here: {holds} are in the image",
        image=row["image"],
        image_has=holds,
        image_flags=tuple(flags),
        catalog=catalog.catalog_date(),
        notes=(contract.says,) if contract.says and not foreign_note(contract) else (),
    )
