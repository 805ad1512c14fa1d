"""Add the torch, CUDA and package releases of an index to the catalogue.

Reads the lists of files, metadata, and the few bytes that matter inside wheels by range requests: no wheel is
downloaded. A row of a release that is known is left alone: the files of a release never change. Without ``--write`` it
only shows what is new. Run tools/compile_catalog.py afterwards.
"""

import argparse
import sys
from datetime import datetime, timezone
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [path for path in (str(HERE), str(HERE.parent / "src")) if path not in sys.path]

from refresh import packages, releases, toolkits  # noqa: E402
from refresh.index import Index, configured  # noqa: E402
from refresh.text import NEW, TODO, Change, loads, set_head  # noqa: E402
from refresh.wheel import Trouble  # noqa: E402

from gpuready.model.visible_text import escape_unprintable  # noqa: E402

CATALOG = HERE.parent / "src" / "gpuready" / "catalog"
FILES = ("torch", "packages", "cuda")
TITLES = {NEW: "new, added by --write", TODO: "for a person to fill in"}


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="refresh_catalog", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--index", metavar="URL", default="", help="a simple index; else that of pip or uv")
    parser.add_argument("--catalog", metavar="DIR", type=Path, default=CATALOG, help="where the TOML files are")
    parser.add_argument("--only", metavar="KEY", action="append", default=[], help="torch, packages/vllm, cuda/13.4 …")
    parser.add_argument("--write", action="store_true", help="add what is new, and set the date")
    asked = parser.parse_args(words)
    try:
        texts = {name: _read(asked.catalog / f"{name}.toml") for name in FILES}
        found, troubles = gather(texts, Index(asked.index or configured()), asked.only)
        for kind, title in TITLES.items():
            lines = [f"  {one.key}: {one.says}" for one in found if one.kind == kind]
            print("\n".join(map(escape_unprintable, [f"{title}:", *lines])) if lines else f"{title}: nothing")
        if troubles:
            raise Trouble("; ".join(troubles))
        if asked.write:
            _write(asked.catalog, texts, found, asked.only)
    except Trouble as bad:
        print(f"refresh_catalog: {escape_unprintable(str(bad))}; nothing was written", file=sys.stderr)
        return 2
    return 0


def gather(texts: dict[str, str], index: Index, only: list[str]) -> tuple[list[Change], list[str]]:
    """Every change of the files that were asked for; what could not be read is a sentence, and the rest goes on."""
    found: list[Change] = []
    troubles: list[str] = []
    looks = {"torch": releases.changes, "packages": packages.changes}
    for name in _asked_files(only):
        parts = [] if name in only else [key for key in only if key.startswith(name + "/")]
        try:
            if name == "cuda":
                found += toolkits.changes(loads(texts[name]), index, parts)
            else:
                more, bad = looks[name](loads(texts[name]), index, parts)
                found, troubles = found + more, troubles + bad
        except Trouble as answer:
            troubles.append(f"{name}: {answer}")
    return found, troubles


def _asked_files(only: list[str]) -> list[str]:
    return [name for name in FILES if not only or any(key.partition("/")[0] == name for key in only)]


def _read(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8")
        loads(text)
    except (OSError, ValueError) as bad:
        raise Trouble(f"{path.name} cannot be read: {bad}") from None
    return text


def _write(room: Path, texts: dict[str, str], changes: list[Change], only: list[str]) -> None:
    """Every file is made and read back before the first is written; a file looked at in part keeps its date."""
    today = datetime.now(timezone.utc).date().isoformat()
    new = {}
    for name in _asked_files(only):
        new[name] = set_head(texts[name], "as_of", today) if not only or name in only else texts[name]
        for change in changes:
            if change.file == name and change.edit:
                new[name] = change.edit(new[name])
        loads(new[name])
    for name, text in new.items():
        part = room / f".{name}.toml.new"
        part.write_text(text, encoding="utf-8")
        part.replace(room / f"{name}.toml")
    print(f"wrote {', '.join(new)}; now run tools/compile_catalog.py")


if __name__ == "__main__":
    sys.exit(main())
