"""The commands as functions: ``gpuready.check("transformers", on="h100x8")``. Each returns a Result; bad input raises Refused.

Arguments are named as on the command line, with _ for -. What-if values (driver, torch, ram, ...) are keywords too.
"""

from __future__ import annotations

from gpuready import given
from gpuready.answer import Answer
from gpuready.workflow.refusal import Refused as Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import ModuleType
    from typing import Any, Generic, ParamSpec, TypeVar

    from typing_extensions import Unpack

    from gpuready.given import Path, WhatIf, Words

    P = ParamSpec("P")
    R = TypeVar("R")

    class Room(ModuleType, Generic[P, R]):
        """A package that can be called as the command of its name; gpuready/__init__.py makes it callable."""

        def __init__(self, does: Callable[P, R]) -> None: ...
        def __call__(self, *args: P.args, **named: P.kwargs) -> R: ...


def check(
    *frameworks: str,
    on: Path | None = None,
    python: Path | None = None,
    wants: Words | None = None,
    model: Path | None = None,
    config: Path | None = None,
    contract: Path | None = None,
    dockerfile: Path | None = None,
    ignore: Mapping[str, str] | None = None,
    strict: bool = False,
    **what_if: Unpack[WhatIf],
) -> Answer:
    """Check whether this machine (or a recorded or named one, ``on``) is ready for these frameworks. ``found``: the Reports."""
    from gpuready import workflow
    from gpuready.model import EXIT, worst
    from gpuready.render import answers, notebook, text

    reports = workflow.check(
        frameworks,
        **given.paths(
            on=on, python=python, model=model, config=config, contract=contract, dockerfile=dockerfile
        ),
        wants=given.listed(wants),
        ignore={code.upper(): reason for code, reason in (ignore or {}).items()},
        strict=strict,
        what_if=given.stated("check", what_if),
    )
    verdict = worst(report.verdict for report in reports)
    alone = len(frameworks) + (contract is not None) == 1
    return Answer(
        reports,
        verdict,
        EXIT[verdict],
        json=lambda: answers.check(reports, alone),
        page=lambda screen: "\n".join(text.render(report, screen) for report in reports),
        html=lambda: notebook.reports(reports),
    )


def plan(
    *frameworks: str,
    on: Path | None = None,
    python: Path | None = None,
    wants: Words | None = None,
    contract: Path | None = None,
    source: Path | None = None,
    find_links: Sequence[Path] = (),
    offline: bool = False,
    resolve: bool = True,
    **what_if: Unpack[WhatIf],
) -> Answer:
    """Choose what to install, and say why; changes nothing. ``resolve=False`` asks no index."""
    if not frameworks:
        raise Refused("plan takes the name of a framework, and was given none")
    from gpuready.render import answers
    from gpuready.render import plan as render
    from gpuready.workflow import planning

    found = planning.plan(
        frameworks,
        **given.paths(on=on, python=python, contract=contract, source=source),
        wants=given.listed(wants),
        what_if=given.stated("plan", what_if),
        resolve=resolve,
        find_links=tuple(given.path(one) for one in find_links),
        offline=offline,
    )
    return Answer.of(found, answers.plan, render.screens)


def fit(
    *model: Path, on: Path | None = None, gpus: bool = False, largest: str | None = None, **job: Any
) -> Answer:
    """Predict how much GPU memory a job needs, and what makes it fit.

    ``model`` is a name, a config.json, or files of the job's set-up; ``job`` has the fields of ``gpuready.fit.Job``
    (micro_batch, seq, method, precision, optimizer, world, zero, fsdp, ...). ``largest``: "micro-batch" or "seq".
    """
    from gpuready.render import answers
    from gpuready.render import fit as render
    from gpuready.workflow import fitting

    if not model:
        raise Refused("fit takes a model: a name such as llama-3.1-8b, its config.json, or the file of a job")
    if largest is not None and (largest not in fitting.FIELDS or gpus):
        raise Refused(f"largest is micro-batch or seq, without gpus, not {largest!r}")
    found = fitting.fit(
        [given.path(one) for one in model],
        given.job(job),
        on=None if on is None else given.path(on),
        every=gpus,
        largest=largest,
    )
    return Answer.of(found, answers.fit, render.page)


def diagnose(
    *logs: Path,
    text: str | bytes | None = None,
    framework: str | None = None,
    on: Path | None = None,
    config: Path | None = None,
    look: bool = True,
) -> Answer:
    """Find out why a run died. ``logs`` are files and folders; ``text`` is the text of a log."""
    from gpuready.render import answers, diagnosis
    from gpuready.workflow.diagnosing import diagnose as judge

    if bool(logs) == (text is not None):
        raise Refused("diagnose takes logs (files or folders) or text, one of the two")
    said = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
    machine = None if on is None else given.path(on)
    found = judge(
        [given.path(log) for log in logs] if said is None else [[said]],
        framework=framework,
        on=machine,
        look=look,
    )
    if config is not None:
        from gpuready.workflow.fitting import mended

        found = mended(found, given.path(config), machine)
    return Answer.of(found, answers.diagnose, diagnosis.page)


def prove(
    *words: str,
    python: Path | None = None,
    wants: Words | None = None,
    model: Path | None = None,
    config: Path | None = None,
    contract: Path | None = None,
    strict: bool = False,
    deadline: float = 0.0,
    jobs: int = 0,
) -> Answer:
    """Execute proofs. A word is a framework, a capability or a proof. ``found`` has the Reports and the evidence."""
    from gpuready.model import EXIT, worst
    from gpuready.render import answers, notebook
    from gpuready.render import prove as render
    from gpuready.workflow import proving

    found = proving.prove(
        words,
        **given.paths(python=python, model=model, config=config, contract=contract),
        wants=given.listed(wants),
        strict=strict,
        deadline=deadline,
        jobs=jobs,
    )
    verdict = worst(report.verdict for report in found.reports)
    return Answer(
        found,
        verdict,
        EXIT[verdict],
        json=lambda: answers.prove(found),
        page=lambda screen: render.page(
            found.reports, found.evidence, screen, kept=found.saved, note=found.note
        ),
        html=lambda: notebook.reports(found.reports),
    )


def bench(
    *,
    python: Path | None = None,
    quick: bool = False,
    only: Words | None = None,
    repeat: int = 2,
    gpu: int | None = None,
    folder: Path | None = None,
) -> Answer:
    """Measure whether this machine is as fast as it should be."""
    from gpuready.render import answers
    from gpuready.render import bench as render
    from gpuready.workflow import benching

    if not 1 <= repeat <= benching.MOST:
        raise Refused(f"repeat is a whole number from 1 to {benching.MOST}, not {repeat!r}")
    found = benching.bench(
        **given.paths(python=python, folder=folder),
        quick=quick,
        only=given.listed(only),
        repeat=repeat,
        gpu=gpu,
    )
    return Answer.of(found, answers.bench, render.page)


def explain(code: str | None = None) -> Answer:
    """Explain one rule code; without a code, list all of them."""
    from gpuready import workflow
    from gpuready.render import answers
    from gpuready.render import explain as render

    if code is None:
        every = workflow.explained()
        return _told(every, lambda: answers.codes(every), lambda screen: render.index(every, screen))
    story = workflow.explain(code)
    return _told(story, lambda: answers.explain(story), lambda screen: render.page(story, screen))


def env(
    framework: str,
    *,
    on: Path | None = None,
    python: Path | None = None,
    role: str | None = None,
    wants: Words | None = None,
    contract: Path | None = None,
    shell: str = "bash",
    **what_if: Unpack[WhatIf],
) -> Answer:
    """Return the variables that a framework wants; ``shell`` is the output format (bash, fish, docker, slurm, systemd)."""
    from gpuready.render import answers
    from gpuready.render import env as render
    from gpuready.workflow.setting import env as look

    if shell not in render.SHELLS:
        raise Refused(f"shell is one of {', '.join(render.SHELLS)}, not {shell!r}")
    stated = given.stated("env", what_if)
    told = given.paths(on=on, python=python, contract=contract) | {"role": role, "wants": given.listed(wants)}
    found = look(framework, **told, what_if=stated)
    words = ["gpuready", "env", framework]
    for name, value in (told | stated).items():
        words += [f"--{name}", value] if value is not None else []
    words += ["--shell", shell] if shell != "bash" else []
    return _told(found, lambda: answers.env(found), lambda screen: render.text(found, shell, tuple(words)))


def probe(on: Path | None = None, *, python: Path | None = None, **what_if: Unpack[WhatIf]) -> Answer:
    """Return what gpuready sees of a machine. ``found``: the Facts."""
    from gpuready import workflow
    from gpuready.render import answers, facts

    known = workflow.probe(**given.paths(on=on, python=python), what_if=given.stated("probe", what_if))
    return _told(known, lambda: answers.probe(known), lambda screen: facts.listing(known, screen))


def contract(framework: str | None = None, *, file: Path | None = None) -> Answer:
    """Return what a framework requires; without a name, the known frameworks and versions."""
    from gpuready import workflow
    from gpuready.render import answers
    from gpuready.render import contract as render

    if framework is None and file is None:
        rows = workflow.contract_list()
        return _told(rows, lambda: answers.contracts(rows), lambda screen: render.known(rows, screen))
    if framework is not None and file is not None:
        raise Refused("contract takes the name of a framework or a file, one of the two")
    shown = workflow.contract_show(framework or "", None if file is None else given.path(file))
    return _told(shown, lambda: answers.contract(shown), lambda screen: render.show(shown, screen))


def search(query: str, *, kinds: Words | None = None, most: int = 10) -> Answer:
    """Search rules, contracts, facts and causes, best match first."""
    from gpuready.render import answers, hits
    from gpuready.workflow import searching

    rows = searching.search(query, (given.listed(kinds) or "").split(",") if kinds else (), most)
    return _told(rows, lambda: answers.search(query, rows), lambda screen: hits.listing(rows, screen))


def report(
    *frameworks: str,
    on: Path | None = None,
    python: Path | None = None,
    proofs: Path | None = None,
    bench: Path | None = None,
    fit: Path | Sequence[Path] = (),
    plan: bool = False,
    fleet: Path | None = None,
    output: Path | None = None,
    **what_if: Unpack[WhatIf],
) -> Answer:
    """Gather checks, proofs, measures, memory and plan on one HTML page. ``output`` is a file to write it to."""
    from gpuready.render import answers, html, notebook
    from gpuready.render import report as render
    from gpuready.workflow import reporting

    if output is not None:
        reporting.writable(given.path(output))
    several = [fit] if isinstance(fit, str) or hasattr(fit, "__fspath__") else fit
    found = reporting.gather(
        frameworks,
        **given.paths(on=on, python=python, proofs=proofs, bench=bench, fleet=fleet),
        fit=[given.path(one) for one in several],
        plan=plan,
        what_if=given.stated("report", what_if),
    )
    if output is not None:
        from gpuready.workflow import save

        save(given.path(output), _drawn(render.fields(found)))
    return Answer(
        found,
        found.verdict,
        found.exit,
        json=lambda: answers.report(found),
        page=lambda screen: render.lines(found),
        html=lambda: notebook.framed(html.page(render.fields(found))),
    )


def _drawn(document: dict[str, Any]) -> str:
    from gpuready.render import html

    try:
        return html.page(document)
    except ValueError as bad:
        raise Refused(f"the report cannot be drawn: {bad}") from None


def _told(found: Any, json: Any, page: Any) -> Answer:
    return Answer(found, "", 0, json=json, page=page)
