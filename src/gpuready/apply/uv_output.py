"""Parse uv's output: the rows of a resolution, or why there is none. Pure functions.

A failure is one of two things that must not be confused. ``Conflict``: uv has seen everything and shows two
requirements that contradict each other. ``InconclusiveResolution``: something was not reachable, so nothing
is proved.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from gpuready.apply.build_errors import (
    LOGIN_WAY,
    explain_build_failure,
    find_host,
    find_network_cause,
    find_refusing_index,
)
from gpuready.apply.resolution_request import FOLDER_INDEX, PROJECT_NAME
from gpuready.apply.uv_config import strip_login
from gpuready.catalog import packages
from gpuready.model import Record, Requirement, versions
from gpuready.model.plan import LockedPackage, PlanConflict, UnresolvedCause
from gpuready.system import HostAccess, redact_text

_NAME = r"(?<![A-Za-z0-9._-])[A-Za-z0-9][A-Za-z0-9._-]{0,200}(?:\[[A-Za-z0-9,_-]{0,200}\])?"  # bounded: untrusted text
_SPEC = r"(?:[<>=!~]=?=?[A-Za-z0-9.*+!]+(?:,[<>=!~]=?[A-Za-z0-9.*+!]+)*)"
_MISSING_PHRASES = (
    "was not found in the package registry",
    "was not found in the provided package locations",
    "was not found in the cache",
    "not found in the package registry",
    "network was disabled",
    "could not be queried",
    "could not be found in the cache",
    "was not provided in the package locations",
)
_NO_SOLUTION = "No solution found when resolving dependencies"
_BUILD_DISABLED = "building from source is disabled"
_TAG_MISMATCH = "has no wheels with a matching"
_TAG_MISMATCH_PLURAL = "have no wheels with a matching"


class InconclusiveResolution(Record):
    """Nothing is proved: ``why`` says what was not reachable; ``missing`` are packages on no index."""

    why: str
    missing: tuple[str, ...] = ()
    source_only: tuple[str, ...] = ()  # packages that uv would have to build
    cause: UnresolvedCause | None = None


def parse_compiled_rows(text: str, origins: Mapping[str, str]) -> tuple[LockedPackage, ...]:
    """Parse a compiled requirements file. ``origins`` maps an address to the name of its index or folder.

    ValueError if it is not what uv writes.
    """
    locked: list[LockedPackage] = []
    for head, tail in _split_requirement_blocks(text):
        name, version, origin = _parse_pin(head)
        hashes = tuple(word.removeprefix("--hash=") for word in head.split() if word.startswith("--hash="))
        via, at = _parse_annotations(tail)
        index = origins.get(strip_login(at).rstrip("/"), "")
        locked.append(LockedPackage(name, version, tuple(sorted(hashes)), index, origin, via))
    return tuple(sorted(locked, key=lambda row: row.name))


def _split_requirement_blocks(text: str) -> Iterator[tuple[str, list[str]]]:
    head, tail = "", list[str]()
    for line in text.replace("\\\n", " ").splitlines():
        if line.startswith((" ", "\t", "#")):
            if line.strip().startswith("#"):
                tail.append(line.strip().lstrip("#").strip())
            else:
                head += " " + line.strip()
        elif line.strip():
            if head:
                yield head, tail
            head, tail = line.strip(), []
    if head:
        yield head, tail


def _parse_pin(head: str) -> tuple[str, str, str]:
    first = head.partition(" --hash=")[0].partition(";")[0].strip()
    name, at, origin = first.partition(" @ ")
    if at:
        return packages.canonical_package_name(name.partition("[")[0]), "", origin.strip()
    name, equals, version = first.partition("==")
    if not equals or not versions.is_version(version.strip()):
        raise ValueError(f"uv wrote a line that is not a pin: {first[:80]!r}")
    return packages.canonical_package_name(name.partition("[")[0].strip()), version.strip(), ""


def _parse_annotations(tail: Sequence[str]) -> tuple[tuple[str, ...], str]:
    via: list[str] = []
    at, listing = "", False
    for line in tail:
        if line.startswith("from "):
            at, listing = line[5:].strip().removeprefix("file://"), False
        elif line.startswith("via"):
            listing = True
            via += [line[3:].strip()] if line[3:].strip() else []
        elif listing and line:
            via.append(line)
    names = [v.split(" ")[0] for v in via if not v.startswith("-")]
    return tuple(sorted({packages.canonical_package_name(n) for n in names} - {PROJECT_NAME})), at


def parse_uv_failure(
    text: str, framework: str, names: Mapping[str, str], exact: Mapping[str, str] | None = None
) -> PlanConflict | InconclusiveResolution:
    """Interpret a failed run of uv.

    ``names`` maps an index address to our name for it; ``exact`` has the packages requested in a single version.
    """
    output = _flatten_uv_output(text)
    if _BUILD_DISABLED in output:
        found = _find_source_only(output)
        source_only = tuple(packages.canonical_package_name(one.partition(" ")[0]) for one in found)
        return InconclusiveResolution(
            describe_source_only(found), source_only=source_only, cause=UnresolvedCause("no-wheel", found)
        )
    if _NO_SOLUTION not in output:  # "No solution found when resolving: `setuptools`" is that of a build
        built = explain_build_failure(text)
        return InconclusiveResolution(built) if built else _explain_failure(output, names)
    proof = output.partition(_NO_SOLUTION)[2]
    if any(phrase in proof for phrase in _MISSING_PHRASES):
        missing = _find_missing_packages(proof)
        return _explain_missing(proof, missing, names)
    lacking = _find_unavailable_versions(proof)
    refusal = _explain_refusal(proof, lacking, names)
    if not refusal and (_TAG_MISMATCH in proof or _TAG_MISMATCH_PLURAL in proof):
        return _explain_tag_mismatch(proof)
    sides = _find_conflicting_sides(proof, framework, exact or {})
    if sides:
        return sides
    if refusal:
        return refusal
    if lacking:
        why = f"no index that was asked has {' or '.join(lacking)}"
        return InconclusiveResolution(why, cause=UnresolvedCause("missing", lacking))
    return PlanConflict(_shorten_proof(proof, framework))


def _flatten_uv_output(text: str) -> str:
    """Join uv's message on one line, without frames, log lines and indentation."""
    kept = []
    for line in text.splitlines():
        words = line.strip().lstrip("×╰─▶│├ ").strip()
        if words.startswith(("DEBUG ", "TRACE ", "INFO ", "warning: ", "Resolved ")):
            continue
        kept.append(words.removeprefix("error: ").removeprefix("cause: ").removeprefix("Caused by: "))
    return redact_text(" ".join(" ".join(kept).split()))


def _find_source_only(proof: str) -> tuple[str, ...]:
    """Return ``antlr 4.9.3`` for each: hint: Wheels are required for `antlr` because building from source is disabled."""
    names = re.findall(rf"[Ww]heels are required for `({_NAME})`", proof)
    specs = dict(re.findall(rf"({_NAME})({_SPEC}) has no usable wheels", proof))
    return tuple(f"{name} {specs.get(name, '').removeprefix('==')}".strip() for name in dict.fromkeys(names))


def describe_source_only(packages: Sequence[str]) -> str:
    """Say that packages have no wheel, and how to agree to a build."""
    what = " and ".join(packages[:4]) or "a package"
    return (
        f"{what}: no wheel, and to learn what it requires its code would have to be run; --allow-build agrees to that"
    )


def find_failed_searches(log: str) -> tuple[str, ...]:
    """Return packages of which uv's resolver found no version in a range: it may have taken older releases of others.

    ``DEBUG Searching for a compatible version of antlr (>=4.9.3, <4.9.3+)``, and no ``DEBUG Selecting: antlr==`` next.
    """
    failed, searched = dict[str, None](), ""
    for line in log.splitlines():
        _, found, rest = line.partition("Searching for a compatible version of ")
        if found or "Selecting: " in line:
            selected = line.partition("Selecting: ")[2].partition("==")[0]
            if searched and selected != searched:
                failed[searched] = None
            searched = rest.partition(" (")[0].partition("[")[0].partition("{")[0].strip() if found else ""
    return tuple(packages.canonical_package_name(name) for name in ([*failed, searched] if searched else failed))


def _find_missing_packages(proof: str) -> tuple[str, ...]:
    matches = re.findall(rf"({_NAME})(?:{_SPEC})? (?:was|were) not found in the", proof)
    return tuple(dict.fromkeys(packages.canonical_package_name(name.partition("[")[0]) for name in matches))


def _explain_missing(proof: str, missing: tuple[str, ...], names: Mapping[str, str]) -> InconclusiveResolution:
    what = " and ".join(missing) or "a package"
    if "network was disabled" in proof:
        why = f"{what}: not in the cache nor in a folder of wheels, and the network is off"
        return InconclusiveResolution(why, missing)
    if refusal := _explain_refusal(proof, missing, names):
        return refusal.replace(missing=missing)
    if "could not be queried" in proof:
        why = f"an index refused to answer for {what}: {_replace_index_addresses(proof.partition('hint:')[2] or proof, names)[:200]}"
        return InconclusiveResolution(why, missing)
    return InconclusiveResolution(
        f"no index that was asked has {what}", missing, cause=UnresolvedCause("missing", missing)
    )


def _explain_refusal(proof: str, wanted: Sequence[str], names: Mapping[str, str]) -> InconclusiveResolution | None:
    """Say which index asks for a login: what it has is unknown, so nothing is proved. None if none does."""
    address, refusal = find_refusing_index(proof)
    if not refusal:
        return None
    own = "of your settings" if names else find_host(address)  # a plan names no host
    index = names.get(address) or names.get(f"{address}/") or own
    why = f"the index {index}, asked for {' and '.join(wanted) or 'a package'}: {refusal}; {LOGIN_WAY}"
    return InconclusiveResolution(why, cause=UnresolvedCause("index-refuses", (index,)))


def _replace_index_addresses(text: str, names: Mapping[str, str]) -> str:
    """Replace index addresses by names: addresses must not reach the user."""
    for address, name in sorted(names.items(), key=lambda pair: -len(pair[0])):
        text = text.replace(address, f"index {name}")
    return re.sub(r"(?:https?|file)://[^\s)`'\"]+", "(address)", text).strip()


def _explain_failure(output: str, names: Mapping[str, str]) -> InconclusiveResolution:
    """Describe a failure that proves nothing: the index and the underlying cause."""
    index = next((name for address, name in names.items() if address in output), "")
    cause = find_network_cause(output)
    if cause:
        why = f"the index {index or find_host(output) or 'that was asked'}: {cause}"
        return InconclusiveResolution(why, cause=UnresolvedCause("index-unread", (index,)))
    return InconclusiveResolution(_replace_index_addresses(output, names)[:240] or "uv failed without a word")


def _explain_tag_mismatch(proof: str) -> PlanConflict:
    """Describe a wheel for another platform or Python, in one line."""
    hit = re.search(
        rf"({_NAME})({_SPEC})? ha(?:s|ve) no wheels with a matching ([^(,]*?tag)s?(?: \(e\.g\., `([^`]+)`\))?", proof
    )
    if hit is None:
        return PlanConflict("a package has no wheel for this Python and platform")
    name, spec, kind, tag = hit.groups()
    version = (spec or "").lstrip("=")
    wanted = f" {tag}" if tag else ""
    says = f"{name}{' ' + version if version else ''} has no wheel with the {kind}{wanted} of this target"
    return PlanConflict(says, kind="platform-tag" if kind == "platform tag" else "python-tag")


def _find_dependency_clauses(proof: str, framework: str, exact: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Yield who requires what: (vllm 0.8.4, opentelemetry-sdk, >=1.26.0,<1.27.0)."""
    matches = re.findall(rf"({_NAME})({_SPEC})? depends? on ({_NAME})({_SPEC})?", proof)
    matches += re.findall(rf"({_NAME})({_SPEC})? depends? on {_NAME}{_SPEC}? and ({_NAME})({_SPEC})", proof)
    matches += re.findall(rf"()()you require ({_NAME})({_SPEC})", proof)
    for requirer, spec, name, want in matches:
        own = requirer in ("", PROJECT_NAME)
        version = (
            spec[2:] if spec.startswith("==") else spec or exact.get(packages.canonical_package_name(requirer), "")
        )
        label = framework if own else f"{requirer} {version}".strip()
        yield label, packages.canonical_package_name(name.partition("[")[0]), want.rstrip(".,") or "*"


def _find_conflicting_sides(proof: str, framework: str, exact: Mapping[str, str]) -> PlanConflict | None:
    """Find two requirements on one package that no version satisfies."""
    wants_by_package: dict[str, list[tuple[str, str]]] = {}
    for requirer, name, want in _find_dependency_clauses(proof, framework, exact):
        wants_by_package.setdefault(name, []).append((requirer, want))
    for name, asks in wants_by_package.items():
        for at, (requirer, want) in enumerate(asks):
            for other, against in asks[at + 1 :]:
                if (requirer, want) != (other, against) and are_disjoint_ranges(want, against):
                    needs = (
                        Requirement(f"package.{name}", want, cite=requirer),
                        Requirement(f"package.{name}", against, cite=other),
                    )
                    return PlanConflict(f"{requirer} needs {name} {want}, {other} needs {name} {against}", needs=needs)
    return None


def are_disjoint_ranges(a: str, b: str) -> bool:
    """Whether no version is in both ranges: try the bounds of each and versions next to them."""
    if "*" in (a, b):
        return False
    tried = [v for spec in (a, b) for clause in spec.split(",") for v in _versions_near_bound(clause)]
    both = f"{a},{b}"
    return bool(tried) and not any(versions.satisfies_specifier(version, both) for version in tried)


def _versions_near_bound(clause: str) -> Iterator[str]:
    _, bound = versions.split_clause(clause)
    bound = bound.removesuffix(".*").partition("+")[0]
    if not versions.is_version(bound):
        return
    release = versions.parse_release(bound)
    plain = ".".join(map(str, release))
    yield from dict.fromkeys((bound, plain))  # 2.10.0a0, 2.10.0
    yield f"{plain}.0.1" if len(release) < 3 else f"{plain}.1"  # just above
    below = [*release]
    while below and below[-1] == 0:
        below.pop()
    if below:
        yield ".".join(map(str, [*below[:-1], below[-1] - 1, 999999]))


def _find_unavailable_versions(proof: str) -> tuple[str, ...]:
    matches = re.findall(rf"there (?:is|are) no versions? of ({_NAME})({_SPEC})?", proof)
    return tuple(dict.fromkeys(f"{name} {spec.removeprefix('==')}".strip() for name, spec in matches))


def _shorten_proof(proof: str, framework: str) -> str:
    first = proof.partition(", we can conclude")[0].removeprefix(" Because ").strip()
    return _replace_index_addresses(
        first.replace(PROJECT_NAME, framework).replace("you require", f"{framework} requires"), {}
    )[:400]


def name_own_index(address: str) -> str:
    """Return the name in a lock of an index that the user configured: its path may be secret."""
    return "own:" + (address.partition("://")[2].partition("/")[0] or "local")


def map_origins(addresses: Mapping[str, str], folders: Sequence[str], configured: Sequence[str] = ()) -> dict[str, str]:
    """Map each address or folder to its name in a lock; an index that the user configured is named by its host."""
    origin_names = {
        url.removeprefix("file://").rstrip("/"): FOLDER_INDEX if url.startswith("/") else name
        for name, url in addresses.items()
    }
    own_names = {address: name_own_index(address) for address in configured}
    return own_names | origin_names | dict.fromkeys(folders, FOLDER_INDEX)


def make_progress_counter(note: Callable[..., None], host: HostAccess, attempt: int = 1) -> Callable[[str], None]:
    """Report now and then how many packages uv has selected; another attempt counts from 0, and says so."""
    what = "resolving packages" if attempt == 1 else f"resolving packages, attempt {attempt}"
    chosen: set[str] = set()
    last_report = [host.get_monotonic_time(), 0.0]  # time and count of the last report

    def count_line(line: str) -> None:
        if "Selecting: " not in line:
            return
        chosen.add(line.partition("Selecting: ")[2].partition("==")[0])
        if host.get_monotonic_time() - last_report[0] > 1.0 and len(chosen) > last_report[1]:
            last_report[:] = [host.get_monotonic_time(), float(len(chosen))]
            note(what, len(chosen))

    return count_line
