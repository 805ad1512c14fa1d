"""Draft a contract of a release from its files, or from its metadata on the user's index.

Files are read; nothing is imported or run. A draft has pins, Python and variables; people add gates on versions, hardware and jobs.
"""

import re
from collections.abc import Iterator
from typing import Any

from gpuready import rules
from gpuready.contracts.contract_file import read_contract_data
from gpuready.contracts.pin_conflicts import can_hold_together
from gpuready.contracts.release_table import expand_release
from gpuready.contracts.toml import TABLES, BadContract, decode_toml, read_toml
from gpuready.contracts.validate import find_problems
from gpuready.model import Contract
from gpuready.model.contract import ContractCheck
from gpuready.system import file_contents
from gpuready.system.archive_members import ARCHIVE_ERRORS
from gpuready.system.imports.package_source import PackageSource, list_variable_uses, read_package_source
from gpuready.workflow.index_contract import ReleaseFinder
from gpuready.workflow.refusal import Refused, call_or_refuse


def draft_contract(spec: str, path: str | None = None) -> Contract:
    """Draft a contract for ``NAME`` or ``NAME==VERSION`` from a wheel, a source archive or a checkout; else by the index."""
    name, _, version = spec.partition("==")
    row = _read_index_row(name, version) if path is None else read_file_row(path, name, version)
    if version and row["version"] != version:
        raise Refused(f"{path} is of version {row['version']}, not {version}")
    start = {"framework": name, "distribution": row["name"], "title": name, "platforms": ["cuda"]}
    data = expand_release(start, row | {"line": version_line(row["version"])}, is_own=False)
    data = {key: data[key] for key in data if key not in ("page", "says", "basis")}
    if problems := find_problems(data, spec):
        raise Refused(problems[0])
    return Contract.from_json(data)


def version_line(version: str) -> str:
    """The versions that a release stands for: ``5.21.1`` -> ``5.21``."""
    return ".".join(version.split(".")[:2])


# -- from the index ---------------------------------------------------------------------------------------


def _read_index_row(name: str, version: str) -> dict[str, Any]:
    release = ReleaseFinder()(name, version or None)
    if release is None:
        raise Refused(f"no index knows {name}{f'=={version}' if version else ''}: name a wheel or a checkout after it")
    metadata = PackageSource(
        name, release.version, release.requires_dist, release.requires_python, is_dynamic=False, files={}
    )
    return read_release_row(metadata, "metadata of the index")


# -- from files -------------------------------------------------------------------------------------------


def read_file_row(path: str, name: str, version: str) -> dict[str, Any]:
    """Return what a wheel, a source archive or a checkout tells; the name and the version where it does not state them."""
    try:
        source = read_package_source(path)
    except ARCHIVE_ERRORS as error:
        reason = getattr(error, "strerror", None) or "it cannot be unpacked"
        raise Refused(f"{path} is no wheel, source archive or folder of a checkout: {reason}") from None
    project = None if source.name else file_contents.read_text_file(f"{path}/pyproject.toml")
    if project is not None:
        source = _with_project_table(source, call_or_refuse(decode_toml, project, "pyproject.toml", "project"))
    if not (source.version or version):
        raise Refused(f"{path} does not state its version: gpuready contract new {name}==VERSION {path}")
    return read_release_row(source, _describe_source(path), name, version)


def _with_project_table(source: PackageSource, data: dict[str, Any]) -> PackageSource:
    """A checkout has no METADATA: name, version and pins stand in ``[project]``, as far as they are static."""
    project = _table(data, "project")
    requires = _texts(project.get("dependencies"))
    for extra, rows in _table(project, "optional-dependencies").items():
        requires += [_with_extra(row, extra) for row in _texts(rows)]
    return source.replace(
        name=str(project.get("name", "")),
        version=str(project.get("version", "")),
        requires_dist=tuple(requires),
        requires_python=str(project.get("requires-python", "")),
        is_dynamic="dependencies" in _texts(project.get("dynamic")),
    )


def _table(data: dict[str, Any], key: str) -> dict[str, Any]:
    value = data.get(key)
    return value if isinstance(value, dict) else {}


def _texts(value: object) -> list[str]:
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def _with_extra(requirement: str, extra: str) -> str:
    """``numba; python_version < "3.13"`` of an extra, as METADATA has it."""
    name, _, marker = requirement.partition(";")
    condition = f'({marker.strip()}) and extra == "{extra}"' if marker.strip() else f'extra == "{extra}"'
    return f"{name.strip()} ; {condition}"


def _describe_source(path: str) -> str:
    if file_contents.list_names_or_empty(path):
        return "its checkout"
    return f"{path.rpartition('/')[2]}, sha256 {file_contents.hash_file_contents(path)[:16]}"


def read_release_row(source: PackageSource, where: str, name: str = "", version: str = "") -> dict[str, Any]:
    """Return what the files of one release tell, as a row of a table of releases."""
    named, numbered = source.name or name, source.version or version
    return {
        "name": named.lower(),
        "version": numbered,
        "origin": f"{named} {numbered} ({where})",
        "python": source.requires_python,
        "dynamic": source.is_dynamic,
        "requires": list(source.requires_dist),
        "variables": list_variable_uses(source.files),
    }


_CITED_BY = {"steps": "note"}
_SUBJECTS = {"capabilities": ("name",), "variables": ("name", "when")}


def check_contract_file(path: str) -> ContractCheck:
    """Return the contract of a file, and every fault in one sentence."""
    if file_contents.file_size(path) in (None, -1):
        raise Refused(f"{path} is not a file: name a file of requirements (TOML)")
    name = path.rpartition("/")[2]
    try:
        own = read_toml(path)
        if problems := find_problems(own, name):
            return ContractCheck(path, None, tuple(_add_lines(problems, own, path)))
        contract = Contract.from_json(read_contract_data(path))
    except BadContract as error:
        return ContractCheck(path, None, (str(error),))
    faults = [*_missing_citations(own), *_repeated_subjects(own), *_contradictions(contract), *_unknown_codes(own)]
    return ContractCheck(path, contract, tuple(_add_lines([f"{name}{fault}" for fault in faults], own, path)))


def _add_lines(faults: list[str], own: dict[str, Any], path: str) -> Iterator[str]:
    """Name the line of the row or the top key that a fault is about, where the text shows it beyond doubt."""
    lines = list(enumerate((file_contents.read_text_file(path) or "").splitlines(), 1))
    places = {
        f"the key {key!r} is": at for key in own for at, line in lines if re.match(rf"{re.escape(key)}\s*=", line)
    }
    for table in TABLES:
        first = places.get(f"the key {table!r} is", 0)
        row = r"\s*\{" if first else rf"\s*\[\[\s*{table}\s*\]\]"
        starts = [at for at, line in lines if at >= first and re.match(row, line)][: len(own.get(table, []))]
        if len(starts) == len(own.get(table, [])):
            places |= {f"[[{table}]] {number}": at for number, at in enumerate(starts, 1)}
    for fault in faults:
        about = re.search(r"\[\[\w+\]\] \d+|the key '[^']+' is", fault)
        yield f"{fault} (line {places[about[0]]})" if about and about[0] in places else fault


def _numbered_rows(data: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for table in TABLES:
        for number, row in enumerate(data.get(table, []), 1):
            yield table, f", [[{table}]] {number}", row


def _missing_citations(data: dict[str, Any]) -> Iterator[str]:
    if not data.get("origin") and not data.get("extends"):
        yield ": origin is missing: name what was read, and when"
    for table, where, row in _numbered_rows(data):
        key = _CITED_BY.get(table, "cite")
        if not row.get(key):
            yield f'{where} has no source: add {key} = "FILE:LINE"'


def _repeated_subjects(data: dict[str, Any]) -> Iterator[str]:
    seen: set[tuple[str, ...]] = set()
    for table, where, row in _numbered_rows(data):
        if table in _SUBJECTS:
            subject = (table, *(row.get(field, "") for field in _SUBJECTS[table]))
            if subject in seen:
                yield f"{where} names {row['name']} again: keep one row"
            seen.add(subject)


def _contradictions(contract: Contract) -> Iterator[str]:
    """Required needs of one key and one condition that no version meets together."""
    required = [need for need in contract.needs if need.level == "required"]
    for at, a in enumerate(required):
        for b in required[at + 1 :]:
            if (a.key, a.when) == (b.key, b.when) and not _hold_together(a.key, a.want, b.want):
                yield f": {a.key} is required as {a.want} ({a.cite}) and as {b.want} ({b.cite}), which no version meets"


def _hold_together(key: str, a: str, b: str) -> bool:
    is_version = key.startswith("package.") or key == "python.version"
    return a == b or not is_version or can_hold_together(key.removeprefix("package."), a, b)


def _unknown_codes(data: dict[str, Any]) -> Iterator[str]:
    known = set(rules.list_codes())
    for _, where, row in _numbered_rows(data):
        if row.get("code") and row["code"] not in known:
            yield f"{where} has the code {row['code']}, which no rule has"
