"""`gpuready serve`, `run` and `fleet` for half an hour under steady use: do memory, descriptors and leftovers stay what they are?

    python benchmarks/soak.py --python TORCH/bin/python [--minutes 30] [-o FILE]

Side by side: a server that is asked everything a few times a second, good and bad; a `gpuready run` of two ranks that lives for the
whole time; worlds of two ranks that come and go, some of them dying; `gpuready fleet check` over local nodes; a process that judges a
simulated fleet of 200 nodes again and again. Every few seconds the process trees of those that live long are measured, and what the
others leave: processes, zombies, files in the temporary folder, in /dev/shm, and in the cache. As root, /dev/shm is a private one,
so that nobody else's files are counted. The verdict is the slope over the last two thirds (Theil and Sen's).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from soak_loads import ROOT, TOKEN, Fleets, Load, Place, Requests, Worlds

PAGE = os.sysconf("SC_PAGE_SIZE")
KINDS = ("rss_mib", "fds", "threads", "processes", "zombies")
ROOM = {"rss_mib": 5.0, "cache_mib": 5.0}
"""What a figure may grow by over the last two thirds; the others may by 2."""
NONE = ("zombies", "orphans")
"""Of these there are some only for a moment: half of the samples of the last two thirds, or more, have none."""
ENDS = {"serve": 143, "run": 0, "fleet": 0}
"""The server is told to stop with SIGTERM; the others end by themselves."""
SHARE = {"cache_files": 0.1}
"""What it may grow by as a share of itself, the others by 2 %: fleet keeps its runs for ten minutes, and the beat is not a clock's."""


def stat_of(pid: str) -> tuple[str, str, int, int] | None:
    """State, parent, threads and resident pages of a process."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return words[0], words[1], int(words[17]), int(words[21])


def processes() -> dict[str, tuple[str, str, int, int]]:
    found = ((pid, stat_of(pid)) for pid in os.listdir("/proc") if pid.isdecimal())
    return {pid: row for pid, row in found if row is not None}


def tree(top: str, rows: dict[str, tuple[str, str, int, int]]) -> list[str]:
    """A process and everything below it."""
    found = [top] if top in rows else []
    for pid in found:
        found += [child for child, row in rows.items() if row[1] == pid]
    return found


def measured(pids: list[str], rows: dict[str, tuple[str, str, int, int]]) -> dict[str, float]:
    def fds(pid: str) -> int:
        try:
            return len(os.listdir(f"/proc/{pid}/fd"))
        except OSError:
            return 0

    return {
        "rss_mib": round(sum(rows[p][3] for p in pids) * PAGE / 2**20, 2),
        "fds": sum(fds(p) for p in pids),
        "threads": sum(rows[p][2] for p in pids),
        "processes": len(pids),
        "zombies": sum(rows[p][0] == "Z" for p in pids),
    }


def marked(mark: bytes, rows: dict[str, tuple[str, str, int, int]]) -> set[str]:
    """Every process that bears our variable, wherever it was adopted."""
    found = set()
    for pid in rows:
        try:
            if mark in Path(f"/proc/{pid}/environ").read_bytes():
                found.add(pid)
        except OSError:
            continue
    return found


def files_below(folder: Path) -> tuple[int, int]:
    sizes = []
    for at, _, names in os.walk(folder):
        for name in names:
            try:
                sizes.append(os.lstat(os.path.join(at, name)).st_size)
            except OSError:
                continue
    return len(sizes), sum(sizes)


def sample(place: Place, tops: dict[str, int], began: float) -> dict[str, object]:
    rows = processes()
    trees = {name: tree(str(pid), rows) for name, pid in tops.items()}
    known = {pid for pids in trees.values() for pid in pids}
    short = marked(f"GPUREADY_SOAK={place.mark}".encode(), rows) - known
    orphans = [p for p in short if rows[p][1] == "1"]
    mine = tree(str(os.getpid()), rows)
    cached, size = files_below(place.folder / "home")
    return {
        "second": round(time.time() - began, 1),
        **{name: measured(pids, rows) for name, pids in trees.items()},
        "around": {
            "orphans": len(orphans),
            "zombies": sum(rows[p][0] == "Z" for p in mine),
            "temporary_files": files_below(place.folder / "tmp")[0],
            "shared_memory_files": len(os.listdir("/dev/shm")),
            "cache_files": cached,
            "cache_mib": round(size / 2**20, 3),
        },
    }


def slope(points: list[tuple[float, float]]) -> float:
    """Units a second: the median over all pairs, so that a child that is caught as it is born bends nothing."""
    pairs = ((a, b) for at, a in enumerate(points) for b in points[at + 1 :])
    return statistics.median((b[1] - a[1]) / (b[0] - a[0]) for a, b in pairs if b[0] > a[0])


def verdict(samples: list[dict[str, object]], group: str, kind: str) -> dict[str, object]:
    """Whether one figure stayed flat over the last two thirds."""
    last = samples[len(samples) // 3 :]
    points = [(float(row["second"]), float(row[group][kind])) for row in last]  # type: ignore[index, arg-type]
    grown = slope(points) * (points[-1][0] - points[0][0])
    values = [value for _, value in points]
    allowed = max(ROOM.get(kind, 2.0), SHARE.get(kind, 0.02) * statistics.median(values))
    return {
        "first": samples[0][group][kind],  # type: ignore[index]
        "median": statistics.median(values),
        "most": max(values),
        "last": values[-1],
        "grown_by_slope": round(grown, 3),
        "allowed": round(allowed, 2),
        "flat": grown <= allowed and (kind not in NONE or not statistics.median(values)),
    }


def plot(samples: list[dict[str, object]], names: list[str]) -> str:
    """Memory and descriptors of the three that live long, each beside what it began with."""
    wide, high = 720, 420
    end = float(samples[-1]["second"]) or 1.0  # type: ignore[arg-type]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" font-family="sans-serif" font-size="12">',
        f'<rect width="{wide}" height="{high}" fill="#fff"/>',
    ]
    for place, kind, label in ((20, "rss_mib", "resident memory, MiB"), (220, "fds", "file descriptors")):
        most = max(row[name][kind] for row in samples for name in names) * 1.1 or 1  # type: ignore[index]
        parts.append(f'<text x="60" y="{place + 12}" font-size="14">{label}</text>')
        for share in (0, 0.5, 1):
            at = place + 160 - share * 135
            parts.append(f'<path d="M60 {at}H600" stroke="#ddd"/>')
            parts.append(f'<text x="54" y="{at + 4}" text-anchor="end">{most * share:.0f}</text>')
        for name, colour in zip(names, ("#1565c0", "#c62828", "#2e7d32"), strict=False):
            dots = [
                (60 + float(row["second"]) / end * 540, place + 160 - row[name][kind] / most * 135)  # type: ignore[arg-type, index]
                for row in samples
            ]
            line = " ".join(f"{x:.1f},{y:.1f}" for x, y in dots)
            parts.append(f'<polyline fill="none" stroke="{colour}" stroke-width="1.5" points="{line}"/>')
            parts.append(f'<text x="606" y="{dots[-1][1] + 4:.0f}" fill="{colour}">{name}</text>')
    parts.append(f'<text x="600" y="{high - 16}" text-anchor="end">{end / 60:.0f} minutes</text></svg>')
    return "\n".join(parts) + "\n"


def started(place: Place, seconds: float, args: argparse.Namespace) -> tuple[dict[str, subprocess.Popen[str]], int]:
    """The three that live for the whole time, and the port of the server."""
    words = ("serve", "--port", "0", "--token", TOKEN, "--no-open")
    serve = place.start(place.command(*words), stderr=subprocess.PIPE)
    assert serve.stderr is not None
    port = int(serve.stderr.readline().split(":")[3].partition("/")[0])
    words = (
        "run",
        "--python",
        place.python,
        "--nproc",
        "2",
        "--log-dir",
        "logs/steady",
        "--",
        "steady.py",
        f"{seconds}",
    )
    run = place.start(place.command(*words), stdout=(place.folder / "run.txt").open("w"), stderr=subprocess.STDOUT)
    argv = [sys.executable, "simulated.py", str(ROOT), f"{seconds}", f"{args.fleet_pause}"]
    fleet = place.start(argv, stderr=(place.folder / "fleet.txt").open("w"))
    return {"serve": serve, "run": run, "fleet": fleet}, port


def soaked(place: Place, args: argparse.Namespace) -> dict[str, object]:
    seconds = args.minutes * 60
    alive, port = started(place, seconds, args)
    try:
        return watched(place, args, alive, port)
    finally:  # whoever stops the soak stops what it began
        for one in alive.values():
            one.terminate()


def watched(
    place: Place, args: argparse.Namespace, alive: dict[str, subprocess.Popen[str]], port: int
) -> dict[str, object]:
    seconds = args.minutes * 60
    loads: list[Load] = [Requests(port, 1 / args.rate), Worlds(place, args.beat), Fleets(place, args.beat)]
    for load in loads:
        load.start()
    began, samples, died = time.time(), [], []
    time.sleep(min(10.0, seconds / 6))
    while time.time() - began < seconds - 5:
        samples.append(sample(place, {name: one.pid for name, one in alive.items()}, began))
        died = [name for name, one in alive.items() if one.poll() is not None]
        if died:
            break
        time.sleep(args.every)
    for load in loads:
        load.done.set()
    for load in loads:
        load.join(60)
    ends = finished(alive)
    time.sleep(2)
    left = sample(place, {}, began)["around"]
    return {"samples": samples, "counts": {load.name: dict(load.counts) for load in loads}, "died_early": died,
            "ends": ends, "left_behind": left}  # fmt: skip


def finished(alive: dict[str, subprocess.Popen[str]]) -> dict[str, int | None]:
    alive["serve"].terminate()
    for one in alive.values():
        try:
            one.wait(60)
        except subprocess.TimeoutExpired:
            one.terminate()
            one.wait(20)
    return {name: one.returncode for name, one in alive.items()}


def judged(found: dict[str, object]) -> dict[str, object]:
    samples: list[dict[str, object]] = found["samples"]  # type: ignore[assignment]
    groups = dict.fromkeys(("serve", "run", "fleet"), KINDS)
    around = tuple(samples[0]["around"])  # type: ignore[arg-type]
    figures = {
        group: {kind: verdict(samples, group, kind) for kind in kinds}
        for group, kinds in (groups | {"around": around}).items()
    }
    wrong = [f"{group}.{kind}" for group, rows in figures.items() for kind, row in rows.items() if not row["flat"]]
    bad = [f"{name}: {what}" for name, counts in found["counts"].items() for what in counts  # type: ignore[attr-defined]
           if what.startswith(("failed", "wrong")) or what.endswith(" 500")]  # fmt: skip
    left: dict[str, int] = found["left_behind"]  # type: ignore[assignment]
    leftovers = [name for name in ("orphans", "zombies", "temporary_files", "shared_memory_files") if left[name]]
    ends: dict[str, int | None] = found["ends"]  # type: ignore[assignment]
    ended = [f"{name}: {code}" for name, code in ends.items() if code != ENDS[name]]
    wrongs = {"growing": wrong, "wrong_answers": bad, "leftovers": leftovers, "ended_badly": ended}
    holds = not any(wrongs.values()) and not found["died_early"]
    return {"holds": holds, **wrongs, "figures": figures}


def alone() -> None:
    """As root, begin again with a /dev/shm of our own: on a shared machine others use it too."""
    if os.geteuid() == 0 and shutil.which("unshare") and "SOAK_ALONE" not in os.environ:
        line = 'mount -t tmpfs tmpfs /dev/shm && exec "$@"'
        os.environ["SOAK_ALONE"] = "1"
        os.execvp("unshare", ["unshare", "-m", "sh", "-c", line, "sh", sys.executable, *sys.argv])


def asked() -> argparse.Namespace:
    read = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    read.add_argument("--python", required=True, help="a Python with torch, for the ranks")
    read.add_argument("--minutes", type=float, default=30)
    read.add_argument("--rate", type=float, default=4, help="requests a second")
    read.add_argument("--beat", type=float, default=10, help="seconds from one world or fleet to the next")
    read.add_argument("--fleet-pause", type=float, default=2, help="seconds between simulated fleets")
    read.add_argument("--every", type=float, default=5, help="seconds between samples")
    read.add_argument("-o", default=str(ROOT / "benchmarks" / "results" / "soak.json"))
    return read.parse_args()


def main() -> None:
    args = asked()
    alone()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        place = Place(Path(folder), f"{os.getpid()}-{time.time_ns()}", args.python)
        found = soaked(place, args)
        tails = {name: (place.folder / name).read_text()[-500:] for name in ("run.txt", "fleet.txt")}
    said = judged(found)
    head = {
        "benchmark": "soak",
        "date": time.strftime("%Y-%m-%d"),
        "command": " ".join(["python", "benchmarks/soak.py", *sys.argv[1:]]),
        "hardware": f"{os.cpu_count()} CPUs ({platform.processor() or platform.machine()}), Python {platform.python_version()}",
        "minutes": args.minutes,
        "load_after": round(os.getloadavg()[0], 2),
    }
    rest = {key: found[key] for key in ("counts", "ends", "died_early", "left_behind")}
    if found["died_early"]:
        rest["tails"] = tails
    samples: list[dict[str, object]] = found["samples"]  # type: ignore[assignment]
    out = Path(args.o)
    out.write_text(
        json.dumps(head | said | rest | {"samples": samples[:: max(1, len(samples) // 60)]}, indent=1) + "\n"
    )
    out.with_suffix(".svg").write_text(plot(samples, ["serve", "run", "fleet"]))
    print(json.dumps(head | {k: v for k, v in said.items() if k != "figures"} | rest, indent=2))
    sys.exit(0 if said["holds"] else 1)


if __name__ == "__main__":
    main()
