"""How long a plan takes, beside what it contains: the start of Python, and the bare ``uv pip compile``.

    python benchmarks/plan_speed.py [--repeat 7] [-o FILE]

Each row is run in turn, so that a busy moment falls on all. Warm: uv's cache, and gpuready's, hold what is asked.
``asked again`` is a plan whose answer gpuready has forgotten, so that it runs uv; ``warm`` has the answer in the cache.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PLAN = [sys.executable, "-m", "gpuready", "plan", "transformers", "--on", "h100x8", "-q"]


def question(folder: Path) -> list[str]:
    """The bare uv command that the plan contains."""
    sys.path[:0] = [str(ROOT / "src")]
    from gpuready import contracts
    from gpuready.apply import uv
    from gpuready.apply.resolution_request import make_resolution_request
    from gpuready.model.plan import Plan
    from gpuready.system import LiveHost

    ran = subprocess.run([*PLAN, "--no-resolve", "--json"], capture_output=True, text=True, env=env())
    plan = Plan.from_json(json.loads(ran.stdout))
    asked = make_resolution_request(plan, contracts.load_contract("transformers"))
    (folder / "pyproject.toml").write_text(asked.format_project())
    (folder / "overrides.txt").write_text(asked.format_overrides())
    words = [uv.find_uv(LiveHost()), "pip", "compile", "-q", str(folder / "pyproject.toml"), *asked.uv_flags()]
    return [*words, "--overrides", str(folder / "overrides.txt"), "--python", sys.executable]


def env() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT / "src"), "UV_PYTHON_DOWNLOADS": "never"}


def timed(argv: list[str]) -> float:
    begun = time.monotonic()
    ran = subprocess.run(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=env())
    if ran.returncode:
        raise SystemExit(f"{' '.join(argv)}: exit {ran.returncode}: {ran.stderr}")
    return time.monotonic() - begun


def forget() -> None:
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    shutil.rmtree(f"{home}/gpuready/answers", ignore_errors=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("-o", default="")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bare = question(Path(folder))
        kinds = {"python start": [sys.executable, "-c", "pass"], "choose": [*PLAN, "--no-resolve"], "uv": bare}
        times: dict[str, list[float]] = {name: [] for name in (*kinds, "asked again", "warm")}
        timed(bare)
        timed(PLAN)
        for _ in range(args.repeat):
            for name, argv in kinds.items():
                times[name].append(timed(argv))
            forget()
            times["asked again"].append(timed(PLAN))
            times["warm"].append(timed(PLAN))
    median = {name: round(statistics.median(one), 4) for name, one in times.items()}
    result = {
        "date": str(date.today()),
        "hardware": f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}",
        "python": platform.python_version(),
        "command": "python benchmarks/plan_speed.py --repeat " + str(args.repeat),
        "seconds": median,
        "spread": {name: [round(min(one), 4), round(max(one), 4)] for name, one in times.items()},
        "ratios": {
            "warm / uv": round(median["warm"] / median["uv"], 3),
            "asked again / uv": round(median["asked again"] / median["uv"], 3),
            "choose / python start": round(median["choose"] / median["python start"], 2),
        },
    }
    text = json.dumps(result, indent=1) + "\n"
    if args.o:
        Path(args.o).write_text(text)
    print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
