"""A change of an environment and its effect on the facts.

The effect of a step is computed: the facts are changed as the step would change them, and judged again. If the
effect cannot be predicted, because the step is manual, the change is assumed to work, costs the most and is
marked so.
"""

from __future__ import annotations

from gpuready import versions
from gpuready.catalog import cuda as toolkits
from gpuready.catalog import torch as torches
from gpuready.model import Fact, Noun, Step
from gpuready.plan.candidates import torch_facts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    from gpuready.model import Facts

SOURCE = "planned"
VARIABLE, REMOVAL, PACKAGE, TORCH, ENVIRONMENT, SYSTEM, INSTEAD, TRUST, JOB = 1, 2, 3, 4, 30, 60, 70, 100, 200
"""Costs per kind of change: variables are cheapest, then packages, then manual or root steps, a changed job,
assumed effects; the most expensive is to drop something that the job asks for."""

PACKAGED = ("package.", "torch.", "python.", "extension.", "library.", "nccl.", "cudnn.")
"""Prefixes of facts that belong to an environment and end with it."""


class Change(Noun):
    """One thing to do: its step, cost, effect on the facts, and the finding it is for."""

    step: Step
    cost: int
    acts: tuple[tuple[Any, ...], ...]  # (verb, subject, value): see ``apply_changes``
    code: str
    trusts: tuple[str, ...] = ()  # codes assumed cleared; "*packages": all about packages

    @property
    def subjects(self) -> frozenset[tuple[str, str]]:
        """What the change touches: of two changes to one subject only one can be made."""
        return frozenset((_KIND[act[0]], act[1]) for act in self.acts)


_KIND = {"package": "package", "torch": "torch", "set": "variable", "unset": "variable", "fact": "fact",
         "python": "python", "forget": "job", "unlock": "lock"}  # fmt: skip


def applied(facts: Facts, changes: Iterable[Change]) -> Facts:
    """Return the facts after these changes."""
    for change in changes:
        for verb, subject, value in change.acts:
            facts = facts.also(*_ACTS[verb](facts, subject, value))
    return facts


def _package(facts: Facts, name: str, version: str | None) -> list[Fact]:
    """Set or remove a package, and drop what was known of the old one."""
    changed = [_fact(f"package.{name}", version)]
    for key in ("python.requires", "extension.linked"):
        rows = facts.known(key)
        if rows and name in rows:
            changed.append(_fact(key, {k: v for k, v in rows.items() if k != name}))
    for key in ("python.half_installed", "python.duplicates"):
        rows = facts.known(key)
        if rows:
            changed.append(_fact(key, tuple(row for row in rows if not _names(row, name))))
    return changed


def _names(row: object, name: str) -> bool:
    """Whether a listing's row is about a package: its metadata folder, or a leftover of pip."""
    text = str(row["name"] if isinstance(row, dict) else row).partition("-dist-info")[0]
    whole = text if isinstance(row, dict) else text.partition("-")[0]
    plain = whole.lower().replace("_", "-").replace(".", "-")
    return plain == name or (plain.startswith("~") and name.endswith(plain.lstrip("~")))


def _torch(facts: Facts, version: str, variant: str | None) -> list[Fact]:
    """Set another torch build and the packages it brings."""
    machine = facts.known("os.arch") or "x86_64"
    build = torches.build(version, variant, machine)
    changed = [*_package(facts, "torch", version), *torch_facts(version, variant, machine)]
    changed += [_fact("torch.broken", None)]
    if build is not None:
        for key, found in (("nccl.version", build.nccl), ("cudnn.version", build.cudnn)):
            gap = "" if found else "the catalogue does not say which the build brings"
            changed.append(Fact(key, found, SOURCE, "stated", gap))
    pin = str((torches.release(version) or {}).get("triton") or "").lstrip("~=")
    if facts.known("package.triton") and versions.plain(pin) is not None:
        changed.append(_fact("package.triton", pin))
    return [fact.but(source=SOURCE) for fact in changed]


def _set(facts: Facts, name: str, value: str | None) -> list[Fact]:
    """Set or remove a variable, with its known consequences."""
    names = tuple(n for n in facts.known("env.names") or () if n != name)
    changed = [_fact(f"env.{name}", value)]
    if "env.names" in facts:
        changed.append(_fact("env.names", (*names, name) if value is not None else names))
    if name == "CUDA_VISIBLE_DEVICES":
        changed += _shown(facts, value)
    if name == "CUDA_HOME" and value is not None:
        changed += _toolkit(facts, value)
    if name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE") and value is None:
        changed += [_fact("hub.offline", False)] if "hub.offline" in facts else []
    return changed


def _unset(facts: Facts, name: str, _: None) -> list[Fact]:
    return _set(facts, name, None)


def _shown(facts: Facts, value: str | None) -> list[Fact]:
    """Set the visible GPUs; entries are indices or prefixes of UUIDs."""
    count, uuids = facts.known("gpu.count") or 0, facts.known("gpu.uuid") or ()
    if value is None:
        return [_fact("gpu.visible", tuple(range(count))), _fact("visibility.cuda", None)]
    shown = []
    for entry in value.split(","):
        named = [i for i, uuid in enumerate(uuids) if uuid and entry and str(uuid).startswith(entry)]
        index = int(entry) if entry.isdecimal() else named[0] if len(named) == 1 else -1
        if not 0 <= index < count:
            break
        shown.append(index)
    table = {"value": value, "shown": tuple(shown), "ignored": (), "why": "as planned"}
    return [_fact("gpu.visible", tuple(shown)), _fact("visibility.cuda", table)]


def _toolkit(facts: Facts, path: str) -> list[Fact]:
    for row in facts.known("toolkit.others") or ():
        if row.get("path") == path:
            found = {"version": row["version"], "path": path, "nvcc": row.get("nvcc") or f"{path}/bin/nvcc"}
            found |= {"chosen_by": "CUDA_HOME", "home_missing": None}
            return [_fact(f"toolkit.{key}", value) for key, value in found.items()]
    return []


def _any(facts: Facts, key: str, value: Any) -> list[Fact]:
    """Set one fact; a driver version also sets its library and CUDA."""
    changed = [_fact(key, value)]
    if key == "driver.version":
        changed += [_fact("driver.library", value)] if facts.known("driver.library") else []
        changed += [_fact("driver.cuda", toolkits.driver_cuda(value))] if "driver.cuda" in facts else []
    return changed


def _python(facts: Facts, version: str, _: None) -> list[Fact]:
    return [_fact("python.version", version)]


def _forget(facts: Facts, word: str, _: None) -> list[Fact]:
    """Remove one of the job's wants."""
    asked = facts.known("job.wants") or ()
    return [_fact("job.wants", tuple(one for one in asked if one != word))]


def _unlock(facts: Facts, path: str, _: None) -> list[Fact]:
    left = [row for row in facts.known("cache.locks") or () if path not in str(row)]
    return [_fact("cache.locks", tuple(left))]


def _fact(key: str, value: Any) -> Fact:
    return Fact(key, value, SOURCE, "stated")


_ACTS: dict[str, Callable[[Facts, str, Any], list[Fact]]] = {
    "package": _package,
    "torch": _torch,
    "set": _set,
    "unset": _unset,
    "fact": _any,
    "python": _python,
    "forget": _forget,
    "unlock": _unlock,
}


def variables(changes: Iterable[Change]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the variables that these changes set, and those that they unset."""
    acts = [act for change in changes for act in change.acts]
    return (
        {name: value for verb, name, value in acts if verb == "set"},
        tuple(name for verb, name, _ in acts if verb == "unset"),
    )


def packages(changes: Iterable[Change]) -> dict[str, str]:
    """Return the exact pins of these changes by package."""
    found: dict[str, str] = {}
    for change in changes:
        exact = _exact(change.step.run)
        named = {name for verb, name, _ in change.acts if verb == "package"} | {"torch"}
        found |= {name: version for name, version in exact.items() if name in named}
    return found


def _exact(run: tuple[str, ...]) -> Mapping[str, str]:
    pairs = (word.partition("==") for word in run if "==" in word and "," not in word and "*" not in word)
    return {name.partition("[")[0]: version for name, _, version in pairs}
