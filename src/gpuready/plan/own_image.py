"""Plan with the image of a framework's project, where its wheels are for CUDA and the machine has another platform."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gpuready import catalog
from gpuready.catalog import images
from gpuready.catalog.releases import find_release, list_releases
from gpuready.contracts import covers_version
from gpuready.model import Contract, Facts, Finding, FixStep
from gpuready.model.plan import Plan, PlanReason
from gpuready.plan.platform import PlanRequest, plan_device

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
        notes=(contract.says,) if contract.says else (),
    )
