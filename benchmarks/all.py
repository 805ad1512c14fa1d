"""Every benchmark that this machine can run, one after the other, into one record: ``make benchmarks``.

    python benchmarks/all.py [--quick] [--only NAME,...] [--list] [--target PATH] [--minutes 40]

Each is a script of its own with a deadline; what it finds stands under its name in benchmarks/results/benchmarks.json, and a script that
fails leaves what was there. ``--quick`` is a trial: few rounds, under build/benchmarks/quick. What needs a GPU, or somebody else's
package, is not run: its record stays, and the list names it with its date. For the rivals an environment with torch is made
under build/benchmarks (some minutes, once), unless --target names one.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
RESULTS = HERE / "results"
BUILD = ROOT / "build" / "benchmarks"
RIVALS = ("accelerate", "transformers", "env-doctor", "cuda-doctor")
TORCH = ("torch==2.13.0", "numpy")
DISK = 4 << 30
"""Bytes that the longest log needs, with room to spare."""
LEAST = 60.0
"""Seconds that even the shortest may take."""


class Job(NamedTuple):
    """One script: its words, how long it takes, and its words for a trial. PATIENT, FILE and STEM are paths."""

    name: str
    words: str
    minutes: float
    quick: str
    needs: str = ""  # torch, disk


JOBS = (
    Job("command_speed", "--rounds 9 -o FILE", 1.2, "--rounds 1 -o FILE"),
    Job("check_speed", "--rivals PATIENT --rounds 15 -o FILE", 2.3, "--rivals PATIENT --rounds 1 -o FILE", "torch"),
    Job("plan_speed", "--repeat 7 -o FILE", 0.7, "--repeat 1 -o FILE"),
    Job("log_speed", "--mib 1000 --runs 2 -o FILE", 3, "--mib 16 --runs 1 -o FILE", "disk"),
    Job("shuffled_ranks", "--runs 400 -o FILE", 0.7, "--runs 20 -o FILE"),
    Job("fit_speed", "--repeat 5 -o FILE", 0.8, "--repeat 1 -o FILE"),
    Job("launch_overhead", "--python PATIENT/bin/python --pairs 6 -o FILE", 2.2,
        "--python PATIENT/bin/python --pairs 1 --ranks 1 2 --clients 256 -o FILE", "torch"),
    Job("run_speed", "--python PATIENT --pairs 6 --out FILE", 2.2, "--python PATIENT --pairs 1 --ranks 1,2 --out FILE", "torch"),
    Job("watch_overhead", "--ranks 1,2,8 --seconds 10 -o FILE", 0.8, "--ranks 1 --seconds 2 -o FILE"),
    Job("kill_install", "--kills 30 -o FILE", 2.2, "--kills 2 -o FILE"),
    Job("fleet_scale", "--to STEM", 1.2, "--sizes 100,300 --to STEM"),
    Job("fleet_search", "--to FILE", 2.2, "--share 0.01 --to FILE"),
    Job("fleet_outliers", "--to FILE", 1.5, "--share 0.01 --to FILE"),
    Job("serve_load", "-o FILE", 1.3, "--seconds 2 --requests 1000 --questions 6 --new 2 -o FILE"),
    Job("verdict_stability", "--repeats 100 --loaded 30 -o FILE", 0.8, "--repeats 3 --loaded 1 -o FILE"),
    Job("score_secrets", "-o FILE", 0.3, "-o FILE"),
)  # fmt: skip
ELSEWHERE = {
    "check-speed-h200.json": "a GPU: check_speed.py",
    "bench-h200.json": "a GPU: bench_h200.py",
    "launch-cuda-h200.json": "a GPU: launch_cuda.py",
    "fork-cuda-h200.json": "a GPU: fork_cuda.py",
    "prove-h200.jsonl": "a GPU: gpuready prove",
    "launch-torches-2core.json": "six releases of torch, gigabytes: launch_torches.py",
    "eager-pace-h200.json": "a GPU and transformers: eager_pace.py",
    "step-time-6-h200.json": "a GPU and transformers: step_time_measure.py",
    "host-placement-h200.json": "a GPU and transformers: host_placement.py, host_cores.py",
    "real-install-faults.json": "gigabytes of packages, and root: real_install_faults.py",
    "framework-table-cpu.json": "an hour and gigabytes of packages: framework_table.py",
    "fit-rivals.json": "measured runs and DeepSpeed: fit_rivals.py",
    "fit-sharded.json": "torch, transformers and DeepSpeed: fit_sharded.py",
    "recorder-traces-nvrx.json": "recorded traces of others: recorder_traces.py",
    "soak.json": "half an hour and torch: soak.py",
    "convolution-times-h200.jsonl.gz": "a GPU: convolution_times.py",
    "operation-times-h200.jsonl.gz": "a GPU: operation_times.py, with operation_cases.py",
    "beside-frameworks.json": "a package index and ten minutes: beside_frameworks.py",
}
"""Records that are kept: what making them anew takes."""


def target_environment(requested: str) -> str:
    """An environment with torch and the rivals; empty where none can be had."""
    if requested:
        return requested
    home = BUILD / "target-environment"
    if (home / "made").exists():
        return str(home)
    sys.path[:0] = [str(ROOT / "src")]
    from gpuready.catalog import indexes

    print("making an environment with torch and the rivals, once: some minutes", flush=True)
    subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
    pip = [str(home / "bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    log = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    # As tests/target_environment.py does: what the index has, else the build for the CPU from where the catalogue knows it.
    if subprocess.run([*pip, *TORCH], **log).returncode:  # type: ignore[call-overload]
        words = [*pip, "--extra-index-url", indexes.index_url("cpu"), *TORCH]
        if subprocess.run(words, **log).returncode:  # type: ignore[call-overload]
            return ""
    for one in RIVALS:  # each by itself: a rival that cannot be had is left out of the table
        subprocess.run([*pip, one], **log)  # type: ignore[call-overload]
    (home / "made").touch()
    return str(home)


def skipped(job: Job, where: str) -> str:
    """Why a job cannot run here; empty where it can."""
    if job.needs == "torch" and not where:
        return "torch cannot be had here"
    if job.needs == "disk" and shutil.disk_usage("/tmp").free < DISK:
        return "less than 4 GiB are free in /tmp"
    return ""


def run(job: Job, folder: Path, where: str, args: argparse.Namespace) -> dict[str, Any]:
    """Run one within its deadline; what became of it."""
    plain, minutes = (job.quick, 5.0) if args.quick else (job.words, job.minutes)
    record = folder / f"{job.name}.json"
    words = plain.replace("PATIENT", where).replace("FILE", str(record)).replace("STEM", str(record)[:-5])
    begun, before = time.monotonic(), os.getloadavg()[0]
    code = waited([sys.executable, str(HERE / f"{job.name}.py"), *words.split()], job.name, minutes * 150)
    found = {"benchmark": job.name, "seconds": round(time.monotonic() - begun, 1), "load_before": round(before, 1)}
    if code:
        why = "it ran past its deadline" if code == 124 else f"exit {code}"
        return found | {"ended": "failed", "why": f"{why}; build/benchmarks/{job.name}.log has its words"}
    stamp(record, f"python benchmarks/{job.name}.py {plain}", where)
    return found | {"ended": "ran"}


def waited(argv: list[str], name: str, seconds: float) -> int:
    """The exit code of a script; 124 where it had to be killed, with all that it started."""
    with open(BUILD / f"{name}.log", "wb") as log:
        child = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=ROOT, env=environment(), start_new_session=True
        )  # fmt: skip
        try:
            return child.wait(max(LEAST, seconds))
        except BaseException as end:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            if isinstance(end, subprocess.TimeoutExpired):
                return 124
            raise


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return kept | {"PYTHONPATH": str(ROOT / "src")}


def stamp(record: Path, command: str, where: str) -> None:
    """What a record does not say of itself: when, where and how. And no path of this machine stays in it."""
    text = record.read_text(encoding="utf-8").replace(f"{ROOT}/", "")
    document = json.loads(text.replace(where, "PATIENT") if where else text)
    said = document.get("about", document)
    here = {"date": date.today().isoformat(), "hardware": hardware(), "command": command}
    fresh = {key: value for key, value in here.items() if key not in said}
    if "machine" in said:
        fresh.pop("hardware", None)
    record.write_text(json.dumps(document | fresh, indent=1) + "\n", encoding="utf-8")


def hardware() -> str:
    return f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"


def kept(folder: Path) -> dict[str, Any]:
    """The record of all that were run before, by name."""
    path = folder / "benchmarks.json"
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}


def made(document: dict[str, Any]) -> str:
    """The day on which a record was made."""
    return str(document.get("about", document).get("date") or document.get("made") or "no date")[:10]


def made_elsewhere(name: str) -> str:
    path = RESULTS / name
    if not path.exists():
        return "no record"
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as record:
        return made(json.JSONDecoder().raw_decode(record.read())[0])  # the first of lines


def chosen(only: str) -> list[Job]:
    names = [name for name in only.split(",") if name]
    unknown = [name for name in names if name not in {job.name for job in JOBS}]
    if unknown:
        raise SystemExit(f"there is no benchmark {unknown[0]}; --list shows them")
    return [job for job in JOBS if not names or job.name in names]


def listed() -> str:
    before = kept(RESULTS)
    rows = [f"{'':20}minutes"]
    rows += [f"{job.name:20}{job.minutes:7.1f}  {made(before.get(job.name, {}))}" for job in JOBS]
    rows.append(f"{'all of them':20}{sum(job.minutes for job in JOBS):7.1f}")
    rows.append("not run by this; their records stay:")
    rows += [f"  {record:28} {made_elsewhere(record)}  needs {why}" for record, why in ELSEWHERE.items()]
    return "\n".join(rows)


def measure(jobs: list[Job], folder: Path, args: argparse.Namespace) -> list[dict[str, Any]]:
    where = target_environment(args.target) if any(job.needs == "torch" for job in jobs) else ""
    ends, rows = time.monotonic() + args.minutes * 60, []
    for job in jobs:
        why = skipped(job, where)
        if not why and time.monotonic() > ends:
            why = f"the {args.minutes} minutes were over"
        if why:
            rows.append({"benchmark": job.name, "ended": "skipped", "why": f"{why}; its last record stays"})
        else:
            rows.append(run(job, BUILD, where, args))
            keep(rows[-1], BUILD / f"{job.name}.json", folder)
        print("  ".join(str(value) for value in rows[-1].values()), flush=True)
    return rows


def keep(row: dict[str, Any], record: Path, folder: Path) -> None:
    """Put what a script found under its name; one that failed leaves what was there."""
    if row["ended"] == "ran":
        whole = kept(folder) | {row["benchmark"]: json.loads(record.read_text(encoding="utf-8"))}
        (folder / "benchmarks.json").write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="", help="these, by name, with commas")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--target", default=os.environ.get("GPUREADY_BENCHMARK_TARGET", ""))
    parser.add_argument("--minutes", type=float, default=40, help="no further one is begun after so many")
    args = parser.parse_args()
    jobs = chosen(args.only)
    if args.list:
        print(listed())
        return 0
    BUILD.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the one that runs is ended as well
    folder = BUILD / "quick" if args.quick else RESULTS
    folder.mkdir(parents=True, exist_ok=True)
    rows = measure(jobs, folder, args)
    return int(any(row["ended"] == "failed" for row in rows))


if __name__ == "__main__":
    sys.exit(main())
