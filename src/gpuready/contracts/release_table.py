"""Contracts made from releases: a row per version, read from its wheel, over the contract that people wrote nearest to it.

A row has what files tell: pins, Python, variables; and in ``starts`` what commands import at their start. What they cannot tell (gates
on hardware and on jobs, capabilities, errors) comes from the base; that of another version only advises.
"""

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpuready.catalog.packages import canonical_package_name

SYSTEMS = {"linux": ("linux", "Linux", "posix"), "darwin": ("darwin", "Darwin", "posix")}
ARCHITECTURES = ("x86_64", "aarch64")
USUAL_PYTHON = "3.12"
WHERE = {
    frozenset({("linux", "x86_64"), ("linux", "aarch64")}): "os.system!=darwin",
    frozenset({("linux", "x86_64"), ("darwin", "x86_64")}): "arch!=aarch64",
    frozenset({("linux", "x86_64")}): "os.system!=darwin,arch!=aarch64",
    frozenset({("linux", "aarch64")}): "os.system!=darwin,arch=aarch64",
    frozenset({("linux", "aarch64"), ("darwin", "aarch64")}): "arch=aarch64",
    frozenset({("darwin", "x86_64"), ("darwin", "aarch64")}): "os.system=darwin",
    frozenset({("linux", "x86_64"), ("linux", "aarch64"), ("darwin", "aarch64")}): "",
    frozenset({("linux", "x86_64"), ("linux", "aarch64"), ("darwin", "x86_64")}): "",
    frozenset({("linux", "x86_64"), ("linux", "aarch64"), ("darwin", "x86_64"), ("darwin", "aarch64")}): "",
}
"""The condition of a requirement by where its marker holds; one that holds on a Mac alone is left out."""


def expand_table(
    framework: str, rows: Iterable[Mapping[str, Any]], written: Mapping[str, Mapping[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Return the contracts of a table by the names of their files; one that people wrote, with its variants, is added to."""
    found = {}
    common = _systems_of_every_line(framework, written)
    for row in rows:
        own = {
            stem: expand_release(contract, row, is_own=True)
            for stem, contract in written.items()
            if contract["framework"] == framework
            and contract["version"] == row["line"]
            and contract.get("variant") != "guide"
        }
        made = {} if own else expand_release(written[row["base"]], row, is_own=False, common=common)
        new = {f"{framework}-{row['line']}": made} if made else {}
        found.update(own or new)
    return found


def _systems_of_every_line(framework: str, written: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the systems that every contract of a framework requires in the same words: no version between them runs elsewhere."""
    found = {
        next((n["want"] for n in one.get("needs", []) if n["key"] == "os.system" and n.get("level") == "required"), "")
        for one in written.values()
        if one["framework"] == framework
    }
    return found.pop() if len(found) == 1 else ""


def expand_release(base: Mapping[str, Any], row: Mapping[str, Any], is_own: bool, common: str = "") -> dict[str, Any]:
    """Return the contract of a release as plain data. ``is_own``: the base is the contract of this very version.

    ``common``: the systems that every line of the framework requires.
    """
    uses = [text.split(" ") for text in row["variables"]]
    named = {use[0] for use in uses}
    started = start_needs(row)
    contract: dict[str, Any] = {**base, "other_variables": _other_variables(uses, base.get("variables", []))}
    contract["notes"] = [*base.get("notes", []), *_notes(row)]
    if is_own:
        contract["variables"] = [_mark_own_default(one, uses) for one in base.get("variables", [])]
        return contract | {"needs": [*base.get("needs", []), *_new_needs(started, base)]}
    borrowed = str(base.get("version", ""))
    pins = _drop_unknown_extras(_require_always(pin_needs(row), base), base)
    stated = {(need["key"], need["want"], need.get("when", "")) for need in pins}
    advice = [need for need in base.get("needs", []) if not _is_pin(need)]
    new = [need for need in advice if (need["key"], need["want"], need.get("when", "")) not in stated]
    kept = [
        need if common and (need["key"], need["want"]) == ("os.system", common) else _advise(need, borrowed)
        for need in new
    ]
    contract["needs"] = [*pins, *started, *kept]
    contract["variables"] = [_mark_own_default(one, uses) for one in base.get("variables", []) if one["name"] in named]
    contract["steps"] = [_install_step(row)]
    contract["origin"] = row["origin"]
    contract["says"] = f"what the files of a release cannot tell is advice of {borrowed}" if borrowed else ""
    contract["basis"] = "release" if borrowed else ""
    return contract | {"version": row["line"], "page": False}


def _require_always(needs: list[dict[str, str]], base: Mapping[str, Any]) -> list[dict[str, str]]:
    """Add the pin of the extra ``torch`` without its condition, where the framework never runs without torch."""
    always = any(n["key"] == "package.torch" and _is_pin(n) and not n.get("when") for n in base.get("needs", []))
    own = [need for need in needs if need["key"] == "package.torch"]
    if not always or any(not need.get("when") for need in own):
        return needs
    behind = [{k: v for k, v in need.items() if k != "when"} for need in own if need.get("when") == "wants=torch"]
    return [*needs, *behind]


def _drop_unknown_extras(needs: Sequence[dict[str, str]], base: Mapping[str, Any]) -> list[dict[str, str]]:
    """Leave out what only an extra asks for that no word of a job stands for, such as ``dev`` or ``quality``."""
    rows = [one for table in ("needs", "capabilities", "variables") for one in base.get(table, [])]
    known = {word for one in rows for word in _wanted_words(one.get("when", ""))}
    return [need for need in needs if _wanted_words(need.get("when", "")) <= known]


def _wanted_words(when: str) -> set[str]:
    found = re.findall(r"wants=([^,]{1,200})", when)
    return {word.strip() for words in found for word in words.split("|")}


def pin_needs(row: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return what the metadata of a release requires, each with the condition of its marker.

    Requirements that each build of a source archive works out anew only advise, and so does a package of any version.
    """
    cite = f"METADATA of {row['name']} {row['version']}"
    needs = [{"key": "python.version", "want": row["python"], "cite": cite}] if row["python"] else []
    for text in row["requires"]:
        for name, want, when in _conditions(text):
            need = {
                "key": f"package.{name}",
                "want": want,
                "when": when,
                "level": ("recommended" if row.get("dynamic") or (want == "*" and not when) else ""),
                "cite": cite,
            }
            need = {key: value for key, value in need.items() if value}
            if need not in needs:
                needs.append(need)
    return needs


def start_needs(row: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return what commands import at their start where the metadata does not ask for it.

    That is on another architecture, without an extra, or because a module of torch imports it.
    """
    needs = []
    for text in row.get("starts", ()):
        module, place, through = (*text.split(" "), "")[:3]
        lines = [line for line in row["requires"] if _requirement_name(line) == canonical_package_name(module)]
        covered = {cell for line in lines for cell in _cells(line, "")}
        missing = [arch for arch in ARCHITECTURES if ("linux", arch) not in covered]
        if (not lines and not through) or not missing:
            continue
        want = next((_parse(line)[1] for line in lines if "extra" not in line), "") or "*"
        when = "" if len(missing) == len(ARCHITECTURES) else f"os.system!=darwin,arch={missing[0]}"
        by = f"imports {through}, which imports it," if through else "imports it"
        cite = f"{row['name']} {row['version']} {place} {by} at the start of every command; METADATA does not ask for it there"
        need = {"key": f"package.{canonical_package_name(module)}", "want": want, "when": when, "cite": cite}
        needs.append({key: value for key, value in need.items() if value})
    return needs


def _new_needs(needs: Iterable[dict[str, str]], base: Mapping[str, Any]) -> list[dict[str, str]]:
    """Leave out what people wrote with its conditions: they know better when it is needed."""
    known = {(need["key"], need.get("when", "")) for need in base.get("needs", [])}
    keys = {key for key, _ in known}
    conditional = [need for need in needs if need.get("when") or need["key"] not in keys]
    return [need for need in conditional if (need["key"], need.get("when", "")) not in known]


def _is_pin(need: Mapping[str, Any]) -> bool:
    """Whether a need is one that the metadata of the release has in its place."""
    is_package = need["key"].startswith("package.") or need["key"] == "python.version"
    return is_package and need.get("level", "required") == "required" and "METADATA" not in need.get("when", "")


def _advise(need: Mapping[str, Any], version: str) -> dict[str, Any]:
    if need.get("level", "required") != "required":
        return dict(need)
    return {**need, "level": "recommended", "cite": f"{need.get('cite', '')}; of {version}".lstrip("; ")}


def _other_variables(uses: list[list[str]], important: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the variables that the code uses and no row has: ``NAME read path:line``."""
    known = {one["name"] for one in important}
    return [" ".join(use[:3]) for use in uses if use[0] not in known]


def _mark_own_default(variable: Mapping[str, Any], uses: list[list[str]]) -> dict[str, Any]:
    """Mark a variable of which the code chooses among values where it is unset: a fixed value would override its choice."""
    values = {" ".join(use[3:]) for use in uses if use[0] == variable["name"] and "if-unset" in use[1]}
    is_chosen = bool(values) and values != {variable.get("value", "")}
    traits = [*variable.get("traits", []), *(["own-default"] if is_chosen else [])]
    return {**variable, **({"traits": traits} if traits else {})}


def _notes(row: Mapping[str, Any]) -> list[str]:
    named = {_requirement_name(line) for line in row["requires"]}
    starts = [text.split(" ") for text in row.get("starts", ())]
    unnamed = [f"{words[0]} {words[1]}" for words in starts if canonical_package_name(words[0]) not in named]
    notes = (
        [f"Its commands import at their start what its metadata does not name: {', '.join(unnamed)}."]
        if unnamed
        else []
    )
    return notes + ([f"Version gates in its code: {', '.join(row['gates'])}."] if row.get("gates") else [])


def _install_step(row: Mapping[str, Any]) -> dict[str, Any]:
    run = ["pip", "install", f"{row['name']}=={row['version']}"]
    return {"does": f"install {row['name']} {row['version']}", "run": run, "safety": "ask", "note": row["origin"]}


def _requirement_name(text: str) -> str:
    return _parse(text)[0]


@functools.lru_cache(maxsize=4096)  # each line is asked for once per module that a command imports
def _parse(text: str) -> tuple[str, str, Any]:
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        found = Requirement(text)
    except (InvalidRequirement, RecursionError):
        return "", "", None
    clauses = sorted(str(one) for one in found.specifier)
    return canonical_package_name(found.name), ",".join(sorted(clauses, key=lambda one: one[0] != ">")), found.marker


def _conditions(text: str) -> Iterable[tuple[str, str, str]]:
    """Yield name, versions and condition of a requirement; one for each extra that asks for it."""
    name, want, _ = _parse(text)
    extras = re.findall(r"extra\s*==\s*['\"]([\w.-]+)['\"]", text) or [""]
    for extra in extras if name else ():
        where = WHERE.get(frozenset(_cells(text, extra)))
        if where is not None:
            wanted = f"wants={canonical_package_name(extra)}" if extra else ""
            yield name, want or "*", ",".join(part for part in (wanted, where) if part)


def _cells(text: str, extra: str) -> set[tuple[str, str]]:
    """Return the systems and architectures where a requirement applies."""
    marker = _parse(text)[2]
    if marker is None:
        return {(system, arch) for system in SYSTEMS for arch in ARCHITECTURES}
    found = set()
    for system, (platform, name, os_name) in SYSTEMS.items():
        for arch in ARCHITECTURES:
            values = {"sys_platform": platform, "platform_system": name, "os_name": os_name, "platform_machine": arch}
            values |= {"python_version": USUAL_PYTHON, "python_full_version": f"{USUAL_PYTHON}.0", "extra": extra}
            if marker.evaluate(values):
                found.add((system, arch))
    return found
