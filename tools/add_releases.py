"""Add rows to a table of releases, src/gpuready/contracts/releases/FRAMEWORK.toml, or replace those of the same version.

    python tools/add_releases.py axolotl --base axolotl-0.18 axolotl-0.19.0-py3-none-any.whl ...
    python tools/add_releases.py vllm --base vllm-0.32 vllm==0.32.0 --index URL

Files are read (``gpuready.workflow.contract_draft``); nothing is imported or run. Of a wheel on an index only the sources are fetched, by ranges.
``make catalog`` then makes contracts of the rows.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent / "src"
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

from refresh.text import loads  # noqa: E402

from gpuready.system.imports.package_source import is_wanted_member, make_package_source  # noqa: E402
from gpuready.workflow.contract_draft import read_file_row, read_release_row, version_line  # noqa: E402
from gpuready.workflow.refusal import Refused  # noqa: E402

TABLES = ROOT / "gpuready" / "contracts" / "releases"
HEAD = "# Read from releases by tools/add_releases.py; do not edit by hand.\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("framework", help="the table")
    parser.add_argument("sources", nargs="+", help="wheels, source archives, folders of checkouts, or NAME==VERSION")
    parser.add_argument("--index", metavar="URL", default="", help="a simple index; else that of pip or uv")
    parser.add_argument("--base", required=True, help="the contract that people wrote")
    parser.add_argument("--patch", action="store_true", help="each patch is a line of its own: 0.4.9, not 0.4")
    parser.add_argument("--version", default="", help="its version, where no metadata says")
    asked = parser.parse_args()
    try:
        rows = [read_row(text, asked.index, asked.framework, asked.version) for text in asked.sources]
    except Refused as refused:
        raise SystemExit(str(refused)) from None
    lines = [row["version"] if asked.patch else version_line(row["version"]) for row in rows]
    heads = [{"base": asked.base, "line": line} for line in lines]
    write_table(TABLES / f"{asked.framework}.toml", [head | row for head, row in zip(heads, rows, strict=True)])
    return 0


def read_row(text: str, index: str, name: str, version: str) -> dict[str, Any]:
    """The row of a file, a folder or a release on an index."""
    if "==" not in text:
        return read_file_row(text, name, version)
    from refresh.index import Index, configured
    from refresh.wheel import Trouble

    name, _, version = text.partition("==")
    try:
        known = Index(index or configured())
        wheels = [f for f in known.files(name) if str(f.version) == version and (f.pure or f.linux("x86_64"))]
        if not wheels:
            raise SystemExit(f"{text} has no wheel on the index: download its source archive and name the file")
        wheel = known.wheel(wheels[-1])
        members = wheel.texts(member for member in wheel.members if is_wanted_member(member))
        return read_release_row(make_package_source(members, is_wheel=True), wheels[-1].name)
    except Trouble as bad:
        raise SystemExit(str(bad)) from None


def write_table(path: Path, rows: list[dict[str, Any]]) -> None:
    """Add rows to a table, or replace those of the same version; versions stay in order."""
    from packaging.version import Version

    known = loads(path.read_text(encoding="utf-8"))["release"] if path.exists() else []
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
