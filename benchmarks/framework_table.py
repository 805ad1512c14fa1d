"""From a bare machine to a training step, framework by framework: plan, install, import, step, prove, check, time beside uv.

    python benchmarks/framework_table.py SPEC … [--work FOLDER] [--source DIR] [--wants cpu] [--on h100x8 gh200] [-o FILE]
    python benchmarks/framework_table.py SPEC … --elsewhere gh200 [--source DIR] [-o FILE]

Each framework is planned here and for each machine of ``--on``, installed here, checked and proved; then its lock is installed once
more with everything in uv's cache, by gpuready and by ``uv pip install``, whose environment is then imported for the first time,
as gpuready does it before it publishes one. The seconds are those of the processor, with all children: other work does not
change them. Environments are removed when they have been measured. A record that is there is kept: rows of the named
frameworks are replaced. ``--elsewhere`` installs for a machine that is not this one: what is for another architecture is not imported.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIMIT_S = 1200
STEPS = ("trainer", "sft", "booster", "axolotl-train", "roll-pipeline", "deepspeed", "training-step")
"""Proofs that train: of the framework itself, or of torch in its environment."""


def gpuready(*words: str) -> tuple[int, dict[str, object], str, float]:
    """Run a command; return its exit code, its JSON, its last line and its seconds."""
    argv = [sys.executable, "-m", "gpuready", *words, "--json"]
    begun = time.monotonic()
    try:
        ran = subprocess.run(argv, capture_output=True, text=True, cwd=ROOT, timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        return 124, {}, f"no answer in {LIMIT_S} s", LIMIT_S
    seconds = round(time.monotonic() - begun, 1)
    lines = [line for line in ran.stderr.splitlines() if line.strip()]
    try:
        document = json.loads(ran.stdout) if ran.stdout.strip() else {}
    except ValueError:
        document = {}
    return ran.returncode, document, lines[-1] if lines else "", seconds


def describe_plan(spec: str, *options: str) -> dict[str, object]:
    code, reported, last, seconds = gpuready("plan", spec, *options)
    plan = (reported.get("plans") or [reported])[0] if reported else {}
    row = {"exit": code, "seconds": seconds, "torch": plan.get("torch", ""), "packages": len(plan.get("lock") or ())}
    if not plan.get("lock"):
        conflicts = plan.get("conflicts") or [{}]
        row["says"] = str(conflicts[0].get("says") or plan.get("resolved") or last)[:300]
    return row


def describe_install(spec: str, home: Path, *options: str) -> dict[str, object]:
    code, reported, last, seconds = gpuready("install", spec, "-e", str(home), "--allow-build", "--yes", *options)
    row: dict[str, object] = {"exit": code, "seconds": seconds, "verdict": reported.get("verdict", "refused")}
    need = reported.get("need") or {}
    if code == 0:
        row |= {"told GiB": round(need.get("size", 0) / 2**30, 2), "real GiB": measure_size(home)}
        row["check"] = (reported.get("report") or {}).get("verdict", "")
        row["import"] = find_unimported(reported.get("notes") or ()) or find_import(home)
    return row if code == 0 else row | {"says": str(reported.get("says") or reported.get("error") or last)[:400]}


def find_unimported(notes: Sequence[str]) -> str:
    """Return the note on an import that was left out, or that fails where the environment is for another machine."""
    failed = [f"no: {note}" for note in notes if note.startswith("import ")]
    return next((note for note in (*failed, *notes) if note.startswith(("not imported", "no: "))), "")


def measure_size(home: Path) -> float:
    used = sum(path.lstat().st_blocks * 512 for path in (home / "installs").rglob("*"))
    return round(used / 2**30, 2)


def describe_prove(spec: str, home: Path, *options: str) -> dict[str, object]:
    code, reported, last, seconds = gpuready("prove", spec, "--python", str(home), *options)
    reports = reported.get("reports") or [reported]
    proofs = (reported.get("evidence") or reported).get("proofs") or ()
    passed = [p["name"] for p in proofs if p.get("verdict") == "passed"]
    failed = [f"{p['name']}: {p.get('why') or p.get('verdict')}"[:200] for p in proofs if p.get("verdict") not in ("passed", "skipped")]  # fmt: skip
    verdict = str((reports[0] or {}).get("verdict") or last[:200])
    row = {"exit": code, "seconds": seconds, "verdict": verdict, "passed": passed, "failed": failed}
    return row | {"step": [name for name in passed if name in STEPS]}


def used_seconds() -> float:
    """Seconds of the processor that all children of this process have taken so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def find_import(home: Path) -> str:
    """What the install imported, from its journal: ``import torch, trl``; empty if nothing."""
    steps = [json.loads(line) for line in (home / "journal.jsonl").read_text().splitlines()]
    code = next((step["run"][-1] for step in reversed(steps) if step["step"] == "import"), "")
    return next((part for part in code.split("; ") if part.startswith("import ") and part != "import gc"), "")


def time_beside_uv(spec: str, home: Path, work: Path, *options: str) -> dict[str, object]:
    """Install the same lock twice with a warm cache: by uv alone with a first import after it, and by gpuready."""
    lock = work / "same.lock"
    shutil.copy((home / "current").resolve() / "requirements.lock", lock)
    python, code = (home / "bin" / "python").resolve(), find_import(home) or "pass"
    bare, again = work / "bare", work / "again"
    uv, folders = [sys.executable, "-m", "uv"], os.environ.get("PIP_FIND_LINKS", "").split()
    begun, words = (
        used_seconds(),
        ["pip", "install", "-q", "--python", bare / "bin/python", "--no-deps", "--require-hashes"],
    )
    subprocess.run([*uv, "venv", "-q", "--python", python, bare], check=True)
    links = [word for folder in folders for word in ("--find-links", folder)]
    ran = subprocess.run([*uv, *words, "-r", lock, *links], capture_output=True, text=True)
    alone = used_seconds() - begun
    first = subprocess.run([bare / "bin/python", "-I", "-c", code], capture_output=True)
    with_import, begun = used_seconds() - begun, used_seconds()
    ours = describe_install(spec, again, "--lock", str(lock), "--python", str(python), *options)
    taken = used_seconds() - begun
    for folder in (bare, again):
        shutil.rmtree(folder, ignore_errors=True)
    if ran.returncode or first.returncode or ours["exit"]:
        return {"failed": (ran.stderr or ours.get("says") or "the import after uv's install")[-300:]}
    row = {"uv": alone, "uv and a first import": with_import, "gpuready": taken}
    return {name: round(value, 1) for name, value in row.items()} | {"ratio": round(taken / with_import, 2)}


def try_framework(spec: str, asked: argparse.Namespace) -> dict[str, object]:
    options = (["--wants", asked.wants] if asked.wants else []) + (["--source", asked.source] if asked.source else [])
    wants = ["--wants", asked.wants] if asked.wants else []
    row: dict[str, object] = {"framework": spec, "plan here": describe_plan(spec, *options)}
    for machine in asked.on:
        row[f"plan {machine}"] = describe_plan(spec, "--on", machine, *options[2 if asked.wants else 0 :])
    home = asked.work / "env"
    shutil.rmtree(home, ignore_errors=True)
    if row["plan here"]["packages"]:
        row["install"] = describe_install(spec, home, *options)
        if row["install"]["exit"] == 0:
            row["check"] = gpuready("check", spec, "--python", str(home), *wants)[1].get("verdict", "")
            row["prove"] = describe_prove(spec, home, *wants)
            row["warm install"] = time_beside_uv(spec, home, asked.work, *options)
    shutil.rmtree(home, ignore_errors=True)
    return row


def try_elsewhere(spec: str, asked: argparse.Namespace) -> dict[str, object]:
    """Plan and install for a machine that is not this one."""
    words, home = ["--on", asked.elsewhere, *(["--source", asked.source] if asked.source else [])], asked.work / "env"
    shutil.rmtree(home, ignore_errors=True)
    row = {"framework": f"{spec} --on {asked.elsewhere}", f"plan {asked.elsewhere}": describe_plan(spec, *words)}
    row["install"] = describe_install(spec, home, *words)
    row |= {"check": row["install"]["check"]} if "check" in row["install"] else {}
    shutil.rmtree(home, ignore_errors=True)
    return row


def write_record(path: Path, rows: list[dict[str, object]]) -> None:
    """Replace the rows of the same frameworks on the same kind of machine."""
    before = json.loads(path.read_text()) if path.exists() else {}
    here = {"machine": platform.machine(), "day": str(date.today())}
    fresh = {(row["framework"], here["machine"]) for row in rows}
    kept = [row for row in before.pop("rows", []) if (row["framework"], row["machine"]) not in fresh]
    head = before | {"date": str(date.today()), "command": "python benchmarks/framework_table.py SPEC … -o FILE"}
    head |= {"python": platform.python_version()}
    path.write_text(json.dumps(head | {"rows": [*kept, *(row | here for row in rows)]}, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("specs", nargs="+")
    parser.add_argument("--work", type=Path, default=Path("build/frameworks"))
    parser.add_argument("--source", default="")
    parser.add_argument("--wants", default="cpu")
    parser.add_argument("--on", nargs="*", default=["h100x8", "gh200"])
    parser.add_argument("--elsewhere", default="", help="the machine to install for")
    parser.add_argument("-o", dest="out", type=Path)
    asked = parser.parse_args()
    asked.work.mkdir(parents=True, exist_ok=True)
    for spec in asked.specs:
        row = (try_elsewhere if asked.elsewhere else try_framework)(spec, asked)
        print(json.dumps(row), flush=True)
        if asked.out:
            write_record(asked.out, [row])


if __name__ == "__main__":
    main()
