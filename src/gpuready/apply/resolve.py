"""Resolve a plan: ask uv for the whole stack, and accept its result only if it satisfies the contract."""

import re
from collections.abc import Callable, Iterable, Sequence

from gpuready.apply import resolution_cache, uv, uv_config, uv_output, wheel_search
from gpuready.apply.index_release import find_index_release
from gpuready.apply.resolution_request import (
    FOLDER_INDEX,
    ResolutionRequest,
    exact_torch_version,
    format_stated_metadata,
    is_default_index,
    make_resolution_request,
    replaced_packages,
)
from gpuready.apply.source_requirements import read_source_requirements
from gpuready.catalog import indexes, packages
from gpuready.model import Contract, Requirement, versions
from gpuready.model.plan import LockedPackage, Plan, PlanConflict, UnresolvedCause
from gpuready.system import HostAccess, RunResult, save_atomically
from gpuready.system.own_folders import TemporaryFolder
from gpuready.system.process.runner import unredacted_variables

FindFault = Callable[[Plan], PlanConflict | None]
UvAnswer = tuple[LockedPackage, ...] | PlanConflict | uv_output.InconclusiveResolution


MACOS_TARGET = "MACOSX_DEPLOYMENT_TARGET"
MAX_ROUNDS = 8
"""How often a request is repeated with more pins before giving up."""
CHECK_DEADLINE = 60.0
"""How long a check waits for one resolution, in seconds."""


MAX_AGELESS = 4
"""Of how many packages without a file of its time those of any age are taken, before the time of all is forgotten."""


def resolve_plan(
    host: HostAccess,
    plan: Plan,
    contract: Contract,
    *,
    find_links: tuple[str, ...] = (),
    offline: bool = False,
    source: str | None = None,
    allow_build: bool = False,
    use_project_config: bool = False,
    additions: Sequence[str] = (),
    note: Callable[..., None] = lambda *_: None,
    find_fault: FindFault = lambda _: None,
    deadline: float = uv.DEADLINE,
) -> Plan:
    """Return the plan with every package locked; or impossible, with both sides; or unresolved, with the reason.

    ``additions``: requirements of the user beside those of the framework. ``allow_build``: where nothing else resolves, uv may run
    the code of packages without wheels, to learn what they require. ``find_fault``: what a check has
    against a lock: its needs narrow the request, and uv is asked again. ValueError, in a sentence, if something that the user named cannot be used.
    """
    if plan.verdict != "plan":
        return plan
    settings = uv.make_uv_settings(host, find_links, offline, use_project_config)
    for builds in (False, True) if allow_build else (False,):
        found = _PlanResolver(
            host, plan, contract, settings, source, builds, note, find_fault, deadline, additions
        ).resolve_in_rounds()
        if found.lock:
            break
    return found


def resolve_requirements(
    host: HostAccess,
    path: str,
    words: Sequence[str],
    target: Plan,
    note: Callable[..., None] = lambda *_: None,
    deadline: float = CHECK_DEADLINE,
) -> UvAnswer:
    """Return what uv makes of the requirements of a file, on the Python, the platform and torch's index of ``target``.

    What asks for torch to state its requirements is left out: its release is what the file says.
    """
    plan, settings = target.replace(framework=path.rpartition("/")[2]), uv.make_uv_settings(host)
    resolver = _PlanResolver(
        host, plan, Contract(plan.framework, ""), settings, None, False, note, lambda _: None, deadline
    )
    unasked = set(indexes.packages_needing_torch()) - {"torch"}
    asked = {word: packages.canonical_package_name(packages.split_requirement(word)[0]) for word in words}
    own = {} if is_default_index(target.index) else dict.fromkeys(indexes.torch_index_packages(), target.index)
    sources = {name: index for name, index in own.items() if name in asked.values()}
    addresses = {index: indexes.index_url(index) for index in sources.values()}
    kept = tuple(word for word, name in asked.items() if name not in unasked)
    request = ResolutionRequest(kept, sources, addresses, tuple(sorted(unasked)), target.python, target.platform)
    return resolver.find_answer(request)


class _PlanResolver:
    def __init__(
        self,
        host: HostAccess,
        plan: Plan,
        contract: Contract,
        settings: uv.UvSettings,
        source: str | None,
        allow_build: bool,
        note: Callable[..., None],
        find_fault: FindFault,
        deadline: float,
        additions: Sequence[str] = (),
    ):
        self.host, self.plan, self.contract, self.note, self.find_fault = host, plan, contract, note, find_fault
        self.until = host.get_monotonic_time() + deadline
        self.uv_path = uv.find_uv(host)
        self.uv_version = uv.check_uv_version(host, self.uv_path)
        self.settings, self.allow_build, self.attempts = settings, allow_build, 0
        self.notes = list(self.settings.notes)
        self.sources: tuple[str, ...] = ()
        if source is not None:
            self.sources, notes = read_source_requirements(host, source, contract, plan.torch)
            self.notes += notes
        self.sources += tuple(additions)
        self.folders = wheel_search.find_folder_wheels(host, plan, self.settings.folders)
        self.direct: set[str] = set()
        self.limits: dict[str, tuple[str, ...]] = {}  # what is asked of packages besides the contract's needs
        self.extra: dict[str, int] = {}  # package -> number of the pip extra index used for it
        self.sources_read: set[tuple[str, str]] = set()
        self.source_rows = dict(indexes.source_only_packages())  # what is known of packages without a wheel

    def resolve_in_rounds(self) -> Plan:
        contradiction = find_contradiction(self.make_request(), self.contract)
        if contradiction:
            return self.mark_impossible(contradiction)
        for _ in range(MAX_ROUNDS):
            request = self.make_request()
            answer = self.find_answer(request)
            if isinstance(answer, uv_output.InconclusiveResolution):
                if self.try_extra_indexes(answer.missing) or self.forget_age(answer):
                    continue
                return self.mark_unresolved(answer.why, answer.cause)
            if isinstance(answer, PlanConflict):
                return self.mark_impossible(answer)
            if self.pin_strays(answer):
                continue
            violation = find_violation(self.plan, request, answer)
            resolved = self.mark_resolved(answer, request)
            violation = violation or self.find_fault(resolved)
            if violation is None:
                return resolved
            if not self.narrow_by_fault(violation, answer):
                return self.mark_impossible(violation)
        return self.mark_unresolved("uv's answers keep leaving the index that torch comes from")

    # ---- one round

    def make_request(self) -> ResolutionRequest:
        return make_resolution_request(
            self.plan,
            self.contract,
            sources=self.sources,
            folders=self.folders,
            direct=sorted(self.direct),
            limits=self.limits,
            extra={name: f"pip-{at}" for name, at in self.extra.items()},
            addresses={f"pip-{at}": self.extra_indexes()[at][0] for at in self.extra.values()},
        )

    def extra_indexes(self) -> list[tuple[str, dict[str, str | None]]]:
        """pip's extra indexes: the address without its password, and the variables that pass it to uv."""
        return [uv_config.split_index_login(url, f"PIP_{at}") for at, url in enumerate(self.settings.extra)]

    def find_answer(self, request: ResolutionRequest) -> UvAnswer:
        text = (
            request.format_project(),
            request.format_overrides(),
            *request.uv_flags(self.allow_build),
            self.uv_version,
            *filter(None, [str(self.plan.options.get("macos") or "")]),
        )
        name = resolution_cache.resolution_cache_key(self.host, text, self.settings)
        cached = resolution_cache.decode_answer(resolution_cache.load_cached_answer(self.host, name))
        if cached is not None:
            return cached
        answer = self.mark_built(self.ask_uv(request))
        if isinstance(answer, PlanConflict):
            resolution_cache.store_answer(self.host, name, {"conflict": answer.to_json()})
        elif not isinstance(answer, uv_output.InconclusiveResolution):
            resolution_cache.store_answer(self.host, name, {"rows": [row.to_json() for row in answer]})
        return answer

    def mark_built(self, answer: UvAnswer) -> UvAnswer:
        """Mark the rows that have no wheel: of those that were learnt on the way, or of all where uv may build any."""
        if not isinstance(answer, tuple):
            return answer
        known = self.source_rows
        suspects = [row for row in answer if self.allow_build or known.get(row.name, {}).get("version") == row.version]
        return wheel_search.mark_built(self.host, answer, suspects, self.plan, self.settings)

    def ask_uv(self, request: ResolutionRequest) -> UvAnswer:
        """Ask uv, in more rounds where packages have no wheel: what the catalogue knows of them is stated."""
        answer, log = self.compile_request(request)
        stated: tuple[str, ...] = ()
        while not self.allow_build and not self.settings.use_project:
            suspects = _source_only_suspects(answer, log)
            self.learn_sources(dict.fromkeys(suspects, ""), request)
            more = {*suspects} & {*self.source_rows} - {*stated}
            if not more:
                others = self.find_other_versions(answer, stated)
                if others and self.learn_sources(others, request):
                    return self.ask_uv(request)
                return self.find_source_only(request, answer, suspects, stated)
            stated = (*stated, *sorted(more))
            answer, log = self.compile_request(request, stated)
        return answer

    def find_other_versions(self, answer: UvAnswer, stated: Iterable[str]) -> dict[str, str]:
        """Return packages that a conflict names in another version than the one whose requirements were stated: it proves nothing of that."""
        says = answer.says if isinstance(answer, PlanConflict) else ""
        named = {name: re.search(rf"\b{re.escape(name)}(?: |==)(\d[\w.]*)", says) for name in stated}
        return {name: hit[1] for name, hit in named.items() if hit and hit[1] != self.source_rows[name]["version"]}

    def learn_sources(self, versions_: dict[str, str], request: ResolutionRequest) -> bool:
        """Read from the index what packages without a wheel require; True where something new was learnt."""
        learnt = False
        for name, version in versions_.items():
            asked = f"=={version}" if version else request.specifier_of(name)
            known = self.source_rows.get(name, {}).get("version")
            is_known = known is not None and (not asked or versions.satisfies_specifier(known, asked))
            if (name, asked) in self.sources_read or is_known:
                continue
            self.sources_read.add((name, asked))
            release = find_index_release(self.host, name, asked, request.python, self.settings, request.platform)
            if release is not None and not release.has_wheel:
                self.source_rows[name] = {"version": release.version, "requires": release.requires_dist}
                learnt = True
        return learnt

    def find_source_only(
        self, request: ResolutionRequest, answer: UvAnswer, suspects: tuple[str, ...], stated: tuple[str, ...]
    ) -> UvAnswer:
        """Refuse an answer where uv avoided packages without wheels, by old releases of others. Nothing is built."""
        if not isinstance(answer, tuple):
            return answer
        wanted = self.compile_request(request, (*stated, *suspects))[0] if suspects else answer
        rows = {row.name: row.version for row in (wanted if isinstance(wanted, tuple) else answer)}
        known = {name: row["version"] for name, row in self.source_rows.items()}
        unproven = {
            row.name for row in answer if not row.hashes and not row.origin
        }  # uv hashes a local file as it builds it
        named = [name for name in (*stated, *suspects) if name in rows]
        avoided = [name for name in named if rows[name] != known.get(name) or name in unproven]
        if not avoided:
            return answer
        if self.learn_sources({name: rows[name] for name in avoided if rows[name] != known.get(name)}, request):
            return self.ask_uv(request)
        found = tuple(f"{name} {rows[name]}" for name in avoided)
        return uv_output.InconclusiveResolution(
            uv_output.describe_source_only(found), cause=UnresolvedCause("no-wheel", found)
        )

    def compile_request(self, request: ResolutionRequest, from_source: tuple[str, ...] = ()) -> tuple[UvAnswer, str]:
        """Ask uv once; return its answer and its log. ``from_source``: taken without wheels, by stated requirements."""
        with TemporaryFolder(unredacted_variables(self.host)) as folder:
            save_atomically(f"{folder}/pyproject.toml", request.format_project())
            save_atomically(f"{folder}/overrides.txt", request.format_overrides())
            argv = [self.uv_path, "pip", "compile", f"{folder}/pyproject.toml"]
            argv += request.uv_flags(self.allow_build)
            argv += [word for name in from_source for word in ("--no-binary", name)]
            argv += ["--overrides", f"{folder}/overrides.txt"] if request.without else []
            argv += ["--python", self.host.get_interpreter()["executable"]]
            left = max(self.until - self.host.get_monotonic_time(), 1.0)
            self.attempts += 1
            count_line = uv_output.make_progress_counter(self.note, self.host, self.attempts)
            config = format_stated_metadata(from_source, self.source_rows)
            ran = uv.run_uv(self.host, argv, self.settings, count_line, left, self.uv_environment(), config)
        return self.parse_answer(request, ran, left), ran.err

    def parse_answer(self, request: ResolutionRequest, ran: RunResult, seconds: float) -> UvAnswer:
        if ran.end == "deadline":
            return uv_output.InconclusiveResolution(f"uv gave no answer in {seconds:.0f} s")
        if ran.rc != 0:
            names = {url: name for name, url in request.addresses.items()}
            return uv_output.parse_uv_failure(ran.err or ran.end, self.plan.framework, names, _exact_pins(request))
        origins = uv_output.map_origins(request.addresses, self.settings.folders, self.settings.indexes)
        try:
            rows = uv_output.parse_compiled_rows(ran.out, origins)
        except ValueError as error:
            return uv_output.InconclusiveResolution(str(error))
        return rows or uv_output.InconclusiveResolution("uv ended well and named no package")

    def uv_environment(self) -> dict[str, str | None]:
        environment: dict[str, str | None] = {"RUST_LOG": "uv_resolver::resolver=debug"}
        macos = versions.major_minor(str(self.plan.options.get("macos") or "0"))
        if macos[0] and MACOS_TARGET in self.settings.env:  # not there: the user's own is in force
            environment[MACOS_TARGET] = f"{macos[0]}.{macos[1]}"
        for at in set(self.extra.values()):
            environment |= self.extra_indexes()[at][1]
        return environment

    # ---- reasons for another round

    def try_extra_indexes(self, missing: tuple[str, ...]) -> bool:
        """Use pip's next extra index for missing packages; False if none is left."""
        more = {name: self.extra.get(name, -1) + 1 for name in missing if not self.has_fixed_index(name)}
        more = {name: at for name, at in more.items() if at < len(self.settings.extra)}
        self.extra |= more
        return bool(more)

    def forget_age(self, answer: uv_output.InconclusiveResolution) -> bool:
        """Ask for packages of any age that lack a file of that time; for all, where many do, as in a mirror that does not say the day of a file."""
        options = self.plan.options
        is_bound = bool(options.get("until")) and answer.cause is not None and answer.cause.kind == "missing"
        lacking = answer.cause.names if answer.cause else ()
        ageless = sorted({*options.get("ageless", ()), *lacking})
        if is_bound and len(options.get("ageless", ())) < len(ageless) <= MAX_AGELESS:
            self.plan = self.plan.replace(options=options | {"ageless": ageless})
            self.notes.append(f"taken though newer than its time: {' and '.join(lacking)}")
        elif is_bound:
            self.plan = self.plan.replace(options={k: v for k, v in options.items() if k not in ("until", "ageless")})
            self.notes.append(f"packages of any age were taken: {answer.why}")
        return is_bound

    def has_fixed_index(self, name: str) -> bool:
        """Whether a package already has the only index that may supply it."""
        return name == "torch" or (name in indexes.torch_index_packages() and not is_default_index(self.plan.index))

    def pin_strays(self, rows: tuple[LockedPackage, ...]) -> bool:
        """Pin packages from another index than torch's, or of another build, for the next round."""
        strays: set[str] = set()
        for row in rows:
            if row.name == "torch" and row.version != exact_torch_version(self.plan):
                return self.add_limit("torch", f"!={row.version}")
            if row.name in indexes.torch_index_packages() and row.name not in self.direct and self.is_stray(row):
                strays.add(row.name)
        self.direct |= strays
        return bool(strays)

    def add_limit(self, name: str, limit: str) -> bool:
        """Ask for other versions of a package from now on; False where that has been asked for."""
        known = self.limits.get(name, ())
        self.limits[name] = (*known, limit)
        return limit not in known

    def narrow_by_fault(self, fault: PlanConflict, rows: tuple[LockedPackage, ...]) -> bool:
        """Ask for the versions that a check needs of packages; False where it names none, or they were asked for."""
        own = packages.canonical_package_name(self.contract.distribution or self.contract.framework)
        have = {f"package.{row.name}": row.version for row in rows if row.version and row.name not in ("torch", own)}
        unmet = [n for n in fault.needs if n.key in have and versions.is_satisfied(have[n.key], n.want) is False]
        is_new = [self.add_limit(need.key.removeprefix("package."), need.want) for need in unmet]
        if not any(is_new):
            return False
        self.notes += [f"not {need.key.removeprefix('package.')} {have[need.key]}: {fault.says}" for need in unmet]
        self.note(f"choosing again: {fault.says}")
        return True

    def is_stray(self, row: LockedPackage) -> bool:
        return not is_default_index(self.plan.index) and row.index not in (self.plan.index, FOLDER_INDEX)

    # ---- the three outcomes

    def mark_unresolved(self, why: str, cause: UnresolvedCause | None = None) -> Plan:
        notes = _append_notes(self.plan.notes, *self.notes)
        return self.plan.replace(resolved=f"not resolved here: {why}", unresolved=cause, notes=notes)

    def mark_impossible(self, conflict: PlanConflict) -> Plan:
        return self.plan.replace(
            verdict="impossible",
            conflicts=(*self.plan.conflicts, _add_citations(conflict, self.contract)),
            resolved="resolved",
            notes=_append_notes(self.plan.notes, *self.notes),
        )

    def mark_resolved(self, rows: tuple[LockedPackage, ...], request: ResolutionRequest) -> Plan:
        chosen = replaced_packages(self.plan)
        return self.plan.replace(
            lock=tuple(row for row in rows if row.name not in chosen),
            packages=dict(self.plan.packages) | {row.name: row.version for row in rows if row.version},
            held=tuple(name for name in sorted(self.limits) if name != "torch"),
            resolved="resolved",
            notes=_append_notes(
                self.plan.notes, *self.notes, *self.name_extra_indexes(rows), *self.name_builds(rows), *request.notes
            ),
        )

    def name_builds(self, rows: tuple[LockedPackage, ...]) -> list[str]:
        built = [f"{row.name} {row.version}" for row in rows if row.built]
        return built and [
            f"no wheel, so that an install builds them, which runs their code (--allow-build): {', '.join(built)}"
        ]

    def name_extra_indexes(self, rows: tuple[LockedPackage, ...]) -> list[str]:
        """Name pip's extra indexes that packages come from."""
        used = sorted({row.index for row in rows if row.index.startswith("pip-")})
        addresses = [self.extra_indexes()[int(name[4:])][0] for name in used]
        return [uv.describe_index(address.removeprefix("file://"), "pip's settings") for address in addresses]


def _source_only_suspects(answer: UvAnswer, log: str) -> tuple[str, ...]:
    """Return packages that may have no wheel: those that uv names, or found no version of and left out."""
    if isinstance(answer, tuple):
        locked = {row.name for row in answer}
        return tuple(name for name in uv_output.find_failed_searches(log) if name not in locked)
    return answer.source_only if isinstance(answer, uv_output.InconclusiveResolution) else ()


def _append_notes(notes: tuple[str, ...], *more: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*notes, *more)))


def find_violation(plan: Plan, request: ResolutionRequest, rows: tuple[LockedPackage, ...]) -> PlanConflict | None:
    """Return what is wrong with uv's result; None if it satisfies the contract."""
    for row in rows:
        lookalike = packages.find_lookalike(row.name)
        if lookalike is not None and row.name not in request.allowed:
            via = f", which {' and '.join(row.via)} brings in" if row.via else ""
            return PlanConflict(f"{row.name} on the index is not {lookalike['wanted']}{via}: {lookalike['why']}")
        for want in request.wants.get(row.name, ()):
            if row.version and not versions.satisfies_specifier(row.version, want):
                needs = (Requirement(f"package.{row.name}", want, cite=plan.framework),)
                message = f"uv could only take {row.name} {row.version}, and {plan.framework} needs {want}"
                return PlanConflict(message, needs=needs)
        if row.name in request.sources and row.index not in (request.sources[row.name], FOLDER_INDEX):
            return PlanConflict(f"{row.name} came from another index than {request.sources[row.name]}")
        if not row.hashes and not row.origin:
            return PlanConflict(f"{row.name} {row.version} has no hash on its index: nothing could prove what comes")
    if plan.torch and not any(row.name == "torch" and row.version == exact_torch_version(plan) for row in rows):
        return PlanConflict(f"uv could not take torch {exact_torch_version(plan)}, which the plan stands on")
    return None


def find_contradiction(request: ResolutionRequest, contract: Contract) -> PlanConflict | None:
    """Find two requirements of the contract that no version satisfies; needs no index."""
    for name, wants in request.wants.items():
        needs = [n for n in contract.requirements_for(f"package.{name}") if n.want in wants and "|" not in n.want]
        for at, one in enumerate(needs):
            for other in needs[at + 1 :]:
                if uv_output.are_disjoint_ranges(one.want, other.want):
                    message = f"{_name_requirer(one)} needs {name} {one.want}, {_name_requirer(other)} needs {name} {other.want}"
                    return PlanConflict(message, needs=(one, other))
    return None


def _name_requirer(need: Requirement) -> str:
    """Return the requirer in a citation such as ``vllm 0.8.4, which FILE:12 pins``."""
    return need.cite.partition(", which")[0].partition(";")[0] or "its requirements"


def _add_citations(conflict: PlanConflict, contract: Contract) -> PlanConflict:
    """Use the contract's own citation where it is one of the sides."""
    citations = {(need.key, need.want): need.cite for need in contract.needs}
    needs = tuple(need.replace(cite=citations.get((need.key, need.want), need.cite)) for need in conflict.needs)
    return conflict.replace(needs=needs)


def _exact_pins(request: ResolutionRequest) -> dict[str, str]:
    """Packages requested in a single version."""
    pins = (one.partition("==") for one in request.requires)
    exact = {packages.canonical_package_name(name.partition("[")[0]): version for name, _, version in pins if version}
    return {name: version for name, version in exact.items() if versions.is_version(version)}
