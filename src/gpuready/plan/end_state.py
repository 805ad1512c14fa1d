"""The environment that a plan would make, as facts: what a check would see after the install."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gpuready.catalog import indexes
from gpuready.catalog import packages as catalogue
from gpuready.catalog import torch as torches
from gpuready.catalog.torch import TorchBuild
from gpuready.model import Fact, Facts
from gpuready.model.plan import Plan
from gpuready.plan.candidates import make_torch_facts
from gpuready.plan.platform import machine_facts_only

SOURCE = "the plan"


def end_state_facts(facts: Facts, plan: Plan) -> Facts:
    """Return the machine's facts with the environment of a plan; what the plan does not decide is left out."""
    machine = machine_facts_only(facts)
    if plan.is_image_alone:
        return machine
    version, _, variant = plan.torch.partition("+")
    is_mac = machine.value_if_known("os.system") == "darwin"
    variant = variant or ("cpu" if is_mac else "")
    arch = str(machine.value_if_known("os.arch"))
    build = torches.find_torch_build(version, variant, arch)
    libraries = {"cudnn.version": build.cudnn, "nccl.version": build.nccl} if build else {}
    installed = {name: version for name, version in plan.packages.items() if name not in ("torch", "python")}
    stated: dict[str, Any] = {"python.version": plan.python, **libraries}
    stated |= {f"package.{name}": version for name, version in installed.items()}
    linked = dict(_linked_extensions(plan, installed)) | _torchaudio_row(build, installed.get("torchaudio", ""))
    stated |= {"extension.linked": linked}
    if (
        variant == "cpu" and machine.value_if_known("platform.name") != "mps"
    ):  # an environment that is made for the CPU is checked for it
        stated["job.wants"] = tuple(dict.fromkeys([*(machine.value_if_known("job.wants") or ()), "cpu"]))
    environment = [Fact(key, value, SOURCE, "stated") for key, value in stated.items() if value]
    torch = make_torch_facts(version, variant, arch)
    if is_mac:  # its wheels have no suffix
        torch = [fact.replace(value=version) if fact.value == f"{version}+{variant}" else fact for fact in torch]
    return machine.with_facts(*torch, *environment)


def _linked_extensions(plan: Plan, installed: dict[str, str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the CUDA that compiled packages load, where their index or the catalogue says it.

    A wheel of a release page was chosen for torch's CUDA: what the catalogue says of the index's wheel is not about it.
    """
    own_index = indexes.packages_with_own_index(plan.framework, plan.variant)
    chosen = {kernel.package for kernel in plan.kernels if kernel.how == "release"}
    for name, version in installed.items() if plan.cuda else ():
        if name in chosen:
            continue
        index_major = own_index.get(name, "").rpartition("-cu")[2][:-1]
        row = catalogue.find_package_release(name, version) if not index_major else None
        major = index_major if index_major.isdigit() else str(catalogue.linked_cuda_major(row or {}) or "")
        if major:
            yield name, {"file": "", "cudart": major, "missing": (f"libcudart.so.{major}",)}


def _torchaudio_row(build: TorchBuild | None, version: str) -> dict[str, dict[str, Any]]:
    """Return the CUDA of the torchaudio beside a torch: that of the same index, else of PyPI, where it has one build."""
    if build is None or not build.cuda or not version:
        return {}
    known = torches.list_torch_builds(version.partition("+")[0], build.machine)
    same_index = [one for one in known if one.variant == build.variant and not build.pypi]
    wanted = same_index or [one for one in known if one.pypi]
    return {"torchaudio": {"file": "", "cuda": wanted[0].cuda}} if wanted else {}
