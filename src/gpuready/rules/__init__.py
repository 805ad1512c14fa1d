"""The rules by their codes, which are assigned in order and never reused.

A rule is a module (``gpu/gpu_lost.py``). A rule that only a log can trigger stands in the file of its cause
(``catalog/causes/slurm-time-limit.toml``), which has the log patterns of all its codes: see ``log_rules``.
"""

from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module

from gpuready.catalog import load_table
from gpuready.model import Facts, Rule

FAMILIES = ("GPU", "DRV", "BLD", "PKG", "SYS", "NET", "MEM", "CAP", "RUN", "FLT")
"""In the order in which rules are listed."""

_SUPPLIED_FAMILIES = ("job.", "requirements.", "container.", "log.", "bench.", "proof.", "fleet.", "import.")
"""Families of facts that are not probed, or only where there is an environment: if not supplied, they are absent."""


def list_rule_modules() -> dict[str, str]:
    """Return the module of each code, ``gpu.gpu_lost``; compiled from the ``CODE`` of the modules."""
    modules: dict[str, str] = load_table("rules", "codes")["modules"]
    return modules


def list_required_facts() -> dict[str, tuple[str, ...]]:
    """Return the ``REQUIRED_FACTS`` of the modules that have them.

    If all of them are known to be absent, zero or empty, the rule is not even imported.
    """
    required: dict[str, tuple[str, ...]] = load_table("rules", "codes")["required_facts"]
    return required


@cache
def load_rule(code: str) -> Rule:
    """Load the rule of a code; KeyError for an unknown code."""
    if code not in list_rule_modules():
        from gpuready.rules import log_rules

        return log_rules.LogRule(code)
    module = f"gpuready.rules.{list_rule_modules()[code]}"
    return import_module(module)


def load_all_rules() -> Iterator[Rule]:
    return (load_rule(code) for code in list_codes())


def list_codes() -> list[str]:
    """Return the codes of all rules, by family and number."""
    from gpuready.rules import log_rules

    codes = [*list_rule_modules(), *log_rules.load_log_rules()]
    return sorted(codes, key=lambda code: (FAMILIES.index(code[:3]), code))


@cache
def required_facts(code: str) -> tuple[str, ...]:
    if code not in list_rule_modules():
        return ("log.signs",)
    return list_required_facts().get(code, ())


def applicable_rules(facts: Facts) -> list[Rule]:
    """Return the rules that can have a finding for these facts."""
    codes = list_codes() if "log.signs" in facts else list_rule_modules()
    return [load_rule(code) for code in codes if not _cannot_apply(code, facts)]


def _cannot_apply(code: str, facts: Facts) -> bool:
    keys = required_facts(code)
    return bool(keys) and not any(_may_be_present(facts, key) for key in keys)


def _may_be_present(facts: Facts, key: str) -> bool:
    """Return whether a fact is present, or unknown and thus possibly present."""
    if key not in facts and key.startswith(_SUPPLIED_FAMILIES):
        return False
    fact = facts.fact(key)
    return bool(fact.gap or fact.value)


def preload_rules(should_stop: Callable[[], bool], gpu: bool = False) -> None:
    """Import the rules that every machine needs, and those that a GPU needs, until ``should_stop()``."""
    likely = [code for code in list_rule_modules() if not required_facts(code)]
    likely += [code for code in list_rule_modules() if gpu and "gpu.count" in required_facts(code)]
    for code in likely:
        if should_stop():
            return
        load_rule(code)


def rule_name(code: str) -> str:
    """Return ``driver-older-than-wheel`` for ``DRV001``."""
    if code not in list_rule_modules():
        from gpuready.rules import log_rules

        return str(log_rules.load_log_rules()[code]["name"])
    return list_rule_modules()[code].rpartition(".")[2].replace("_", "-")
