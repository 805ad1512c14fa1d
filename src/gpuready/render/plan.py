"""The screens of a Plan: chosen versions, reasons and steps; the conflict that makes it impossible; the steps of a fix."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

from gpuready.model import FixStep
from gpuready.model.contract import describe_want
from gpuready.model.facts import verdict_words
from gpuready.model.plan import KernelPlan, Plan, PlanAlternative, PlanConflict, PlanReason
from gpuready.model.visible_text import escape_unprintable
from gpuready.render import units
from gpuready.render.finding import describe_safety
from gpuready.render.layout import PLAIN_SCREEN, Screen, join_sections


class PlanSet(Protocol):
    """The plans of several frameworks, as the workflow returns them."""

    @property
    def plans(self) -> tuple[Plan, ...]: ...
    @property
    def environments(self) -> tuple[tuple[str, ...], ...]: ...
    @property
    def conflicts(self) -> tuple[PlanConflict, ...]: ...


KERNEL_INSTALL_WORDS = {
    "index": "ready-made, from an index",
    "release": "ready-made, from the project's releases",
    "build": "no wheel: build",
    "jit": "compiled on first use",
    "none": "left out",
}


def plan_json_fields(plan: Plan) -> dict[str, Any]:
    return {"verdict": plan.verdict, "exit": plan.exit} | plan.to_json()


def plan_set_json_fields(plan_set: PlanSet) -> dict[str, Any]:
    return {
        "verdict": "plan" if all(plan.verdict == "plan" for plan in plan_set.plans) else "impossible",
        "exit": max(plan.exit for plan in plan_set.plans),
        "plans": [plan_json_fields(plan) for plan in plan_set.plans],
        "environments": [list(names) for names in plan_set.environments],
        "conflicts": [conflict.to_json() for conflict in plan_set.conflicts],
    }


def format_plan_line(plan: Plan) -> str:
    """``axolotl 0.21: torch 2.14.1+cu126, Python 3.13``"""
    if plan.verdict == "undecided":
        outcome = f"{verdict_words('undecided')}: {plan.undecided}"
    elif plan.verdict == "plan" and plan.options.get("fix"):
        outcome = f"{units.format_count(len(plan.steps), 'step')} to fix it"
    elif plan.verdict == "plan":
        outcome = describe_stack(plan)
    else:
        outcome = f"not possible ({plan.conflicts[0].says if plan.conflicts else 'no known versions fit'})"
    return escape_unprintable(f"{plan_display_name(plan)}: {outcome}") + "\n"


def render_plan_screens(plan_set: PlanSet, screen: Screen, verbose: bool = False) -> str:
    """The screens of the plans; for several, first how they share environments."""
    pages = [render_plan_screen(plan, screen, verbose) for plan in plan_set.plans]
    if len(pages) == 1:
        return pages[0]
    return "\n".join([_format_shared_environments(plan_set, screen), *pages])


def render_plan_screen(plan: Plan, screen: Screen = PLAIN_SCREEN, verbose: bool = False) -> str:
    """The answer, the chosen versions, the steps and the next command; with ``verbose`` every reason and rejected choice."""
    if plan.options.get("fix"):
        return render_fix_plan_screen(plan, screen, verbose)
    is_possible = plan.verdict == "plan"
    format_plan = _format_possible_plan if is_possible else _format_impossible_plan
    sections = format_plan(plan, screen, verbose)
    sections.append(screen.lead_paragraphs("note:", plan.notes, "info"))
    rows = [("install it", build_install_command(plan))] if is_possible and plan.lock else []
    rows += list_next_commands(plan.start) if is_possible else []
    has_more = is_possible or len(plan.conflicts) > 1
    rows += [("details", build_plan_command(plan))] if has_more and not verbose else []
    catalog = [f"chosen by the catalogue of {plan.catalog}"] if verbose and plan.catalog else []
    return join_sections([*sections, screen.format_labelled_commands(rows), screen.format_paragraphs(catalog, 2)])


def _format_possible_plan(plan: Plan, screen: Screen, verbose: bool) -> list[list[str]]:
    header = _format_plan_header(f"plan: {describe_stack(plan)}", "plan:", "ok", plan, screen)
    looked = screen.format_paragraph("a new environment; no other was looked at", 2)
    return [
        header + looked + _format_chosen_versions(plan, screen, verbose),
        _format_plan_reasons(plan, screen) if verbose else [],
        _format_plan_kernels(plan, screen, verbose),
        _format_plan_steps(plan.steps, screen, verbose),
        _format_rejected_choices(plan, screen) if verbose else [],
    ]


def _format_impossible_plan(plan: Plan, screen: Screen, verbose: bool) -> list[list[str]]:
    """Why the version that was asked for does not fit; why no other one does is in ``-v``."""
    header = _format_plan_header("not possible: no known versions fit", "not possible:", "error", plan, screen)
    shown = plan.conflicts if verbose else plan.conflicts[:1]
    conflicts = [_format_plan_conflict(conflict, screen) for conflict in shown]
    rest = len(plan.conflicts) - len(shown)
    more = screen.format_paragraph(f"{units.format_count(rest, 'more conflict')} (-v)") if rest else []
    return [header, *conflicts, more, _format_openings(plan.opens, screen)]


def describe_stack(plan: Plan) -> str:
    """``torch 2.14.1+cu130, Python 3.13``"""
    if plan.is_image_alone:
        return f"image {plan.image}"
    parts = (f"torch {plan.torch}" if plan.torch else "no torch", f"Python {plan.python}" if plan.python else "")
    return ", ".join(part for part in parts if part)


def plan_display_name(plan: Plan) -> str:
    return f"{plan.framework} {plan.version}" + (f":{plan.variant}" if plan.variant else "")


def _format_shared_environments(plan_set: PlanSet, screen: Screen) -> str:
    count = len(plan_set.environments)
    shared = "one environment serves them all" if count == 1 else f"they need {count} environments"
    lines = screen.format_paragraph(shared)
    for number, names in enumerate(plan_set.environments, 1):
        lines += _format_number(number, ", ".join(names), screen)
    for conflict in plan_set.conflicts:
        lines += ["", *_format_plan_conflict(conflict, screen, "not together:")]
    return "\n".join(lines) + "\n"


# -- possible plan ---------------------------------------------------------------------------------------


def _format_plan_header(left: str, start: str, role: str, plan: Plan, screen: Screen) -> list[str]:
    where = f" on {plan.machine}" if plan.machine else ""
    where += f", {units.format_count(plan.host['gpus'], 'GPU')}" if plan.host.get("gpus") else ""
    lines = screen.format_header(left, plan_display_name(plan) + where, role, start)
    return lines + (screen.format_paragraph(plan.contract_note, 2) if plan.contract_note else [])


def _format_number(number: int, text: str, screen: Screen, right: str = "") -> list[str]:
    first, *rest = screen.align_ends(text, right, 5)
    return [f"  {number:<3}{first}", *(f"     {line}" for line in rest)]


def _format_chosen_versions(plan: Plan, screen: Screen, verbose: bool) -> list[str]:
    rows = list_chosen_versions(plan)
    rows[2:2] = [(name, plan.packages[name], "") for name in ("torchvision", "torchaudio") if name in plan.packages]
    added = [re.split(r"[\[=<>!~]", one)[0] for one in plan.options.get("additions", ())]
    rows += [(name, plan.packages[name], "") for name in added if name in plan.packages]
    more = len(plan.packages) - len({"torch", "torchvision", "torchaudio", plan.framework} & set(plan.packages))
    rows += [("others", f"{more} packages", "with exact versions (--json)")] if more > 0 else []
    rows += [("platform", plan.platform, "")] if verbose and plan.platform else []
    known = f"{len(plan.lock)} packages locked" if plan.lock else plan.resolved or "not resolved"
    return screen.indent_table(rows) + screen.format_paragraph(f"{known.removesuffix('.')}; nothing was changed", 2)


def list_chosen_versions(plan: Plan) -> list[tuple[str, str, str]]:
    """Name, version and source of Python, torch and the framework; or their image."""
    if plan.is_image_alone:
        return [("image", plan.image, "")]
    unused = "CUDA is not used" if "+cu" in plan.torch else "with MPS" if "apple" in plan.platform else "no CUDA"
    source = f"{f'CUDA {plan.cuda}' if plan.cuda else unused}, from {describe_torch_source(plan)}"
    own = plan.packages.get(plan.framework, plan.version)
    torch = [("torch", plan.torch, source)] if plan.torch else []
    return [("Python", plan.python, ""), *torch, (plan.framework, own, "")]


def describe_torch_source(plan: Plan) -> str:
    index = next((row.index for row in plan.lock if row.name == "torch"), "")
    if index == "find-links":
        return "a folder of wheels"
    if index.startswith("own:"):
        return f"the index of {index.removeprefix('own:')}"
    return "PyPI" if plan.index == "pypi" else f"PyTorch index {plan.index}"


def _format_plan_reasons(plan: Plan, screen: Screen) -> list[str]:
    lines = [screen.apply_style("why", "bold")] if plan.because else []
    for reason in plan.because:
        lines += screen.format_paragraph(reason.says, 2, 4)
        lines += screen.dim_paragraph(reason.cite, 6) if reason.cite else []
    return lines


def _format_plan_kernels(plan: Plan, screen: Screen, verbose: bool) -> list[str]:
    lines = [screen.apply_style("kernels", "bold")] if plan.kernels else []
    for kernel in plan.kernels:
        named = f"{kernel.package} {kernel.version}"
        lines += ["  " + text for text in screen.align_ends(named, describe_kernel_install(kernel), 2)]
        # A wheel without an install step is there only for its Python part: show the reason.
        show_reason = verbose and (kernel.how in ("build", "jit", "none") or not kernel.steps)
        lines += screen.format_paragraph(kernel.why, 6) if show_reason else []
    return lines


def describe_kernel_install(kernel: KernelPlan) -> str:
    time = ""
    if kernel.seconds:
        low, high = (max(1, round(count / 60)) for count in kernel.seconds)
        time = f", about {low} min" if low == high else f", about {low} to {high} min"
    jobs = f" with MAX_JOBS={kernel.max_jobs}" if kernel.how == "build" and kernel.max_jobs else ""
    return KERNEL_INSTALL_WORDS.get(kernel.how, kernel.how) + time + jobs


def _format_plan_steps(
    steps: Sequence[FixStep], screen: Screen, verbose: bool, fixed: Sequence[PlanReason] = ()
) -> list[str]:
    """The steps in order; those of a fix with how safe they are and which findings they resolve."""
    lines = [screen.apply_style("steps", "bold")] if steps else []
    for number, step in enumerate(steps, 1):
        lines += _format_number(number, step.does, screen, describe_safety(step.replace(note="")) if fixed else "")
        if step.run:
            words = step.run if fixed else (screen.new_environment if w == ".venv" else w for w in step.run)
            lines += screen.format_command(tuple(words), 5)
        elif step.note:
            lines += screen.format_paragraph(step.note, 5)
        if verbose and step.run and step.note:
            lines += screen.dim_paragraph(step.note, 5)
        resolved = [f"{reason.kind} {reason.about}" for reason in fixed if reason.step == number]
        lines += screen.dim_paragraph(", ".join(resolved), 5) if resolved else []
    return lines


def _format_rejected_choices(plan: Plan, screen: Screen) -> list[str]:
    groups: dict[tuple[str, str], list[str]] = {}
    for rejected in plan.fell:
        release, _, build = rejected.choice.partition("+")
        groups.setdefault((release, rejected.why), []).append(build)
    lines = [screen.apply_style("not chosen", "bold")] if groups else []
    for (release, why), builds in groups.items():
        choice_name = f"{release} ({', '.join(builds)})" if any(builds) else release
        lines += screen.format_paragraph(f"{choice_name}: {why}", 2, 4)
    return lines


# -- impossible plan -------------------------------------------------------------------------------------


def _format_plan_conflict(conflict: PlanConflict, screen: Screen, lead: str = "conflict:") -> list[str]:
    rows = [("found", f.key, units.format_fact_value(f), f.source) for f in conflict.facts]
    rows += [("needs", n.key, describe_want(n.want), n.cite) for n in conflict.needs]
    return [*screen.lead_paragraph(lead, conflict.says, "error"), *screen.indent_table(rows)]


def _format_openings(opens: Sequence[PlanAlternative], screen: Screen) -> list[str]:
    lines = [screen.apply_style("what would make it possible", "bold")] if opens else []
    for opening in opens:
        lines += screen.format_paragraph(f"{opening.change}: {opening.then}", 2, 4)
        lines += screen.format_command(opening.run, 6) if opening.run else []
    return lines


# -- plan --fix -----------------------------------------------------------------------------------------


def render_fix_plan_screen(plan: Plan, screen: Screen = PLAIN_SCREEN, verbose: bool = False) -> str:
    """How many steps fix what, the ordered steps, what remains, and the command that does it."""
    sections = [_format_fix_header(plan, screen)]
    sections += [_format_fix_conflict(plan, conflict, screen) for conflict in plan.conflicts]
    sections += [
        _format_plan_steps(plan.steps, screen, verbose, plan.because),
        _format_plan_reasons(plan, screen) if verbose else [],
    ]
    sections.append(screen.lead_paragraphs("note:", plan.notes, "info"))
    return join_sections([*sections, screen.format_labelled_commands(_list_fix_commands(plan, verbose))])


def _format_fix_header(plan: Plan, screen: Screen) -> list[str]:
    codes = list(dict.fromkeys(reason.about for reason in plan.because if reason.kind != "prevents"))
    steps = units.format_count(len(plan.steps), "step")
    summary = f"{steps} for {', '.join(codes)}" if codes else "nothing to change"
    if plan.verdict == "plan":
        lines = _format_plan_header(f"fix: {summary}", "fix:", "ok", plan, screen)
    elif plan.verdict == "undecided":
        start = f"{verdict_words('undecided')}:"
        lines = _format_plan_header(f"{start} {plan.undecided}; {summary}", start, "warning", plan, screen)
    else:
        remaining = ", ".join(conflict.about for conflict in plan.conflicts)
        lines = _format_plan_header(
            f"not possible: {remaining} would stay; {summary}", "not possible:", "error", plan, screen
        )
    then = "nothing was changed; afterwards " if plan.steps else ""
    return lines + screen.format_paragraph(then + describe_stack(plan), 2)


def _list_fix_commands(plan: Plan, verbose: bool) -> list[tuple[str, tuple[str, ...]]]:
    if not plan.steps:
        return []
    rows = [("do it", build_fix_command(plan)), ("check again", build_check_command(plan))]
    details = [] if verbose else [("details", build_plan_command(plan))]
    # What a recorded machine needs cannot be applied from here.
    return details if plan.options.get("on") else [*rows, *details]


def _format_fix_conflict(plan: Plan, conflict: PlanConflict, screen: Screen) -> list[str]:
    ways = [f"elsewhere: {opening.change}" for opening in plan.opens if opening.about == conflict.about]
    return _format_plan_conflict(conflict, screen, "not possible:") + screen.format_paragraphs(ways, 2, 2)


def list_next_commands(start: tuple[str, ...], environment: str = "") -> list[tuple[str, tuple[str, ...]]]:
    """``start the job: axolotl train config.yml``, and what activates the environment before it, each with its label."""
    activate = [("activate it", ("source", f"{environment}/bin/activate"))] if environment else []
    job = [("start the job", start)] if start else []
    return [*activate, *job]


OPTIONS_WITHOUT_FLAG = ("version", "extras", "capability", "macos", "fix", "until", "ageless", "additions")
"""Plan options that no command line takes as a flag."""


def build_install_command(plan: Plan) -> tuple[str, ...]:
    """The command that installs a plan: whole, with the consent that it needs where a note says what is built."""
    names = [name for name in plan.options if name != "no-resolve"]
    flags = [*_iter_plan_flags(plan, names)]
    if any(row.built for row in plan.lock) and "--allow-build" not in flags:
        flags.append("--allow-build")
    return ("gpuready", "install", plan.spec, *plan.options.get("additions", ()), *flags, "-e", ".venv")


def build_plan_command(plan: Plan) -> tuple[str, ...]:
    """The command that shows the same plan with every detail."""
    fix = ("--fix",) if plan.options.get("fix") else ()
    return (
        "gpuready",
        "plan",
        plan.spec,
        *plan.options.get("additions", ()),
        *fix,
        *_iter_plan_flags(plan, plan.options),
        "-v",
    )


def build_fix_command(plan: Plan) -> tuple[str, ...]:
    """The command that applies a fix plan."""
    return ("gpuready", "fix", plan.spec, *_iter_plan_flags(plan, ("python", "wants", "contract")))


def build_check_command(plan: Plan) -> tuple[str, ...]:
    """The command that checks the environment again after a fix."""
    flag_names = ("python", "wants", "contract")
    if plan.options.get("contract"):
        return ("gpuready", "check", *_iter_plan_flags(plan, flag_names))
    return ("gpuready", "check", plan.spec, *_iter_plan_flags(plan, flag_names))


def _iter_plan_flags(plan: Plan, names: Iterable[str]) -> Iterator[str]:
    for name in names:
        value = plan.options.get(name)
        if not value or name in OPTIONS_WITHOUT_FLAG:
            continue
        for one in value if isinstance(value, (list, tuple)) else [value]:
            yield f"--{name}"
            if one is not True:
                yield str(one)
