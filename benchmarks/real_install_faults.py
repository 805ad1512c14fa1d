"""A kill, a full disk and an index that vanishes, in the middle of the real install of a framework over an older environment.

    python benchmarks/real_install_faults.py SPEC [--before SPEC] [--kills N] [--work FOLDER] [-o FILE.json]

As root, for a small disk of its own. ``--before`` is installed first and has to be whole after every fault, by its
manifest and by a real import; then the command is run again, without the fault, and has to finish. Both are installed from
locks made here; the wheels of SPEC are brought into a folder first, which a server on the loopback then serves as the index.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import random
import shutil
import signal
import subprocess
import sys
import time
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from tests.apply.local_index import Index  # noqa: E402
from tests.faults import mounts  # noqa: E402

LIMIT_S, SPARE = 1500, 150 << 20


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "gpuready", *words]


def run(*words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    variables = os.environ | {"PYTHONPATH": str(ROOT / "src")} | (env or {})
    return subprocess.run(command(*words), capture_output=True, text=True, timeout=LIMIT_S, env=variables)


class RealInstall:
    """Two locks of real frameworks, and the environments that are made of them."""

    def __init__(self, before: str, spec: str, work: Path):
        self.work, self.before, self.spec = work, before, spec
        self.locks = {name: self.make_lock(name) for name in (before, spec)}

    def make_lock(self, spec: str) -> Path:
        path = self.work / f"{spec}.lock"
        if not path.exists():
            ran = run("plan", spec, "--wants", "cpu", "--allow-build", "-o", str(path))
            assert ran.returncode == 0, ran.stdout + ran.stderr
        return path

    def words(self, spec: str, home: Path) -> list[str]:
        more = ["--allow-build", "--yes", "--wants", "cpu"]
        return ["install", spec, "--lock", str(self.locks[spec]), "-e", str(home), *more]

    def install(self, spec: str, home: Path, env: dict[str, str] | None = None) -> tuple[int, float, str]:
        """Install; return the exit code, the seconds and the last line that was said."""
        begun = time.monotonic()
        ran = run(*self.words(spec, home), env=env)
        lines = [line for line in (ran.stdout + "\n" + ran.stderr).splitlines() if line.strip()]
        said = next((line.strip() for line in lines if line.startswith(("failed", "gpuready: "))), "") if lines else ""
        return ran.returncode, round(time.monotonic() - begun, 1), " ".join(ran.stdout.split())[:300] or said

    def start(self, spec: str, home: Path) -> subprocess.Popen[bytes]:
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        env = os.environ | {"PYTHONPATH": str(ROOT / "src")}
        return subprocess.Popen(command(*self.words(spec, home)), start_new_session=True, env=env, **quiet)

    def holds(self, spec: str, home: Path) -> bool:
        """Whether what stands there is whole by its manifest, is of this lock, and imports."""
        manifest = json.loads((home / "current" / "gpuready.json").read_text())
        if manifest["plan"]["framework"] != spec.partition("==")[0]:
            return False
        code = f"import torch, {spec.partition('==')[0].replace('-', '_')}"
        imported = subprocess.run([home / "bin/python", "-I", "-c", code], capture_output=True)
        return imported.returncode == 0 and run("install", "--verify", "-e", str(home)).returncode == 0

    def finish(self, home: Path, env: dict[str, str] | None = None) -> dict[str, object]:
        """What the fault left, and the same command again without it."""
        old = self.holds(self.before, home)
        code, seconds, said = self.install(self.spec, home, env)
        left = sorted(path.name for path in (home / "installs").iterdir())
        done = {"old environment whole": old, "rerun": code, "rerun seconds": seconds} | (
            {"rerun said": said} if code else {}
        )
        return done | {"new environment whole": self.holds(self.spec, home), "installs": len(left)}


def try_kills(real: RealInstall, kills: int, choose: random.Random) -> list[dict[str, object]]:
    """SIGKILL to gpuready alone, at times drawn over the length of the install before it."""
    home, rows = real.work / "killed", []
    for _ in range(kills):
        shutil.rmtree(home, ignore_errors=True)
        _, usual, _ = real.install(real.before, home)
        after = round(choose.uniform(0.05, 0.95) * usual, 1)
        process = real.start(real.spec, home)
        time.sleep(after)
        running = process.poll() is None
        process.send_signal(signal.SIGKILL)
        process.wait()
        rows.append({"fault": "SIGKILL", "after s": after, "of s": usual, "was running": running} | real.finish(home))
        print(json.dumps(rows[-1]), flush=True)
    shutil.rmtree(home, ignore_errors=True)
    return rows


def fill_disk(path: Path) -> None:
    """Take what is free on a disk into one file, all but a little; others may write there meanwhile."""
    with path.open("wb") as file, contextlib.suppress(OSError):
        at = 0
        while (free := shutil.disk_usage(path.parent).free) > SPARE:
            part = min(64 << 20, free - SPARE)
            os.posix_fallocate(file.fileno(), at, part)
            at += part


def try_full_disk(real: RealInstall, size: int) -> dict[str, object]:
    """Fill the disk of the environment up once the new generation has begun, all but a little."""
    disk = real.work / "disk"
    disk.mkdir(exist_ok=True)
    mounts.apart()
    mounts.sh("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", disk)
    try:
        home, filler = disk / "env", disk / "filler"
        real.install(real.before, home)
        process = real.start(real.spec, home)
        while len(list((home / "installs").iterdir())) < 2 and process.poll() is None:
            time.sleep(0.02)
        fill_disk(filler)
        process.wait(timeout=LIMIT_S)
        row = {"fault": "disk full", "left free": SPARE, "exit": process.returncode}
        filler.unlink()
        return row | real.finish(home)
    finally:
        mounts.sh("umount", "-l", disk)


class VanishingIndex(Index):
    """An index that is gone once it has served some bytes: connections break and later ones are refused."""

    def __init__(self, folder: Path, limit: int):
        super().__init__(folder)
        self.limit, self.served, self.known = limit, 0, {}

    def hash(self, path: Path) -> str:
        if path not in self.known:
            self.known[path] = super().hash(path)
        return self.known[path]

    def answer(self, request) -> None:
        if self.served > self.limit:
            with contextlib.suppress(OSError):
                request.connection.close()
            return
        parts = request.path.strip("/").split("/")
        if parts[0] == "files":
            self.served += (self.folder / parts[1] / parts[2].replace("%2B", "+")).stat().st_size
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            super().answer(request)


def try_vanished_index(real: RealInstall) -> dict[str, object]:
    """Serve the wheels of the lock to an empty cache, and stop after half of their bytes."""
    bundle, home = real.work / "index" / "main", real.work / "served"
    ran = run("plan", real.spec, "--wants", "cpu", "--allow-build", "--bundle", str(bundle))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    wheels = [path for path in bundle.iterdir() if path.suffix == ".whl"]
    total = sum(path.stat().st_size for path in wheels)
    shutil.rmtree(home, ignore_errors=True)
    real.install(real.before, home)
    index = VanishingIndex(bundle.parent, total // 2)
    env = {"UV_DEFAULT_INDEX": index.url(), "UV_CACHE_DIR": str(real.work / "cache"), "PIP_CONFIG_FILE": "/dev/null"}
    env |= {"PIP_FIND_LINKS": "", "UV_FIND_LINKS": ""}  # else a folder has what the index does not serve any more
    try:
        code, seconds, said = real.install(real.spec, home, env)
        row = {"fault": "index vanished", "after bytes": index.served, "of bytes": total, "exit": code}
        row |= {"seconds": seconds, "said": said}
        index.limit = 1 << 60
        return row | real.finish(home, env)
    finally:
        index.close()
        for folder in (home, real.work / "cache", bundle.parent):
            shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ask.add_argument("spec")
    ask.add_argument("--before", default="transformers")
    ask.add_argument("--kills", type=int, default=6)
    ask.add_argument("--faults", default="index,disk", help="those besides the kills")
    ask.add_argument("--size", default="4g", help="of the small disk")
    ask.add_argument("--work", type=Path, default=Path("build/real-faults"))
    ask.add_argument("-o", "--output")
    args = ask.parse_args()
    work = args.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    real = RealInstall(args.before, args.spec, work)
    rows = try_kills(real, args.kills, random.Random(20261117))
    attempts = {"index": lambda: try_vanished_index(real), "disk": lambda: try_full_disk(real, args.size)}
    for name, attempt in attempts.items():
        if name in args.faults.split(","):
            rows.append(attempt())
            print(json.dumps(rows[-1]), flush=True)
    if args.output:
        head = {"date": str(date.today()), "hardware": f"{os.cpu_count()} cores, {platform.machine()}, no GPU"}
        head |= {"command": f"python benchmarks/real_install_faults.py {args.spec} --kills {args.kills} -o FILE"}
        head |= {"before": args.before, "installed": args.spec}
        Path(args.output).write_text(json.dumps(head | {"results": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
