"""The grammar of ``when``: for which job or machine a row of a contract applies.

Atoms separated by commas; all must hold. ``wants=fp8`` and ``build`` test the job, ``model>=7b`` its
model, ``gpus>1`` the GPUs it uses; ``torch>=2.9`` and ``package.NAME>=1`` test a package; ``python<3.12``,
``arch=aarch64``, ``platform=cuda`` and any key of a fact (``gpu.capability>=10.0``) test the machine.
"""

import re
from typing import Any

import gpuready.contracts.want as wants
from gpuready.model import Facts, UnknownFactError
from gpuready.model.sizes import parse_count

_ATOM = re.compile(r"([A-Za-z][A-Za-z0-9._-]*)\s*(>=|<=|==|!=|=|>|<)\s*(\S+)")
SHORT_NAMES = {
    "torch": "package.torch",
    "python": "python.version",
    "arch": "os.arch",
    "platform": "platform.name",
    "model": "job.parameters",
    "gpus": "job.gpus",
    "wants": "job.wants",
}
"""What the short names stand for; every other name is the key of a fact."""

WORD_NAMES = ("wants", "arch", "platform")
_IN_WORDS = dict.fromkeys(map(ord, ".+-_"), "x")

PLATFORMS = {"nvidia": "cuda", "amd": "rocm", "intel": "xpu", "huawei": "npu", "habana": "hpu", "apple": "mps"}
"""The platform of each vendor's GPUs, for a machine of which only the GPUs are stated."""


def condition_applies(when: str, facts: Facts) -> bool:
    """Return whether a condition holds on these facts; raises Unknown where a fact it reads could not be seen.

    An unstated job wants nothing, and an absent package satisfies no condition on it.
    """
    return all(_atom_holds(atom, facts) for atom in _parse_condition(when))


def certainly_applies(when: str, facts: Facts) -> bool:
    """Return whether a condition is known to hold; False where a fact it reads could not be seen."""
    try:
        return condition_applies(when, facts)
    except UnknownFactError:
        return False


def check_condition(when: str) -> None:
    """Raise ValueError, with a sentence, where a condition is malformed."""
    for name, operator, bound in _parse_condition(when):
        if operator in ("=", "!=") and not _is_ordered(name):
            if not all(w and w.translate(_IN_WORDS).isalnum() for w in bound.split("|")):
                raise ValueError(f"{bound!r} in {when!r} is not a word, nor words separated by |")
        elif operator == "=" or name in WORD_NAMES:
            right = "= or !=" if name in WORD_NAMES else "==, >= or <"
            raise ValueError(f"{name!r} in {when!r} cannot be compared with {operator}: use {right}")
        elif name == "model":
            parse_model_size(bound)
        else:
            wants.check_want(operator + bound)


def condition_keys(when: str) -> list[str]:
    """Return the keys of the facts that a condition reads."""
    return [SHORT_NAMES.get(name, name) for name, _, _ in _parse_condition(when)]


def wanted_words(when: str) -> list[str]:
    """Return what the job must want by name: ``wants=fp8|nvfp4,gpus>1`` -> fp8, nvfp4."""
    return [
        w
        for name, operator, bound in _parse_condition(when)
        if (name, operator) == ("wants", "=")
        for w in bound.split("|")
    ]


def parse_model_size(text: str) -> int:
    """Parse the size of a model: ``7b`` -> 7_000_000_000, ``350m``, or a plain number."""
    size = parse_count(text)
    if size is None:
        raise ValueError(f"{text!r} is not the size of a model: write for example 7b, 350m or 7000000000")
    return size


def _parse_condition(when: str) -> list[tuple[str, str, str]]:
    if when not in _PARSED:
        _PARSED[when] = [_parse_atom(part.strip(), when) for part in when.split(",")] if when.strip() else []
    return _PARSED[when]


_PARSED: dict[str, list[tuple[str, str, str]]] = {}
"""Parsed conditions: contracts repeat a few, and every rule evaluates them."""


def _parse_atom(part: str, when: str) -> tuple[str, str, str]:
    found = _ATOM.fullmatch("wants=build" if part == "build" else part)
    if found is None or not ("." in found[1] or found[1] in SHORT_NAMES):
        raise ValueError(
            f"{part!r} in the condition {when!r} is not understood: "
            "write for example wants=fp8, model>=7b, gpus>1, torch>=2.9 or gpu.capability>=9.0"
        )
    return found[1], found[2], found[3]


def _atom_holds(atom: tuple[str, str, str], facts: Facts) -> bool:
    name, operator, bound = atom
    key = SHORT_NAMES.get(name, name)
    if name == "platform":
        value = _platform_value(facts)
    else:
        value = (facts.value(key) if key in facts else None) if key.startswith("job.") else facts.value(key)
    if name == "gpus" and value is None:
        value = facts.value("gpu.count")
    if value is None:
        return operator == "!="
    if name == "model":
        return wants.value_meets_want(operator + str(parse_model_size(bound)), value)
    if operator in ("=", "!=") and not _is_ordered(name):
        return _any_word_matches(bound.split("|"), value) is (operator == "=")
    values = value if isinstance(value, (list, tuple)) else [value]
    # On a mixed machine one GPU that meets the condition is enough.
    return any(wants.value_meets_want(operator + bound, one) for one in values)


def _is_ordered(name: str) -> bool:
    """Return whether a name is a version or a number, which only the ordering operators can test."""
    return name in ("torch", "python", "model", "gpus") or name.startswith("package.")


def _platform_value(facts: Facts) -> Any:
    """Return the machine's platform; derived from its GPUs where only they are known."""
    if facts.value_if_known("platform.name") or "gpu.vendor" not in facts:
        return facts.value("platform.name")
    return [PLATFORMS.get(vendor, vendor) for vendor in facts.value("gpu.vendor") or ()]


def _any_word_matches(words: list[str], value: Any) -> bool:
    many = value if isinstance(value, (list, tuple)) else [value]
    found = {_normalize_word(one) for one in many}
    return any(_normalize_word(word) in found for word in words)


def _normalize_word(value: object) -> str:
    return str(value).casefold().replace("_", "-")
