"""One function per command: collect facts, judge them, act."""

from __future__ import annotations

from gpuready import __version__, catalog, contracts, rules, system
from gpuready.model import NOT_STATED, SCHEMA, Fact
from gpuready.workflow import choosing, looking
from gpuready.workflow.refusal import Refused as Refused
from gpuready.workflow.refusal import nearest, refusing, text_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from gpuready.changes import Change
    from gpuready.model import Contract, Facts, Report


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
    dockerfile: str | None = None,
    partial: bool = False,
) -> list[Report]:
    """Check a machine (this one, a recorded or a named one, or a container file) for these frameworks.

    With ``partial``, a termination signal during probing is answered with the facts collected so far.
    """
    with_reasons = _known_codes(ignore or {})
    sees = dockerfile is None and looking.sees_packages(on, python)
    asked = [choosing.asked(spec, sees) for spec in frameworks]
    own = None if contract is None else refusing(contracts.read, contract)
    if dockerfile is not None:
        look, ready, stop = looking.inside(dockerfile, on, python, what_if or {})
    else:
        look, ready, stop = looking.start(on, python, what_if or {}, seconds, *looking.besides(asked, own))
    try:
        rules.warm(ready, gpu=looking.signs_of_a_gpu())  # while the probes run
        job = looking.job(wants, model, config, own)
        facts = _fitted(look().also(*job), config, on)
    except BaseException as end:  # a refusal or a signal: stop probes that still run
        stop()
        if not partial or isinstance(end, (Exception, KeyboardInterrupt)):
            raise
        # A scheduler's SIGTERM. Stopped probes return what they had, and a gap for the rest.
        facts = _learned(look, end).also(*looking.job(wants, model, config, own))
    try:
        named = asked or ([] if own else choosing.installed_here(facts))
        chosen = [
            *(choosing.contract_of(facts, *spec) for spec in named),
            *([choosing.given(facts, own)] if own else []),
        ]
        return [_judge(_beside(facts, c, chosen), c, with_reasons, strict) for c in chosen]
    except (TypeError, KeyError, AttributeError, IndexError, OverflowError) as bad:
        if on is None or not looking.is_file(on):
            raise
        raise Refused(_misshapen(on, bad)) from bad  # GPUREADY_DEBUG=1 shows it: it may be our own bug


def _misshapen(path: str, bad: BaseException) -> str:
    """Explain that a rule cannot read a recording: it may be forged, and only the rules know the fields of its tables."""
    at = bad.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    where = at.tb_frame.f_code.co_filename.rpartition("/")[2].removesuffix(".py") if at else "a rule"
    return (
        f"{path} has a fact of a shape that gpuready does not record ({where} cannot read it): record the machine again "
        "with `gpuready probe -o FILE`"
    )


def _learned(look: Callable[[], Facts], end: BaseException) -> Facts:
    """Collect what stopped probes returned; re-raise the signal where it hit their bookkeeping."""
    try:
        return look()
    except Exception:
        raise end from None


def _fitted(facts: Facts, config: str | None, on: str | None = None) -> Facts:
    """Add what the job of a configuration file needs of the GPUs; free where there is none."""
    if config is None:
        return facts
    from gpuready.workflow.fitting import needed

    return facts.also(*needed(config, facts, on))


def _beside(facts: Facts, contract: Contract, every: list[Contract]) -> Facts:
    """Add what the other requested frameworks would do to this one's environment."""
    if len(every) < 2:
        return facts
    from gpuready.rules.pkg.contracts_cannot_share_environment import others as pins
    from gpuready.rules.sys.variables_two_frameworks_differ import others as variables

    asked = ", ".join(c.name for c in every if c is not contract)
    return facts.also(
        Fact("contract.others", pins(contract, every), asked, "stated"),
        Fact("contract.variables", variables(contract, every), asked, "stated"),
    )


def _judge(facts: Facts, contract: Contract, ignore: Mapping[str, str], strict: bool) -> Report:
    from gpuready.check import judge

    options = None
    if facts.otherwise == NOT_STATED:
        from gpuready.plan.candidates import options as candidates

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
    """List what changed from one machine (a recording or a name) to another, and which rules that flips."""
    before, after = (
        check([framework] if framework else [choosing.DEFAULT_FRAMEWORK], on=machine)[0] for machine in (a, b)
    )
    return _changes(before, after)


def since(path: str, now: Report) -> list[Change]:
    """List what changed since a recording was made, under the contract of a current Report."""
    job = [f for f in now.facts if f.key.startswith("job.")]
    before = _judge(looking.recording(path).also(*job), now.contract, {}, now.strict)
    return _changes(before, now)


def _changes(before: Report, after: Report) -> list[Change]:
    from gpuready.catalog.facts import declared
    from gpuready.changes import changes

    return changes(before, after, lambda key: bool((declared(key) or {}).get("volatile")))


def probe(
    python: str | None = None, on: str | None = None, what_if: Mapping[str, str] | None = None
) -> Facts:
    """Collect everything gpuready can see of a machine without running anything heavy on it."""
    return looking.start(on, python, what_if or {}, None)[0]()


def record(python: str | None = None) -> dict[str, Any]:
    """Return this machine as a recording: its facts, and the redacted host replies that they were read from."""
    from gpuready import probe as probes
    from gpuready.catalog import packages

    door = system.Recorder(system.Live())
    facts = refusing(probes.probe, door, python, packages.names())  # its reader may need the metadata of any of them
    return {
        "schema": SCHEMA,
        "kind": "recording",
        "gpuready": __version__,
        "host": facts.host,
        "facts": facts.to_json(),
        "tape": door.tape,
    }


def save(path: str, text: str) -> None:
    """Write a file atomically."""
    try:
        system.save(path, text)
    except system.Blind as blind:
        raise Refused(f"cannot write {path}: {blind}") from None


def explain(code: str) -> dict[str, Any]:
    """Return the explanation of a rule, by its code or its name."""
    wanted = code.strip()
    by_name = {rules.name(c): c for c in rules.LEDGER}
    known = by_name.get(wanted.lower(), wanted.upper())
    if known not in rules.LEDGER:
        near = nearest(wanted, [*rules.LEDGER, *by_name])
        raise Refused(f"no rule is called {code!r}{near}; `gpuready explain` alone lists them all")
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
        "signs": [sign if isinstance(sign, str) else sign["says"] for sign in rule.SIGNS],
    }


def codes() -> list[str]:
    return list(rules.LEDGER)


def explained() -> list[dict[str, Any]]:
    return [{k: v for k, v in explain(code).items() if k != "text"} for code in rules.LEDGER]


def contract_list() -> list[dict[str, Any]]:
    return list(contracts.available())


def contract_show(spec: str, file: str | None = None) -> Contract:
    if file is not None:
        return refusing(contracts.read, file)
    return refusing(contracts.load, *choosing.asked(spec))


def contract_diff(a: str, b: str, files: bool = False) -> list[Any]:
    """List what changed between two contracts. With ``files``, a word with a slash or ``.toml`` names a contract file."""
    from gpuready.contracts.diff import diff

    def meant(spec: str) -> Contract:
        return contract_show(spec, spec if files and ("/" in spec or spec.endswith(".toml")) else None)

    return diff(meant(a), meant(b))


def contract_import(path: str) -> tuple[Contract, list[tuple[int, str]]]:
    """Import an environment page as a contract; also return the lines that could not be placed."""
    from gpuready.contracts.page import import_page

    return refusing(import_page, text_of(path), path)


def _known_codes(ignore: Mapping[str, str]) -> Mapping[str, str]:
    if ignore:
        for code in ignore:
            if code not in rules.LEDGER:
                raise Refused(f"--ignore {code}: no rule has that code{nearest(code, rules.LEDGER)}")
    return ignore
