"""Provokes every failure that this machine can show, and records the corpus: python -m tests.induce.induce

--only names cases (with * as in file names), --jobs says how many run at once. A case that could not be provoked
keeps its older recording, and is told at the end; one that is no longer here is dropped. gpu.py does the same for what needs an NVIDIA GPU.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from tests.induce import corpus, rooms, stage  # noqa: E402
from tests.induce.gpu import CASES  # noqa: E402
from tests.induce.themes import THEMES  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=["*"])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--relabel", action="store_true", help="provoke nothing; write the cases' labels anew")
    args = parser.parse_args()
    if args.relabel:
        return relabel()
    missed: dict[str, str] = {}
    count = 0
    for theme, cases in THEMES.items():
        wanted = [case for case in cases if any(fnmatch.fnmatch(case.id, only) for only in args.only)]
        with ThreadPoolExecutor(args.jobs) as pool:
            rows = [row for row in pool.map(lambda case: attempt(case, missed), wanted) if row]
        count += len(rows)
        write(theme, rows, [case.id for case in cases])
    for name, why in sorted(missed.items()):
        print(f"\n=== {name}: {why}")
    print(f"{count} recorded, {len(missed)} not provoked; {len(corpus.load())} in the corpus")
    return 1 if missed else 0


def relabel() -> int:
    """Give what is recorded the labels that its case has by now."""
    for theme, cases in {**THEMES, "gpu": CASES}.items():
        file = corpus.FOLDER / f"{theme}.jsonl"
        made = {case.id: case for case in cases}
        kept = [json.loads(line) for line in file.read_text("utf-8").splitlines()] if file.exists() else []
        rows = [row | stage.labels(made[row["id"]], row["log"]) for row in kept if row["id"] in made]
        write(theme, rows, list(made))
    return 0


def attempt(case: stage.Provoke, missed: dict[str, str]) -> dict[str, Any] | None:
    """One case, and why not."""
    started = time.monotonic()
    try:
        room = rooms.room(case.room, case.also)
        why = stage.lacking(case, room)
        row = None if why else stage.induce(case, room, rooms.home())
    except Exception as problem:
        row, why = None, f"{type(problem).__name__}: {problem}"
    if row is None:
        missed[case.id] = why
    print(f"{'ok  ' if row else 'MISS'} {case.id} ({time.monotonic() - started:.0f} s)", flush=True)
    return row


def write(theme: str, rows: list[dict[str, Any]], known: list[str]) -> None:
    """Put new rows in place of older ones of the same name, in the order of the theme; drop what is no case."""
    if not rows:
        return
    file = corpus.FOLDER / f"{theme}.jsonl"
    kept = [json.loads(line) for line in file.read_text("utf-8").splitlines()] if file.exists() else []
    by_id = {row["id"]: row for row in (*kept, *rows)}
    ordered = [by_id[name] for name in known if name in by_id]
    file.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ordered), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
