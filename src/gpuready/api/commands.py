"""The commands as functions: ``gpuready.check("transformers", on="h100x8")``. Each returns a Result; bad input raises Refused.

Arguments are named as on the command line, with _ for -. What-if values (driver, torch, ram, ...) are keywords too.
"""

from __future__ import annotations

from gpuready.api import arguments
from gpuready.api.result import Result
from gpuready.workflow.refusal import Refused as Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import ModuleType
    from typing import Any, Generic, ParamSpec, TypeVar

    from typing_extensions import Unpack

    from gpuready.api.arguments import PathArgument, WhatIf, WordList

    P = ParamSpec("P")
    R = TypeVar("R")

    class CallablePackage(ModuleType, Generic[P, R]):
        """A package that can be called as the command of its name; gpuready/__init__.py makes it callable."""

        def __init__(self, does: Callable[P, R]) -> None: ...
        def __call__(self, *args: P.args, **named: P.kwargs) -> R: ...


def check(
    *frameworks: str,
    on: PathArgument | None = None,
    python: PathArgument | None = None,
    wants: WordList | None = None,
    model: PathArgument | None = None,
    config: PathArgument | None = None,
    contract: PathArgument | None = None,
    dockerfile: PathArgument | None = None,
    ignore: Mapping[str, str] | None = None,
    strict: bool = False,
    **what_if: Unpack[WhatIf],
) -> Result:
    """Check whether this machine (or a recorded or named one, ``on``) is ready for these frameworks. ``found``: the Reports."""
    from gpuready import workflow
    from gpuready.model import EXIT_CODES, worst_verdict
    from gpuready.render import check_report, json_results, notebook

    reports = workflow.check_machine(
        frameworks,
        **arguments.path_texts(
            on=on, python=python, model=model, config=config, contract=contract, dockerfile=dockerfile
        ),
        wants=arguments.comma_list(wants),
        ignore={code.upper(): reason for code, reason in (ignore or {}).items()},
        strict=strict,
        what_if=arguments.what_if_flags("check", what_if),
    )
    verdict = worst_verdict(report.verdict for report in reports)
    is_single = len(frameworks) + (contract is not None) == 1
    return Result(
        reports,
        verdict,
        EXIT_CODES[verdict],
        json=lambda: json_results.render_check_json(reports, is_single),
        page=lambda screen: "\n".join(check_report.render_check_screen(report, screen) for report in reports),
        html=lambda: notebook.render_report_fragments(reports),
    )


def plan(
    *frameworks: str,
    on: PathArgument | None = None,
    python: PathArgument | None = None,
    wants: WordList | None = None,
    contract: PathArgument | None = None,
    source: PathArgument | None = None,
    find_links: Sequence[PathArgument] = (),
    offline: bool = False,
    resolve: bool = True,
    **what_if: Unpack[WhatIf],
) -> Result:
    """Choose what to install, and say why; changes nothing. ``resolve=False`` asks no index."""
    if not frameworks:
        raise Refused("plan takes the name of a framework, and was given none")
    from gpuready.render import json_results
    from gpuready.render import plan as render
    from gpuready.workflow import plan as planning

    result = planning.plan_frameworks(
        frameworks,
        **arguments.path_texts(on=on, python=python, contract=contract, source=source),
        wants=arguments.comma_list(wants),
        what_if=arguments.what_if_flags("plan", what_if),
        resolve=resolve,
        find_links=tuple(arguments.path_text(one) for one in find_links),
        offline=offline,
    )
    return Result.from_record(result, json_results.render_plan_json, render.render_plan_screens)


def fit(
    *model: PathArgument, on: PathArgument | None = None, gpus: bool = False, largest: str | None = None, **job: Any
) -> Result:
    """Predict how much GPU memory a job needs, and what makes it fit.

    ``model`` is a name, a config.json, or files of the job's set-up; ``job`` has the fields of ``gpuready.fit.FitJob``
    (micro_batch, seq, method, precision, optimizer, world, zero, fsdp, ...). ``largest``: "micro-batch" or "seq".
    """
    from gpuready.render import fit as render
    from gpuready.render import json_results
    from gpuready.workflow import fit as fitting

    if not model:
        raise Refused("fit takes a model: a name such as llama-3.1-8b, its config.json, or the file of a job")
    if largest is not None and (largest not in fitting.MAX_FIELDS or gpus):
        raise Refused(f"largest is micro-batch or seq, without gpus, not {largest!r}")
    result = fitting.fit_job(
        [arguments.path_text(one) for one in model],
        arguments.job_fields(job),
        on=None if on is None else arguments.path_text(on),
        every=gpus,
        largest=largest,
    )
    return Result.from_record(result, json_results.render_fit_json, render.render_fit_screen)


def diagnose(
    *logs: PathArgument,
    text: str | bytes | None = None,
    framework: str | None = None,
    on: PathArgument | None = None,
    config: PathArgument | None = None,
    look: bool = True,
) -> Result:
    """Find out why a run died. ``logs`` are files and folders; ``text`` is the text of a log."""
    from gpuready.render import diagnosis, json_results
    from gpuready.workflow.diagnose import diagnose_logs as judge

    if bool(logs) == (text is not None):
        raise Refused("diagnose takes logs (files or folders) or text, one of the two")
    log_bytes = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
    machine = None if on is None else arguments.path_text(on)
    result = judge(
        [arguments.path_text(log) for log in logs] if log_bytes is None else [[log_bytes]],
        framework=framework,
        on=machine,
        look=look,
    )
    if config is not None:
        from gpuready.workflow.fit import add_memory_fix

        result = add_memory_fix(result, arguments.path_text(config), machine)
    return Result.from_record(result, json_results.render_diagnose_json, diagnosis.render_diagnosis_screen)


def prove(
    *words: str,
    python: PathArgument | None = None,
    wants: WordList | None = None,
    model: PathArgument | None = None,
    config: PathArgument | None = None,
    contract: PathArgument | None = None,
    strict: bool = False,
    deadline: float = 0.0,
    jobs: int = 0,
) -> Result:
    """Execute proofs. A word is a framework, a capability or a proof. ``found`` has the Reports and the evidence."""
    from gpuready.model import EXIT_CODES, worst_verdict
    from gpuready.render import json_results, notebook
    from gpuready.render import prove as render
    from gpuready.workflow import prove as proving

    result = proving.run_proofs(
        words,
        **arguments.path_texts(python=python, model=model, config=config, contract=contract),
        wants=arguments.comma_list(wants),
        strict=strict,
        deadline=deadline,
        jobs=jobs,
    )
    verdict = worst_verdict(report.verdict for report in result.reports)
    return Result(
        result,
        verdict,
        EXIT_CODES[verdict],
        json=lambda: json_results.render_prove_json(result),
        page=lambda screen: render.render_proof_screen(
            result.reports, result.evidence, screen, saved_path=result.saved, note=result.note
        ),
        html=lambda: notebook.render_report_fragments(result.reports),
    )


def bench(
    *,
    python: PathArgument | None = None,
    quick: bool = False,
    only: WordList | None = None,
    repeat: int = 2,
    gpu: int | None = None,
    folder: PathArgument | None = None,
) -> Result:
    """Measure whether this machine is as fast as it should be."""
    from gpuready.render import bench as render
    from gpuready.render import json_results
    from gpuready.workflow import bench as benching

    if not 1 <= repeat <= benching.MAX_REPEAT:
        raise Refused(f"repeat is a whole number from 1 to {benching.MAX_REPEAT}, not {repeat!r}")
    result = benching.measure_machine(
        **arguments.path_texts(python=python, folder=folder),
        quick=quick,
        only=arguments.comma_list(only),
        repeat=repeat,
        gpu=gpu,
    )
    return Result.from_record(result, json_results.render_bench_json, render.render_bench_screen)


def explain(code: str | None = None) -> Result:
    """Explain one rule code; without a code, list all of them."""
    from gpuready import workflow
    from gpuready.render import explain as render
    from gpuready.render import json_results

    if code is None:
        explanations = workflow.explain_all_rules()
        return _result_without_verdict(
            explanations,
            lambda: json_results.render_codes_json(explanations),
            lambda screen: render.render_rule_index(explanations, screen),
        )
    explanation = workflow.explain_rule(code)
    return _result_without_verdict(
        explanation,
        lambda: json_results.render_explain_json(explanation),
        lambda screen: render.render_rule_page(explanation, screen),
    )


def env(
    framework: str,
    *,
    on: PathArgument | None = None,
    python: PathArgument | None = None,
    role: str | None = None,
    wants: WordList | None = None,
    contract: PathArgument | None = None,
    shell: str = "bash",
    **what_if: Unpack[WhatIf],
) -> Result:
    """Return the variables that a framework wants; ``shell`` is the output format (bash, fish, docker, slurm, systemd)."""
    from gpuready.render import env as render
    from gpuready.render import json_results
    from gpuready.workflow.env import framework_variables as look

    if shell not in render.SUPPORTED_SHELLS:
        raise Refused(f"shell is one of {', '.join(render.SUPPORTED_SHELLS)}, not {shell!r}")
    stated = arguments.what_if_flags("env", what_if)
    options = arguments.path_texts(on=on, python=python, contract=contract) | {
        "role": role,
        "wants": arguments.comma_list(wants),
    }
    settings = look(framework, **options, what_if=stated)
    words = ["gpuready", "env", framework]
    for name, value in (options | stated).items():
        words += [f"--{name}", value] if value is not None else []
    words += ["--shell", shell] if shell != "bash" else []
    return _result_without_verdict(
        settings,
        lambda: json_results.render_env_json(settings),
        lambda screen: render.render_env_script(settings, shell, tuple(words)),
    )


def probe(on: PathArgument | None = None, *, python: PathArgument | None = None, **what_if: Unpack[WhatIf]) -> Result:
    """Return what gpuready sees of a machine. ``found``: the Facts."""
    from gpuready import workflow
    from gpuready.render import facts, json_results

    known = workflow.probe_machine(
        **arguments.path_texts(on=on, python=python), what_if=arguments.what_if_flags("probe", what_if)
    )
    return _result_without_verdict(
        known, lambda: json_results.render_probe_json(known), lambda screen: facts.render_fact_list(known, screen)
    )


def contract(framework: str | None = None, *, file: PathArgument | None = None) -> Result:
    """Return what a framework requires; without a name, the known frameworks and versions."""
    from gpuready import workflow
    from gpuready.render import contract as render
    from gpuready.render import json_results

    if framework is None and file is None:
        rows = workflow.contract_list()
        return _result_without_verdict(
            rows,
            lambda: json_results.render_contracts_json(rows),
            lambda screen: render.render_contract_list(rows, screen),
        )
    if framework is not None and file is not None:
        raise Refused("contract takes the name of a framework or a file, one of the two")
    contract_shown = workflow.contract_show(framework or "", None if file is None else arguments.path_text(file))
    return _result_without_verdict(
        contract_shown,
        lambda: json_results.render_contract_json(contract_shown),
        lambda screen: render.render_contract_screen(contract_shown, screen),
    )


def search(query: str, *, kinds: WordList | None = None, most: int = 10) -> Result:
    """Search rules, contracts, facts and causes, best match first."""
    from gpuready.render import json_results, search_hits
    from gpuready.workflow import search as searching

    rows = searching.search_entries(query, (arguments.comma_list(kinds) or "").split(",") if kinds else (), most)
    return _result_without_verdict(
        rows,
        lambda: json_results.render_search_json(query, rows),
        lambda screen: search_hits.render_search_hits(rows, screen),
    )


def report(
    *frameworks: str,
    on: PathArgument | None = None,
    python: PathArgument | None = None,
    proofs: PathArgument | None = None,
    bench: PathArgument | None = None,
    fit: PathArgument | Sequence[PathArgument] = (),
    plan: bool = False,
    fleet: PathArgument | None = None,
    output: PathArgument | None = None,
    **what_if: Unpack[WhatIf],
) -> Result:
    """Gather checks, proofs, measures, memory and plan on one HTML page. ``output`` is a file to write it to."""
    from gpuready.render import html, json_results, notebook
    from gpuready.render import report as render
    from gpuready.workflow import report_data

    if output is not None:
        report_data.check_overwrite(arguments.path_text(output))
    fit_words = [fit] if isinstance(fit, str) or hasattr(fit, "__fspath__") else fit
    result = report_data.gather_report(
        frameworks,
        **arguments.path_texts(on=on, python=python, proofs=proofs, bench=bench, fleet=fleet),
        fit=[arguments.path_text(one) for one in fit_words],
        plan=plan,
        what_if=arguments.what_if_flags("report", what_if),
    )
    if output is not None:
        from gpuready.workflow import save_text_file

        save_text_file(arguments.path_text(output), _draw_html_page(render.report_document_fields(result)))
    return Result(
        result,
        result.verdict,
        result.exit,
        json=lambda: json_results.render_report_json(result),
        page=lambda screen: render.format_report_lines(result),
        html=lambda: notebook.embed_page_in_iframe(html.render_report_page(render.report_document_fields(result))),
    )


def _draw_html_page(document: dict[str, Any]) -> str:
    from gpuready.render import html

    try:
        return html.render_report_page(document)
    except ValueError as error:
        raise Refused(f"the report cannot be drawn: {error}") from None


def _result_without_verdict(value: Any, json: Any, page: Any) -> Result:
    return Result(value, "", 0, json=json, page=page)
