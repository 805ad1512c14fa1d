"""Where the facts come from: this machine, a recording, or a named machine."""

from __future__ import annotations

from gpuready import contracts, system
from gpuready.model import SCHEMA, Fact, Facts
from gpuready.workflow.refusal import Refused, named, refusing, text_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from gpuready.model import Contract


_PACKAGES = ("python.", "package.", "torch.")
"""Prefixes of facts that belong to the environment, not the machine."""


def start(
    on: str | None,
    python: str | None,
    what_if: Mapping[str, str],
    seconds: dict[str, float] | None,
    distributions: Sequence[str] = (),
    variables: Sequence[str] = (),
) -> tuple[Callable[[], Facts], Callable[[], bool], Callable[[], object]]:
    """Start probing. Return functions to collect the facts, to tell whether they are ready, and to stop."""
    if on is not None and not is_file(on):
        return lambda: _imagined(on, python, what_if, distributions), _at_once, _at_once
    if on is not None:
        recorded = recording(on)
        if python is not None:
            recorded = _with_packages(recorded, python, distributions)
        return lambda: _varied(recorded, what_if), _at_once, _at_once
    from gpuready import probe as looking

    door = system.Live()
    started = system.launch(door, refusing(looking.looks, door, python, distributions, variables))

    def collect() -> Facts:
        facts = refusing(looking.gather, door, started.collect(), python)
        if seconds is not None:
            seconds.update(started.seconds)
        return _varied(facts, what_if)

    return collect, started.ready, started.stop


def inside(
    file: str, on: str | None, python: str | None, what_if: Mapping[str, str]
) -> tuple[Callable[[], Facts], Callable[[], bool], Callable[[], object]]:
    """Return the same functions for a container file, on a host that is recorded, named, or not stated."""
    from gpuready.workflow import containing

    if python is not None:
        raise Refused("--dockerfile and --python do not go together: a container has its own environment")
    host = None if on is None else recording(on) if is_file(on) else _imagined(on, None, what_if)
    return lambda: containing.machine(file, host, what_if), _at_once, _at_once


def signs_of_a_gpu() -> bool:
    from gpuready.probe.sight import driver_loaded

    return driver_loaded(system.Live())


def _at_once() -> bool:
    return True


def besides(
    asked: Sequence[tuple[str, str | None, str | None]], own: Contract | None
) -> tuple[list[str], list[str]]:
    """Return what is probed on demand: the metadata of named frameworks, and the variables of a user's contract."""
    distributions = [contracts.distribution(framework) for framework, _, _ in asked]
    return distributions, [variable.name for variable in own.variables] if own else []


def sees_packages(on: str | None, python: str | None) -> bool:
    """Return whether an environment is probed: a named machine has none, unless --python gives one."""
    return on is None or python is not None or is_file(on)


def is_file(on: str) -> bool:
    return "/" in on or on.endswith(".json") or system.Live().stat(on) is not None


def recording(path: str) -> Facts:
    """Read the facts of a recording; Refused for another tool's file or a newer schema."""
    import json

    from gpuready.catalog import facts as catalogue

    text = text_of(path)
    if not text.strip():
        raise Refused(f"{path} is empty; record a machine with `gpuready probe -o FILE`")
    try:
        data = json.loads(text)
    except ValueError as bad:
        raise Refused(f"{path} is not JSON: {bad}; record a machine with `gpuready probe -o FILE`") from None
    except RecursionError:
        raise Refused(f"{path} is nested too deeply for a recording") from None
    if not isinstance(data, dict) or not isinstance(data.get("facts"), list):
        raise Refused(
            f"{path} is not a recording: it has no list of facts; make one with `gpuready probe -o FILE`"
        )
    schema = data.get("schema")
    if not isinstance(schema, int) or isinstance(schema, bool) or schema < 1:
        raise Refused(
            f"{path} has schema {schema!r}, which no gpuready wrote; record it with `gpuready probe -o FILE`"
        )
    if schema > SCHEMA:
        raise Refused(f"{path} has schema {schema!r} and this gpuready reads {SCHEMA}: upgrade gpuready")
    try:
        facts = [Fact.from_json(item) for item in _unsaid(data["facts"])]
    except ValueError as bad:
        raise Refused(f"{path}: {bad}") from None
    for fact in facts:
        if not catalogue.fits(fact.key, fact.value):
            kind = (catalogue.declared(fact.key) or {})["type"]
            raise Refused(
                f"{path}: the fact {fact.key!r} must be of type {kind}, and is {str(fact.value)[:60]!r}"
            )
    return Facts(facts, system.redact(str(data.get("host", ""))), "not recorded")


def _unsaid(facts: list[Any]) -> list[Any]:
    """Redact the facts of a recording: its maker may not have removed secrets."""
    from gpuready.system.redact import harbours, redact_all, redact_value

    plain = redact_all(facts) if harbours(facts) else facts
    for fact in plain:
        if isinstance(fact, dict) and isinstance(fact.get("value"), str):
            name = str(fact.get("key", ""))
            if name.startswith("env."):
                fact["value"] = redact_value(name[4:], fact["value"])
    return plain


def _imagined(
    on: str, python: str | None, what_if: Mapping[str, str], distributions: Sequence[str] = ()
) -> Facts:
    from gpuready.probe import stated

    facts = refusing(stated.machine, on, what_if)
    return facts if python is None else _with_packages(facts, python, distributions)


def _with_packages(facts: Facts, python: str, distributions: Sequence[str]) -> Facts:
    """Replace another machine's package facts with those of a local environment."""
    from gpuready import probe as looking

    door = system.Live()
    looks = refusing(looking.looks, door, python, distributions)
    mine = refusing(looking.gather, door, system.together(door, looks), python)
    kept = [f for f in facts if not f.key.startswith(_PACKAGES)]
    return Facts(kept, facts.host, facts.otherwise).also(*(f for f in mine if f.key.startswith(_PACKAGES)))


def _varied(facts: Facts, what_if: Mapping[str, str]) -> Facts:
    if not what_if:
        return facts
    from gpuready.probe import stated

    return facts.also(*refusing(stated.variations, what_if, facts.known("os.arch") or "x86_64"))


def job(wants: str | None, model: str | None, config: str | None, own: Contract | None = None) -> list[Fact]:
    """Return the facts of the job's flags; a user's own contract may use words of its own."""
    from gpuready.contracts.when import words
    from gpuready.probe import job as flags

    conditions: list[str] = []
    if own is not None:
        conditions += [need.when for need in own.needs]
        conditions += [row.when for row in own.capabilities] + [row.when for row in own.variables]
    also = [word for condition in conditions for word in words(condition)]
    return refusing(flags.look, named(), wants, model, config, also)
