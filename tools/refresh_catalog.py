"""Bring the torch, CUDA and package rows of the catalogue up to date with an index of packages.

Reads the lists of files, metadata, and the few bytes that matter inside wheels by range requests: no wheel is
downloaded. Without a flag it shows what changed and writes nothing. ``--write`` adds what is new; what contradicts
a row, or is not certain, goes in only with ``--accept KEY``. Run tools/compile_catalog.py afterwards.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [path for path in (str(HERE), str(HERE.parent / "src")) if path not in sys.path]

from refresh import packages, releases, toolkits  # noqa: E402
from refresh.changes import DIFFERS, FIELD, NEW, TODO, UNSURE, Change  # noqa: E402
from refresh.index import Index  # noqa: E402
from refresh.text import Document, loads  # noqa: E402
from refresh.web import Trouble, Web  # noqa: E402

from gpuready.model.visible_text import escape_unprintable  # noqa: E402

CATALOG = HERE.parent / "src" / "gpuready" / "catalog"
FILES = ("torch", "packages", "cuda")
TITLES = {
    NEW: "new, added by --write",
    FIELD: "not in the row so far, added by --write",
    DIFFERS: "differs from the catalogue, changed by --accept KEY",
    UNSURE: "not certain, added by --accept KEY",
    TODO: "for a person to fill in",
}


def main(words: list[str] | None = None) -> int:
    args = _words(words)
    try:
        return run(args)
    except Trouble as bad:
        print(f"refresh_catalog: {escape_unprintable(str(bad))}; nothing was written", file=sys.stderr)
        return 2


def _words(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="refresh_catalog", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--index", metavar="URL", default="", help="a simple index; else that of pip or uv")
    parser.add_argument("--catalog", metavar="DIR", default=str(CATALOG), help="where the TOML files are")
    parser.add_argument("--only", metavar="KEY", action="append", default=[], help="torch, packages/vllm, cuda/13.4 …")
    parser.add_argument("--deep", action="store_true", help="open the wheels of known releases too")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 where something changed")
    parser.add_argument("--write", action="store_true", help="add what is new, and set the date")
    parser.add_argument("--accept", metavar="KEY", action="append", default=[], help="also change this; with --write")
    args = parser.parse_args(words)
    if args.write and args.check:
        parser.error("--check writes nothing: leave --write out")
    if args.accept and not args.write:
        parser.error("--accept changes a row: give --write with it")
    wrong = [key for key in args.only if key.partition("/")[0] not in FILES]
    if wrong:
        parser.error(f"--only {wrong[0]}: a key begins with {', '.join(FILES)}")
    return args


def run(args: argparse.Namespace) -> int:
    began = time.perf_counter()
    room = Path(args.catalog)
    texts = {name: _read(room / f"{name}.toml") for name in FILES}
    index = Index(Web(args.index or configured()), _progress)
    found, troubles = gather({n: loads(t) for n, t in texts.items()}, index, args)
    for line in _listed(found):
        print(escape_unprintable(line))
    for line in troubles:
        print(f"refresh_catalog: {escape_unprintable(line)}", file=sys.stderr)
    print(_cost(index, time.perf_counter() - began))
    unknown = [key for key in args.accept if not any(change.under(key) and change.edit for change in found)]
    if unknown:
        raise Trouble(f"--accept {unknown[0]}: there is no such difference")
    if troubles:
        raise Trouble(f"{len(troubles)} answer{'s' if len(troubles) > 1 else ''} could not be used")
    if args.write:
        _write(room, texts, [c for c in found if c.applies(args.accept)], args.only)
    return 1 if args.check and found else 0


def gather(data: dict[str, dict[str, Any]], index: Index, args: argparse.Namespace) -> tuple[list[Change], list[str]]:
    """Every change of the files that were asked for; what could not be read is a sentence, and the rest goes on."""
    found: list[Change] = []
    troubles: list[str] = []
    for name in _asked(args.only):
        only = [key for key in args.only if key.startswith(name + "/")] if name not in args.only else []
        try:
            if name == "torch":
                more, bad = releases.changes(data["torch"], index, args.deep, only)
            elif name == "cuda":
                more, bad = toolkits.changes(data["cuda"], index, only), []
            else:
                more, bad = packages.changes(data["packages"], index, args.deep, only)
            found, troubles = found + more, troubles + bad
        except Trouble as bad_answer:
            troubles.append(f"{name}: {bad_answer}")
    return found, troubles


def _progress(name: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{escape_unprintable(name)[:100]}\r", end="", file=sys.stderr, flush=True)


def _asked(only: list[str]) -> list[str]:
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
    asked = _asked(only)
    today = datetime.now(timezone.utc).date().isoformat()
    new: dict[str, str] = {}
    for name in asked:
        document = Document(texts[name])
        for change in changes:
            if change.file == name and change.edit:
                change.edit(document)
        if not only or name in only:
            document.blocks[0].set("as_of", today)
        new[name] = document.text
        try:
            loads(new[name])
        except ValueError as bad:
            raise Trouble(f"{name}.toml would be no TOML any more ({bad})") from None
        if _read(room / f"{name}.toml") != texts[name]:
            raise Trouble(f"{name}.toml was changed by someone else in the meantime")
    for name, text in new.items():
        part = room / f".{name}.toml.new"
        part.write_text(text, encoding="utf-8")
        part.replace(room / f"{name}.toml")
    print(f"wrote {len(changes)} changes to {', '.join(asked)}, as of {today}; now run tools/compile_catalog.py")


def _listed(changes: list[Change]) -> list[str]:
    lines = []
    for kind, title in TITLES.items():
        these = [c for c in changes if c.kind == kind]
        if these:
            lines += [f"{title}:", *(f"  {c.key}: {c.says}" for c in these), ""]
    return lines or ["nothing changed", ""]


def _cost(index: Index, seconds: float) -> str:
    whole = sum(index.opened.values())
    read, asked = index.web.bytes, index.web.requests
    inside = f"; {len(index.opened)} wheels of {whole / 1e6:.1f} MB were looked into" if whole else ""
    return f"read {read / 1e6:.1f} MB in {asked} requests and {seconds:.0f} s{inside}"


def configured() -> str:
    """The index of the environment: the variables of uv and pip, then uv's file, then pip's."""
    for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL"):
        if value := os.environ.get(name, ""):
            return value.partition("=")[2] if _named(value) else value
    if found := _of_uv() or _of_pip():
        return found
    raise Trouble("no index is known here: give --index URL, or set PIP_INDEX_URL")


def _of_uv() -> str:
    """The default index of uv's own file, if there is one."""
    home = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    for path in (os.environ.get("UV_CONFIG_FILE", ""), f"{home}/uv/uv.toml", "/etc/uv/uv.toml"):
        if not path or not Path(path).is_file():
            continue
        result = loads(_read(Path(path)))
        named = [one.get("url", "") for one in result.get("index", ()) if one.get("default")]
        return str((named or [result.get("index-url") or result.get("pip", {}).get("index-url") or ""])[0])
    return ""


def _of_pip() -> str:
    words = [sys.executable, "-m", "pip", "config", "list"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    pairs = (line.partition("=") for line in done.stdout.splitlines())
    return next((value.strip().strip("'\"") for key, _, value in pairs if key.endswith(".index-url")), "")


def _named(value: str) -> bool:
    """uv lets an index have a name: ``name=https://…``."""
    return "=" in value.partition("://")[0]


if __name__ == "__main__":
    sys.exit(main())
