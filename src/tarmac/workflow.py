"""Each command as a short list of the verbs: look, judge, act."""

from __future__ import annotations

from tarmac import __version__, catalog, contracts, rules, system
from tarmac.catalog.packages import canonical, split
from tarmac.model import NOT_STATED, SCHEMA, Fact, Facts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, TypeVar

    from tarmac.changes import Change
    from tarmac.model import Contract, Report

    Answer = TypeVar("Answer")

DEFAULT_FRAMEWORK = "transformers"
RECORDING_LIMIT = 64 << 20


class Refused(Exception):
    """Bad input. The message is one sentence: what is wrong, where, and what to do."""


def check(
    frameworks: Sequence[str] = (),
    *,
    on: str | None = None,
    python: str | None = None,
    wants: str | None = None,
    model: str | None = None,
    config: str | None = None,
    contract: str | None = None,
    ignore: Mapping[str, str] | None = None,
    strict: bool = False,
    what_if: Mapping[str, str] | None = None,
    seconds: dict[str, float] | None = None,
) -> list[Report]:
    """Is this machine, a recorded one, or an imagined one clear for these frameworks?"""
    with_reasons = _known_codes(ignore or {})
    asked = [_asked(spec, _sees_packages(on, python)) for spec in frameworks]
    own = None if contract is None else _refusing(contracts.read, contract)
    look, ready, stop = _start(on, python, what_if or {}, seconds, *_besides(asked, own))
    try:
        rules.warm(ready, gpu=_signs_of_a_gpu())  # while the probes are looking
        job = _job(wants, model, config, own)
        facts = look().also(*job)
    except BaseException:  # a refusal or a signal: what is still looking must not outlive it
        stop()
        raise
    named = asked or ([] if own else _installed(facts))
    chosen = [*(_contract(facts, *spec) for spec in named), *([_given(facts, own)] if own else [])]
    return [_judge(_beside(facts, c, chosen), c, with_reasons, strict) for c in chosen]


def _beside(facts: Facts, contract: Contract, every: list[Contract]) -> Facts:
    """The facts, and what the other frameworks that are asked for would do to this one's environment."""
    if len(every) < 2:
        return facts
    from tarmac.rules.pkg.contracts_cannot_share_environment import others as pins
    from tarmac.rules.sys.variables_two_frameworks_differ import others as variables

    asked = ", ".join(c.name for c in every if c is not contract)
    return facts.also(
        Fact("contract.others", pins(contract, every), asked, "stated"),
        Fact("contract.variables", variables(contract, every), asked, "stated"),
    )


def _judge(facts: Facts, contract: Contract, ignore: Mapping[str, str], strict: bool) -> Report:
    from tarmac.check import judge

    options = None
    if facts.otherwise == NOT_STATED:
        from tarmac.plan.candidates import options as candidates

        options = candidates(facts, contract)
    return judge(
        rules.awake(facts),
        facts,
        contract,
        ignore=ignore,
        strict=strict,
        catalog=catalog.as_of(),
        options=options,
    )


def diff(a: str, b: str, framework: str | None = None) -> list[Change]:
    """What changed from one machine (a recording or a name) to another, and which rules that flips."""
    before, after = (
        check([framework] if framework else [DEFAULT_FRAMEWORK], on=machine)[0] for machine in (a, b)
    )
    return _changes(before, after)


def since(path: str, now: Report) -> list[Change]:
    """What changed since a recording was made, under the contract of a Report of today."""
    job = [f for f in now.facts if f.key.startswith("job.")]
    before = _judge(_recording(path).also(*job), now.contract, {}, now.strict)
    return _changes(before, now)


def _changes(before: Report, after: Report) -> list[Change]:
    from tarmac.catalog.facts import declared
    from tarmac.changes import changes

    return changes(before, after, lambda key: bool((declared(key) or {}).get("volatile")))


def probe(
    python: str | None = None, on: str | None = None, what_if: Mapping[str, str] | None = None
) -> Facts:
    """Everything tarmac can see of a machine without running anything heavy on it."""
    return _start(on, python, what_if or {}, None)[0]()


def record(python: str | None = None) -> dict[str, Any]:
    """This machine in a file: its facts, and the redacted answers of the door that they were read from."""
    from tarmac import probe as looking

    door = system.Recorder(system.Live())
    facts = _refusing(looking.probe, door, python)
    return {
        "schema": SCHEMA,
        "kind": "recording",
        "tarmac": __version__,
        "host": facts.host,
        "facts": facts.to_json(),
        "tape": door.tape,
    }


def save(path: str, text: str) -> None:
    """Write a file whole or not at all."""
    try:
        system.save(path, text)
    except system.Blind as blind:
        raise Refused(f"cannot write {path}: {blind}") from None


def explain(code: str) -> dict[str, Any]:
    """The long story of one code, or of a rule by its name."""
    wanted = code.strip()
    by_name = {rules.name(c): c for c in rules.LEDGER}
    known = by_name.get(wanted.lower(), wanted.upper())
    if known not in rules.LEDGER:
        near = _nearest(wanted, [*rules.LEDGER, *by_name])
        raise Refused(f"no rule is called {code!r}{near}; `tarmac explain` alone lists them all")
    rule = rules.rule(known)
    title, _, story = (rule.__doc__ or "").strip().partition("\n")
    return {
        "schema": SCHEMA,
        "code": known,
        "name": rules.name(known),
        "severity": rule.SEVERITY,
        "title": title,
        "text": story.strip(),
        "reads": list(rule.READS),
        "signs": list(rule.SIGNS),
    }


def codes() -> list[str]:
    return list(rules.LEDGER)


def explained() -> list[dict[str, Any]]:
    """Every code with its title."""
    return [{k: v for k, v in explain(code).items() if k != "text"} for code in rules.LEDGER]


def contract_list() -> list[dict[str, Any]]:
    return list(contracts.available())


def contract_show(spec: str, file: str | None = None) -> Contract:
    if file is not None:
        return _refusing(contracts.read, file)
    return _refusing(contracts.load, *_asked(spec))


def contract_diff(a: str, b: str) -> list[Any]:
    from tarmac.contracts.diff import diff

    return diff(contract_show(a), contract_show(b))


def contract_import(path: str) -> tuple[Contract, list[tuple[int, str]]]:
    """An environment page as a contract, and the lines that found no place in it."""
    from tarmac.contracts.page import import_page

    return _refusing(import_page, _text(path), path)


# -- look ---------------------------------------------------------------------------------------------


def _start(
    on: str | None,
    python: str | None,
    what_if: Mapping[str, str],
    seconds: dict[str, float] | None,
    distributions: Sequence[str] = (),
    variables: Sequence[str] = (),
) -> tuple[Callable[[], Facts], Callable[[], bool], Callable[[], object]]:
    """Begin to look: how to get what was found, whether it is there already, and how to give up."""
    if on is not None and not _is_file(on):
        return lambda: _imagined(on, python, what_if, distributions), _at_once, _at_once
    if on is not None:
        recorded = _recording(on)
        return lambda: _varied(recorded, what_if), _at_once, _at_once
    from tarmac import probe as looking

    door = system.Live()
    started = system.launch(door, _refusing(looking.looks, door, python, distributions, variables))

    def collect() -> Facts:
        facts = looking.gather(door, started.collect())
        if seconds is not None:
            seconds.update(started.seconds)
        return _varied(facts, what_if)

    return collect, started.ready, started.stop


def _signs_of_a_gpu() -> bool:
    return any(system.Live().stat(path) for path in ("/dev/nvidiactl", "/dev/dxg"))


def _at_once() -> bool:
    return True


def _besides(
    asked: Sequence[tuple[str, str | None, str | None]], own: Contract | None
) -> tuple[list[str], list[str]]:
    """What is looked at on demand: the metadata of what is named, and the variables of a user's contract."""
    distributions = [contracts.distribution(framework) for framework, _, _ in asked]
    return distributions, [variable.name for variable in own.variables] if own else []


def _sees_packages(on: str | None, python: str | None) -> bool:
    """Whether an environment is looked at: on a machine that is only stated there is none, unless named."""
    return on is None or python is not None or _is_file(on)


def _is_file(on: str) -> bool:
    return "/" in on or on.endswith(".json") or system.Live().stat(on) is not None


def _recording(path: str) -> Facts:
    """The facts of a recording. A recording of another tool or a newer schema is refused."""
    import json

    try:
        data = json.loads(_text(path))
    except ValueError as bad:
        raise Refused(f"{path} is not JSON: {bad}; record a machine with `tarmac probe -o {path}`") from None
    except RecursionError:
        raise Refused(f"{path} is nested too deeply for a recording") from None
    if not isinstance(data, dict) or not isinstance(data.get("facts"), list):
        raise Refused(
            f"{path} is not a recording: it has no list of facts; make one with `tarmac probe -o FILE`"
        )
    schema = data.get("schema")
    if not isinstance(schema, int) or schema > SCHEMA:
        raise Refused(f"{path} has schema {schema!r} and this tarmac reads {SCHEMA}: upgrade tarmac")
    try:
        return Facts(
            [Fact.from_json(item) for item in data["facts"]], str(data.get("host", "")), "not recorded"
        )
    except ValueError as bad:
        raise Refused(f"{path}: {bad}") from None


def _imagined(
    on: str, python: str | None, what_if: Mapping[str, str], distributions: Sequence[str] = ()
) -> Facts:
    from tarmac.probe import stated

    facts = _refusing(stated.machine, on, what_if)
    if python is None:
        return facts
    from tarmac import probe as looking

    door = system.Live()
    looks = _refusing(looking.looks, door, python, distributions)
    mine = looking.gather(door, system.together(door, looks))
    return facts.also(*(f for f in mine if f.key.startswith(("python.", "package.", "torch."))))


def _varied(facts: Facts, what_if: Mapping[str, str]) -> Facts:
    if not what_if:
        return facts
    from tarmac.probe import stated

    return facts.also(*_refusing(stated.variations, what_if, facts.known("os.arch") or "x86_64"))


def _job(wants: str | None, model: str | None, config: str | None, own: Contract | None = None) -> list[Fact]:
    """What the flags say of the job; a user's own contract may wait for words that nobody else knows."""
    from tarmac.contracts.when import words
    from tarmac.probe import job

    conditions: list[str] = []
    if own is not None:
        conditions += [need.when for need in own.needs]
        conditions += [row.when for row in own.capabilities] + [row.when for row in own.variables]
    also = [word for condition in conditions for word in words(condition)]
    return _refusing(job.look, system.Live(), wants, model, config, also)


# -- choose -------------------------------------------------------------------------------------------


def _asked(spec: str, sees_packages: bool = False) -> tuple[str, str | None, str | None]:
    """What a spec names. Where packages are seen, one of them may be meant that has no contract."""
    framework, version, variant = _refusing(contracts.parse, spec)
    if variant or not sees_packages or contracts.contracted(framework):
        _refusing(contracts.known, framework, version, variant)
    return framework, version, variant


def _installed(facts: Facts) -> list[tuple[str, str | None, str | None]]:
    """The contracted frameworks that the patient has, less those that another one brought; else the default."""
    names = {contracts.distribution(name): name for name in contracts.frameworks()}
    found = [name for name in names if facts.known(f"package.{name}")]
    requires = facts.known("python.requires") or {}
    lines = [line for own in found for line in requires.get(own, {}).get("requires_dist", ())]
    brought = {canonical(split(line)[0]) for line in lines if "extra ==" not in line}
    own = [names[name] for name in found if name not in brought] or [names[name] for name in found]
    return [(name, None, None) for name in own or [DEFAULT_FRAMEWORK]]


def _contract(facts: Facts, framework: str, version: str | None, variant: str | None) -> Contract:
    """The contract of a framework here: that of its version, with the pins of its metadata where it has none."""
    name = contracts.distribution(framework)
    installed = facts.known(f"package.{name}")
    requires = (facts.known("python.requires") or {}).get(name)
    if not contracts.contracted(framework):
        chosen = _derived(facts, framework, requires)
    else:
        chosen = _refusing(contracts.load, framework, version, variant, installed)
        meant = installed is not None and (version is None or contracts.covers(version, installed))
        if chosen.says and requires and meant:
            chosen = contracts.with_pins(chosen, installed, *_metadata(facts, requires))
    if version is None:
        return chosen
    from tarmac.contracts.pins import exactly

    return exactly(chosen, version, installed)


def _given(facts: Facts, contract: Contract) -> Contract:
    """A user's own contract, which says so where another version is installed than it is for."""
    name = contract.distribution or contract.framework
    installed = facts.known(f"package.{name}")
    if installed is None or contracts.covers(contract.version, installed):
        return contract
    return contract.but(says=f"{name} {installed} is installed, and this contract is for {contract.version}")


def _derived(facts: Facts, framework: str, requires: Mapping[str, Any] | None) -> Contract:
    """The contract of an installed package that has none; refused where there is no such package either."""
    installed = facts.known(f"package.{framework}")
    if requires is None and installed:
        raise Refused(
            f"there is no contract for {framework!r}, and its metadata was not recorded: check it on the machine"
        )
    if requires is None:
        raise Refused(str(contracts.unknown(framework)))
    from tarmac.contracts.derived import derived

    version = installed or requires["version"] or "0"
    return derived(framework, version, *_metadata(facts, requires))


def _metadata(facts: Facts, requires: Mapping[str, Any]) -> tuple[list[str], str | None, dict[str, str]]:
    """The pins of a distribution, its Python, and the patient that their markers are read for."""
    from tarmac.contracts.pins import environment

    return list(requires["requires_dist"]), requires["requires_python"], environment(facts)


def _known_codes(ignore: Mapping[str, str]) -> Mapping[str, str]:
    if ignore:
        for code in ignore:
            if code not in rules.LEDGER:
                raise Refused(f"--ignore {code}: no rule has that code{_nearest(code, rules.LEDGER)}")
    return ignore


# -- refuse -------------------------------------------------------------------------------------------


def _refusing(do: Callable[..., Answer], *args: Any) -> Answer:
    """Call, and turn what a room says about bad input into a refusal."""
    try:
        return do(*args)
    except (ValueError, system.Blind) as bad:
        raise Refused(str(bad)) from None


def _text(path: str) -> str:
    try:
        text = system.Live().read(path, RECORDING_LIMIT)
    except system.Blind as blind:
        raise Refused(f"cannot read {path}: {blind}") from None
    if text is None:
        raise Refused(f"{path} does not exist")
    return text


def _nearest(word: str, known: Any) -> str:
    from difflib import get_close_matches

    near = get_close_matches(word.lower(), [k.lower() for k in known], 3, 0.5)
    by_lower = {k.lower(): k for k in known}
    return f" (nearest: {', '.join(by_lower[n] for n in near)})" if near else ""
