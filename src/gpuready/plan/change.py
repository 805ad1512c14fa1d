"""A change of an environment and its effect on the facts.

The effect of a step is computed: the facts are changed as the step would change them, and judged again. If the
effect cannot be predicted, because the step is manual, the change is assumed to work, costs the most and is
marked so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from gpuready.catalog import cuda as toolkits
from gpuready.catalog import indexes
from gpuready.catalog import packages as catalogue
from gpuready.catalog import torch as torches
from gpuready.catalog.torch import TorchBuild
from gpuready.model import Fact, Facts, FixStep, Record, versions
from gpuready.model.facts import NEED_KINDS, NUMPY_KINDS, explain_failure
from gpuready.model.plan import Plan
from gpuready.plan.candidates import make_torch_facts
from gpuready.plan.platform import machine_facts_only

PLANNED_SOURCE = "planned"
(
    VARIABLE_COST,
    REMOVAL_COST,
    PACKAGE_COST,
    TORCH_COST,
    ENVIRONMENT_COST,
    SYSTEM_COST,
    JOB_CHANGE_COST,
    TRUST_COST,
    JOB_DROP_COST,
) = 1, 2, 3, 4, 30, 60, 70, 100, 200
"""Costs per kind of change: variables are cheapest, then packages, then manual or root steps, a changed job,
assumed effects; the most expensive is to drop something that the job asks for."""

ENVIRONMENT_FACTS = ("package.", "torch.", "python.", "extension.", "library.", "nccl.", "cudnn.")
"""Prefixes of facts that belong to an environment and end with it."""


class FixChange(Record):
    """One thing to do: its step, cost, effect on the facts, and the finding it is for."""

    step: FixStep
    cost: int
    acts: tuple[tuple[Any, ...], ...]  # (verb, subject, value): see ``apply_changes``
    code: str
    trusts: tuple[str, ...] = ()  # codes assumed cleared; "*packages": all about packages

    @property
    def touched_subjects(self) -> frozenset[tuple[str, str]]:
        """What the change touches: of two changes to one subject only one can be made."""
        return frozenset((_SUBJECT_KINDS[act[0]], act[1]) for act in self.acts)


_SUBJECT_KINDS = {"package": "package", "torch": "torch", "set": "variable", "unset": "variable", "fact": "fact",
         "python": "python", "forget": "job", "delete": "file"}  # fmt: skip


def apply_changes(facts: Facts, changes: Iterable[FixChange]) -> Facts:
    """Return the facts after these changes."""
    for change in changes:
        for verb, subject, value in change.acts:
            facts = facts.with_facts(*_ACTIONS[verb](facts, subject, value))
    return facts


def _set_package(facts: Facts, name: str, version: str | None) -> list[Fact]:
    """Set or remove a package, and drop what was known of the old one."""
    changed = [_planned_fact(f"package.{name}", version)]
    for key in ("python.requires", "extension.linked"):
        rows = facts.value_if_known(key)
        if rows and name in rows:
            changed.append(_planned_fact(key, {k: v for k, v in rows.items() if k != name}))
    for key in ("python.half_installed", "python.duplicates"):
        rows = facts.value_if_known(key)
        if rows:
            changed.append(_planned_fact(key, tuple(row for row in rows if not _row_names_package(row, name))))
    imports = change_import_values(facts, name, version)
    return [*changed, *(_planned_fact(key, value) for key, value in imports.items())]


def _row_names_package(row: object, name: str) -> bool:
    """Whether a listing's row is about a package: its metadata folder."""
    text = str(row["name"] if isinstance(row, dict) else row).partition("-dist-info")[0]
    whole = text if isinstance(row, dict) else text.partition("-")[0]
    plain = whole.lower().replace("_", "-").replace(".", "-")
    return plain == name


def _set_torch_build(facts: Facts, version: str, variant: str | None) -> list[Fact]:
    """Set another torch build and the packages it brings."""
    machine = facts.value_if_known("os.arch") or "x86_64"
    build = torches.find_torch_build(version, variant, machine)
    changed = [*_set_package(facts, "torch", version), *make_torch_facts(version, variant, machine)]
    changed += [_planned_fact("torch.broken", None)]
    if build is not None:
        for key, bundled_version in (("nccl.version", build.nccl), ("cudnn.version", build.cudnn)):
            gap = "" if bundled_version else "the catalogue does not say which the build brings"
            changed.append(Fact(key, bundled_version, PLANNED_SOURCE, "stated", gap))
    pin = str((torches.find_torch_release(version) or {}).get("triton") or "").lstrip("~=")
    if facts.value_if_known("package.triton") and versions.parse_plain_release(pin) is not None:
        changed.append(_planned_fact("package.triton", pin))
    return [fact.replace(source=PLANNED_SOURCE) for fact in changed]


def _set_variable(facts: Facts, name: str, value: str | None) -> list[Fact]:
    """Set or remove a variable, with its known consequences."""
    names = tuple(n for n in facts.value_if_known("env.names") or () if n != name)
    changed = [_planned_fact(f"env.{name}", value)]
    if "env.names" in facts:
        changed.append(_planned_fact("env.names", (*names, name) if value is not None else names))
    if name == "CUDA_VISIBLE_DEVICES":
        changed += _set_visible_gpus(facts, value)
    if name == "CUDA_HOME" and value is not None:
        changed += _set_toolkit(facts, value)
    if name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE") and value is None:
        changed += [_planned_fact("hub.offline", False)] if "hub.offline" in facts else []
    return changed


def _unset_variable(facts: Facts, name: str, _: None) -> list[Fact]:
    return _set_variable(facts, name, None)


def _set_visible_gpus(facts: Facts, value: str | None) -> list[Fact]:
    """Set the visible GPUs; entries are indices or prefixes of UUIDs."""
    count, uuids = facts.value_if_known("gpu.count") or 0, facts.value_if_known("gpu.uuid") or ()
    if value is None:
        return [_planned_fact("gpu.visible", tuple(range(count))), _planned_fact("visibility.cuda", None)]
    shown = []
    for entry in value.split(","):
        named = [i for i, uuid in enumerate(uuids) if uuid and entry and str(uuid).startswith(entry)]
        index = int(entry) if entry.isdecimal() else named[0] if len(named) == 1 else -1
        if not 0 <= index < count:
            break
        shown.append(index)
    table = {"value": value, "shown": tuple(shown), "ignored": (), "why": "as planned"}
    return [_planned_fact("gpu.visible", tuple(shown)), _planned_fact("visibility.cuda", table)]


def _set_toolkit(facts: Facts, path: str) -> list[Fact]:
    for row in facts.value_if_known("toolkit.others") or ():
        if row.get("path") == path:
            found = {"version": row["version"], "path": path, "nvcc": row.get("nvcc") or f"{path}/bin/nvcc"}
            found |= {"chosen_by": "CUDA_HOME", "home_missing": None}
            return [_planned_fact(f"toolkit.{key}", value) for key, value in found.items()]
    return []


def _set_fact(facts: Facts, key: str, value: Any) -> list[Fact]:
    """Set one fact; a driver version also sets its library and CUDA."""
    changed = [_planned_fact(key, value)]
    if key == "driver.version":
        changed += [_planned_fact("driver.library", value)] if facts.value_if_known("driver.library") else []
        changed += (
            [_planned_fact("driver.cuda", toolkits.newest_cuda_for_driver(value))] if "driver.cuda" in facts else []
        )
    return changed


def _set_python(facts: Facts, version: str, _: None) -> list[Fact]:
    return [_planned_fact("python.version", version)]


def _drop_job_want(facts: Facts, word: str, _: None) -> list[Fact]:
    """Remove one of the job's wants."""
    wants = facts.value_if_known("job.wants") or ()
    return [_planned_fact("job.wants", tuple(one for one in wants if one != word))]


def _delete_file(facts: Facts, path: str, _: None) -> list[Fact]:
    """Delete a lock, or what hides a module, with the failures that come from there."""
    found = []
    for key in ("cache.locks", "import.hidden"):
        rows = facts.value_if_known(key) or ()
        found += [_planned_fact(key, tuple(row for row in rows if path not in str(row)))] if rows else []
    known = facts.value_if_known("import.result") or {}
    cleared = {root: _clear_failure(row) if path in str(row) else row for root, row in known.items()}
    return [*found, *([_planned_fact("import.result", cleared)] if known else [])]


def _planned_fact(key: str, value: Any) -> Fact:
    return Fact(key, value, PLANNED_SOURCE, "stated")


_ACTIONS: dict[str, Callable[[Facts, str, Any], list[Fact]]] = {
    "package": _set_package,
    "torch": _set_torch_build,
    "set": _set_variable,
    "unset": _unset_variable,
    "fact": _set_fact,
    "python": _set_python,
    "forget": _drop_job_want,
    "delete": _delete_file,
}


def changed_variables(changes: Iterable[FixChange]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the variables that these changes set, and those that they unset."""
    acts = [act for change in changes for act in change.acts]
    return (
        {name: value for verb, name, value in acts if verb == "set"},
        tuple(name for verb, name, _ in acts if verb == "unset"),
    )


def pinned_packages(changes: Iterable[FixChange]) -> dict[str, str]:
    """Return the exact pins of these changes by package."""
    found: dict[str, str] = {}
    for change in changes:
        exact = _parse_exact_pins(change.step.run)
        named = {name for verb, name, _ in change.acts if verb == "package"} | {"torch"}
        found |= {name: version for name, version in exact.items() if name in named}
    return found


def _parse_exact_pins(run: tuple[str, ...]) -> Mapping[str, str]:
    pairs = (word.partition("==") for word in run if "==" in word and "," not in word and "*" not in word)
    return {name.partition("[")[0]: version for name, _, version in pairs}


def change_import_values(facts: Facts, name: str, version: str | None) -> dict[str, Any]:
    """Return the values of import facts after a package is installed (again) in a version, or removed."""
    rows = facts.value_if_known("import.damage") or ()
    before = str(facts.value_if_known(f"package.{name}") or "")
    kept = tuple(row for row in rows if not _is_settled(row, name, version, before))
    known = facts.value_if_known("import.result") or {}
    left = {root: _without_failure(row, rows, kept, name if version else "") for root, row in known.items()}
    damage = {"import.damage": kept} if len(kept) < len(rows) else {}
    return damage | ({"import.result": left} if left != known else {})


def _is_settled(row: dict[str, Any], name: str, version: str | None, before: str) -> bool:
    kind, want = row["kind"], str(row.get("want") or "")
    if row.get("by") == name:
        return version != before  # another release asks for something else, which is not known
    if kind in NUMPY_KINDS and name == "numpy":
        return version is not None and _satisfies(version, want)
    if row["distribution"] != name:
        return False
    return kind not in NEED_KINDS or (version is not None and _satisfies(version, want))


def _satisfies(version: str, specifier: str) -> bool:
    return not specifier or versions.is_satisfied(version, specifier) is not False


def _without_failure(failed: dict[str, Any], rows: Any, kept: tuple[Any, ...], again: str) -> dict[str, Any]:
    """A root's result without its error, if only rows that are gone explain it; where none does, if what raised it is installed again."""
    at_fault = explain_failure(rows, failed)
    is_settled = not any(row in kept for row in at_fault) if at_fault else again in failed.get("packages", ())
    return _clear_failure(failed) if failed.get("error") and is_settled else failed


def _clear_failure(failed: dict[str, Any]) -> dict[str, Any]:
    return failed | {"error": "", "file": "", "line": 0, "chain": ()}


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
    stated |= {"python.packages": len(plan.lock)}
    linked = dict(list_linked_extensions(plan, installed)) | _torchaudio_row(build, installed.get("torchaudio", ""))
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


def list_linked_extensions(plan: Plan, installed: dict[str, str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the CUDA that compiled packages load, where their index or the catalogue says it.

    A wheel of a release page was chosen for torch's CUDA: what the catalogue says of the index's wheel is not about it.
    """
    own_index = indexes.packages_with_own_index(plan.framework, plan.variant)
    chosen = {kernel.package for kernel in plan.kernels if kernel.how == "release"}
    for name, version in installed.items() if plan.cuda else ():
        if name in chosen:
            continue
        index_major = own_index.get(name, "").rpartition("-cu")[2][:-1]
        row = (catalogue.find_package_release(name, version) if not index_major else None) or {}
        major = index_major if index_major.isdigit() else str(catalogue.linked_cuda_major(row) or "")
        if major:
            yield name, {"file": "", "cudart": major, "missing": (f"libcudart.so.{major}",)}
        elif carries := catalogue.bundled_cuda(name, version):
            yield name, {"file": "", "carries": carries}


def _torchaudio_row(build: TorchBuild | None, version: str) -> dict[str, dict[str, Any]]:
    """Return the CUDA of the torchaudio beside a torch: that of the same index, else of PyPI, where it has one build."""
    if build is None or not build.cuda or not version:
        return {}
    known = torches.list_torch_builds(version.partition("+")[0], build.machine)
    same_index = [one for one in known if one.variant == build.variant and not build.pypi]
    wanted = same_index or [one for one in known if one.pypi]
    return {"torchaudio": {"file": "", "cuda": wanted[0].cuda}} if wanted else {}
