"""Make the draft of a contract, or a row of a table of releases, from a wheel, a source archive or a checkout.

    python tools/draft_contract.py kite-1.2-py3-none-any.whl -o kite-1.2.toml
    python tools/draft_contract.py vllm==0.32.0 --index URL -o vllm-0.32.toml
    python tools/draft_contract.py --table axolotl --base axolotl-0.18 axolotl-0.19.0-py3-none-any.whl ...

Files and syntax trees are read; nothing is imported or run. Of a wheel on an index only the sources are fetched, by ranges. A draft has pins, Python, what the commands import at their start,
variables and version gates; people add gates on hardware and jobs, and citations. ``--table`` adds or replaces the row of each
version in src/gpuready/contracts/releases/FRAMEWORK.toml; ``make catalog`` then makes contracts of them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent / "src"
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

from gpuready.contracts.release_table import expand_release  # noqa: E402
from gpuready.model import Contract  # noqa: E402
from gpuready.render.contract_toml import render_contract_toml  # noqa: E402
from gpuready.system.imports.package_source import (  # noqa: E402
    PackageSource,
    is_wanted_member,
    make_package_source,
    read_package_source,
)
from gpuready.system.imports.start_imports import find_start_imports  # noqa: E402
from gpuready.system.imports.variable_uses import SOURCES_WITH_VARIABLES, VariableUse, find_variable_uses  # noqa: E402
from gpuready.system.imports.version_gates import SOURCES_WITH_GATES, find_version_gates  # noqa: E402

TABLES = ROOT / "gpuready" / "contracts" / "releases"
HEAD = "# Read from releases by tools/draft_contract.py; do not edit by hand.\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("sources", nargs="+", help="wheels, source archives, folders of checkouts, or NAME==VERSION")
    parser.add_argument("--index", metavar="URL", default="", help="a simple index; else that of pip or uv")
    parser.add_argument("-o", "--output", type=Path, help="where the draft of one contract goes; else it is printed")
    parser.add_argument("--table", metavar="FRAMEWORK", help="write rows of a table of releases instead")
    parser.add_argument("--base", default="", help="the contract that people wrote, for the rows of a table")
    parser.add_argument("--patch", action="store_true", help="each patch is a line of its own: 0.4.9, not 0.4")
    parser.add_argument("--name", default="", help="the distribution, where no metadata says")
    parser.add_argument("--version", default="", help="its version, where no metadata says")
    asked = parser.parse_args()
    rows = [read_release_row(*open_source(text, asked.index), asked.name, asked.version) for text in asked.sources]
    if asked.table:
        lines = [{"base": asked.base, "line": line_of(row["version"], asked.patch)} for row in rows]
        write_table(TABLES / f"{asked.table}.toml", [line | row for line, row in zip(lines, rows, strict=True)])
        return 0
    text = draft_contract(rows[0])
    print(text, end="") if asked.output is None else asked.output.write_text(text, encoding="utf-8")
    return 0


def open_source(text: str, index: str) -> tuple[PackageSource, str]:
    """The sources of a file, a folder or a release on an index; and which they are, in words."""
    if "==" not in text:
        source = read_package_source(text)
        project = Path(text) / "pyproject.toml"
        is_undescribed = not source.name and project.is_file()
        return (with_project_table(source, project) if is_undescribed else source), describe_file(Path(text))
    from refresh.index import Index
    from refresh.web import Trouble, Web
    from refresh_catalog import configured

    name, _, version = text.partition("==")
    try:
        known = Index(Web(index or configured()))
        wheels = [f for f in known.files(name) if str(f.version) == version and (f.pure or f.linux("x86_64"))]
        if not wheels:
            raise SystemExit(f"{text} has no wheel on the index: download its source archive and name the file")
        wheel = known.wheel(wheels[-1])
        members = wheel.texts(member for member in wheel.members if is_wanted_member(member))
        return make_package_source(members, is_wheel=True), wheels[-1].name
    except Trouble as bad:
        raise SystemExit(str(bad)) from None


def with_project_table(source: PackageSource, path: Path) -> PackageSource:
    """A checkout has no METADATA: its name, version, pins and commands stand in ``[project]``, as far as they are static."""
    try:
        project = tomllib.loads(path.read_text(encoding="utf-8")).get("project", {})
    except (ValueError, RecursionError) as error:
        raise SystemExit(f"{path}: {error}") from None
    requires = list(project.get("dependencies", ()))
    for extra, rows in project.get("optional-dependencies", {}).items():
        requires += [with_extra(row, extra) for row in rows]
    return source.replace(
        name=project.get("name", ""),
        version=project.get("version", ""),
        requires_dist=tuple(requires),
        requires_python=project.get("requires-python", ""),
        is_dynamic="dependencies" in project.get("dynamic", ()),
        commands=tuple(dict.fromkeys(text.partition(":")[0] for text in project.get("scripts", {}).values())),
    )


def with_extra(requirement: str, extra: str) -> str:
    """``numba; python_version < "3.13"`` of an extra, as METADATA has it."""
    name, _, marker = requirement.partition(";")
    condition = f'({marker.strip()}) and extra == "{extra}"' if marker.strip() else f'extra == "{extra}"'
    return f"{name.strip()} ; {condition}"


def read_release_row(source: PackageSource, where: str, name: str = "", version: str = "") -> dict[str, Any]:
    """Read one release: everything that its files tell."""
    named, numbered = name or source.name, version or source.version
    if not named or not numbered:
        missing = " and ".join(flag for flag, value in (("--name", named), ("--version", numbered)) if not value)
        raise SystemExit(f"{where} does not state its name and version: give {missing}")
    return {
        "name": named.lower(),
        "version": numbered,
        "origin": f"{named} {numbered} ({where})",
        "python": source.requires_python,
        "dynamic": source.is_dynamic,
        "requires": list(source.requires_dist),
        "starts": [
            f"{one.module} {one.path}:{one.line} {one.through}".strip()
            for one in find_start_imports(source.parse_modules(), commands_of(source))
        ],
        "variables": summarize_uses(find_variable_uses(source.parse_modules(SOURCES_WITH_VARIABLES))),
        "gates": [
            f"{g.package}{g.specifier} ({g.path}:{g.line})"
            for g in find_version_gates(source.parse_modules(SOURCES_WITH_GATES))
        ],
    }


def line_of(version: str, is_patch: bool) -> str:
    """The versions that a release stands for: ``5.21.1`` -> ``5.21``."""
    return version if is_patch else ".".join(version.split(".")[:2])


def describe_file(path: Path) -> str:
    if path.is_dir():
        return "its checkout"
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return f"{path.name}, sha256 {digest[:16]}"


def commands_of(source: PackageSource) -> list[str]:
    """The modules of its commands; of a package without any, the package itself."""
    tops = sorted(
        {path.partition("/")[0] for path in source.files if path.count("/") == 1 and path.endswith("__init__.py")}
    )
    own = source.name.lower().replace("-", "_")
    return list(source.commands) or [top for top in tops if top.lower() == own] or tops[:1]


def summarize_uses(uses: list[VariableUse]) -> list[str]:
    """One text for each variable: ``NAME read,set-if-unset path:line value``, at the first place, that of a set before that of a read."""
    found: dict[str, list[VariableUse]] = {}
    for use in uses:
        found.setdefault(use.name, []).append(use)
    return [summarize_variable(name, found[name]) for name in sorted(found)]


def summarize_variable(name: str, uses: list[VariableUse]) -> str:
    sets = [use for use in uses if use.access == "set"]
    words = ["read"] if len(sets) < len(uses) else []
    words += ["set-if-unset" if all(use.keeps for use in sets) else "set"] if sets else []
    first = (sets or uses)[0]
    values = {use.value for use in sets}
    value = values.pop() if len(values) == 1 else "*" if values else ""
    return " ".join(
        part for part in (name, ",".join(words), f"{first.path}:{first.line}", value.replace("\n", " ")) if part
    )


def draft_contract(row: dict[str, Any]) -> str:
    """A contract of a release alone, for people to go on with."""
    start = {"framework": row["name"], "distribution": row["name"], "title": row["name"], "platforms": ["cuda"]}
    data = expand_release(start, row | {"line": line_of(row["version"], is_patch=False)}, is_own=False)
    data.pop("page"), data.pop("says")
    return render_contract_toml(Contract.from_json(data))


def write_table(path: Path, rows: list[dict[str, Any]]) -> None:
    """Add rows to a table, or replace those of the same version; versions stay in order."""
    from packaging.version import Version

    known = tomllib.loads(path.read_text(encoding="utf-8"))["release"] if path.exists() else []
    merged = {row["version"]: row for row in [*known, *rows]}
    ordered = [merged[version] for version in sorted(merged, key=Version)]
    path.parent.mkdir(exist_ok=True)
    path.write_text(HEAD + "".join(format_row(row) for row in ordered), encoding="utf-8")


def format_row(row: dict[str, Any]) -> str:
    lines = ["", "[[release]]"]
    for key, value in row.items():
        if isinstance(value, bool):
            lines += [f"{key} = true"] if value else []
        elif isinstance(value, list):
            lines += [f"{key} = [", *(f"  {json.dumps(one, ensure_ascii=False)}," for one in value), "]"]
        else:
            lines.append(f"{key} = {json.dumps(value, ensure_ascii=False)}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
